/* SPDX-License-Identifier: Apache-2.0
 * Arguments to values by a command's tables. Called once, before anything else runs. */
#include <string.h>

#include "args.h"
#include "cli.h"

static const arg_option *find_option(const command *cmd, const char *name, size_t length)
{
    for (const arg_option *o = cmd->options; o->name != NULL; o++) {
        if (o->type != ARG_HEADING && strlen(o->name) == length &&
            memcmp(o->name, name, length) == 0)
            return o;
    }
    return NULL;
}

static int unknown_option(const command *cmd, const char *arg, size_t length)
{
    enum { NAMES = 64 };
    const char *names[NAMES];
    int count = 0;
    char word[48];
    snprintf(word, sizeof word, "%.*s", (int)length, arg);
    for (const arg_option *o = cmd->options; o->name != NULL && count < NAMES - 2; o++) {
        if (o->type != ARG_HEADING)
            names[count++] = o->name;
    }
    names[count++] = "help";
    names[count] = NULL;
    const char *nearest = text_nearest(word, names);
    if (nearest != NULL)
        return fail_usage("unknown option --%s; did you mean --%s?", word, nearest);
    return fail_usage("unknown option --%s", word);
}

static int store_word(const arg_option *o, const char *text, void *at)
{
    for (int i = 0; o->words[i] != NULL; i++) {
        if (strcmp(o->words[i], text) == 0) {
            *(int *)at = i;
            return CLI_OK;
        }
    }
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; o->words[i] != NULL && used < sizeof list; i++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", o->words[i]);
    const char *nearest = text_nearest(text, o->words);
    if (nearest != NULL)
        return fail_usage("--%s does not know '%s'; did you mean %s? (%s)", o->name, text, nearest,
                          list);
    return fail_usage("--%s does not know '%s'; it takes one of %s", o->name, text, list);
}

static int store_int(const arg_option *o, const char *text, void *at)
{
    int64_t value = 0;
    if (!text_to_i64(text, &value))
        return fail_usage("--%s takes a whole number, not '%s'", o->name, text);
    if ((double)value < o->min || (double)value > o->max)
        return fail_usage("--%s is %s, but must be from %.0f to %.0f", o->name, text, o->min,
                          o->max);
    *(int64_t *)at = value;
    return CLI_OK;
}

static int store_real(const arg_option *o, const char *text, void *at)
{
    double value = 0;
    if (!text_to_real(text, &value))
        return fail_usage("--%s takes a number, not '%s'", o->name, text);
    if (value < o->min || value > o->max)
        return fail_usage("--%s is %s, but must be from %g to %g", o->name, text, o->min, o->max);
    *(double *)at = value;
    return CLI_OK;
}

static int store_bytes(const arg_option *o, const char *text, void *at)
{
    char least[TEXT_SHORT];
    uint64_t value = 0;
    if (o->words != NULL && strcmp(text, o->words[0]) == 0)
        value = UINT64_MAX;
    else if (!text_to_bytes(text, &value))
        return fail_usage("--%s takes a size such as 512M, 1.5GiB or 1000000%s%s, not '%s'",
                          o->name, o->words ? ", or " : "", o->words ? o->words[0] : "", text);
    if ((double)value < o->min)
        return fail_usage("--%s is %s, but must be at least %s", o->name, text,
                          text_bytes(least, (uint64_t)o->min));
    *(uint64_t *)at = value;
    return CLI_OK;
}

static int store_u64(const arg_option *o, const char *text, void *at)
{
    if (!text_to_u64(text, at))
        return fail_usage("--%s takes a whole number from 0 to 2^64-1, not '%s'", o->name, text);
    return CLI_OK;
}

static int store(const arg_option *o, const char *text, void *values)
{
    void *at = (char *)values + o->offset;
    switch (o->type) {
    case ARG_FLAG:
        *(bool *)at = true;
        return CLI_OK;
    case ARG_TEXT:
        *(const char **)at = text;
        return CLI_OK;
    case ARG_INT:
        return store_int(o, text, at);
    case ARG_U64:
        return store_u64(o, text, at);
    case ARG_REAL:
        return store_real(o, text, at);
    case ARG_BYTES:
        return store_bytes(o, text, at);
    case ARG_WORD:
        return store_word(o, text, at);
    case ARG_HEADING:
        break;
    }
    return CLI_USAGE;
}

/* The walk through the arguments. */
typedef struct walk {
    const command *cmd;
    int argc, at;
    char **argv;
    void *values;
    uint64_t given; /* bit per option */
    int operands;
    bool listed; /* an operand that may come again has come */
} walk;

static int take_option(walk *w, const char *arg)
{
    const size_t length = strcspn(arg, "=");
    const arg_option *o = find_option(w->cmd, arg, length);
    if (o == NULL)
        return unknown_option(w->cmd, arg, length);
    const char *text = arg[length] == '=' ? arg + length + 1 : NULL;
    if (o->type == ARG_FLAG && text != NULL)
        return fail_usage("--%s takes no value", o->name);
    if (o->type != ARG_FLAG && text == NULL) {
        if (w->at >= w->argc)
            return fail_usage("--%s needs a value (%s)", o->name, o->meta);
        text = w->argv[w->at++];
    }
    w->given |= (uint64_t)1 << (o - w->cmd->options);
    return store(o, text, w->values);
}

static int take_operand(walk *w, const char *arg)
{
    const arg_operand *operand = w->cmd->operands + w->operands;
    if (w->cmd->operands == NULL || operand->name == NULL)
        return fail_usage("unexpected argument '%s'", arg);
    if (arg[0] == '\0')
        return fail_usage("%s is empty", operand->name);
    void *at = (char *)w->values + operand->offset;
    if (operand->many) {
        arg_list *list = at;
        if (list->count == ARG_LIST_MOST)
            return fail_usage("more than %d of %s", (int)ARG_LIST_MOST, operand->name);
        list->at[list->count++] = arg;
        w->listed = true;
        return CLI_OK;
    }
    *(const char **)at = arg;
    w->operands++;
    return CLI_OK;
}

static int set_defaults(const command *cmd, void *values)
{
    for (const arg_option *o = cmd->options; o->name != NULL; o++) {
        if (o->type != ARG_HEADING && o->def != NULL && store(o, o->def, values) != CLI_OK)
            return CLI_USAGE;
    }
    return CLI_OK;
}

static int check_complete(const walk *w)
{
    const arg_operand *operand = w->cmd->operands;
    if (operand != NULL && operand[w->operands].name != NULL && !w->listed &&
        !operand[w->operands].optional)
        return fail_usage("%s is missing: %s", operand[w->operands].name,
                          operand[w->operands].help);
    for (const arg_option *o = w->cmd->options; o->name != NULL; o++) {
        if (o->required && !(w->given >> (o - w->cmd->options) & 1))
            return fail_usage("--%s %s is missing: %s", o->name, o->meta, o->help);
    }
    return CLI_OK;
}

int args_parse(const command *cmd, int argc, char **argv, void *values)
{
    walk w = {.cmd = cmd, .argc = argc, .argv = argv, .values = values};
    bool only_operands = false;
    int exit_code = set_defaults(cmd, values);
    while (exit_code == CLI_OK && w.at < argc) {
        const char *arg = argv[w.at++];
        if (only_operands || arg[0] != '-' || arg[1] == '\0') {
            exit_code = take_operand(&w, arg);
        } else if (strcmp(arg, "--") == 0) {
            only_operands = true;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            help_command(cmd);
            return ARGS_DONE;
        } else if (arg[1] == '-') {
            exit_code = take_option(&w, arg + 2);
        } else if (strcmp(arg, "-o") == 0 && find_option(cmd, "out", 3) != NULL) {
            exit_code = take_option(&w, "out");
        } else {
            exit_code = fail_usage("unknown option %s; options are written --name value", arg);
        }
    }
    return exit_code == CLI_OK ? check_complete(&w) : exit_code;
}
