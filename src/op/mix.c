/* SPDX-License-Identifier: Apache-2.0
 * mixup and cutmix: what they draw for a batch, and carrying it out in place. Every valid slot is
 * mixed with the valid slot before it, the first one with the last. Called by the worker that
 * completed the batch; keeps no state. */
#include <math.h>
#include <string.h>

#include "op/kernels/kernels.h"
#include "op/op_priv.h"

/* ---- parameters ------------------------------------------------------------------------------ */

/* The two differ in the usual alpha alone. */
#define ALPHA(usual)                                                                               \
    .name = "alpha", .type = PSTI_P_FLOAT, .offset = offsetof(psti_mix_params, alpha),             \
    .min = 0.001, .max = 1000, .def = usual,                                                       \
    .help = "what a slot keeps is drawn from Beta(alpha, alpha)"
#define PROBABILITY                                                                                \
    .name = "p", .type = PSTI_P_FLOAT, .offset = offsetof(psti_mix_params, p), .min = 0, .max = 1, \
    .def = "1", .help = "probability, drawn once a batch"
#define CLASSES                                                                                    \
    .name = "classes", .type = PSTI_P_INT, .offset = offsetof(psti_mix_params, classes), .min = 0, \
    .max = 1 << 24, .def = "0",                                                                    \
    .help = "length of the labels that come out; 0 = the dataset's classes"

const psti_param psti_mixup_table[] = {{ALPHA("0.2")}, {PROBABILITY}, {CLASSES}, {.name = NULL}};
const psti_param psti_cutmix_table[] = {{ALPHA("1")}, {PROBABILITY}, {CLASSES}, {.name = NULL}};

/* ---- drawing --------------------------------------------------------------------------------- */

void psti_mix_box(pst_mix *mix, int64_t y, int64_t x, int64_t rows, int64_t cols)
{
    const double half = 0.5 * sqrt(1.0 - mix->lam);
    const int64_t high = (int64_t)(half * (double)rows), wide = (int64_t)(half * (double)cols);
    mix->y1 = y > high ? y - high : 0;
    mix->x1 = x > wide ? x - wide : 0;
    mix->y2 = y + high < rows ? y + high : rows;
    mix->x2 = x + wide < cols ? x + wide : cols;
    const double area = (double)((mix->y2 - mix->y1) * (mix->x2 - mix->x1));
    mix->lam = 1.0 - area / (double)(rows * cols);
}

void psti_mix_draw(int kind, const psti_mix_params *params, psti_rng *rng, int64_t rows,
                   int64_t cols, pst_mix *out)
{
    *out = (pst_mix){.lam = 1.0};
    if (psti_rng_unit(rng) >= params->p)
        return;
    out->kind = kind;
    out->lam = psti_rng_beta(rng, params->alpha, params->alpha);
    if (kind == PST_CUTMIX) {
        const int64_t x = (int64_t)psti_rng_below(rng, (uint64_t)cols);
        const int64_t y = (int64_t)psti_rng_below(rng, (uint64_t)rows);
        psti_mix_box(out, y, x, rows, cols);
    }
}

/* ---- mixing ---------------------------------------------------------------------------------- */

/* A pass over all slots takes so many bytes of each: a slot's bytes are still in the first cache
 * when the slot before it is mixed, and only the last slot's must be kept apart. */
enum { CHUNK = 8192 };

typedef struct pass {
    const psti_mix_field *field;
    const uint8_t *valid;
    int slots;
    psti_blend_fn *blend; /* NULL: copy */
    float keep, take;
    size_t element;
} pass;

static int valid_before(const pass *p, int slot)
{
    do
        slot--;
    while (slot >= 0 && !p->valid[slot]);
    return slot;
}

static void mix_bytes(const pass *p, uint8_t *x, const uint8_t *y, size_t bytes)
{
    if (p->blend)
        p->blend(x, y, p->keep, p->take, bytes / p->element);
    else
        memcpy(x, y, bytes);
}

/* The bytes [at, at + bytes) of every valid slot, from the last slot to the first. */
static void mix_chunk(const pass *p, size_t at, size_t bytes)
{
    uint8_t saved[CHUNK];
    uint8_t *base = p->field->data + at;
    const size_t step = p->field->slot_bytes;
    const int last = valid_before(p, p->slots);
    if (last < 0)
        return;
    memcpy(saved, base + (size_t)last * step, bytes);
    for (int slot = last; slot >= 0;) {
        const int before = valid_before(p, slot);
        mix_bytes(p, base + (size_t)slot * step, before >= 0 ? base + (size_t)before * step : saved,
                  bytes);
        slot = before;
    }
}

static void mix_range(const pass *p, size_t at, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += CHUNK)
        mix_chunk(p, at + done, bytes - done < CHUNK ? bytes - done : CHUNK);
}

static int blend_of(int dtype)
{
    return dtype == PST_F16 ? PSTI_TO_F16 : dtype == PST_BF16 ? PSTI_TO_BF16 : PSTI_TO_F32;
}

void psti_mix_blend(const pst_mix *mix, const psti_mix_field *field, const uint8_t *valid,
                    int slots)
{
    const pass p = {.field = field,
                    .valid = valid,
                    .slots = slots,
                    .blend = psti_kernels_get()->blend[blend_of(field->dtype)],
                    .keep = (float)mix->lam,
                    .take = (float)(1.0 - mix->lam),
                    .element = psti_dtype_bytes(field->dtype)};
    mix_range(&p, 0, field->slot_bytes);
}

void psti_mix_paste(const pst_mix *mix, const psti_mix_field *field, const uint8_t *valid,
                    int slots)
{
    const pass p = {.field = field, .valid = valid, .slots = slots};
    const size_t rows = (size_t)field->rows, cols = (size_t)field->cols;
    const size_t element = psti_dtype_bytes(field->dtype);
    const size_t channels = field->slot_bytes / (rows * cols * element);
    const size_t planes = field->layout == PST_NCHW ? channels : 1;
    const size_t pixel = element * (field->layout == PST_NCHW ? 1 : channels);
    for (size_t plane = 0; plane < planes; plane++)
        for (int64_t y = mix->y1; y < mix->y2; y++)
            mix_range(&p, ((plane * rows + (size_t)y) * cols + (size_t)mix->x1) * pixel,
                      (size_t)(mix->x2 - mix->x1) * pixel);
}
