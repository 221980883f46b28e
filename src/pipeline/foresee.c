/* SPDX-License-Identifier: Apache-2.0
 * What a sample's work will be, in numbers, before it is done: from the size of its bytes, the
 * size of its pictures as far as known, and the branches that its random key draws. Each op's own
 * `decide` is asked with the generator that it will be asked with later, so a branch that is
 * foreseen is the branch that is taken. What the numbers cost in seconds is for others to learn.
 * Any thread; no lock, no allocation. */
#include <string.h>

#include "pipeline/pipeline_priv.h"

/* Of pictures of which only the bytes are known: a photo's, at usual quality. */
static const double PIXELS_A_BYTE = 2;
static const double NOMINAL_BYTES = 94e3;
static const double COLS_A_ROW = 4.0 / 3;
/* Of volumes and recordings, between packed and not. */
static const double ELEMENTS_A_BYTE = 0.5;
static const double USUAL_RATE = 16000;

typedef struct walk {
    const psti_plan *plan;
    const psti_rng_key *key;
    int64_t id;
    const psti_work *work; /* NULL: nothing is decided yet */
    int from;              /* the first stage that is still to be carried out */
    double *out;
    psti_geom now[PSTI_PICTURES_MAX];
    bool acted[PSTI_PICTURES_MAX];        /* something did, since the picture was decoded */
    bool whole[PSTI_SOURCES_MAX];         /* all of the picture is read by what acts first */
    psti_window window[PSTI_SOURCES_MAX]; /* else what is read of it, over all views */
    bool open;                            /* sizes are guesses: behind one of open size */
} walk;

/* Of a window of something of this size. */
static double window_area(const psti_geom *size, int64_t rows, int64_t cols, int64_t planes)
{
    return psti_geom_area(&(psti_geom){rows, cols, 1, planes, .axes = size->axes});
}

/* ---- which numbers --------------------------------------------------------------------------- */

/* Whether to count how often the op acts: where a draw decides that, and where its time is not that
 * of its pixels, since it has parts. What a crop draws shows in the pixels. */
static bool may_idle(const psti_stage *stage)
{
    const psti_op *op = stage->type.op;
    return op && !psti_op_type_call(&stage->type) && !(op->flags & PSTI_OP_CROPS) &&
           (op->flags & PSTI_OP_RANDOM || op->parts);
}

int psti_plan_features(const psti_plan *plan)
{
    int count = PSTI_F_BRANCHES;
    for (int s = 0; s < plan->stage_count && count < PSTI_FEATURES_MAX; s++)
        count += may_idle(&plan->stages[s]);
    return count;
}

/* How often it acts: once, or as often as a policy chose something. */
static int picks_of(const psti_draw *draw)
{
    int picks = 0;
    for (int i = 0; i < draw->pick_count; i++)
        picks += draw->picks[i].change != 0;
    return picks ? picks : 1;
}

/* ---- stage by stage -------------------------------------------------------------------------- */

/* As psti_work_decide does it. Followers are of their leader's size or the sample is bad; what is
 * not decided, because it does not fit, is taken not to act. */
static void step_of(const walk *w, int s, int p, const psti_geom *before, psti_step *step)
{
    const psti_stage *stage = &w->plan->stages[s];
    const bool together = stage->type.op->flags & PSTI_OP_GEOMETRIC;
    if (w->work && s < w->work->decided) {
        *step = *psti_work_at(w->work, s, p);
        return;
    }
    const psti_geom in = before[together ? stage->leader[p] : p];
    *step = (psti_step){.in = in, .out = in, .draw.act = true};
    if (psti_stage_decide(stage, w->plan->pictures[p].view, w->key, w->id, NULL, step, NULL) < 0) {
        step->out = step->in;
        step->draw.act = false;
    }
    if (together) {
        step->in.channels = step->out.channels = before[p].channels;
        step->in.dtype = step->out.dtype = before[p].dtype;
    }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The first op that acts on a picture says what of it is to be decoded. */
static void note_first(walk *w, const psti_stage *stage, int p, const psti_step *step)
{
    const int source = w->plan->pictures[p].source < 0 ? p : w->plan->pictures[p].source;
    if (w->acted[p])
        return;
    w->acted[p] = true;
    if (!w->open && stage->type.op->flags & PSTI_OP_CROPS && step->draw.rows > 0 &&
        step->draw.cols > 0)
        psti_window_grow(&w->window[source], &step->draw);
    else
        w->whole[source] = true;
}

static void count_pixels(walk *w, const psti_stage *stage, const psti_step *step)
{
    const bool crops = stage->type.op->flags & PSTI_OP_CROPS;
    const psti_draw *draw = &step->draw;
    const double in = psti_geom_area(&step->in);
    if (stage->type.op->flags & PSTI_OP_VIEWS)
        return;
    if (crops || step->in.rows != step->out.rows || step->in.cols != step->out.cols ||
        step->in.depth != step->out.depth) {
        w->out[PSTI_F_READ] +=
            crops ? window_area(&step->in, draw->rows, draw->cols, draw->planes) : in;
        w->out[PSTI_F_MADE] += psti_geom_area(&step->out);
    } else {
        w->out[PSTI_F_TOUCHED] += in;
    }
}

/* branch: where the op's acting is counted, or -1. */
static void pass_op(walk *w, int s, int branch)
{
    const psti_plan *plan = w->plan;
    const psti_stage *stage = &plan->stages[s];
    psti_geom before[PSTI_PICTURES_MAX];
    psti_step step;
    memcpy(before, w->now, (size_t)plan->picture_count * sizeof *before);
    for (int p = 0; p < plan->picture_count; p++) {
        if (!(stage->pictures & (uint32_t)1 << p))
            continue;
        step_of(w, s, p, before, &step);
        w->now[p] = step.out;
        if (!step.draw.act)
            continue;
        note_first(w, stage, p, &step);
        if (s < w->from)
            continue;
        count_pixels(w, stage, &step);
        if (branch >= 0)
            w->out[branch] += picks_of(&step.draw);
    }
    w->open |= psti_stage_open(stage);
}

/* Views begin as what their source has become. */
static void pass_fork(walk *w, const psti_stage *stage)
{
    for (int p = w->plan->source_count; p < w->plan->picture_count; p++) {
        const int source = w->plan->pictures[p].source;
        if (!(stage->pictures & (uint32_t)1 << p))
            continue;
        w->now[p] = w->now[source];
        w->acted[p] = w->acted[source];
    }
}

static void pass_all(walk *w)
{
    const psti_plan *plan = w->plan;
    int next = PSTI_F_BRANCHES;
    for (int s = 0; s < plan->stage_count; s++) {
        const psti_stage *stage = &plan->stages[s];
        const bool idles = may_idle(stage);
        if (stage->type.role == PSTI_ROLE_VIEWS)
            pass_fork(w, stage);
        else if (stage->type.op)
            pass_op(w, s, idles ? next : -1);
        next += idles && next < PSTI_FEATURES_MAX - 1;
    }
    for (int p = 0; p < plan->picture_count; p++) {
        const int source = plan->pictures[p].source < 0 ? p : plan->pictures[p].source;
        if (plan->pictures[p].fork >= 0)
            continue;
        w->out[PSTI_F_TOUCHED] += psti_geom_area(&w->now[p]);
        w->whole[source] |= !w->acted[p];
    }
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* What is decoded of a picture. */
static psti_window window_of(const walk *w, int p, const psti_geom *size)
{
    const psti_window everything = {0, 0, size->rows, size->cols, 0, size->depth};
    psti_window window = w->window[p];
    const bool all = w->whole[p] || w->plan->force_full;
    if (w->work) {
        window = w->work->shots[p].window;
        return window.rows ? window : everything;
    }
    if (all || !window.rows)
        return everything;
    /* A crop may read beyond the picture, where it pads. */
    const int64_t bottom = window.top + window.rows, right = window.left + window.cols;
    window.top = larger(window.top, 0);
    window.left = larger(window.left, 0);
    window.rows = (bottom < size->rows ? bottom : size->rows) - window.top;
    window.cols = (right < size->cols ? right : size->cols) - window.left;
    if (window.planes > size->depth)
        window.planes = size->depth;
    return window;
}

/* Several pictures are taken to have their bytes in equal parts. */
static void count_decodes(walk *w, const psti_geom *sizes, double bytes)
{
    const int sources = w->plan->source_count;
    double used = 0;
    w->out[PSTI_F_BYTES] = bytes;
    for (int p = 0; p < sources; p++) {
        const psti_window window = window_of(w, p, &sizes[p]);
        w->out[PSTI_F_PIXELS] += psti_geom_area(&sizes[p]);
        w->out[PSTI_F_WINDOW] += window_area(&sizes[p], window.rows, window.cols, window.planes);
        used += (double)(window.top + window.rows) / (double)sizes[p].rows;
    }
    w->out[PSTI_F_UP_TO] = sources ? bytes * used / sources : bytes;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void begin(walk *w, double *features)
{
    memset(features, 0, (size_t)psti_plan_features(w->plan) * sizeof *features);
    memset(w->acted, 0, sizeof w->acted);
    memset(w->whole, 0, sizeof w->whole);
    memset(w->window, 0, sizeof w->window);
    w->open = false;
    w->out = features;
    w->out[PSTI_F_ONE] = 1;
}

/* The same for what is no picture: a cube, or a mono recording. */
static psti_geom guess_other(psti_axes axes, double bytes)
{
    const double elements = bytes * ELEMENTS_A_BYTE + 1;
    psti_geom size = {(int64_t)elements, 1, 1, .dtype = PST_F32, .axes = axes};
    if (axes == PSTI_AXES_WAVE)
        size.unit[0] = USUAL_RATE;
    if (axes != PSTI_AXES_VOLUME)
        return size;
    size.depth = 1;
    while ((double)(size.depth + 1) * (double)(size.depth + 1) * (double)(size.depth + 1) <=
           elements)
        size.depth++;
    size.rows = size.cols = size.depth;
    return size;
}

/* The size of a picture that nobody has looked at. */
static psti_geom guess_size(const walk *w, int p, const psti_known *known)
{
    const psti_decode_options *decode = &w->plan->pictures[p].decode;
    const bool gray = decode->kind == PST_MASK || decode->color == PSTI_COLOR_GRAY;
    const int channels = gray ? 1 : 3;
    const double bytes = known->bytes > 0 ? known->bytes / w->plan->source_count : NOMINAL_BYTES;
    if (decode->axes != PSTI_AXES_PICTURE)
        return guess_other(decode->axes, bytes);
    psti_geom size = {known->rows, known->cols, channels, .dtype = PST_U8};
    if (known->rows > 0 && known->cols > 0)
        return size;
    const double rows = __builtin_sqrt(bytes * PIXELS_A_BYTE / COLS_A_ROW);
    size.rows = (int64_t)rows + 1;
    size.cols = (int64_t)(rows * COLS_A_ROW) + 1;
    return size;
}

void psti_plan_foresee(const psti_plan *plan, const psti_rng_key *key, int64_t id,
                       const psti_known *known, double *features)
{
    psti_geom sizes[PSTI_SOURCES_MAX];
    walk w;
    w.plan = plan;
    w.key = key;
    w.id = id;
    w.work = NULL;
    w.from = known->augmented ? plan->stage_count : known->decoded ? plan->decoded_stages : 0;
    begin(&w, features);
    for (int p = 0; p < plan->source_count; p++) {
        w.now[p] = sizes[p] = guess_size(&w, p, known);
        /* Masks of pictures come in formats that cannot be decoded in part. */
        w.whole[p] = known->whole || (plan->inputs[plan->pictures[p].input].kind == PST_MASK &&
                                      sizes[p].axes == PSTI_AXES_PICTURE);
    }
    pass_all(&w);
    if (w.from == 0)
        count_decodes(&w, sizes, known->bytes);
}

void psti_work_foresee(const psti_work *work, double *features)
{
    const psti_plan *plan = work->plan;
    psti_geom sizes[PSTI_SOURCES_MAX];
    double bytes = 0;
    walk w;
    w.plan = plan;
    w.key = &work->key;
    w.id = work->id;
    w.work = work;
    w.from = work->cursor;
    begin(&w, features);
    for (int p = 0; p < plan->source_count; p++) {
        w.now[p] = sizes[p] = psti_picture_geom(&work->shots[p].facts);
        bytes += (double)work->inputs[plan->pictures[p].input].size;
    }
    pass_all(&w);
    if (w.from == 0)
        count_decodes(&w, sizes, bytes);
}
