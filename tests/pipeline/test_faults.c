/* SPDX-License-Identifier: Apache-2.0
 * Every allocation made to fail in turn, alone and with all later ones: a clean -ENOMEM, nothing
 * left behind, and the same storage works again afterwards. */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "core/memory.h"
#include "pictures.h"
#include "pipeline/pipeline.h"

static const psti_plan_input inputs[] = {{.name = "image", .kind = PST_IMAGE, .encoded = true},
                                         {.name = "mask", .kind = PST_MASK, .encoded = true},
                                         {.name = "text", .kind = PST_TEXT}};
static const char text[] =
    "image, mask: decode ; random_resized_crop(48, scale=(0.5, 1)) | hflip(1) ; pad((1, 2)) ; "
    "image: resize((33, 44)) | normalize(mean=(0.1, 0.2, 0.3), std=(1, 1, 1)) ; mask: to(i64)";
static const char one_text[] =
    "image: decode | resize(70) | random_crop(32) | normalize(half) ; mask: bytes";

static const char views_text[] =
    "decode | views(2: random_crop(32) | hflip(1), 1: resize(40)) | normalize(half)";

static psti_input sample[3];

static int run_work(psti_work *work, psti_kit *kit, const psti_plan *plan, uint64_t id,
                    pst_error *err)
{
    static uint8_t out[1 << 20];
    const psti_rng_key key = {.id = id};
    int rc = psti_work_start(work, kit, plan, &key, sample, err);
    if (rc == 0)
        do
            rc = psti_work_step(work, kit, err);
        while (rc > 0);
    const psti_plan_output *all;
    for (int i = 0; rc == 0 && i < psti_plan_outputs(plan, &all); i++) {
        int64_t shape[PST_MAX_RANK];
        CHECK(psti_work_shape(work, i, shape) <= sizeof out);
        psti_work_finish(work, kit, i, out);
    }
    return rc;
}

/* From text to finished sample and back to nothing. */
static int run_all(const char *pipeline_text, pst_error *err)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    psti_kit kit;
    int rc = psti_kit_init(&kit);
    if (rc < 0)
        err->code = rc;
    psti_work *work = psti_work_new();
    if (rc == 0 && !work)
        rc = err->code = -ENOMEM;
    if (rc == 0)
        rc = psti_pipeline_parse(pipeline_text, &pipeline, err);
    if (rc == 0)
        rc = psti_plan_new(pipeline, inputs, 3, &plan, err);
    if (rc == 0)
        rc = run_work(work, &kit, plan, 1, err);
    psti_plan_free(plan);
    psti_pipeline_free(pipeline);
    psti_work_free(work);
    psti_kit_fini(&kit);
    return rc;
}

static void fail_each(const char *pipeline_text, bool persistent)
{
    psti_mem_stats stats;
    int rc = -ENOMEM;
    for (uint64_t n = 1; rc < 0; n++) {
        pst_error err = {0};
        psti_mem_fail_at(n, persistent);
        rc = run_all(pipeline_text, &err);
        psti_mem_fail_at(0, false);
        CHECKF(rc == 0 || (rc == -ENOMEM && err.code == -ENOMEM), "allocation %llu: %d %s",
               (unsigned long long)n, rc, err.message);
        psti_mem_stats_total(&stats);
        CHECKF(stats.live == 0, "allocation %llu left %llu blocks", (unsigned long long)n,
               (unsigned long long)stats.live);
        if (n > 2000 || stats.live || (rc < 0 && rc != -ENOMEM))
            break;
    }
    CHECK(rc == 0);
}

static void every_allocation_may_fail(void)
{
    fail_each(text, false);
    fail_each(one_text, false);
    fail_each(views_text, false);
}

static void so_may_all_that_follow(void)
{
    fail_each(text, true);
    fail_each(one_text, true);
    fail_each(views_text, true);
}

static void a_work_that_ran_out_of_memory_works_again(void)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    psti_kit kit;
    if (psti_kit_init(&kit) < 0 || psti_pipeline_parse(text, &pipeline, NULL) < 0 ||
        psti_plan_new(pipeline, inputs, 3, &plan, NULL) < 0) {
        CHECK(!"the pipeline was refused");
        return;
    }
    psti_work *work = psti_work_new();
    int rc = -ENOMEM;
    for (uint64_t n = 1; rc < 0 && n < 200; n++) {
        pst_error err = {0};
        psti_mem_fail_at(n, true);
        rc = run_work(work, &kit, plan, n, &err);
        psti_mem_fail_at(0, false);
        CHECK(rc == 0 || rc == -ENOMEM);
        CHECK(run_work(work, &kit, plan, n, &err) == 0);
        psti_work_clear(work, &kit, 0);
    }
    psti_work_free(work);
    psti_plan_free(plan);
    psti_pipeline_free(pipeline);
    psti_kit_fini(&kit);
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    size_t size;
    uint8_t *jpeg = jpeg_make(90, 120, 1, false, &size);
    sample[0] = (psti_input){jpeg, size, -1};
    uint8_t *mask = png_make(90, 120, 1, 8, &size);
    sample[1] = (psti_input){mask ? mask : jpeg, mask ? size : sample[0].size, -1};
    sample[2] = (psti_input){(const uint8_t *)"abc", 3, -1};
    RUN(every_allocation_may_fail);
    RUN(so_may_all_that_follow);
    RUN(a_work_that_ran_out_of_memory_works_again);
    free(jpeg);
    free(mask);
    RUN(nothing_is_left_behind);
    return check_report();
}
