/* SPDX-License-Identifier: Apache-2.0
 * One parameter of a psti_param table: reading it from the tree with its bounds, its default,
 * comparing, printing and describing it. Called by bind.c, canon.c and api.c; any thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

/* Integers beyond this cannot be told apart in a double. */
#define WHOLE_MAX 9007199254740992.0

static void *slot(const psti_param *param, void *params)
{
    return (char *)params + param->offset;
}

static const void *slot_const(const psti_param *param, const void *params)
{
    return (const char *)params + param->offset;
}

static bool bounded(const psti_param *param)
{
    return param->min < param->max && (isfinite(param->min) || isfinite(param->max));
}

static void number_range(const psti_param *param, char *buf, size_t cap)
{
    char low[PSTI_NUMBER_BYTES] = "", high[PSTI_NUMBER_BYTES] = "";
    if (!bounded(param)) {
        snprintf(buf, cap, "any");
        return;
    }
    if (isfinite(param->min))
        psti_number_print(param->min, low);
    if (isfinite(param->max))
        psti_number_print(param->max, high);
    snprintf(buf, cap, "%s..%s", low, high);
}

static void word_range(const psti_param *param, char *buf, size_t cap)
{
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; param->words[i] && used < cap; i++)
        used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? "|" : "", param->words[i]);
}

static void list_range(const psti_param *param, char *buf, size_t cap)
{
    char range[80], words[80] = "";
    number_range(param, range, sizeof range);
    if (param->words)
        word_range(param, words, sizeof words);
    if (param->min_count == param->max_count)
        snprintf(buf, cap, "%d of %s", param->max_count, range);
    else
        snprintf(buf, cap, "%d to %d of %s%s%s", param->min_count, param->max_count, range,
                 param->words ? "|" : "", words);
}

void psti_param_range(const psti_param *param, char *buf, size_t cap)
{
    switch (param->type) {
    case PSTI_P_BOOL:
        snprintf(buf, cap, "true|false");
        break;
    case PSTI_P_WORD:
        word_range(param, buf, cap);
        break;
    case PSTI_P_NAME:
        snprintf(buf, cap, "1 to %d bytes", PST_NAME_BYTES - 1);
        break;
    case PSTI_P_LIST:
        list_range(param, buf, cap);
        break;
    default:
        number_range(param, buf, cap);
    }
}

const char *psti_param_type_name(const psti_param *param)
{
    switch (param->type) {
    case PSTI_P_INT:
        return "int";
    case PSTI_P_FLOAT:
        return "float";
    case PSTI_P_BOOL:
        return "bool";
    case PSTI_P_WORD:
        return "word";
    case PSTI_P_NAME:
        return "name";
    default:
        return param->whole ? "ints" : "floats";
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Where a value comes from and where it goes. */
typedef struct reading {
    const psti_param *param;
    const char *op;
    const psti_tree *tree;
    pst_error *err;
} reading;

/* "op: name wants <type> (<range>), found ..." at the value. */
static int fail_value(const reading *r, const psti_node *node, const char *why)
{
    char range[200];
    psti_param_range(r->param, range, sizeof range);
    return psti_fail_at(r->err, PST_EPIPELINE, "pipeline", NULL, node->offset,
                        "%s: %s takes %s, %s; \"%.*s\" %s", r->op, r->param->name,
                        psti_param_type_name(r->param), range, node->len > 40 ? 40 : (int)node->len,
                        r->tree->text + node->offset, why);
}

static int read_number(const reading *r, const psti_node *node, bool whole, double *out)
{
    if (node->type != PSTI_N_NUMBER)
        return fail_value(r, node, "is no number");
    if (whole && (fabs(node->number) > WHOLE_MAX || node->number != floor(node->number)))
        return fail_value(r, node, "is no integer");
    if (bounded(r->param) && (node->number < r->param->min || node->number > r->param->max))
        return fail_value(r, node, "is out of range");
    *out = node->number;
    return 0;
}

static bool node_is(const reading *r, const psti_node *node, const char *word)
{
    return strlen(word) == node->len && memcmp(r->tree->text + node->offset, word, node->len) == 0;
}

static int read_bool(const reading *r, const psti_node *node, bool *out)
{
    const bool word = node->type == PSTI_N_WORD;
    if (!word || !(node_is(r, node, "true") || node_is(r, node, "false")))
        return fail_value(r, node, "is neither");
    *out = node_is(r, node, "true");
    return 0;
}

static const char *word_at(int i, const void *user)
{
    const char *const *words = user;
    return words[i];
}

static int read_word(const reading *r, const psti_node *node, int *out)
{
    if (node->type != PSTI_N_WORD && node->type != PSTI_N_STRING)
        return fail_value(r, node, "is no word");
    for (int i = 0; r->param->words[i]; i++)
        if (node_is(r, node, r->param->words[i])) {
            *out = i;
            return 0;
        }
    char hint[300];
    psti_suggest(hint, sizeof hint, r->tree->text + node->offset, node->len, word_at,
                 r->param->words);
    char range[200];
    word_range(r->param, range, sizeof range);
    return psti_fail_at(r->err, PST_EPIPELINE, "pipeline", NULL, node->offset,
                        "%s: %s takes %s, not \"%.*s\"%s", r->op, r->param->name, range,
                        node->len > 40 ? 40 : (int)node->len, r->tree->text + node->offset,
                        hint[0] == ':' ? hint : "");
}

static int read_name(const reading *r, const psti_node *node, char out[PST_NAME_BYTES])
{
    if (node->type != PSTI_N_WORD && node->type != PSTI_N_STRING)
        return fail_value(r, node, "is no name");
    if (node->len < 1 || node->len >= PST_NAME_BYTES)
        return fail_value(r, node, node->len ? "is too long" : "is empty");
    memset(out, 0, PST_NAME_BYTES);
    memcpy(out, r->tree->text + node->offset, node->len);
    return 0;
}

static int fail_count(const reading *r, const psti_node *list, int count)
{
    char range[200];
    psti_param_range(r->param, range, sizeof range);
    return psti_fail_at(
        r->err, PST_EPIPELINE, "pipeline", NULL, list->offset, "%s: %s takes %s, %s; %s%d given",
        r->op, r->param->name, psti_param_type_name(r->param), range,
        count > PSTI_LIST_MAX ? "more than " : "", count > PSTI_LIST_MAX ? PSTI_LIST_MAX : count);
}

static int read_list(const reading *r, const psti_node *node, psti_list *out)
{
    *out = (psti_list){0};
    if (r->param->words && (node->type == PSTI_N_WORD || node->type == PSTI_N_STRING)) {
        const int rc = read_word(r, node, &out->word);
        out->word++;
        return rc;
    }
    if (node->type != PSTI_N_LIST) {
        out->count = 1;
        const int rc = read_number(r, node, r->param->whole, &out->v[0]);
        return rc == 0 && r->param->min_count > 1 ? fail_count(r, node, 1) : rc;
    }
    int count = 0;
    for (int at = node->child; at; at = r->tree->nodes[at].next, count++) {
        double value = 0;
        if (count == PSTI_LIST_MAX)
            return fail_count(r, node, count + 1);
        const int rc = read_number(r, &r->tree->nodes[at], r->param->whole, &value);
        if (rc < 0)
            return rc;
        out->v[count] = value;
    }
    out->count = count;
    return count < r->param->min_count || count > r->param->max_count ? fail_count(r, node, count)
                                                                      : 0;
}

int psti_param_store(const psti_param *param, const char *op, const psti_tree *tree, int node,
                     void *params, pst_error *err)
{
    const reading r = {param, op, tree, err};
    const psti_node *value = &tree->nodes[node];
    double number = 0;
    int rc = 0;
    switch (param->type) {
    case PSTI_P_INT:
        rc = read_number(&r, value, true, &number);
        *(int64_t *)slot(param, params) = (int64_t)number;
        break;
    case PSTI_P_FLOAT:
        rc = read_number(&r, value, false, &number);
        *(double *)slot(param, params) = number;
        break;
    case PSTI_P_BOOL:
        rc = read_bool(&r, value, slot(param, params));
        break;
    case PSTI_P_WORD:
        rc = read_word(&r, value, slot(param, params));
        break;
    case PSTI_P_LIST:
        rc = read_list(&r, value, slot(param, params));
        break;
    case PSTI_P_NAME:
        rc = read_name(&r, value, slot(param, params));
        break;
    }
    return rc;
}

int psti_param_default(const psti_param *param, const char *op, void *params, pst_error *err)
{
    /* An empty list has no spelling in the grammar: tables write it as "" or "()". */
    if (param->type == PSTI_P_LIST && (param->def[0] == 0 || strcmp(param->def, "()") == 0)) {
        *(psti_list *)slot(param, params) = (psti_list){0};
        return 0;
    }
    psti_tree tree;
    int rc = psti_tree_parse_value(&tree, param->def, err);
    if (rc == 0)
        rc = psti_param_store(param, op, &tree, tree.nodes[0].child, params, err);
    psti_tree_fini(&tree);
    return rc;
}

/* ---- comparing and printing ------------------------------------------------------------------ */

static bool lists_equal(const psti_list *a, const psti_list *b)
{
    bool equal = a->count == b->count && a->word == b->word;
    for (int i = 0; equal && i < a->count; i++)
        equal = a->v[i] == b->v[i];
    return equal;
}

bool psti_param_equal(const psti_param *param, const void *a, const void *b)
{
    const void *x = slot_const(param, a), *y = slot_const(param, b);
    switch (param->type) {
    case PSTI_P_INT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case PSTI_P_FLOAT:
        return *(const double *)x == *(const double *)y;
    case PSTI_P_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case PSTI_P_WORD:
        return *(const int *)x == *(const int *)y;
    case PSTI_P_NAME:
        return strcmp(x, y) == 0;
    default:
        return lists_equal(x, y);
    }
}

static void print_number(double value, psti_text *out)
{
    char digits[PSTI_NUMBER_BYTES];
    psti_number_print(value, digits);
    psti_text_puts(out, digits);
}

static void print_list(const psti_list *list, psti_text *out)
{
    if (list->count != 1)
        psti_text_puts(out, "(");
    for (int i = 0; i < list->count; i++) {
        if (i)
            psti_text_puts(out, ", ");
        print_number(list->v[i], out);
    }
    if (list->count != 1)
        psti_text_puts(out, ")");
}

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Whether the grammar takes it as a word; what is none is written as a string. */
static bool is_word(const char *name)
{
    if (!letter(*name))
        return false;
    while (letter(*name) || (*name >= '0' && *name <= '9') || *name == '-' || *name == '.')
        name++;
    return *name == 0;
}

static void print_name(const char *name, psti_text *out)
{
    const char *mark = is_word(name) ? "" : "\"";
    psti_text_puts(out, mark);
    psti_text_puts(out, name);
    psti_text_puts(out, mark);
}

void psti_param_print(const psti_param *param, const void *params, psti_text *out)
{
    const void *value = slot_const(param, params);
    switch (param->type) {
    case PSTI_P_INT:
        print_number((double)*(const int64_t *)value, out);
        break;
    case PSTI_P_FLOAT:
        print_number(*(const double *)value, out);
        break;
    case PSTI_P_BOOL:
        psti_text_puts(out, *(const bool *)value ? "true" : "false");
        break;
    case PSTI_P_WORD:
        psti_text_puts(out, param->words[*(const int *)value]);
        break;
    case PSTI_P_LIST:
        if (((const psti_list *)value)->word)
            psti_text_puts(out, param->words[((const psti_list *)value)->word - 1]);
        else
            print_list(value, out);
        break;
    case PSTI_P_NAME:
        print_name(value, out);
        break;
    }
}
