/* SPDX-License-Identifier: Apache-2.0
 * What each sample of a dataset costs, as a table that bench/cache_sim reads: bytes in each form,
 * and microseconds of one core for reading, preparing from encoded bytes, decoding whole and
 * keeping, preparing from a kept picture, keeping an augmented one, finish. Medians over several
 * draws.
 *
 *   photo_costs DATA [DRAWS] > costs.tsv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/probe.h"

enum { DRAWS_MOST = 64 };
static const char pipeline_text[] =
    "decode | random_resized_crop(224) | hflip | normalize(imagenet)";

static int order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, order);
    return values[count / 2];
}

/* Reading, whole decodes and finish do not depend on the draw: their median. The others do: their
 * mean. */
static void print_row(const probe_cost *c, int draws, int stride)
{
    double read[DRAWS_MOST], full[DRAWS_MOST], finish[DRAWS_MOST], keep[DRAWS_MOST];
    double crop = 0, augment = 0;
    for (int i = 0; i < draws; i++) {
        const probe_cost *one = &c[i * stride];
        read[i] = one->read_s, full[i] = one->full_s;
        finish[i] = one->finish_s, keep[i] = one->keep_s;
        crop += one->crop_s / draws;
        augment += one->augment_s / draws;
    }
    printf("%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\n", c->encoded, c->decoded,
           c->augmented, 1e6 * median(read, draws), 1e6 * crop, 1e6 * median(full, draws),
           1e6 * augment, 1e6 * median(keep, draws), 1e6 * median(finish, draws));
}

static int table(psti_dataset *data, const field_choice *choice, const psti_plan *plan, int draws)
{
    probe *p;
    if (probe_new(data, choice, plan, 1, 64 << 20, &p) < 0)
        return 1;
    const int64_t samples = psti_dataset_count(data);
    probe_cost *costs = calloc((size_t)draws * PROBE_GROUP, sizeof *costs);
    printf("encoded\tdecoded\taugmented\tread\tcrop\tfull\taugment\tkeep\tfinish\n");
    for (int64_t first = 0; costs && first < samples; first += PROBE_GROUP) {
        int64_t ids[PROBE_GROUP];
        const int64_t left = samples - first;
        const int count = left < PROBE_GROUP ? (int)left : PROBE_GROUP;
        for (int i = 0; i < count; i++)
            ids[i] = first + i;
        for (int draw = 0; draw < draws; draw++)
            probe_run(p, ids, count, (uint64_t)draw, costs + (ptrdiff_t)draw * PROBE_GROUP);
        for (int i = 0; i < count; i++)
            if (costs[i].rc == 0 && costs[i].decoded > 0)
                print_row(costs + i, draws, PROBE_GROUP);
    }
    free(costs);
    probe_free(p);
    return 0;
}

int main(int argc, char **argv)
{
    psti_dataset *data = NULL;
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    psti_plan_input inputs[PSTI_FIELDS_MAX];
    field_choice choice;
    pst_error err = {0};
    pst_dataset_options opts;
    pst_dataset_options_init(&opts);
    opts.index_dir = "";
    const int draws = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 16;
    if (argc < 2 || draws < 1 || draws > DRAWS_MOST) {
        fprintf(stderr, "usage: photo_costs DATA [DRAWS]\n");
        return 2;
    }
    int rc = psti_dataset_open(argv[1], &opts, &data, &err);
    if (rc == 0)
        rc = psti_pipeline_parse(pipeline_text, &pipeline, &err);
    if (rc == 0)
        rc = fields_choose(data, NULL, &choice, &err);
    if (rc == 0) {
        fields_inputs(data, &choice, inputs);
        rc = psti_plan_new(pipeline, inputs, choice.count, &plan, &err);
    }
    if (rc == 0)
        rc = table(data, &choice, plan, draws);
    else
        fprintf(stderr, "photo_costs: %s\n", err.message);
    psti_plan_free(plan);
    psti_pipeline_free(pipeline);
    if (data)
        psti_dataset_unref(data);
    return rc ? 1 : 0;
}
