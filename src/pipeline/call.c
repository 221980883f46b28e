/* SPDX-License-Identifier: Apache-2.0
 * call(name): a stage that a function of the caller's carries out. To the plan it is an op like
 * others, without masks and without a run of its own; the function comes with the job and is kept
 * in the stage. Its result goes into the picture's other buffer. Worker threads; no lock is held
 * while the function runs, which may block. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

enum { CHANNELS_MOST = 4 };

/* ---- the op ---------------------------------------------------------------------------------- */

static const psti_param table[] = {
    {.name = "name",
     .type = PSTI_P_NAME,
     .offset = offsetof(psti_call_params, name),
     .help = "of the function, as it is given with the job"},
    {.name = "size",
     .type = PSTI_P_LIST,
     .offset = offsetof(psti_call_params, size),
     .min = 1,
     .max = 65536,
     .min_count = 2,
     .max_count = 3,
     .whole = true,
     .def = "",
     .help = "of the result: rows, columns, and channels if they change; none = as it came"},
    {.name = "any",
     .type = PSTI_P_BOOL,
     .offset = offsetof(psti_call_params, any),
     .def = "false",
     .help = "the result may have any number of rows and columns"},
    {.name = "fixed",
     .type = PSTI_P_BOOL,
     .offset = offsetof(psti_call_params, fixed),
     .def = "false",
     .help = "the result depends on the picture alone, so it may be cached"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const psti_call_params *params = p;
    if (params->any && params->size.count)
        return psti_fail(err, PST_EPIPELINE, "call", NULL, "give either size or any=true");
    if (params->any && params->fixed)
        return psti_fail(err, PST_EPIPELINE, "call", NULL,
                         "a result is kept in the cache only where its size is known ahead: leave "
                         "out any or fixed");
    if (params->size.count > 2 && params->size.v[2] > CHANNELS_MOST)
        return psti_fail(err, PST_EPIPELINE, "call", NULL, "a picture has 1 to %d channels",
                         CHANNELS_MOST);
    return 0;
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    const psti_call_params *params = p;
    *out = params->any ? (psti_geom){-1, -1, in->channels} : *in;
    if (!params->size.count)
        return;
    out->rows = (int64_t)params->size.v[0];
    out->cols = (int64_t)params->size.v[1];
    if (params->size.count > 2)
        out->channels = (int64_t)params->size.v[2];
}

/* Under any=true the size that came stands for the one that will. */
static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)err;
    const psti_call_params *params = p;
    *draw = (psti_draw){.rows = in->rows, .cols = in->cols, .act = true};
    if (!params->fixed) {
        draw->v[0] = psti_rng_u32(rng);
        draw->v[1] = psti_rng_u32(rng);
    }
    if (params->any)
        *out = *in;
    else
        infer(p, in, out);
    return 0;
}

static uint64_t seed_of(const psti_draw *draw)
{
    return (uint64_t)draw->v[0] << 32 | (uint64_t)draw->v[1];
}

static const psti_op *variant(const void *params);

#define CALL_OP(with)                                                                              \
    {                                                                                              \
        .name = "call", .summary = "a function of the caller's on each image, known by its name",  \
        .params = table, .params_bytes = sizeof(psti_call_params), .flags = (with),                \
        .check = check, .variant = variant, .infer = infer, .decide = decide,                      \
    }
const psti_op psti_call_op = CALL_OP(PSTI_OP_RANDOM);
static const psti_op fixed_op = CALL_OP(0);

/* A fixed call is an op without randomness. */
static const psti_op *variant(const void *p)
{
    const psti_call_params *params = p;
    return params->fixed ? &fixed_op : &psti_call_op;
}

/* ---- the functions --------------------------------------------------------------------------- */

int psti_plan_set_calls(psti_plan *plan, const pst_call *calls, int count, pst_error *err)
{
    for (int s = 0; s < plan->stage_count; s++) {
        psti_stage *stage = &plan->stages[s];
        if (!psti_op_type_call(&stage->type))
            continue;
        for (int i = 0; i < count; i++)
            if (strcmp(calls[i].name, stage->type.name) == 0)
                stage->call = calls[i];
        stage->call.name = stage->type.name;
        if (!stage->call.run)
            return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, stage->offset,
                                "call(%s) needs a program that provides it: no function of that "
                                "name is given here",
                                stage->type.name);
    }
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

struct pst_call_out {
    psti_shot *shot;
    psti_geom want; /* any: of the channels alone */
    bool any;
    psti_field field; /* the result; data is NULL until its size is known */
    int failed;
    pst_error *err;
};

static bool as_declared(const pst_call_out *out, const psti_geom *size)
{
    const psti_geom *want = &out->want;
    return size->channels == want->channels &&
           (out->any || (size->rows == want->rows && size->cols == want->cols));
}

static int check_result(const pst_call_out *out, const psti_geom *size, size_t *bytes)
{
    const long long rows = size->rows, cols = size->cols, channels = size->channels;
    const psti_geom *want = &out->want;
    if (as_declared(out, size) && psti_geom_bytes(size, bytes) &&
        *bytes <= psti_limits_default.output_bytes)
        return 0;
    if (as_declared(out, size))
        return psti_fail(out->err, PST_ECALL, "call", NULL,
                         "the function gave a picture of %lld x %lld x %lld (rows, columns, "
                         "channels), which is empty or more than %llu MiB",
                         rows, cols, channels,
                         (unsigned long long)(psti_limits_default.output_bytes >> 20));
    if (out->any)
        return psti_fail(out->err, PST_ECALL, "call", NULL,
                         "the function gave a picture of %lld x %lld x %lld (rows, columns, "
                         "channels), and %lld channels are expected: any=true leaves rows and "
                         "columns open",
                         rows, cols, channels, (long long)want->channels);
    return psti_fail(out->err, PST_ECALL, "call", NULL,
                     "the function gave a picture of %lld x %lld x %lld (rows, columns, "
                     "channels), and %lld x %lld x %lld is expected: declare size= or any=true",
                     rows, cols, channels, (long long)want->rows, (long long)want->cols,
                     (long long)want->channels);
}

uint8_t *pst_call_size(pst_call_out *out, int64_t rows, int64_t cols, int64_t channels)
{
    const psti_geom size = {rows, cols, channels, .dtype = PST_U8};
    psti_shot *shot = out->shot;
    psti_buf *buf = &shot->buf[!shot->at];
    size_t bytes = 0;
    out->field.data = NULL;
    out->failed = check_result(out, &size, &bytes);
    if (out->failed == 0 && psti_buf_need(PSTI_MEM_PIPELINE, buf, bytes) < 0)
        out->failed = psti_fail(out->err, -ENOMEM, "call", NULL,
                                "out of memory for a picture of %zu bytes", bytes);
    if (out->failed < 0)
        return NULL;
    out->field = psti_field_of(shot->now.kind, &size);
    out->field.data = buf->data;
    return out->field.data;
}

/* The function, and whether it did what it said. why: only its message counts. */
static int run_function(const pst_call *call, const pst_call_in *in, pst_call_out *out)
{
    pst_error *why = out->err;
    const int rc = call->run ? call->run(call->user, in, out, why) : PST_ECALL;
    if (out->failed < 0)
        return out->failed;
    if (rc < 0 && !why->message[0])
        snprintf(why->message, sizeof why->message, "the function failed with code %d", rc);
    if (rc < 0)
        return PST_ECALL;
    if (!out->field.data)
        return psti_fail(why, PST_ECALL, "call", NULL,
                         "the function gave no result: it asks for memory by pst_call_size");
    return 0;
}

int psti_call_check_size(const psti_work *work, int s, int p, pst_error *err)
{
    const psti_plan *plan = work->plan;
    const psti_stage *stage = &plan->stages[s];
    const psti_step *step = psti_work_at(work, s, p);
    if (!psti_op_type_call(&stage->type) ||
        (step->in.rows == step->out.rows && step->in.cols == step->out.cols))
        return 0;
    for (int q = 0; q < plan->picture_count; q++) {
        const psti_plan_input *input = &plan->inputs[plan->pictures[q].input];
        if (input->kind != PST_MASK)
            continue;
        psti_fail(err, PST_EFIELD, stage->type.name, NULL,
                  "the function makes %lld x %lld of %lld x %lld (rows x columns), and the mask %s "
                  "stays as it is: keep the size, or leave the mask out of the fields",
                  (long long)step->out.rows, (long long)step->out.cols, (long long)step->in.rows,
                  (long long)step->in.cols, input->name);
        return psti_work_fail(work, stage->type.name, p, PST_EFIELD, err);
    }
    return 0;
}

int psti_work_call(psti_work *work, int p, pst_error *err)
{
    const int s = work->cursor;
    const psti_stage *stage = &work->plan->stages[s];
    psti_step *step = psti_work_at(work, s, p);
    psti_shot *shot = &work->shots[p];
    const pst_call_in in = {.id = work->id,
                            .seed = seed_of(&step->draw),
                            .rows = shot->now.shape[0],
                            .cols = shot->now.shape[1],
                            .channels = shot->now.shape[2],
                            .stride = shot->now.stride,
                            .data = shot->now.data};
    pst_error why;
    psti_error_clear(&why);
    pst_call_out out = {
        .shot = shot, .want = step->out, .any = psti_stage_open(stage), .err = &why};
    const int rc = run_function(&stage->call, &in, &out);
    if (rc < 0) {
        psti_fail(err, rc, stage->type.name, NULL, "%s", why.message);
        return psti_work_fail(work, stage->type.name, p, rc, err);
    }
    shot->now = out.field;
    shot->at = !shot->at;
    shot->borrowed = false;
    step->out = psti_field_geom(&out.field);
    return psti_call_check_size(work, s, p, err);
}
