/* SPDX-License-Identifier: Apache-2.0
 * Option texts of `feed` to job options. Main thread, before the job is opened. Lists are one entry
 * a line: a number is an id, anything else a key (written as in the ledger); '#' starts a comment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "cli.h"
#include "open.h"
#include "outfile.h"

static const char *const sampler_words[] = {"shuffle",       "sequential", "subset", "weighted",
                                            "weighted-once", "given",      "repeat", NULL};

/* ---- lines of a list file ------------------------------------------------------------------- */

/* The next line that is not blank or a comment, terminated in place; NULL at the end. */
static char *next_line(char **at, int64_t *number)
{
    while (**at != '\0') {
        char *line = *at;
        const size_t length = strcspn(line, "\n");
        *at += length + (line[length] == '\n');
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r')
            line[length - 1] = '\0';
        ++*number;
        if (line[0] != '\0' && line[0] != '#')
            return line;
    }
    return NULL;
}

/* Undoes the ledger's escapes in place. */
static void unescape(char *text)
{
    char *out = text;
    for (; *text != '\0'; text++) {
        if (*text == '\\' && text[1] != '\0') {
            text++;
            *out++ = (char)(*text == 't'   ? '\t'
                            : *text == 'n' ? '\n'
                            : *text == 'r' ? '\r'
                                           : *text);
        } else {
            *out++ = *text;
        }
    }
    *out = '\0';
}

/* ---- keys to ids ---------------------------------------------------------------------------- */

typedef struct named {
    const char *key;
    int64_t id;
} named;

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const named *)a)->key, ((const named *)b)->key);
}

/* Made when the first key is looked up. */
typedef struct key_table {
    const pst_dataset *data;
    named *entries;
    int64_t count;
} key_table;

static void fill_keys(key_table *table)
{
    table->count = pst_dataset_count(table->data);
    table->entries = cli_alloc((size_t)table->count * sizeof *table->entries);
    for (int64_t id = 0; id < table->count; id++) {
        pst_sample_info info = {0};
        pst_dataset_sample(table->data, id, &info);
        table->entries[id] = (named){.key = info.key ? info.key : "", .id = id};
    }
    qsort(table->entries, (size_t)table->count, sizeof *table->entries, compare_named);
}

static bool find_id(key_table *table, char *text, int64_t *id)
{
    if (text_to_i64(text, id))
        return *id >= 0 && *id < pst_dataset_count(table->data);
    if (table->entries == NULL)
        fill_keys(table);
    unescape(text);
    const named wanted = {.key = text};
    const named *found =
        bsearch(&wanted, table->entries, (size_t)table->count, sizeof wanted, compare_named);
    if (found != NULL)
        *id = found->id;
    return found != NULL;
}

/* ---- ids and weights ------------------------------------------------------------------------ */

typedef struct id_list {
    int64_t *ids;
    int64_t count, capacity;
} id_list;

static void add_id(id_list *list, int64_t id)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 1024;
        list->ids = cli_realloc(list->ids, (size_t)list->capacity, sizeof *list->ids);
    }
    list->ids[list->count++] = id;
}

/* "3,17,4" itself when it is no file, else the lines of the file. */
static int read_ids(const char *where, const pst_dataset *data, id_list *list)
{
    char *text = NULL, *at = NULL;
    size_t size = 0;
    int64_t line_number = 0, id = 0;
    int exit_code = CLI_OK;
    if (where[0] != '\0' && strspn(where, "0123456789,") == strlen(where)) {
        text = cli_strdup(where);
        for (char *c = text; *c != '\0'; c++)
            *c = (char)(*c == ',' ? '\n' : *c);
    } else {
        exit_code = infile_read(where, (void **)&text, &size);
    }
    key_table table = {.data = data};
    at = text;
    while (exit_code == CLI_OK) {
        char *line = next_line(&at, &line_number);
        if (line == NULL)
            break;
        if (find_id(&table, line, &id))
            add_id(list, id);
        else
            exit_code =
                fail("%s, entry %lld: '%s' is neither an id below %lld nor a key of the dataset",
                     where, (long long)line_number, line, (long long)pst_dataset_count(data));
    }
    if (exit_code == CLI_OK && list->count == 0)
        exit_code = fail("%s names no sample; it should hold one id or key a line", where);
    free(table.entries);
    free(text);
    return exit_code;
}

/* One over the size of the sample's class, so that every class is drawn equally often. */
static int balance_weights(const pst_dataset *data, double *weights, int64_t count)
{
    const int64_t classes = label_count(data);
    if (classes < 1)
        return fail("weighted:balanced needs class labels, and this dataset has none; give a "
                    "weights file instead");
    int64_t *sizes = cli_alloc((size_t)classes * sizeof *sizes);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t id = 0; id < count; id++) {
            pst_sample_info info = {.label = -1};
            pst_dataset_sample(data, id, &info);
            const bool labelled = info.label >= 0 && info.label < classes;
            if (pass == 0 && labelled)
                sizes[info.label]++;
            else if (pass == 1)
                weights[id] = labelled ? 1.0 / (double)sizes[info.label] : 0;
        }
    }
    free(sizes);
    return CLI_OK;
}

static int read_weights(const char *path, double *weights, int64_t count)
{
    char *text = NULL;
    size_t size = 0;
    int64_t line_number = 0, got = 0;
    int exit_code = infile_read(path, (void **)&text, &size);
    char *at = text;
    while (exit_code == CLI_OK) {
        char *line = next_line(&at, &line_number);
        if (line == NULL)
            break;
        double value = 0;
        if (!text_to_real(line, &value) || value < 0)
            exit_code = fail("%s, line %lld: '%s' is no weight; it should be a number, 0 or more",
                             path, (long long)line_number, line);
        else if (got < count)
            weights[got] = value;
        got++;
    }
    if (exit_code == CLI_OK && got != count)
        exit_code = fail(
            "%s has %lld weights, but the dataset has %lld samples; give one a line, in id order",
            path, (long long)got, (long long)count);
    free(text);
    return exit_code;
}

static int take_weights(const char *where, const pst_dataset *data, pst_job_options *opts,
                        choice *out)
{
    const int64_t count = pst_dataset_count(data);
    if (out->weights != NULL)
        return fail_usage("--sampler asks for weights twice");
    out->weights = cli_alloc((size_t)count * sizeof *out->weights);
    opts->weights = out->weights;
    opts->weights_count = count;
    if (strcmp(where, "balanced") == 0)
        return balance_weights(data, out->weights, count);
    return read_weights(where, out->weights, count);
}

static int take_ids(const char *where, const pst_dataset *data, pst_job_options *opts, choice *out)
{
    if (out->ids != NULL)
        return fail_usage("--sampler asks for ids twice");
    id_list list = {0};
    const int exit_code = read_ids(where, data, &list);
    out->ids = list.ids;
    opts->ids = list.ids;
    opts->ids_count = list.count;
    return exit_code;
}

/* ---- the sampler's text --------------------------------------------------------------------- */

/* "FILE,draws=N": cuts the tail off and stores N. */
static int take_draws(char *argument, pst_job_options *opts)
{
    char *tail = strstr(argument, ",draws=");
    if (tail == NULL)
        return CLI_OK;
    *tail = '\0';
    if (!text_to_i64(tail + 7, &opts->draws) || opts->draws < 1)
        return fail_usage("--sampler: draws=%s should be a whole number, 1 or more", tail + 7);
    return CLI_OK;
}

static int take_count(const char *term, const char *argument, int most, int *out)
{
    int64_t count = 0;
    if (!text_to_i64(argument, &count) || count < 1 || count > most)
        return fail_usage("--sampler: %s:%s should be a number from 1 to %d", term, argument, most);
    *out = (int)count;
    return CLI_OK;
}

static int unknown_sampler(const char *word)
{
    const char *nearest = text_nearest(word, sampler_words);
    return fail_usage("--sampler does not know '%s'%s%s%s it takes shuffle, shuffle:K, sequential, "
                      "subset:FILE, weighted:FILE, "
                      "weighted-once:FILE, given:FILE and repeat:K, joined by +",
                      word, nearest ? "; did you mean " : ";", nearest ? nearest : "",
                      nearest ? "?" : "");
}

static int take_term(char *term, const pst_dataset *data, pst_job_options *opts, choice *out)
{
    char *argument = strchr(term, ':');
    if (argument != NULL)
        *argument++ = '\0';
    if (strcmp(term, "shuffle") == 0) {
        opts->sampler = PST_SHUFFLE;
        return argument == NULL ? CLI_OK : take_count(term, argument, 65536, &opts->run);
    }
    if (strcmp(term, "sequential") == 0) {
        if (argument != NULL)
            return fail_usage("--sampler: sequential takes nothing after it");
        opts->sampler = PST_SEQUENTIAL;
        return CLI_OK;
    }
    bool known = false;
    for (const char *const *word = sampler_words; *word != NULL; word++)
        known = known || strcmp(*word, term) == 0;
    if (!known)
        return unknown_sampler(term);
    if (argument == NULL || argument[0] == '\0')
        return fail_usage("--sampler: %s needs a value, as in %s:%s", term, term,
                          strcmp(term, "repeat") ? "FILE" : "2");
    if (strcmp(term, "repeat") == 0)
        return take_count(term, argument, 1024, &opts->repeat);
    if (strncmp(term, "weighted", 8) == 0) {
        opts->sampler = strcmp(term, "weighted") == 0 ? PST_WEIGHTED : PST_WEIGHTED_ONCE;
        const int exit_code = take_draws(argument, opts);
        return exit_code == CLI_OK ? take_weights(argument, data, opts, out) : exit_code;
    }
    if (strcmp(term, "given") == 0)
        opts->sampler = PST_GIVEN;
    return take_ids(argument, data, opts, out);
}

int choose_sampler(const char *text, const pst_dataset *data, pst_job_options *opts, choice *out)
{
    if (text == NULL)
        return CLI_OK;
    char *copy = cli_strdup(text), *rest = copy, *term = NULL;
    int exit_code = CLI_OK;
    while (exit_code == CLI_OK && (term = strsep(&rest, "+")) != NULL)
        exit_code = take_term(term, data, opts, out);
    free(copy);
    return exit_code;
}

/* ---- rank and error policy ------------------------------------------------------------------ */

int choose_rank(const char *text, pst_job_options *opts)
{
    int rank = 0, world = 0, length = 0;
    if (text == NULL)
        return CLI_OK;
    if (sscanf(text, "%d/%d%n", &rank, &world, &length) != 2 || text[length] != '\0')
        return fail_usage("--rank takes R/W, as in 0/4, not '%s'", text);
    if (world < 1 || world > 65536 || rank < 0 || rank >= world)
        return fail_usage("--rank %s: the rank must be from 0 to one less than the number of ranks "
                          "(at most 65536)",
                          text);
    opts->rank = rank;
    opts->world = world;
    return CLI_OK;
}

int choose_forms(const char *text, double forms[3])
{
    double share[3];
    int length = 0;
    if (text == NULL)
        return CLI_OK;
    if (sscanf(text, "%lf:%lf:%lf%n", &share[0], &share[1], &share[2], &length) != 3 ||
        text[length] != '\0')
        return fail_usage("--forms takes three percentages, encoded:decoded:augmented, as in "
                          "0:60:40, not '%s'",
                          text);
    for (int i = 0; i < 3; i++) {
        if (!(share[i] >= 0 && share[i] <= 100))
            return fail_usage("--forms %s: percentages are from 0 to 100", text);
        forms[i] = share[i] / 100;
    }
    if (share[0] + share[1] + share[2] <= 0)
        return fail_usage("--forms %s leaves the cache empty; --cache 0 turns it off", text);
    return CLI_OK;
}

int choose_without(const char *text, pst_job_options *opts)
{
    static const char *const parts[] = {"lanes", "prediction", "early", "past", "tuner"};
    enum { PARTS = sizeof parts / sizeof *parts };
    for (const char *at = text; at != NULL;) {
        const size_t length = strcspn(at, ",");
        int part = 0;
        while (part < PARTS &&
               (strlen(parts[part]) != length || strncmp(parts[part], at, length) != 0))
            part++;
        if (part == PARTS)
            return fail_usage("--without takes lanes, prediction, early, past and tuner, joined by "
                              "commas, not '%s'",
                              text);
        opts->without |= 1 << part; /* as pst_without */
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return CLI_OK;
}

static int take_policy(const char *term, pst_job_options *opts)
{
    int64_t count = 0;
    if (strcmp(term, "raise") == 0) {
        opts->on_error = PST_RAISE;
        return CLI_OK;
    }
    const bool skip = strncmp(term, "skip:", 5) == 0, retry = strncmp(term, "retry:", 6) == 0;
    if ((!skip && !retry) || !text_to_i64(strchr(term, ':') + 1, &count) || count < 0)
        return fail_usage("--on-error takes raise, skip:N, retry:N or skip:N,retry:M, not '%s'",
                          term);
    if (retry && count > 16)
        return fail_usage("--on-error retry:%lld: at most 16 tries", (long long)count);
    if (retry) {
        opts->read_retries = (int)count;
    } else {
        opts->on_error = PST_SKIP;
        opts->skip_limit = count;
    }
    return CLI_OK;
}

int choose_on_error(const char *text, pst_job_options *opts)
{
    char *copy = cli_strdup(text ? text : "raise"), *rest = copy, *term = NULL;
    int exit_code = CLI_OK;
    while (exit_code == CLI_OK && (term = strsep(&rest, ",")) != NULL)
        exit_code = take_policy(term, opts);
    free(copy);
    return exit_code;
}

void choice_fini(choice *c)
{
    free(c->ids);
    free(c->weights);
    *c = (choice){0};
}
