/* SPDX-License-Identifier: Apache-2.0
 * An op tried out: its parameters, one decision, pictures to run it on and to compare. For tests.
 */
#ifndef PSTI_TESTS_OP_TRIAL_H
#define PSTI_TESTS_OP_TRIAL_H

#include "check.h"
#include "op_args.h"

enum { PARAMS_BYTES = 1024 };

/* An op with its parameters and one decision in hand. */
typedef struct trial {
    const psti_op *op;
    _Alignas(16) uint8_t params[PARAMS_BYTES];
    psti_rng rng;
    psti_draw draw;
    psti_geom out;
    pst_error err;
} trial;

static inline trial trial_of(const char *name, const char *a, const char *b, const char *c)
{
    const char *const texts[] = {a, b, c};
    trial t = {.op = psti_op_find(name, strlen(name))};
    CHECKF(t.op != NULL, "%s", name);
    CHECKF(args_parse(t.op, t.params, texts, !a ? 0 : !b ? 1 : !c ? 2 : 3), "%s", name);
    psti_rng_init(&t.rng, &(psti_rng_key){.seed = 7}, 0);
    return t;
}

/* An op with parameters that any op of its kind takes; p for those that have a probability. */
static inline trial trial_usual(const psti_op *op, const char *p)
{
    static const char *const known[] = {
        "size=20",    "padding=3", "kernel=5",  "factor=0.4", "threshold=100", "bits=3", "hue=0.2",
        "degrees=10", "angle=10",  "level=0.3", "pixels=3",   "ms=0",          NULL};
    const char *texts[2] = {NULL, NULL};
    char chance[32];
    int count = 0;
    snprintf(chance, sizeof chance, "p=%s", p);
    for (const psti_param *param = op->params; param->name; param++) {
        const size_t len = strlen(param->name);
        if (strcmp(param->name, "p") == 0)
            texts[count++] = chance;
        for (int i = 0; known[i] && count == 0; i++)
            if (strncmp(known[i], param->name, len) == 0 && known[i][len] == '=')
                texts[count++] = known[i];
    }
    return trial_of(op->name, texts[0], texts[1], NULL);
}

static inline int decide(trial *t, int64_t rows, int64_t cols, int64_t channels)
{
    const psti_geom in = {rows, cols, channels};
    return t->op->decide(t->params, &t->rng, &in, &t->draw, &t->out, &t->err);
}

static inline psti_field field_of(int64_t rows, int64_t cols, int64_t channels, int dtype)
{
    psti_field f = {
        .kind = PST_IMAGE, .dtype = (uint8_t)dtype, .rank = 3, .shape = {rows, cols, channels}};
    f.stride = (size_t)(cols * channels) * psti_dtype_bytes(dtype) + 5;
    f.bytes = f.stride * (size_t)rows;
    f.data = calloc(f.bytes + 64, 1);
    f.whole_rows = rows;
    f.whole_cols = cols;
    f.first_damaged_row = PSTI_ROWS_SOUND;
    return f;
}

/* Every pixel tells where it stands. */
static inline psti_field numbered(int64_t rows, int64_t cols, int64_t channels, int dtype)
{
    psti_field f = field_of(rows, cols, channels, dtype);
    for (int64_t y = 0; y < rows; y++) {
        for (int64_t i = 0; i < cols * channels; i++) {
            const uint16_t value = (uint16_t)(y * 31 + i * 7 + 1);
            uint8_t *at = f.data + (size_t)y * f.stride + (size_t)i * psti_dtype_bytes(dtype);
            if (dtype == PST_U16)
                memcpy(at, &value, 2);
            else
                *at = (uint8_t)value;
        }
    }
    return f;
}

/* The field cut down to a window, as a decoder that made no more would give it. */
static inline psti_field window_of(const psti_field *f, int64_t top, int64_t left, int64_t rows,
                                   int64_t cols)
{
    psti_field w = field_of(rows, cols, f->shape[2], f->dtype);
    const size_t pixel = (size_t)f->shape[2] * psti_dtype_bytes(f->dtype);
    for (int64_t y = 0; y < rows; y++)
        memcpy(w.data + (size_t)y * w.stride,
               f->data + (size_t)(y + top) * f->stride + (size_t)left * pixel,
               (size_t)cols * pixel);
    w.kind = f->kind;
    w.x0 = left;
    w.y0 = top;
    w.whole_rows = f->shape[0];
    w.whole_cols = f->shape[1];
    return w;
}

static inline psti_field run(trial *t, const psti_field *in)
{
    psti_op_ctx ctx = {0};
    psti_field out = field_of(t->out.rows, t->out.cols, t->out.channels, in->dtype);
    out.kind = in->kind;
    const psti_geom size = {in->whole_rows, in->whole_cols, in->shape[2]};
    const size_t bound = t->op->scratch ? t->op->scratch(t->params, &t->draw, &size, &t->out) : 0;
    CHECK(t->op->run(t->params, &t->draw, &ctx, in, &out, &t->err) == 0);
    CHECKF(psti_op_ctx_bytes(&ctx) <= bound, "%s holds %zu bytes, said %zu", t->op->name,
           psti_op_ctx_bytes(&ctx), bound);
    psti_op_ctx_fini(&ctx);
    return out;
}

static inline unsigned at(const psti_field *f, int64_t y, int64_t x, int64_t c)
{
    const uint8_t *p = f->data + (size_t)y * f->stride +
                       (size_t)(x * f->shape[2] + c) * psti_dtype_bytes(f->dtype);
    return f->dtype == PST_U16 ? (unsigned)(p[0] | p[1] << 8) : *p;
}

static inline bool same(const psti_field *a, const psti_field *b)
{
    const size_t row = (size_t)(a->shape[1] * a->shape[2]) * psti_dtype_bytes(a->dtype);
    for (int64_t y = 0; y < a->shape[0]; y++) {
        if (memcmp(a->data + (size_t)y * a->stride, b->data + (size_t)y * b->stride, row) != 0)
            return false;
    }
    return true;
}

#endif
