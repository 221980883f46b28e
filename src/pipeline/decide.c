/* SPDX-License-Identifier: Apache-2.0
 * Every decision about a sample, made from the pictures' headers before anything is decoded: what
 * each op draws, what size comes out of it, which window of each picture is to be decoded and how
 * many of its rows count. Only what stands behind an op of open size or a call(any=true) waits for
 * its result, and what goes by the contents of a mask for a look at them (survey.c). Boxes follow
 * each decision at once, so that the next can be made from them. Worker threads; only storage of
 * objects grows. */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* An op may be told to make more than a decoder would be allowed to. */
static int check_size(const psti_work *work, int s, int picture, pst_error *err)
{
    const psti_geom *out = &psti_work_at(work, s, picture)->out;
    const char *op = work->plan->stages[s].type.name;
    const bool is_picture = out->axes == PSTI_AXES_PICTURE;
    const uint64_t most =
        is_picture ? psti_limits_default.output_bytes : psti_limits_default.volume_bytes;
    size_t bytes;
    if (psti_geom_bytes(out, &bytes) && bytes <= most)
        return 0;
    if (is_picture)
        psti_fail(err, PST_ELIMIT, op, NULL,
                  "%lld x %lld pixels would come out, more than the limit of %llu MiB",
                  (long long)out->rows, (long long)out->cols, (unsigned long long)(most >> 20));
    else
        psti_fail(err, PST_ELIMIT, op, NULL,
                  "%.0f values would come out of each channel, more than the limit of %llu MiB",
                  psti_geom_area(out), (unsigned long long)(most >> 20));
    return psti_work_fail(work, op, picture, PST_ELIMIT, err);
}

int psti_stage_decide(const psti_stage *stage, int view, const psti_rng_key *key, int64_t id,
                      const psti_scene *scene, psti_step *step, pst_error *err)
{
    const psti_op *op = stage->type.op;
    psti_rng_key mine = *key;
    psti_rng rng;
    if (view)
        mine.view = (uint32_t)view;
    psti_rng_init(&rng, &mine, (uint32_t)stage->place);
    rng.id = id;
    const int rc =
        op->decide_in
            ? op->decide_in(stage->params, &rng, scene, &step->in, &step->draw, &step->out, err)
            : op->decide(stage->params, &rng, &step->in, &step->draw, &step->out, err);
    if (rc == 0 && !step->draw.act)
        step->out = step->in;
    else if (rc == 0)
        psti_geom_keep(op, &step->in, &step->out);
    return rc;
}

static int decide_one(psti_work *work, int s, int picture, const psti_rng_key *key, pst_error *err)
{
    const psti_stage *stage = &work->plan->stages[s];
    psti_step *step = psti_work_at(work, s, picture);
    const psti_scene scene = psti_work_scene(work, picture);
    const int rc = psti_stage_decide(stage, work->plan->pictures[picture].view, key, work->id,
                                     &scene, step, err);
    if (rc)
        return rc < 0 ? psti_work_fail(work, stage->type.name, picture, rc, err) : rc;
    if (work->plan->inputs[work->plan->pictures[picture].input].kind == PST_MASK)
        step->out.dtype = step->in.dtype; /* labels stay what they are, also on their own */
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

static void print_size(const psti_geom *size, char *buf, size_t cap)
{
    int n = 0;
    if (size->axes == PSTI_AXES_VOLUME)
        n = snprintf(buf, cap, "%lld x ", (long long)size->depth);
    snprintf(buf + n, cap - (size_t)n, "%lld x %lld", (long long)size->rows, (long long)size->cols);
}

/* Image and mask share one decision where the op is geometric. */
static int follow_leader(psti_work *work, int s, int picture, pst_error *err)
{
    const int first = work->plan->stages[s].leader[picture];
    const psti_step *leader = psti_work_at(work, s, first);
    psti_step *step = psti_work_at(work, s, picture);
    const char *op = work->plan->stages[s].type.name;
    if (leader->in.rows != step->in.rows || leader->in.cols != step->in.cols ||
        leader->in.depth != step->in.depth) {
        char names[2][PST_NAME_BYTES], sizes[2][64];
        psti_plan_picture_name(work->plan, first, names[0]);
        psti_plan_picture_name(work->plan, picture, names[1]);
        print_size(&leader->in, sizes[0], sizeof sizes[0]);
        print_size(&step->in, sizes[1], sizeof sizes[1]);
        return psti_fail(err, PST_EFIELD, op, NULL,
                         "%s is %s and %s is %s (%srows x columns): what %s moves together must "
                         "have one size",
                         names[0], sizes[0], names[1], sizes[1],
                         leader->in.axes == PSTI_AXES_VOLUME ? "planes x " : "", op);
    }
    step->draw = leader->draw;
    const psti_geom mine = step->in;
    step->out = leader->out;
    step->out.channels = mine.channels;
    step->out.dtype = mine.dtype;
    const psti_stage *stage = &work->plan->stages[s];
    if (step->draw.act && stage->type.op->flags & PSTI_OP_RETYPES &&
        work->plan->inputs[work->plan->pictures[picture].input].kind != PST_MASK) {
        psti_geom made; /* its own type, which need not be the leader's */
        stage->type.op->infer(stage->params, &mine, &made);
        step->out.dtype = made.dtype;
    }
    return check_size(work, s, picture, err);
}

static int decide_stage(psti_work *work, int s, const psti_rng_key *key, pst_error *err)
{
    const psti_stage *stage = &work->plan->stages[s];
    const bool together = stage->type.op->flags & PSTI_OP_GEOMETRIC;
    int rc = 0;
    for (int p = 0; rc == 0 && p < work->plan->picture_count; p++)
        if (stage->pictures & (uint32_t)1 << p && stage->leader[p] == p)
            rc = decide_one(work, s, p, key, err);
    for (int p = 0; rc == 0 && p < work->plan->picture_count; p++)
        if (stage->pictures & (uint32_t)1 << p && stage->leader[p] != p)
            rc = together ? follow_leader(work, s, p, err) : decide_one(work, s, p, key, err);
    return rc;
}

/* The first stage after `from` that does something to the picture, or -1. */
static int next_acting(const psti_work *work, int from, int picture)
{
    for (int s = from + 1; s < work->decided; s++)
        if ((work->plan->stages[s].pictures & (uint32_t)1 << picture) &&
            work->plan->stages[s].type.role != PSTI_ROLE_SURVEY && /* looks, but changes nothing */
            psti_work_at(work, s, picture)->draw.act)
            return s;
    return -1;
}

const psti_draw *psti_work_partial(const psti_work *work, int stage, int picture)
{
    const psti_op *op = work->plan->stages[stage].type.op;
    if (!op || !(op->flags & PSTI_OP_PARTIAL))
        return NULL;
    const int next = next_acting(work, stage, picture);
    if (next < 0 || !(work->plan->stages[next].type.op->flags & PSTI_OP_CROPS))
        return NULL;
    const psti_draw *draw = &psti_work_at(work, next, picture)->draw;
    return draw->rows < 1 || draw->cols < 1 ? NULL : draw;
}

/* Grows a span to hold another one too. */
static void unite(int64_t *first, int64_t *count, int64_t other, int64_t other_count)
{
    const int64_t end = larger(*first + *count, other + other_count);
    *first = smaller(*first, other);
    *count = end - *first;
}

void psti_window_grow(psti_window *window, const psti_draw *draw)
{
    if (window->rows == 0) {
        *window =
            (psti_window){draw->top, draw->left, draw->rows, draw->cols, draw->front, draw->planes};
        return;
    }
    unite(&window->top, &window->rows, draw->top, draw->rows);
    unite(&window->left, &window->cols, draw->left, draw->cols);
    unite(&window->front, &window->planes, draw->front, draw->planes);
}

/* The window that is grown covers what is read of a picture whose next stages come after `from`.
 * False when all of it is. */
static bool cover(const psti_work *work, int from, int picture, psti_window *window)
{
    const int next = next_acting(work, from, picture);
    if (next < 0 || !(work->plan->stages[next].type.op->flags & PSTI_OP_CROPS))
        return false;
    const psti_draw *draw = &psti_work_at(work, next, picture)->draw;
    if (draw->rows < 1 || draw->cols < 1)
        return false;
    psti_window_grow(window, draw);
    return true;
}

/* The same for a picture right after its decode: what it or all its views read. */
static bool cover_decode(const psti_work *work, int stage, int picture, psti_window *window)
{
    const psti_plan *plan = work->plan;
    const int fork = plan->pictures[picture].fork;
    if (fork < 0 || next_acting(work, stage, picture) >= 0)
        return cover(work, stage, picture, window);
    bool part = true;
    for (int p = plan->source_count; part && p < plan->picture_count; p++)
        if (plan->pictures[p].source == picture)
            part = cover(work, fork, p, window);
    return part;
}

static int decode_stage_of(const psti_plan *plan, int picture)
{
    int s = 0;
    while (s < plan->stage_count && (plan->stages[s].type.role != PSTI_ROLE_DECODE ||
                                     !(plan->stages[s].pictures & (uint32_t)1 << picture)))
        s++;
    return s;
}

bool psti_plan_reads_parts(const psti_plan *plan, int input)
{
    const int p = plan->picture_of[input];
    if (p < 0 || plan->pictures[p].decode.axes != PSTI_AXES_VOLUME || plan->pictures[p].fork >= 0)
        return false;
    for (int s = decode_stage_of(plan, p) + 1; s < plan->stage_count; s++) {
        const psti_stage *stage = &plan->stages[s];
        if (stage->pictures & (uint32_t)1 << p && stage->type.role != PSTI_ROLE_SURVEY)
            return stage->type.op && stage->type.op->flags & PSTI_OP_CROPS &&
                   stage->type.op->flags & PSTI_OP_VIEWS;
    }
    return false;
}

int psti_work_reach(const psti_work *work, int input, psti_span *out)
{
    const psti_plan *plan = work->plan;
    const int p = plan->picture_of[input];
    const psti_shot *shot = &work->shots[p];
    const psti_picture *facts = &shot->facts;
    psti_window window = {0};
    if (!shot->need.in_place || facts->channels != 1)
        return PSTI_REACH_ALL;
    if (work->note_wanted && !work->note_known &&
        !(plan->stages[plan->survey].pictures & (uint32_t)1 << p))
        return PSTI_REACH_LATER;
    if (work->whole || !cover_decode(work, decode_stage_of(plan, p), p, &window))
        return PSTI_REACH_ALL;
    const uint64_t size = psti_dtype_bytes(facts->dtype);
    const uint64_t row = (uint64_t)facts->cols * size, plane = (uint64_t)facts->rows * row;
    const uint64_t data = (uint64_t)(shot->need.in_place - work->inputs[input].bytes);
    out->offset = data + (uint64_t)window.front * plane + (uint64_t)window.top * row +
                  (uint64_t)window.left * size;
    out->length = (uint64_t)(window.rows - 1) * row + (uint64_t)window.cols * size;
    out->step = plane;
    out->count = window.planes;
    return PSTI_REACH_SPAN;
}

/* Which window to decode, and which rows must be sound: those that crops right after decode read,
 * with the decoder's pad, else all. The rows do not depend on how the picture is decoded, so
 * neither does the verdict. */
static void aim_decode(psti_work *work, int stage, int picture)
{
    psti_shot *shot = &work->shots[picture];
    psti_window window = {0};
    shot->window = (psti_window){0};
    shot->used_rows = shot->facts.rows;
    if (!cover_decode(work, stage, picture, &window))
        return;
    const int64_t end = window.top + window.rows + PSTI_CROP_PAD;
    if (end < shot->used_rows)
        shot->used_rows = end;
    const bool whole = window.rows == shot->facts.rows && window.cols == shot->facts.cols &&
                       (shot->facts.axes != PSTI_AXES_VOLUME || window.planes == shot->facts.depth);
    if (!whole && shot->facts.can_crop && !work->plan->force_full && !work->whole)
        shot->window = window;
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

/* One stage, from what the stage before it left; views begin from what it left of their source. */
static int decide_next(psti_work *work, pst_error *err)
{
    const psti_plan *plan = work->plan;
    const int s = work->decided;
    for (int p = 0; p < plan->picture_count; p++) {
        const bool begins = plan->stages[s].type.role == PSTI_ROLE_VIEWS &&
                            plan->stages[s].pictures & (uint32_t)1 << p;
        const int from = begins ? plan->pictures[p].source : p;
        const psti_geom now =
            s ? psti_work_at(work, s - 1, from)->out : psti_picture_geom(&work->shots[p].facts);
        *psti_work_at(work, s, p) = (psti_step){.in = now, .out = now, .draw.act = true};
    }
    work->decided++;
    const int rc = plan->stages[s].type.op ? decide_stage(work, s, &work->key, err) : 0;
    if (rc == 0)
        psti_work_follow_objects(work, s);
    return rc;
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
    if (rc == PSTI_DECIDE_NEEDS_NOTE) { /* the stage before it will find it */
        work->note_wanted = true;
        work->decided--;
        rc = 0;
    }
    return rc;
}

int psti_work_decide(psti_work *work, const psti_rng_key *key, pst_error *err)
{
    work->key = *key;
    work->decided = 0;
    int rc = psti_work_take_objects(work, err);
    if (rc == 0)
        rc = psti_work_decide_on(work, err);
    if (rc == 0)
        rc = psti_work_settle_objects(work, err);
    if (rc == 0)
        psti_work_aim(work);
    return rc;
}
