/* SPDX-License-Identifier: Apache-2.0
 * The changes that augmentation policies choose from: magnitudes as torch tabulates them, and
 * chains of changes on a picture. Part of the byte promise where pictures are treated as Pillow
 * treats them. Worker threads; memory is the context's. */
#include "op/policy.h"

#include <errno.h>
#include <string.h>

#include "core/status.h"

/* ---- magnitudes ------------------------------------------------------------------------------ */

/* a * b + c in float with one rounding; the product is exact in double. */
static float fused(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}

/* Element i of torch.linspace(low, high, n) in float32: counted from the nearer end; of every
 * sixteen whole elements eight at a time from the first of them, where it is rounded in between.
 * (Fitted to torch 1.13 on a machine with AVX2; its plain build differs in a last bit.) */
static float linspace(double low, double high, int i, int n)
{
    const float start = (float)low, end = (float)high, step = (end - start) / (float)(n - 1);
    const bool wide = i < n / 16 * 16;
    const int at = wide ? i / 8 * 8 : i;
    const float base =
        at < n / 2 ? fused(step, (float)at, start) : fused(-step, (float)(n - at - 1), end);
    if (!wide)
        return base;
    const float more = (float)(i - at) * step;
    return base + more;
}

static double shift_of(const psti_space *space, int64_t side)
{
    if (space->shift_thirds)
        return (double)side / 3.0;
    return space->shift_pixels ? space->shift : space->shift * (double)side;
}

static float bits_at(const psti_space *space, int bin, int bins)
{
    const float less = (float)bin / (float)((double)(bins - 1) / space->bits_less);
    return (float)(space->bits - (int)psti_round_even((double)less));
}

float psti_space_at(const psti_space *space, int change, int bin, int bins, const psti_geom *in)
{
    switch (change) {
    case PSTI_SHEAR_X:
    case PSTI_SHEAR_Y:
        return linspace(0, space->shear, bin, bins);
    case PSTI_TRANSLATE_X:
        return linspace(0, shift_of(space, in->cols), bin, bins);
    case PSTI_TRANSLATE_Y:
        return linspace(0, shift_of(space, in->rows), bin, bins);
    case PSTI_ROTATE:
        return linspace(0, space->rotate, bin, bins);
    case PSTI_BRIGHTNESS:
    case PSTI_COLOR:
    case PSTI_CONTRAST:
    case PSTI_SHARPNESS:
        return linspace(0, space->color, bin, bins);
    case PSTI_POSTERIZE:
        return bits_at(space, bin, bins);
    case PSTI_SOLARIZE:
        return linspace(255, 0, bin, bins);
    default:
        return 0;
    }
}

/* ---- draws ----------------------------------------------------------------------------------- */

void psti_draw_pick(psti_draw *draw, int change, float magnitude)
{
    draw->picks[draw->pick_count++] = (psti_pick){.change = change, .magnitude = magnitude};
}

void psti_draw_signed(psti_draw *draw, psti_rng *rng, int change, float magnitude)
{
    const bool negative = psti_change_is_signed(change) && psti_rng_below(rng, 2);
    psti_draw_pick(draw, change, negative ? -magnitude : magnitude);
}

bool psti_draw_acts(const psti_draw *draw)
{
    for (int i = 0; i < draw->pick_count; i++)
        if (draw->picks[i].change != PSTI_IDENTITY)
            return true;
    return false;
}

int psti_policy_params_check(const void *params, pst_error *err)
{
    const psti_policy_params *base = params;
    if (base->like == PSTI_LIKE_TENSOR && base->warp.interpolation == PSTI_BICUBIC)
        return psti_fail(err, PST_EPIPELINE, NULL, NULL,
                         "like=tensor knows interpolation nearest and bilinear");
    return 0;
}

int psti_policy_check(const char *op, const psti_policy_params *params, const psti_geom *in,
                      pst_error *err)
{
    const int rc = psti_px_check_channels(op, in->channels, err);
    if (rc < 0 || params->warp.fill.count == 0)
        return rc;
    return psti_fill_check(op, &params->warp.fill, in, err);
}

/* ---- changes --------------------------------------------------------------------------------- */

static bool down_the_picture(int change)
{
    return change == PSTI_SHEAR_Y || change == PSTI_TRANSLATE_Y;
}

static psti_matrix matrix_of(const psti_pick *pick, const psti_geom *in, bool *exact)
{
    const double magnitude = (double)pick->magnitude;
    psti_geom out;
    *exact = false;
    if (pick->change == PSTI_ROTATE)
        return psti_matrix_rotate(magnitude, NULL, false, in, &out, exact);
    if (pick->change == PSTI_SHEAR_X || pick->change == PSTI_SHEAR_Y)
        return psti_matrix_shear(magnitude, down_the_picture(pick->change));
    return psti_matrix_translate((int64_t)magnitude, down_the_picture(pick->change), in);
}

/* The same where places count from the middle of the picture. */
static psti_matrix tensor_matrix_of(const psti_pick *pick, const psti_geom *in)
{
    const int axis = down_the_picture(pick->change);
    psti_affine affine = {.scale = 1};
    if (pick->change == PSTI_ROTATE) {
        affine.angle = -(double)pick->magnitude;
    } else if (pick->change == PSTI_SHEAR_X || pick->change == PSTI_SHEAR_Y) {
        affine.shear[axis] = psti_atan_degrees((double)pick->magnitude);
        affine.center[0] = -(double)in->cols * 0.5;
        affine.center[1] = -(double)in->rows * 0.5;
    } else {
        affine.translate[axis] = (double)(int64_t)pick->magnitude;
    }
    return psti_matrix_affine(&affine);
}

static int move(const psti_pick *pick, const psti_policy_how *how, psti_op_ctx *ctx,
                const psti_field *in, psti_field *out, pst_error *err)
{
    const psti_geom size = {in->shape[0], in->shape[1], in->shape[2]};
    if (how->like == PSTI_LIKE_TENSOR) {
        const psti_matrix centred = tensor_matrix_of(pick, &size);
        psti_transform_tensor(&centred, how->filter, how->fill, in, out);
        return 0;
    }
    bool exact;
    const psti_matrix matrix = matrix_of(pick, &size, &exact);
    return psti_transform(&matrix, exact ? PSTI_NEAREST : how->filter,
                          how->fill->count ? how->fill : NULL, ctx, in, out, err);
}

/* One change from in to out; those of colour also where it stands. */
static int change(const psti_pick *pick, const psti_policy_how *how, psti_op_ctx *ctx,
                  const psti_field *in, psti_field *out, pst_error *err)
{
    const double factor = 1.0 + (double)pick->magnitude;
    switch (pick->change) {
    case PSTI_BRIGHTNESS:
        psti_px_brightness(in, out, factor, how->like);
        return 0;
    case PSTI_COLOR:
        psti_px_saturation(in, out, factor, how->like);
        return 0;
    case PSTI_CONTRAST:
        psti_px_contrast(in, out, factor, how->like);
        return 0;
    case PSTI_SHARPNESS:
        return psti_px_sharpness(in, out, factor, how->like, ctx, err);
    case PSTI_POSTERIZE:
        psti_px_posterize(in, out, (int)pick->magnitude);
        return 0;
    case PSTI_SOLARIZE:
        psti_px_solarize(in, out, (double)pick->magnitude);
        return 0;
    case PSTI_AUTOCONTRAST:
        psti_px_autocontrast(in, out, how->like);
        return 0;
    case PSTI_EQUALIZE:
        psti_px_equalize(in, out);
        return 0;
    case PSTI_INVERT:
        psti_px_invert(in, out);
        return 0;
    default:
        return move(pick, how, ctx, in, out, err);
    }
}

static void copy_picture(const psti_field *in, psti_field *out)
{
    const size_t row = (size_t)(in->shape[1] * in->shape[2]);
    for (int64_t y = 0; y < in->shape[0]; y++)
        memcpy(out->data + (size_t)y * out->stride, in->data + (size_t)y * in->stride, row);
}

int psti_policy_chain(const psti_pick *picks, int count, const psti_policy_how *how,
                      psti_op_ctx *ctx, const psti_field *in, psti_field *out, psti_field *spare,
                      pst_error *err)
{
    psti_field *now = NULL; /* where the picture is; NULL: still in `in` */
    for (int i = 0; i < count; i++) {
        if (picks[i].change == PSTI_IDENTITY)
            continue;
        psti_field *to = now ? now : out;
        if (now && psti_change_is_geometric(picks[i].change))
            to = now == out ? spare : out;
        const int rc = change(&picks[i], how, ctx, now ? now : in, to, err);
        if (rc < 0)
            return rc;
        now = to;
    }
    if (now != out)
        copy_picture(now ? now : in, out);
    return 0;
}

int psti_policy_spare(psti_buf *buf, const psti_field *like, psti_field *out, pst_error *err)
{
    const size_t row = (size_t)(like->shape[1] * like->shape[2]);
    const size_t bytes = row * (size_t)like->shape[0];
    if (psti_buf_need(PSTI_MEM_OP, buf, bytes) < 0)
        return psti_fail(err, -ENOMEM, NULL, NULL, "no memory for a picture of %zu bytes", bytes);
    *out = *like;
    out->data = buf->data;
    out->stride = row;
    out->bytes = bytes;
    return 0;
}

size_t psti_policy_scratch(const psti_geom *in)
{
    const size_t bytes = (size_t)(in->rows * in->cols * in->channels) + 64;
    const size_t warp = psti_transform_scratch(in), sharp = psti_px_sharpness_scratch(in);
    return bytes / 8 * 9 + 16 + warp + sharp;
}

int psti_policy_run(const void *params, const psti_draw *draw, psti_op_ctx *ctx,
                    const psti_field *in, psti_field *out, pst_error *err)
{
    const psti_policy_params *base = params;
    const psti_policy_how how = {(psti_filter)base->warp.interpolation, &base->warp.fill,
                                 (psti_like)base->like};
    psti_field spare;
    int rc = psti_px_check(NULL, in, err);
    if (rc == 0)
        rc = psti_policy_spare(&ctx->spare[0], in, &spare, err);
    if (rc == 0)
        rc = psti_policy_chain(draw->picks, draw->pick_count, &how, ctx, in, out, &spare, err);
    return rc;
}

size_t psti_policy_run_scratch(const void *params, const psti_draw *draw, const psti_geom *in,
                               const psti_geom *out)
{
    (void)params, (void)draw, (void)out;
    return psti_policy_scratch(in);
}
