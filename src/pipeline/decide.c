/* SPDX-License-Identifier: Apache-2.0
 * Every decision about a sample, made from the pictures' headers before anything is decoded: what
 * each op draws, what size comes out of it, which window of each picture is to be decoded and how
 * many of its rows count. Only what stands behind a call(any=true) waits for its result. Worker
 * threads; no allocation. */
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

bool psti_geom_bytes(const psti_geom *geom, int dtype, size_t *out)
{
    size_t bytes = psti_dtype_bytes(dtype);
    return geom->rows > 0 && geom->cols > 0 && geom->channels > 0 &&
           psti_mul(bytes, (size_t)geom->channels, &bytes) &&
           psti_mul(bytes, (size_t)geom->cols, &bytes) && psti_mul(bytes, (size_t)geom->rows, out);
}

static const char *field_name(const psti_work *work, int picture)
{
    return work->plan->inputs[work->plan->pictures[picture].input].name;
}

/* An op may be told to make more than a decoder would be allowed to. */
static int check_size(const psti_work *work, int s, int picture, pst_error *err)
{
    const psti_geom *out = &psti_work_at(work, s, picture)->out;
    const char *op = work->plan->stages[s].type.name;
    size_t bytes;
    if (psti_geom_bytes(out, work->shots[picture].facts.dtype, &bytes) &&
        bytes <= psti_limits_default.output_bytes)
        return 0;
    psti_fail(err, PST_ELIMIT, op, NULL,
              "%lld x %lld pixels would come out, more than the limit of %llu MiB",
              (long long)out->rows, (long long)out->cols,
              (unsigned long long)(psti_limits_default.output_bytes >> 20));
    return psti_work_fail(work, op, picture, PST_ELIMIT, err);
}

/* The op's choices for one picture, from the op's own place of the random key. */
static int decide_one(psti_work *work, int s, int picture, const psti_rng_key *key, pst_error *err)
{
    const psti_stage *stage = &work->plan->stages[s];
    psti_step *step = psti_work_at(work, s, picture);
    psti_rng rng;
    psti_rng_init(&rng, key, (uint32_t)stage->place);
    const int rc =
        stage->type.op->decide(stage->params, &rng, &step->in, &step->draw, &step->out, err);
    if (rc < 0)
        return psti_work_fail(work, stage->type.name, picture, rc, err);
    if (!step->draw.act)
        step->out = step->in;
    if (stage->lowered && (step->out.rows > step->in.rows || step->out.cols > step->in.cols)) {
        psti_fail(err, PST_EFIELD, stage->type.name, NULL,
                  "the picture is smaller than what comes out, and what fills the rest differs "
                  "after normalize or to: put %s before",
                  stage->type.name);
        return psti_work_fail(work, stage->type.name, picture, PST_EFIELD, err);
    }
    const int fits = check_size(work, s, picture, err);
    return fits < 0 ? fits : psti_call_check_size(work, s, picture, err);
}

/* Image and mask share one decision where the op is geometric. */
static int follow_leader(psti_work *work, int s, int picture, pst_error *err)
{
    const int first = work->plan->stages[s].leader;
    const psti_step *leader = psti_work_at(work, s, first);
    psti_step *step = psti_work_at(work, s, picture);
    const char *op = work->plan->stages[s].type.name;
    if (leader->in.rows != step->in.rows || leader->in.cols != step->in.cols)
        return psti_fail(err, PST_EFIELD, op, NULL,
                         "%s is %lld x %lld and %s is %lld x %lld (rows x columns): what %s moves "
                         "together must have one size",
                         field_name(work, first), (long long)leader->in.rows,
                         (long long)leader->in.cols, field_name(work, picture),
                         (long long)step->in.rows, (long long)step->in.cols, op);
    step->draw = leader->draw;
    step->out = (psti_geom){leader->out.rows, leader->out.cols, step->in.channels};
    return check_size(work, s, picture, err);
}

static int decide_stage(psti_work *work, int s, const psti_rng_key *key, pst_error *err)
{
    const psti_stage *stage = &work->plan->stages[s];
    const bool together = stage->type.op->flags & PSTI_OP_GEOMETRIC;
    int rc = decide_one(work, s, stage->leader, key, err);
    for (int p = 0; rc == 0 && p < work->plan->picture_count; p++) {
        if (p == stage->leader || !(stage->pictures & (uint32_t)1 << p))
            continue;
        rc = together ? follow_leader(work, s, p, err) : decide_one(work, s, p, key, err);
    }
    return rc;
}

/* The first stage after `from` that does something to the picture, or -1. */
static int next_acting(const psti_work *work, int from, int picture)
{
    for (int s = from + 1; s < work->decided; s++)
        if ((work->plan->stages[s].pictures & (uint32_t)1 << picture) &&
            psti_work_at(work, s, picture)->draw.act)
            return s;
    return -1;
}

/* Which window to decode, and which rows must be sound: those that a crop right after decode reads,
 * with the decoder's pad, else all. The rows do not depend on how the picture is decoded, so
 * neither does the verdict. */
static void aim_decode(psti_work *work, int stage, int picture)
{
    psti_shot *shot = &work->shots[picture];
    shot->window = (psti_window){0};
    shot->used_rows = shot->facts.rows;
    const int next = next_acting(work, stage, picture);
    if (next < 0 || !(work->plan->stages[next].type.op->flags & PSTI_OP_CROPS))
        return;
    const psti_draw *draw = &psti_work_at(work, next, picture)->draw;
    const int64_t end = draw->top + draw->rows + PSTI_CROP_PAD;
    if (draw->rows < 1 || draw->cols < 1)
        return;
    if (end < shot->used_rows)
        shot->used_rows = end;
    const bool whole = draw->rows == shot->facts.rows && draw->cols == shot->facts.cols;
    if (!whole && shot->facts.can_crop && !work->plan->force_full && !work->whole)
        shot->window = (psti_window){draw->top, draw->left, draw->rows, draw->cols};
}

void psti_work_aim(psti_work *work)
{
    const psti_plan *plan = work->plan;
    for (int s = 0; s < plan->stage_count; s++)
        for (int p = 0; plan->stages[s].type.role == PSTI_ROLE_DECODE && p < plan->picture_count;
             p++)
            if (plan->stages[s].pictures & (uint32_t)1 << p)
                aim_decode(work, s, p);
}

/* One stage, from what the stage before it left. */
static int decide_next(psti_work *work, pst_error *err)
{
    const psti_plan *plan = work->plan;
    const int s = work->decided;
    for (int p = 0; p < plan->picture_count; p++) {
        const psti_picture *facts = &work->shots[p].facts;
        const psti_geom now = s ? psti_work_at(work, s - 1, p)->out
                                : (psti_geom){facts->rows, facts->cols, facts->channels};
        *psti_work_at(work, s, p) = (psti_step){.in = now, .out = now, .draw.act = true};
    }
    work->decided++;
    return plan->stages[s].type.op ? decide_stage(work, s, &work->key, err) : 0;
}

int psti_work_decide_on(psti_work *work, pst_error *err)
{
    const psti_plan *plan = work->plan;
    bool open = false;
    int rc = 0;
    while (rc == 0 && !open && work->decided < plan->stage_count) {
        open = psti_stage_open(&plan->stages[work->decided]);
        rc = decide_next(work, err);
    }
    return rc;
}

int psti_work_decide(psti_work *work, const psti_rng_key *key, pst_error *err)
{
    work->key = *key;
    work->decided = 0;
    const int rc = psti_work_decide_on(work, err);
    if (rc == 0)
        psti_work_aim(work);
    return rc;
}
