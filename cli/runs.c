/* SPDX-License-Identifier: Apache-2.0
 * Reading runs. What kind of file it is shows from what it holds; a file that is none of them is
 * refused, and so is one with a figure that no run can have. */
#include "runs.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "outfile.h"

const char *const run_forms[RUN_FORMS] = {"source",    "encoded", "decoded",
                                          "augmented", "disk",    "remote"};

/* ---- pieces --------------------------------------------------------------------------------- */

/* NaN where it is missing, no number, or less than nothing. */
static double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    return number >= 0 && isfinite(number) ? number : NAN;
}

static char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? cli_strdup(text) : NULL;
}

static figure one(double value)
{
    return (figure){value, NAN, NAN};
}

/* {"median", "min", "max"}, or low and high; by: to the units of runs. */
static figure spread_of(const json_t *object, const char *name, double by)
{
    const json_t *of = json_object_get(object, name);
    const double low = number_of(of, "min"), high = number_of(of, "max");
    return (figure){by * number_of(of, "median"), by * (isnan(low) ? number_of(of, "low") : low),
                    by * (isnan(high) ? number_of(of, "high") : high)};
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* NULL: there are too many. */
static run *add_run(runs *all, const char *path, const char *name)
{
    if (all->count == RUNS_MOST)
        return NULL;
    run *r = &all->at[all->count++];
    *r = (run){.name = cli_strdup(name),
               .file = cli_strdup(base_of(path)),
               .path = cli_strdup(path),
               .rate = one(NAN),
               .cpu_s = one(NAN),
               .busy = one(NAN),
               .of_synthetic = one(NAN),
               .stall = NAN,
               .wait_p50_s = NAN,
               .wait_p99_s = NAN,
               .samples = NAN,
               .workers = NAN,
               .batch = NAN};
    for (int i = 0; i < RUN_FORMS; i++)
        r->from[i] = NAN;
    return r;
}

static void take_stages(run *r, const json_t *from, double samples)
{
    const json_t *stages = json_object_get(from, "stages");
    for (size_t i = 0; i < json_array_size(stages) && r->stages < RUN_STAGES; i++) {
        const json_t *stage = json_array_get(stages, i);
        const double seconds = number_of(stage, "seconds");
        char *name = text_of(stage, "name");
        if (name == NULL || isnan(seconds) || !(samples > 0))
            free(name);
        else
            r->stage[r->stages++] = (run_stage){name, seconds / samples};
    }
}

static void take_verdict(run *r, const json_t *from)
{
    const json_t *verdict = json_object_get(from, "verdict");
    r->verdict = json_is_object(verdict) ? text_of(verdict, "text") : text_of(from, "verdict");
}

/* ---- kinds of files ------------------------------------------------------------------------- */

/* Of all samples that were prepared or found. */
static void take_forms(run *r, const json_t *from)
{
    static const char *const keys[RUN_FORMS] = {
        NULL, "encoded_hits", "decoded_hits", "augmented_hits", "disk_hits", "remote_hits"};
    double found = 0;
    for (int i = 1; i < RUN_FORMS; i++) {
        const double hits = number_of(from, keys[i]);
        if (isnan(hits) || !(r->samples > 0))
            return;
        found += hits;
    }
    const double all = found > r->samples ? found : r->samples;
    for (int i = 1; i < RUN_FORMS; i++)
        r->from[i] = number_of(from, keys[i]) / all;
    r->from[0] = (all - found) / all;
}

static bool read_feed(runs *all, const char *path, const json_t *root)
{
    run *r = add_run(all, path, base_of(path));
    const json_t *settings = json_object_get(root, "settings");
    if (r == NULL)
        return false;
    r->samples = number_of(root, "samples");
    r->rate = one(number_of(root, "samples_per_s"));
    r->cpu_s = one(number_of(root, "cpu_s") / r->samples);
    r->stall = number_of(root, "stall_share");
    r->wait_p50_s = 1e-6 * number_of(root, "wait_p50_us");
    r->wait_p99_s = 1e-6 * number_of(root, "wait_p99_us");
    r->pipeline = text_of(settings, "pipeline");
    r->workers = number_of(settings, "workers");
    r->batch = number_of(settings, "batch");
    take_stages(r, root, r->samples);
    take_forms(r, root);
    take_verdict(r, root);
    return true;
}

/* Its stages have no count of samples beside them but their runs: finish has one for each. */
static double finished(const json_t *row)
{
    const json_t *stages = json_object_get(row, "stages");
    double most = 0;
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const double times = number_of(json_array_get(stages, i), "runs");
        most = times > most ? times : most;
    }
    return most;
}

static bool read_bench(runs *all, const char *path, const json_t *root)
{
    const json_t *rows = json_object_get(root, "results");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double workers = number_of(row, "workers");
        char *name =
            cli_format("%s, %.0f worker%s", base_of(path), workers, workers == 1 ? "" : "s");
        run *r = add_run(all, path, name);
        free(name);
        if (r == NULL)
            return false;
        r->rate = one(number_of(row, "samples_per_s"));
        r->cpu_s = one(number_of(row, "cpu_s_per_sample"));
        r->workers = workers;
        r->batch = number_of(root, "batch");
        r->pipeline = text_of(root, "pipeline");
        take_stages(r, row, finished(row));
        take_verdict(r, row);
    }
    return true;
}

/* bench/run.py ("table"), bench/peers.py and bench/train.py ("rows"). */
static bool read_table(runs *all, const char *path, const json_t *root)
{
    const bool peers = json_object_get(root, "table") == NULL;
    json_t *table = json_object_get(root, peers ? "rows" : "table"), *row;
    const char *key;
    json_object_foreach(table, key, row)
    {
        char *what = text_of(row, "what");
        run *r = add_run(all, path, what != NULL ? what : key);
        free(what);
        if (r == NULL)
            return false;
        r->rate = peers ? spread_of(row, "rate", 1) : spread_of(row, "samples_per_s", 1);
        r->cpu_s = spread_of(row, peers ? "cpu_per_1000" : "cpu_ms_per_sample", 1e-3);
        r->busy = spread_of(row, "busy", 1);
        r->of_synthetic = spread_of(row, "of_synthetic", 1);
        r->batch = number_of(root, "batch");
        r->pipeline = text_of(root, "pipeline");
    }
    return true;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Of several lines the last, as feed and bench print them. */
static json_t *parse(const char *bytes, size_t size, json_error_t *why)
{
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, why);
    size_t end = size;
    while (end > 0 && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r'))
        end--;
    size_t begin = end;
    while (begin > 0 && bytes[begin - 1] != '\n')
        begin--;
    json_error_t again;
    return root != NULL || begin == 0 ? root : json_loadb(bytes + begin, end - begin, 0, &again);
}

static int add_all(runs *all, const char *path, const json_t *root)
{
    const int before = all->count;
    bool room;
    if (json_is_array(json_object_get(root, "results")))
        room = read_bench(all, path, root);
    else if (json_is_object(json_object_get(root, "table")) ||
             json_is_object(json_object_get(root, "rows")))
        room = read_table(all, path, root);
    else if (json_is_number(json_object_get(root, "samples_per_s")))
        room = read_feed(all, path, root);
    else
        return fail("%s holds no run: it is for what penstock feed --json, penstock bench --json "
                    "and bench/run.py write",
                    path);
    if (!room)
        return fail("these are more than %d runs", (int)RUNS_MOST);
    for (int i = before; i < all->count; i++)
        if (isnan(all->at[i].rate.value))
            return fail("%s: the run '%s' has no rate", path, all->at[i].name);
    return all->count > before ? CLI_OK : fail("%s holds no run", path);
}

int runs_take(runs *all, const char *path, const char *bytes, size_t size)
{
    json_error_t why;
    json_t *root = parse(bytes, size, &why);
    const int exit_code = root == NULL
                              ? fail("%s is not JSON: line %d: %s", path, why.line, why.text)
                              : add_all(all, path, root);
    json_decref(root);
    return exit_code;
}

int runs_read(runs *all, const char *path)
{
    void *bytes = NULL;
    size_t size = 0;
    int exit_code = infile_read(path, &bytes, &size);
    if (exit_code == CLI_OK)
        exit_code = runs_take(all, path, bytes, size);
    free(bytes);
    return exit_code;
}

static bool is_shared(const runs *all, int of)
{
    for (int i = 0; i < all->count; i++)
        if (i != of && strcmp(all->at[i].name, all->at[of].name) == 0)
            return true;
    return false;
}

void runs_tell_apart(runs *all)
{
    bool shared[RUNS_MOST];
    for (int i = 0; i < all->count; i++)
        shared[i] = is_shared(all, i);
    for (int i = 0; i < all->count; i++) {
        run *r = &all->at[i];
        if (!shared[i])
            continue;
        char *name = cli_format("%s (%s)", r->name, r->path);
        free(r->name);
        r->name = name;
    }
}

void runs_fini(runs *all)
{
    for (int i = 0; i < all->count; i++) {
        run *r = &all->at[i];
        for (int k = 0; k < r->stages; k++)
            free(r->stage[k].name);
        free(r->name);
        free(r->file);
        free(r->path);
        free(r->pipeline);
        free(r->verdict);
    }
    all->count = 0;
}
