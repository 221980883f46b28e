/* SPDX-License-Identifier: Apache-2.0
 * Plans through the public header: what is measured fits the data, what is refused, stopping it,
 * samples that the caller fetches, memory that runs out. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "core/memory.h"
#include "engine_kit.h"

enum { SAMPLES = 24, CLASSES = 3 };
static char *folder;
static pst_dataset *data;

static pst_plan_options options(void)
{
    pst_plan_options o;
    pst_plan_options_init(&o);
    o.pipeline = KIT_PIPELINE;
    o.cache_bytes = 20000;
    o.seconds = 0.05;
    return o;
}

static double mean_bytes(void)
{
    double sum = 0;
    for (int64_t id = 0; id < SAMPLES; id++) {
        pst_sample_info info;
        pst_dataset_sample(data, id, &info);
        sum += (double)info.bytes;
    }
    return sum / SAMPLES;
}

static void inputs_fit_the_data(void)
{
    const pst_plan_options o = options();
    pst_plan *plan = NULL;
    pst_plan_inputs in = {.size = sizeof in};
    pst_plan_point best = {.size = sizeof best};
    CHECK(pst_plan_new(data, &o, &plan, NULL) == 0);
    CHECK(pst_plan_measured(plan, &in) == 0 && pst_plan_best(plan, &best) == 0);
    CHECK(in.samples == SAMPLES && in.bad == 0 && in.measured > 0);
    CHECK(fabs(in.bytes[PST_FORM_ENCODED] / mean_bytes() - 1) < 0.5);
    CHECK(in.bytes[PST_FORM_AUGMENTED] > 16 * 16 * 3 && in.out_bytes == 16 * 16 * 3 * 4);
    CHECK(in.crop_s > 0 && in.full_s > 0 && in.augment_s > 0 && in.read_s > 0);
    CHECK(best.samples_s > 0 && best.from[PST_FORM_AUGMENTED] == 0);
    in.size--;
    best.size--;
    CHECK(pst_plan_measured(plan, &in) == -EINVAL && pst_plan_best(plan, &best) == -EINVAL);
    pst_plan_free(plan);
    pst_plan_free(NULL);
}

/* Were the samples' own time left in, it would be as much as that. */
static void the_engine_s_own_work_is_measured_apart(void)
{
    pst_plan_options o = options();
    o.pipeline = "decode | random_resized_crop(256) | normalize(imagenet)";
    o.seconds = 2;
    pst_plan *plan = NULL;
    pst_plan_inputs in = {.size = sizeof in};
    CHECK(pst_plan_new(data, &o, &plan, NULL) == 0 && pst_plan_measured(plan, &in) == 0);
    CHECKF(in.other_s > 0 && in.other_s < 0.4 * (in.augment_s + in.finish_s), "%g of %g",
           in.other_s, in.augment_s + in.finish_s);
    pst_plan_free(plan);
}

/* Slow enough to decode that the decoded form is kept. */
static void a_disk_tier_is_planned_for(void)
{
    char text[4200];
    char *dir = kit_folder();
    pst_plan_options o = options();
    pst_plan *plan = NULL;
    pst_plan_inputs in = {.size = sizeof in};
    pst_plan_point with = {.size = sizeof with}, none = {.size = sizeof none};
    const double nothing[PST_FORMS] = {0};
    o.pipeline = "decode | delay(3) | random_resized_crop(16) | hflip";
    CHECK(pst_plan_new(data, &o, &plan, NULL) == 0 && pst_plan_at(plan, nothing, &none) == 0);
    CHECK(pst_plan_measured(plan, &in) == 0 && in.disk_bytes == 0 && none.from_disk == 0);
    pst_plan_free(plan);
    snprintf(text, sizeof text, "%s/tier:1M", dir);
    o.disk = text;
    CHECK(pst_plan_new(data, &o, &plan, NULL) == 0 && pst_plan_at(plan, nothing, &with) == 0);
    CHECK(pst_plan_measured(plan, &in) == 0 && in.disk_bytes == 1 << 20);
    CHECK(in.disk_form == PST_FORM_DECODED && in.disk_read_s > 0);
    CHECK(in.disk_entry_bytes >= in.bytes[PST_FORM_DECODED]);
    CHECK(with.from_disk == 1 && with.from_source == 0);
    CHECKF(with.samples_s > 1.2 * none.samples_s, "%.0f and %.0f", with.samples_s, none.samples_s);
    CHECK(rmdir(dir) == 0); /* measuring leaves nothing behind */
    pst_plan_free(plan);
    free(dir);
}

static void splits_are_checked(void)
{
    const pst_plan_options o = options();
    pst_plan *plan = NULL;
    pst_plan_point at = {.size = sizeof at};
    CHECK(pst_plan_new(data, &o, &plan, NULL) == 0);
    CHECK(pst_plan_at(plan, (double[]){0.5, 0.5, 0}, &at) == 0 && at.share[1] == 0.5);
    CHECK(pst_plan_at(plan, (double[]){0.5, 0.6, 0}, &at) == -EINVAL);
    CHECK(pst_plan_at(plan, (double[]){-0.1, 0.5, 0}, &at) == -EINVAL);
    CHECK(pst_plan_at(plan, (double[]){NAN, 0.5, 0}, &at) == -EINVAL);
    CHECK(isnan(pst_plan_gain(plan, 9, 1)) && isnan(pst_plan_gain(plan, PST_MORE_CACHE, -1)));
    CHECK(pst_plan_gain(plan, PST_MORE_CACHE, 1e9) >= 0);
    double cpu, source, share[PST_FORMS], samples_s;
    pst_plan_prices(plan, &cpu, &source);
    CHECK(fabs(cpu + source - 1) < 1e-9);
    CHECK(pst_plan_paper(plan, share, &samples_s) == 0 && samples_s > 0);
    CHECK(fabs(share[0] + share[1] + share[2] - 1) < 1e-9);
    pst_plan_free(plan);
}

static void refuse(pst_plan_options o, int code, const char *word)
{
    pst_plan *plan = NULL;
    pst_error err = {0};
    const int rc = pst_plan_new(data, &o, &plan, &err);
    CHECKF(rc == code && !plan && strstr(err.message, word), "%d: %s", rc, err.message);
}

static void wrong_options_are_named(void)
{
    pst_plan_options o = options();
    o.size--;
    refuse(o, -EINVAL, "pst_plan_options_init");
    o = options();
    o.pipeline = NULL;
    refuse(o, -EINVAL, "pipeline");
    o.pipeline = "decode | rezize(3)";
    refuse(o, PST_EPIPELINE, "rezize");
    o.pipeline = "decode | call(mine)";
    refuse(o, PST_EPIPELINE, "mine");
    o = options();
    o.jobs = 65;
    refuse(o, -EINVAL, "jobs");
    o = options();
    o.cores = -1;
    refuse(o, -EINVAL, "cores");
    o = options();
    o.seconds = NAN;
    refuse(o, -EINVAL, "seconds");
    o = options();
    const double rates[] = {-1};
    o.consumer = rates;
    refuse(o, -EINVAL, "consumer");
    o = options();
    o.fields = "nothing";
    refuse(o, PST_EFIELD, "nothing");
    pst_plan *plan;
    CHECK(pst_plan_new(data, NULL, &plan, NULL) == -EINVAL);
}

static int stop_at_once(double done, void *user)
{
    CHECK(done >= 0 && done <= 1);
    ++*(int *)user;
    return 1;
}

static void the_caller_may_stop_it(void)
{
    pst_plan_options o = options();
    int calls = 0;
    o.seconds = 600;
    o.progress = stop_at_once;
    o.user = &calls;
    refuse(o, -ECANCELED, "stopped");
    CHECK(calls == 1);
}

static int read_from_files(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    void *bytes;
    size_t size;
    (void)user;
    const int rc = pst_dataset_read(data, id, "image", &bytes, &size, err);
    if (rc < 0)
        return rc;
    pst_sink_bytes(sink, 0, bytes, size);
    pst_free(bytes);
    return 0;
}

static void samples_that_are_fetched_can_be_planned(void)
{
    const pst_field_info image = {.name = "image", .kind = PST_IMAGE, .rank = 3};
    pst_custom spec;
    pst_dataset *custom = NULL;
    pst_plan *plan = NULL;
    pst_plan_inputs in = {.size = sizeof in};
    const pst_plan_options o = options();
    pst_custom_init(&spec);
    spec.count = SAMPLES;
    spec.name = "planned";
    spec.fields = &image;
    spec.field_count = 1;
    spec.read = read_from_files;
    pst_error err = {0};
    CHECKF(pst_dataset_custom(&spec, &custom, &err) == 0, "%s", err.message);
    CHECKF(pst_plan_new(custom, &o, &plan, &err) == 0, "%s", err.message);
    CHECK(plan && pst_plan_measured(plan, &in) == 0 && in.source == PST_SOURCE_COLD);
    CHECK(in.source_bytes_s > 0 && in.bytes[PST_FORM_ENCODED] > 100 && in.bad == 0);
    pst_plan_free(plan);
    pst_dataset_close(custom);
}

/* Every allocation fails in turn; nothing is lost and nothing stays. */
static void out_of_memory_is_an_answer(void)
{
    pst_plan_options o = options();
    o.source_bytes_s = 1000000;
    o.cores = 1;
    int failed = 0;
    for (uint64_t n = 1; n < 60; n++) {
        pst_plan *plan = NULL;
        psti_mem_stats before, after;
        psti_mem_stats_get(PSTI_MEM_ENGINE, &before);
        psti_mem_fail_at(n, true);
        const int rc = pst_plan_new(data, &o, &plan, NULL);
        psti_mem_fail_at(0, false);
        failed += rc < 0;
        CHECKF((rc < 0) == !plan, "allocation %d: %d", (int)n, rc);
        pst_plan_free(plan);
        psti_mem_stats_get(PSTI_MEM_ENGINE, &after);
        CHECKF(after.live == before.live, "allocation %d left %d behind", (int)n,
               (int)(after.live - before.live));
        if (rc == 0)
            break;
    }
    CHECKF(failed > 5, "only %d failed", failed);
}

int main(void)
{
    folder = kit_folder();
    kit_images(folder, SAMPLES, CLASSES);
    data = kit_dataset(folder);
    RUN(inputs_fit_the_data);
    RUN(the_engine_s_own_work_is_measured_apart);
    RUN(a_disk_tier_is_planned_for);
    RUN(splits_are_checked);
    RUN(wrong_options_are_named);
    RUN(the_caller_may_stop_it);
    RUN(samples_that_are_fetched_can_be_planned);
    RUN(out_of_memory_is_an_answer);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
