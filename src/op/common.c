/* SPDX-License-Identifier: Apache-2.0
 * Small arithmetic that several ops need, and the context they work in. No state; any thread. */
#include <string.h>

#include "core/status.h"
#include "op/op_priv.h"

int64_t psti_round_even(double x)
{
    const int64_t whole = (int64_t)x;
    const double rest = x - (double)whole;
    return whole + (rest > 0.5 || (rest == 0.5 && (whole & 1)));
}

void psti_draw_whole(psti_draw *draw, const psti_geom *in)
{
    *draw = (psti_draw){.rows = in->rows, .cols = in->cols, .planes = in->depth, .act = true};
}

void psti_infer_same(const void *params, const psti_geom *in, psti_geom *out)
{
    (void)params;
    *out = *in;
}

void psti_size_of(const psti_list *size, int64_t *rows, int64_t *cols)
{
    *rows = (int64_t)size->v[0];
    *cols = (int64_t)size->v[size->count > 1];
}

void psti_geom_keep(const psti_op *op, const psti_geom *in, psti_geom *out)
{
    if (!(op->flags & PSTI_OP_RETYPES)) {
        out->depth = in->depth;
        out->dtype = in->dtype;
        out->axes = in->axes;
        memcpy(out->unit, in->unit, sizeof out->unit);
    }
    if (op->becomes)
        out->axes = (psti_axes)(op->becomes - 1);
}

static int check_volume(const char *op, const psti_geom *out, pst_error *err)
{
    const psti_geom sized = {out->rows,  out->cols,  out->channels,
                             out->depth, out->dtype, out->axes};
    const long long depth = out->depth, rows = out->rows, cols = out->cols;
    size_t bytes;
    if (depth < 1 || rows < 1 || cols < 1)
        return psti_fail(err, PST_EFIELD, op, NULL,
                         "the result would have %lld planes, %lld rows and %lld columns: the "
                         "volume is too small for this size",
                         depth, rows, cols);
    if (psti_geom_bytes(&sized, &bytes) && (int64_t)bytes <= PSTI_OUT_BYTES_MAX_VOLUME)
        return 0;
    return psti_fail(err, PST_ELIMIT, op, NULL,
                     "the result would have %lld planes, %lld rows and %lld columns, more than "
                     "%lld MiB: ask for a smaller size",
                     depth, rows, cols, (long long)(PSTI_OUT_BYTES_MAX_VOLUME >> 20));
}

int psti_out_check(const char *op, const psti_geom *out, pst_error *err)
{
    if (out->axes == PSTI_AXES_VOLUME)
        return check_volume(op, out, err);
    if (out->rows < 1 || out->cols < 1)
        return psti_fail(err, PST_EFIELD, op, NULL,
                         "the result would have %lld rows and %lld columns: the picture is too "
                         "narrow for this size",
                         (long long)out->rows, (long long)out->cols);
    int64_t bytes;
    if (out->rows > INT32_MAX || out->cols > INT32_MAX ||
        __builtin_mul_overflow(out->rows, out->cols, &bytes) ||
        __builtin_mul_overflow(bytes, out->channels, &bytes) || bytes > PSTI_OUT_BYTES_MAX)
        return psti_fail(err, PST_ELIMIT, op, NULL,
                         "the result would have %lld rows and %lld columns, more than %lld MiB: "
                         "ask for a smaller size",
                         (long long)out->rows, (long long)out->cols,
                         (long long)(PSTI_OUT_BYTES_MAX >> 20));
    return 0;
}

size_t psti_pixel_bytes(const psti_field *field)
{
    if (field->rank != 3 || field->shape[2] < 1 || field->shape[2] > 4 ||
        (field->dtype != PST_U8 && field->dtype != PST_U16))
        return 0;
    return (size_t)field->shape[2] * psti_dtype_bytes(field->dtype);
}

const uint8_t *psti_pixel_at(const psti_field *field, int64_t row, int64_t col)
{
    return field->data + (size_t)(row - field->y0) * field->stride +
           (size_t)(col - field->x0) * psti_pixel_bytes(field);
}

void psti_op_ctx_fini(psti_op_ctx *ctx)
{
    psti_buf_free(&ctx->rows);
    psti_buf_free(&ctx->weights);
    psti_buf_free(&ctx->spare[0]);
    psti_buf_free(&ctx->spare[1]);
}

size_t psti_op_ctx_bytes(const psti_op_ctx *ctx)
{
    return ctx->rows.cap + ctx->weights.cap + ctx->spare[0].cap + ctx->spare[1].cap;
}

void psti_op_ctx_trim(psti_op_ctx *ctx, size_t keep)
{
    psti_buf *const bufs[] = {&ctx->rows, &ctx->weights, &ctx->spare[0], &ctx->spare[1]};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) {
        if (bufs[i]->cap > keep)
            psti_buf_free(bufs[i]);
        keep -= bufs[i]->cap;
    }
}
