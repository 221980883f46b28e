/* SPDX-License-Identifier: Apache-2.0
 * What the model predicts for given splits of a cache; for bench/model_check.py.
 *
 *   plan_at DATA CACHE_BYTES JOBS CORES SECONDS PIPELINE E:D:A…
 *
 * Prints one line of JSON: what was measured, the best split, and samples a second for each split
 * that was asked for. The source's speed is given as so fast that it never limits: the bench runs
 * from the page cache. */
#include <stdio.h>
#include <stdlib.h>

#include "penstock.h"

static void fail(const char *what)
{
    fprintf(stderr, "plan_at: %s\n", what);
    exit(1);
}

static void tell(const char *name, const pst_plan_point *p)
{
    printf("%s{\"share\": [%.3f, %.3f, %.3f], \"samples_s\": %.2f, \"preparations\": %.4f}", name,
           p->share[0], p->share[1], p->share[2], p->samples_s, p->preparations);
}

int main(int argc, char **argv)
{
    if (argc < 7)
        fail("usage: plan_at DATA CACHE_BYTES JOBS CORES SECONDS PIPELINE E:D:A…");
    pst_error err;
    pst_dataset *data;
    pst_plan *plan;
    pst_plan_options o;
    pst_plan_options_init(&o);
    o.cache_bytes = strtoull(argv[2], NULL, 10);
    o.jobs = atoi(argv[3]);
    o.cores = atoi(argv[4]);
    o.seconds = atof(argv[5]);
    o.pipeline = argv[6];
    o.source_bytes_s = 100000000000;
    if (pst_dataset_open(argv[1], NULL, &data, &err) < 0 || pst_plan_new(data, &o, &plan, &err) < 0)
        fail(err.message);
    pst_plan_inputs in = {.size = sizeof in};
    pst_plan_point point = {.size = sizeof point};
    pst_plan_measured(plan, &in);
    pst_plan_best(plan, &point);
    printf(
        "{\"bytes\": [%.0f, %.0f, %.0f], \"crop_s\": %.6f, \"full_s\": %.6f, \"augment_s\": %.6f, "
        "\"keep_s\": %.6f, \"finish_s\": %.6f, \"other_s\": %.6f, ",
        in.bytes[0], in.bytes[1], in.bytes[2], in.crop_s, in.full_s, in.augment_s, in.keep_s,
        in.finish_s, in.other_s);
    tell("\"best\": ", &point);
    printf(", \"at\": [");
    for (int i = 7; i < argc; i++) {
        double share[PST_FORMS] = {0};
        if (sscanf(argv[i], "%lf:%lf:%lf", &share[0], &share[1], &share[2]) != 3 ||
            pst_plan_at(plan, share, &point) < 0)
            fail(argv[i]);
        tell(i > 7 ? ", " : "", &point);
    }
    puts("]}");
    pst_plan_free(plan);
    pst_dataset_close(data);
    return 0;
}
