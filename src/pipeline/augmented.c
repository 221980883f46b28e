/* SPDX-License-Identifier: Apache-2.0
 * The augmented form of a sample: every picture that is delivered, after the last op before finish.
 * Naming it, taking it out of a work, and starting a work from it. */
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

int psti_plan_augmented_pictures(const psti_plan *plan)
{
    int count = 0;
    if (plan->objects.picture >= 0) /* neither are boxes part of the pixels */
        return 0;
    for (int i = 0; i < plan->output_count; i++) {
        const int p = plan->outputs[i].picture;
        if (p < 0)
            continue;
        /* What is laid over finished values is drawn with the sample and is no part of its pixels.
         */
        if (plan->pictures[p].overlay >= 0)
            return 0;
        count++;
    }
    return count;
}

bool psti_plan_augmented_travels(const psti_plan *plan)
{
    for (int s = 0; s < plan->stage_count; s++)
        if (psti_op_type_call(&plan->stages[s].type))
            return false;
    for (int i = 0; i < plan->output_count; i++) {
        const psti_plan_output *out = &plan->outputs[i];
        if (out->picture >= 0 && out->kind != PST_IMAGE && (out->kind != PST_MASK || out->rank > 2))
            return false;
    }
    return psti_plan_augmented_pictures(plan) > 0;
}

static bool picture_fits(const psti_plan *plan, const psti_plan_output *out, psti_field *f)
{
    const psti_geom size = psti_field_geom(f);
    const int wanted = plan->pictures[out->picture].channels;
    const bool mask = out->kind == PST_MASK;
    int64_t shape[PST_MAX_RANK];
    if (f->kind != out->kind || size.axes != PSTI_AXES_PICTURE || !psti_field_dense(f) ||
        (f->dtype != PST_U8 && !(mask && f->dtype == PST_U16)))
        return false;
    if (size.rows < 1 || size.cols < 1 || size.channels < 1 || size.channels > (mask ? 1 : 4) ||
        (wanted && size.channels != wanted))
        return false;
    if (psti_shape_of(out->layout, &size, shape) != out->rank)
        return false;
    for (int d = 0; d < out->rank; d++)
        if (out->shape[d] >= 0 && out->shape[d] != shape[d])
            return false;
    uint8_t *data = f->data;
    *f = psti_field_of(out->kind, &size);
    f->data = data;
    return true;
}

bool psti_plan_augmented_fits(const psti_plan *plan, psti_decoded *pictures, int count)
{
    int at = 0;
    for (int i = 0; i < plan->output_count; i++)
        if (plan->outputs[i].picture >= 0 &&
            (at == count || !picture_fits(plan, &plan->outputs[i], &pictures[at++].field)))
            return false;
    return at == count;
}

psti_id128 psti_plan_augmented_form(const psti_plan *plan, const psti_pipeline *pipeline)
{
    const psti_id128 print = pipeline->prints.augmented;
    psti_hash hash;
    psti_hash_init(&hash);
    psti_hash_u64(&hash, print.lo);
    psti_hash_u64(&hash, print.hi);
    for (int i = 0; i < plan->output_count; i++) {
        const psti_plan_output *out = &plan->outputs[i];
        if (out->picture < 0)
            continue;
        psti_hash_text(&hash, out->name, strlen(out->name));
        psti_hash_u64(&hash, (uint64_t)out->kind);
    }
    return psti_hash_final(&hash);
}

int psti_work_augmented(const psti_work *work, psti_decoded *pictures)
{
    const psti_plan *plan = work->plan;
    int count = 0;
    for (int i = 0; i < plan->output_count; i++)
        if (plan->outputs[i].picture >= 0)
            pictures[count++] = (psti_decoded){.field = work->shots[plan->outputs[i].picture].now};
    return count;
}

int psti_work_start_augmented(psti_work *work, const psti_plan *plan, const psti_input *inputs,
                              const psti_decoded *pictures, pst_error *err)
{
    const int rc = psti_work_take(work, plan, inputs, err);
    if (rc < 0)
        return rc;
    int count = 0;
    for (int i = 0; i < plan->output_count; i++) {
        if (plan->outputs[i].picture < 0)
            continue;
        psti_shot *shot = &work->shots[plan->outputs[i].picture];
        shot->now = pictures[count++].field;
        shot->borrowed = true;
    }
    work->cursor = work->decided = plan->stage_count;
    return 0;
}
