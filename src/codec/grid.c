/* SPDX-License-Identifier: Apache-2.0
 * Volumes as files have them, of any number type, byte order and order of dimensions, made into
 * fields. Called by the codecs of volumes on a worker's thread; nothing is allocated.
 *
 * Images stay what they are where ops read them so: u8, i16 and f32, unless a slope or an intercept
 * is given. All others become f32, through a double and in nibabel's order of steps, hence to
 * the bit what its get_fdata() gives as f32. Masks become u8. A label is a whole number of 0 to
 * 255; others are refused, for what numpy's astype makes of them is another label.
 *
 * Files in Fortran order (NIfTI) have planes side by side where a field has columns. They are
 * turned in tiles, so that each line of memory that is fetched is used while it is near. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/codec_priv.h"

enum { TILE = 32, CHUNK = 256, CHANNELS_MOST = 65536 };

static const struct {
    const char *name;
    size_t bytes;
} numbers[PSTI_NUMBERS] = {
    [PSTI_N_U8] = {"uint8", 1},    [PSTI_N_I8] = {"int8", 1},     [PSTI_N_U16] = {"uint16", 2},
    [PSTI_N_I16] = {"int16", 2},   [PSTI_N_U32] = {"uint32", 4},  [PSTI_N_I32] = {"int32", 4},
    [PSTI_N_U64] = {"uint64", 8},  [PSTI_N_I64] = {"int64", 8},   [PSTI_N_F16] = {"float16", 2},
    [PSTI_N_F32] = {"float32", 4}, [PSTI_N_F64] = {"float64", 8},
};

size_t psti_number_bytes(psti_number type)
{
    return numbers[type].bytes;
}

const char *psti_number_name(psti_number type)
{
    return numbers[type].name;
}

/* ---- begin ---- */

static bool is_mask(const psti_decoder *dec)
{
    return dec->opts.kind == PST_MASK;
}

static bool is_scaled(const psti_grid *grid)
{
    return grid->slope != 1 || grid->inter != 0;
}

static int made_type(const psti_decoder *dec, const psti_grid *grid)
{
    if (is_mask(dec) || (grid->type == PSTI_N_U8 && !is_scaled(grid)))
        return PST_U8;
    return grid->type == PSTI_N_I16 && !is_scaled(grid) ? PST_I16 : PST_F32;
}

/* Whether numbers are taken over bit by bit, but for the order of bytes. */
static bool keeps_bits(const psti_decoder *dec, const psti_grid *grid)
{
    return !is_scaled(grid) &&
           (grid->type == PSTI_N_U8 ||
            (!is_mask(dec) && (grid->type == PSTI_N_I16 || grid->type == PSTI_N_F32)));
}

int psti_grid_begin(psti_decoder *dec, const psti_grid *grid, pst_error *err)
{
    psti_picture *pic = &dec->pic;
    const psti_geom size = {.rows = grid->shape[2],
                            .cols = grid->shape[3],
                            .channels = grid->shape[0],
                            .depth = grid->shape[1],
                            .dtype = made_type(dec, grid),
                            .axes = PSTI_AXES_VOLUME};
    if (size.channels > CHANNELS_MOST)
        return psti_fail(err, PST_ELIMIT, "decode", NULL,
                         "the volume has %lld channels, the limit is %d", (long long)size.channels,
                         CHANNELS_MOST);
    const int rc = psti_decoder_check_size(dec, &size, err);
    if (rc < 0)
        return rc;
    if (is_mask(dec) && size.channels > 1)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "a mask needs one value a voxel, this volume has %lld channels",
                         (long long)size.channels);
    pic->rows = dec->stored_rows = size.rows;
    pic->cols = dec->stored_cols = size.cols;
    pic->depth = size.depth;
    pic->channels = pic->stored_channels = (int)size.channels;
    pic->dtype = size.dtype;
    pic->bits = 8 * (int)psti_number_bytes(grid->type);
    /* Labels that may be refused are looked at all together: the verdict must not depend on the
     * window. */
    pic->can_crop = !is_mask(dec) || keeps_bits(dec, grid);
    snprintf(pic->detail, sizeof pic->detail, "%s%s%s", psti_number_name(grid->type),
             grid->swapped ? " big-endian" : "", is_scaled(grid) ? " scaled" : "");
    return 0;
}

/* ---- numbers ---- */

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -value : value;
}

#define LOAD(type)                                                                                 \
    do {                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type x;                                                                                \
            memcpy(&x, from + (size_t)i * sizeof x, sizeof x);                                     \
            out[i] = (double)x;                                                                    \
        }                                                                                          \
    } while (0)

static void load_doubles(psti_number type, const uint8_t *from, int64_t n, double *out)
{
    switch (type) {
    case PSTI_N_U8:
        LOAD(uint8_t);
        break;
    case PSTI_N_I8:
        LOAD(int8_t);
        break;
    case PSTI_N_U16:
        LOAD(uint16_t);
        break;
    case PSTI_N_I16:
        LOAD(int16_t);
        break;
    case PSTI_N_U32:
        LOAD(uint32_t);
        break;
    case PSTI_N_I32:
        LOAD(int32_t);
        break;
    case PSTI_N_U64:
        LOAD(uint64_t);
        break;
    case PSTI_N_I64:
        LOAD(int64_t);
        break;
    case PSTI_N_F16:
        for (int64_t i = 0; i < n; i++)
            out[i] = half_value((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
        break;
    case PSTI_N_F32:
        LOAD(float);
        break;
    default:
        LOAD(double);
        break;
    }
}
#undef LOAD

static void scale(const psti_grid *grid, double *values, int64_t n)
{
    if (grid->slope != 1)
        for (int64_t i = 0; i < n; i++)
            values[i] = values[i] * grid->slope;
    if (grid->inter != 0)
        for (int64_t i = 0; i < n; i++)
            values[i] = values[i] + grid->inter;
}

/* Slopes are rarely exact, so what is within a thousandth of a whole number is one. Returns the
 * first that is none, n if all are. */
static int64_t store_labels(const double *values, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        const double whole = floor(values[i] + 0.5);
        if (!(whole >= 0 && whole <= 255 && fabs(values[i] - whole) <= 1e-3))
            return i;
        to[i] = (uint8_t)whole;
    }
    return n;
}

/* ---- write ---- */

typedef struct writer {
    const psti_decoder *dec;
    const psti_grid *grid;
    const uint8_t *data;
    const psti_window *window;
    uint8_t *dst;
    size_t stored, made; /* bytes of one number */
    bool keeps;
    pst_error *err;
} writer;

/* A run of numbers along the columns, by its first one in the window. */
typedef struct place {
    int64_t channel, plane, row, col;
} place;

static const uint8_t *stored_at(const writer *w, const place *at)
{
    const ptrdiff_t *step = w->grid->step;
    return w->data + at->channel * step[0] + (w->window->front + at->plane) * step[1] +
           (w->window->top + at->row) * step[2] + (w->window->left + at->col) * step[3];
}

static uint8_t *made_at(const writer *w, const place *at)
{
    const psti_window *size = w->window;
    const int64_t index =
        ((at->channel * size->planes + at->plane) * size->rows + at->row) * size->cols + at->col;
    return w->dst + (size_t)index * w->made;
}

static int fail_label(const writer *w, const place *at, int64_t skipped, double value)
{
    return psti_fail(w->err, PST_EFIELD, "decode", NULL,
                     "a label is %g at plane %lld, row %lld, column %lld: labels are whole numbers "
                     "from 0 to 255",
                     value, (long long)(w->window->front + at->plane),
                     (long long)(w->window->top + at->row),
                     (long long)(w->window->left + at->col + skipped));
}

/* n numbers that stand side by side, in the machine's byte order. */
static int put(const writer *w, const place *at, const uint8_t *from, int64_t n)
{
    uint8_t *to = made_at(w, at);
    if (w->keeps) {
        memcpy(to, from, (size_t)n * w->made);
        return 0;
    }
    double values[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t count = n - i < CHUNK ? n - i : CHUNK;
        load_doubles(w->grid->type, from + (size_t)i * w->stored, count, values);
        scale(w->grid, values, count);
        if (w->made == 1) {
            const int64_t good = store_labels(values, count, to + i);
            if (good < count)
                return fail_label(w, at, i + good, values[good]);
            continue;
        }
        for (int64_t k = 0; k < count; k++) {
            const float value = (float)values[k];
            memcpy(to + (size_t)(i + k) * sizeof value, &value, sizeof value);
        }
    }
    return 0;
}

#define GATHER(type, swap)                                                                         \
    do {                                                                                           \
        for (int64_t x = 0; x < cols; x++)                                                         \
            for (int64_t z = 0; z < planes; z++) {                                                 \
                type value;                                                                        \
                memcpy(&value, from + x * along + z * across, sizeof value);                       \
                value = swapped ? (type)swap(value) : value;                                       \
                memcpy(tile + (size_t)(z * width + x) * sizeof value, &value, sizeof value);       \
            }                                                                                      \
    } while (0)
#define SAME(value) (value)

/* Numbers of `planes` planes and `cols` columns into rows of `width`, in the machine's order. */
static void gather(const psti_grid *grid, const uint8_t *from, int64_t planes, int64_t cols,
                   int64_t width, uint8_t *tile)
{
    const ptrdiff_t along = grid->step[3], across = grid->step[1];
    const bool swapped = grid->swapped;
    switch (psti_number_bytes(grid->type)) {
    case 1:
        GATHER(uint8_t, SAME);
        break;
    case 2:
        GATHER(uint16_t, __builtin_bswap16);
        break;
    case 4:
        GATHER(uint32_t, __builtin_bswap32);
        break;
    default:
        GATHER(uint64_t, __builtin_bswap64);
        break;
    }
}
#undef GATHER
#undef SAME

/* Columns stand side by side in the file. */
static int write_rows(const writer *w)
{
    const psti_window *size = w->window;
    uint64_t turned[TILE * TILE];
    place at = {0};
    int rc = 0;
    for (at.channel = 0; at.channel < w->grid->shape[0]; at.channel++)
        for (at.plane = 0; at.plane < size->planes; at.plane++)
            for (at.row = 0; at.row < size->rows; at.row++) {
                const int64_t most = w->grid->swapped ? TILE * TILE : size->cols;
                for (at.col = 0; rc == 0 && at.col < size->cols; at.col += most) {
                    const int64_t n = size->cols - at.col < most ? size->cols - at.col : most;
                    const uint8_t *from = stored_at(w, &at);
                    if (w->grid->swapped) {
                        gather(w->grid, from, 1, n, n, (uint8_t *)turned);
                        from = (const uint8_t *)turned;
                    }
                    rc = put(w, &at, from, n);
                }
                if (rc < 0)
                    return rc;
            }
    return 0;
}

static int write_tile(const writer *w, place at, int64_t planes, int64_t cols)
{
    uint64_t tile[TILE * TILE];
    gather(w->grid, stored_at(w, &at), planes, cols, TILE, (uint8_t *)tile);
    const uint8_t *from = (const uint8_t *)tile;
    int rc = 0;
    for (int64_t z = 0; rc == 0 && z < planes; z++, at.plane++, from += TILE * w->stored)
        rc = put(w, &at, from, cols);
    return rc;
}

/* Planes, or channels, stand side by side in the file. */
static int write_turned(const writer *w)
{
    const psti_window *size = w->window;
    place at = {0};
    for (at.channel = 0; at.channel < w->grid->shape[0]; at.channel++)
        for (at.row = 0; at.row < size->rows; at.row++)
            for (at.col = 0; at.col < size->cols; at.col += TILE)
                for (at.plane = 0; at.plane < size->planes; at.plane += TILE) {
                    const int64_t planes = size->planes - at.plane, cols = size->cols - at.col;
                    const int rc =
                        write_tile(w, at, planes < TILE ? planes : TILE, cols < TILE ? cols : TILE);
                    if (rc < 0)
                        return rc;
                }
    return 0;
}

int psti_grid_write(const psti_decoder *dec, const psti_grid *grid, const uint8_t *data,
                    const psti_window *window, uint8_t *dst, pst_error *err)
{
    const writer w = {.dec = dec,
                      .grid = grid,
                      .data = data,
                      .window = window,
                      .dst = dst,
                      .stored = psti_number_bytes(grid->type),
                      .made = psti_dtype_bytes(dec->pic.dtype),
                      .keeps = keeps_bits(dec, grid),
                      .err = err};
    return grid->step[3] == (ptrdiff_t)w.stored ? write_rows(&w) : write_turned(&w);
}

/* ---- in place ---- */

const uint8_t *psti_grid_in_place(const psti_decoder *dec, const psti_grid *grid,
                                  const uint8_t *data)
{
    const size_t bytes = psti_number_bytes(grid->type);
    bool lies = keeps_bits(dec, grid) && !grid->swapped && (uintptr_t)data % bytes == 0;
    ptrdiff_t step = (ptrdiff_t)bytes;
    for (int d = 3; d >= 0; step *= grid->shape[d--])
        lies &= grid->step[d] == step;
    return lies ? data : NULL;
}
