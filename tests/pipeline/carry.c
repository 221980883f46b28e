/* SPDX-License-Identifier: Apache-2.0
 * Start, step, finish, as the scheduler does it. */
#include "carry.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"

psti_plan *plan_make(const char *text, const psti_plan_input *inputs, int count, bool full)
{
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    pst_error err = {0};
    if (psti_pipeline_parse(text, &pipeline, &err) < 0 ||
        psti_plan_new(pipeline, inputs, count, &plan, &err) < 0)
        return NULL;
    psti_pipeline_free(pipeline);
    psti_plan_force_full(plan, full);
    return plan;
}

sample sample_of(const uint8_t *bytes, size_t size)
{
    sample s = {.bytes = {bytes}, .size = {size}, .known = {-1, -1, -1, -1}};
    return s;
}

static int run_stages(psti_work *work, psti_kit *const *kits, int kit_count, pst_error *err)
{
    int rc = 1;
    for (int i = 0; rc > 0; i++)
        rc = psti_work_step(work, kits[i % kit_count], err);
    return rc;
}

void carry(const psti_plan *plan, psti_work *work, psti_kit *const *kits, int kit_count,
           const sample *in, uint64_t id, result *results, int count)
{
    const psti_rng_key key = {.seed = 7, .epoch = 1, .id = id};
    psti_input inputs[4];
    pst_error err;
    psti_error_clear(&err);
    for (int i = 0; i < 4; i++)
        inputs[i] = (psti_input){in->bytes[i], in->size[i], in->known[i]};
    psti_work_set_id(work, (int64_t)id);
    int rc = psti_work_start(work, kits[kit_count - 1], plan, &key, inputs, &err);
    if (rc == 0)
        rc = run_stages(work, kits, kit_count, &err);
    for (int i = 0; i < count; i++) {
        results[i] = (result){.rc = rc, .damage = psti_work_damage(work, i), .err = err};
        if (rc < 0)
            continue;
        results[i].bytes = psti_work_shape(work, i, results[i].shape);
        results[i].data = malloc(results[i].bytes ? results[i].bytes : 1);
        psti_work_finish(work, kits[kit_count - 1], i, results[i].data);
    }
}

result carry_one(const psti_plan *plan, psti_work *work, psti_kit *kit, const sample *in,
                 uint64_t id)
{
    result r;
    carry(plan, work, &kit, 1, in, id, &r, 1);
    return r;
}

bool result_equal(const result *a, const result *b)
{
    return a->rc == b->rc && a->bytes == b->bytes &&
           (!a->data || memcmp(a->data, b->data, a->bytes) == 0);
}

void result_free(result *r)
{
    free(r->data);
    r->data = NULL;
}
