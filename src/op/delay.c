/* SPDX-License-Identifier: Apache-2.0
 * delay: pictures as they came, and time gone by. It stands for a costly step of a pipeline where
 * schedules are tried out, so it can do what costly steps do: hit some samples only, evenly, at
 * random or in runs; be known ahead or not; take its time in several parts; sleep or compute. This
 * is the one place below src/ that sleeps: the time is the result. Worker threads; no memory. */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "op/op_priv.h"

enum { DRAWN, HIDDEN };
enum { SLEEP, BURN };

typedef struct delay_params {
    double ms, share;
    int64_t runs, stages;
    int hits, by;
} delay_params;

static const char *const hits_words[] = {"drawn", "hidden", NULL};
static const char *const by_words[] = {"sleep", "burn", NULL};

static const psti_param table[] = {
    {.name = "ms",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(delay_params, ms),
     .min = 0,
     .max = 600000,
     .help = "milliseconds for each image that is hit"},
    {.name = "share",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(delay_params, share),
     .min = 0,
     .max = 1,
     .def = "1",
     .help = "of the samples that are hit"},
    {.name = "runs",
     .type = PSTI_P_INT,
     .offset = offsetof(delay_params, runs),
     .min = 0,
     .max = 1000000,
     .def = "0",
     .help = "how many samples that follow each other by number are hit together; 0 = at random"},
    {.name = "stages",
     .type = PSTI_P_INT,
     .offset = offsetof(delay_params, stages),
     .min = 1,
     .max = 1000,
     .def = "1",
     .help = "equal parts, between which a sample can be put aside"},
    {.name = "hits",
     .type = PSTI_P_WORD,
     .offset = offsetof(delay_params, hits),
     .words = hits_words,
     .bare = true,
     .def = "drawn",
     .help = "drawn: which samples are hit is known before they start; hidden: nobody can tell"},
    {.name = "by",
     .type = PSTI_P_WORD,
     .offset = offsetof(delay_params, by),
     .words = by_words,
     .bare = true,
     .def = "sleep",
     .help = "sleep: time alone; burn: CPU time"},
    {.name = NULL},
};

/* ---- which samples --------------------------------------------------------------------------- */

/* The first `runs` ids of every so many. */
static bool in_run(const delay_params *params, int64_t id)
{
    if (params->share <= 0)
        return false;
    const int64_t every = (int64_t)((double)params->runs / params->share + 0.5);
    return id % every < params->runs;
}

/* By the id alone, the same in every epoch. */
static bool by_hash(const delay_params *params, int64_t id)
{
    psti_rng rng;
    psti_rng_init(&rng, &(psti_rng_key){.seed = 0x64656c6179, .id = (uint64_t)id}, 0);
    return psti_rng_unit(&rng) < params->share;
}

bool psti_delay_hits(const void *p, int64_t id)
{
    const delay_params *params = p;
    return params->runs > 0 ? in_run(params, id) : by_hash(params, id);
}

static bool at_random(const delay_params *params)
{
    return params->hits == DRAWN && params->runs == 0 && params->share > 0 && params->share < 1;
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)err;
    const delay_params *params = p;
    psti_draw_whole(draw, in);
    *out = *in;
    if (at_random(params))
        draw->act = psti_rng_unit(rng) < params->share;
    else if (params->hits == DRAWN)
        draw->act = psti_delay_hits(params, rng->id);
    return 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void sleep_ns(uint64_t ns)
{
    const struct timespec until = psti_timespec_ns(psti_now_ns() + ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static void burn_ns(uint64_t ns)
{
    const double until = psti_cpu_s() + (double)ns * 1e-9;
    while (psti_cpu_s() < until)
        for (volatile int i = 0; i < 1000; i++)
            ;
}

static int parts(const void *p)
{
    const delay_params *params = p;
    return (int)params->stages;
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    (void)draw;
    const delay_params *params = p;
    (void)err;
    if (out->data != in->data)
        psti_field_copy(in, out);
    if (params->hits == HIDDEN && !psti_delay_hits(params, ctx->id))
        return 0;
    const uint64_t ns = (uint64_t)(params->ms * 1e6 / (double)params->stages);
    if (params->by == BURN)
        burn_ns(ns);
    else
        sleep_ns(ns);
    return 0;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static const psti_op *variant(const void *params);

#define DELAY_OP(random)                                                                           \
    {                                                                                              \
        .name = "delay", .summary = "time that goes by, for trying out schedules; pixels stay",    \
        .params = table, .params_bytes = sizeof(delay_params),                                     \
        .flags = PSTI_OP_INPLACE | PSTI_OP_MOVES | (random), .on = PSTI_ON_ALL,                    \
        .variant = variant, .infer = psti_infer_same, .decide = decide, .parts = parts,            \
        .run = run,                                                                                \
    }
const psti_op psti_op_delay = DELAY_OP(0);
static const psti_op drawn_op = DELAY_OP(PSTI_OP_RANDOM);

static const psti_op *variant(const void *params)
{
    return at_random(params) ? &drawn_op : &psti_op_delay;
}
