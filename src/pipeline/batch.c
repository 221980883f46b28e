/* SPDX-License-Identifier: Apache-2.0
 * Batch ops in a plan: what stands after "||", checked against what the job delivers, drawn and
 * carried out on a full batch. Planned once per job; draws and runs on worker threads. */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

typedef struct batcher {
    psti_plan *plan;
    const psti_pipeline *pipeline;
    const psti_bound *op; /* the one after "||" */
    pst_error *err;
} batcher;

/* "mixup: what", at the op. */
static int fail_batch(const batcher *b, const char *what, const char *field)
{
    return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, b->op->offset, "%s: %s%s%s",
                        b->op->type.name, field ? field : "", field ? " " : "", what);
}

/* ---- the ops --------------------------------------------------------------------------------- */

static int add_mix(batcher *b, const psti_bound *op, int weight)
{
    psti_plan *plan = b->plan;
    if (plan->mix_count == PSTI_MIXES_MAX)
        return fail_batch(b, "more ops to choose from than the 8 allowed", NULL);
    plan->mixes[plan->mix_count++] = (psti_plan_mix){.type = op->type,
                                                     .params = *(psti_mix_params *)op->params,
                                                     .place = op->place,
                                                     .weight = weight};
    plan->mix_weight += weight;
    return 0;
}

/* The op itself, or those that choice draws from. */
static int take_ops(batcher *b)
{
    b->plan->mix_name = b->op->type.name;
    b->plan->mix_place = b->op->place;
    if (b->op->type.role == PSTI_ROLE_MIX)
        return add_mix(b, b->op, 1);
    int rc = 0;
    for (int i = 1; rc == 0 && i < b->pipeline->batch_count; i++)
        rc = add_mix(b, &b->op[i], b->pipeline->chains[b->op[i].chain].count);
    return rc;
}

static bool has_kind(const psti_plan *plan, int kind)
{
    for (int i = 0; i < plan->mix_count; i++)
        if (plan->mixes[i].type.mix == kind)
            return true;
    return false;
}

/* ---- what they act on ------------------------------------------------------------------------ */

static int take_image(batcher *b, psti_plan_output *out)
{
    psti_plan *plan = b->plan;
    const int first = out->layout == PST_NCHW;
    for (int d = 0; d < out->rank; d++)
        if (out->shape[d] < 0)
            return fail_batch(b, "has no one shape: resize or crop it before", out->name);
    if (has_kind(plan, PST_MIXUP) && out->dtype == PST_U8)
        return fail_batch(b, "holds bytes, which cannot be blended: add normalize or to(f32)",
                          out->name);
    if (has_kind(plan, PST_CUTMIX) && plan->mix_rows &&
        (plan->mix_rows != out->shape[first] || plan->mix_cols != out->shape[first + 1]))
        return fail_batch(b, "has another size than the image before it: one box must fit all",
                          out->name);
    plan->mix_rows = out->shape[first];
    plan->mix_cols = out->shape[first + 1];
    out->mixed = true;
    return 0;
}

/* How long the labels become, or a negative code. */
static int64_t classes_of(const batcher *b, int64_t known)
{
    int64_t classes = 0;
    for (int i = 0; i < b->plan->mix_count; i++) {
        const int64_t given = b->plan->mixes[i].params.classes;
        if (given && classes && given != classes)
            return fail_batch(b, "the ops to choose from give different classes", NULL);
        classes = given ? given : classes;
    }
    if (!classes)
        classes = known;
    if (!classes)
        return fail_batch(b, "the dataset does not say how many classes it has: write classes=N",
                          NULL);
    return classes;
}

static bool is_label(const psti_plan_output *out)
{
    return out->kind == PST_LABEL && out->dtype == PST_I64 && out->rank == 0;
}

static int take_label(batcher *b, int i)
{
    psti_plan_output *out = &b->plan->outputs[i];
    const int64_t classes = classes_of(b, b->plan->inputs[out->input].classes);
    if (classes < 0)
        return (int)classes;
    out->mixed = true;
    out->classes = b->plan->mix_classes = classes;
    out->dtype = PST_F32;
    out->rank = 1;
    out->shape[0] = classes;
    return 0;
}

static int take_outputs(batcher *b)
{
    psti_plan *plan = b->plan;
    int images = 0, labels = 0, rc = 0;
    for (int i = 0; rc == 0 && i < plan->output_count; i++) {
        psti_plan_output *out = &plan->outputs[i];
        if (out->picture >= 0 && out->kind == PST_MASK)
            return fail_batch(b, "is a mask, which cannot be mixed: leave it out of the fields",
                              out->name);
        if (out->picture >= 0 && out->kind != PST_IMAGE)
            return fail_batch(b, "is no image: leave it out of the fields", out->name);
        if (out->picture >= 0) {
            images++;
            rc = take_image(b, out);
        } else if (is_label(out)) {
            labels++;
            rc = take_label(b, i);
        }
    }
    if (rc == 0 && !images)
        rc = fail_batch(b, "the job delivers no image to act on", NULL);
    if (rc == 0 && labels != 1)
        rc = fail_batch(b,
                        labels ? "the job delivers several labels: name one in its fields"
                               : "the job delivers no label to blend: name it in its fields",
                        NULL);
    return rc;
}

int psti_plan_batch(psti_plan *plan, const psti_pipeline *pipeline, pst_error *err)
{
    if (!pipeline->batch_count)
        return 0;
    batcher b = {plan, pipeline, &pipeline->ops[pipeline->op_count], err};
    const int rc = take_ops(&b);
    return rc < 0 ? rc : take_outputs(&b);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

int psti_plan_mix_stage(const psti_plan *plan)
{
    return plan->mix_name ? plan->stage_count + 1 : -1;
}

void psti_plan_leave_mix(psti_plan *plan)
{
    plan->mix_left = true;
    for (int i = 0; i < plan->output_count; i++) {
        psti_plan_output *out = &plan->outputs[i];
        if (!out->classes)
            continue;
        out->classes = 0;
        out->dtype = PST_I64;
        out->rank = 0;
    }
}

bool psti_plan_mix_left(const psti_plan *plan)
{
    return plan->mix_left;
}

/* Which op is drawn: by weight, from the place of choice. */
static const psti_plan_mix *choose(const psti_plan *plan, const psti_rng_key *key)
{
    const psti_plan_mix *mix = plan->mixes;
    if (plan->mix_count == 1)
        return mix;
    psti_rng rng;
    psti_rng_init(&rng, key, (uint32_t)plan->mix_place);
    int64_t left = (int64_t)psti_rng_below(&rng, (uint64_t)plan->mix_weight);
    while (left >= mix->weight)
        left -= mix++->weight;
    return mix;
}

void psti_plan_mix_draw(const psti_plan *plan, const psti_rng_key *key, pst_mix *out)
{
    const psti_plan_mix *mix = choose(plan, key);
    psti_rng rng;
    psti_rng_init(&rng, key, (uint32_t)mix->place);
    psti_mix_draw(mix->type.mix, &mix->params, &rng, plan->mix_rows, plan->mix_cols, out);
    out->classes = plan->mix_classes;
}

void psti_plan_mix_run(const psti_plan *plan, const pst_mix *mix, int output, uint8_t *data,
                       const uint8_t *valid, int slots)
{
    const psti_plan_output *out = &plan->outputs[output];
    psti_mix_field field = {.data = data,
                            .slot_bytes = psti_dtype_bytes(out->dtype),
                            .dtype = out->dtype,
                            .layout = out->layout,
                            .rows = plan->mix_rows,
                            .cols = plan->mix_cols};
    for (int d = 0; d < out->rank; d++)
        field.slot_bytes *= (size_t)out->shape[d];
    if (mix->kind == PST_CUTMIX && !out->classes)
        psti_mix_paste(mix, &field, valid, slots);
    else if (mix->kind != PST_MIX_NONE)
        psti_mix_blend(mix, &field, valid, slots);
}
