/* SPDX-License-Identifier: Apache-2.0
 * Resampling with AVX-512's instructions on 256-bit registers: VBMI's byte permutation and VNNI's
 * dot product (looked up here: every CPU with VBMI but one has it). A 22-bit weight is written as
 * three signed digits to the base 256, so that byte dot products of four taps at a time give the
 * very sums of the C version.
 *
 * 512-bit registers would be a little faster in a loop of their own, but they lower the core's
 * clock for most of a millisecond, and what they win here is lost several times over in the decoder
 * that runs next. */
#include <stdbool.h>
#include <string.h>

#include "op/kernels/kernels.h"
#include "op/kernels/x86.h"

/* Four weights' digits: one byte per weight. */
typedef struct digits {
    uint32_t d2, d1, d0; /* of 65536, 256, 1 */
} digits;

/* Of four weights; carries go up because a digit is signed. */
INLINE digits digits_of(const int32_t *weights)
{
    const __m128i w = _mm_loadu_si128((const void *)weights);
    const __m128i up1 = _mm_add_epi32(w, _mm_set1_epi32(0x80)),
                  up2 = _mm_add_epi32(w, _mm_set1_epi32(0x8080));
    const __m128i byte0 = _mm_set1_epi32(0x0c080400), byte1 = _mm_set1_epi32(0x0d090501);
    const __m128i byte2 = _mm_set1_epi32(0x0e0a0602);
    return (digits){.d2 = (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8(up2, byte2)),
                    .d1 = (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8(up1, byte1)),
                    .d0 = (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8(w, byte0))};
}

/* The half that is added before the shift, as it stands before the two shifts by a digit. */
INLINE __m256i half_digit(void)
{
    return _mm256_set1_epi32(1 << (PSTI_WEIGHT_BITS - 1 - 16));
}

INLINE __mmask32 mask_of(size_t bytes)
{
    return bytes >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << bytes) - 1;
}

/* ---- the pass down --------------------------------------------------------------------------- */

enum { DOWN_GROUPS = 64 };

/* 32 columns of four rows; x: taps of four rows side by side, as dot products want them. */
INLINE void interleave(const __m256i *rows, __m256i *x)
{
    const __m256i ab = _mm256_unpacklo_epi8(rows[0], rows[1]),
                  AB = _mm256_unpackhi_epi8(rows[0], rows[1]);
    const __m256i cd = _mm256_unpacklo_epi8(rows[2], rows[3]),
                  CD = _mm256_unpackhi_epi8(rows[2], rows[3]);
    x[0] = _mm256_unpacklo_epi16(ab, cd);
    x[1] = _mm256_unpackhi_epi16(ab, cd);
    x[2] = _mm256_unpacklo_epi16(AB, CD);
    x[3] = _mm256_unpackhi_epi16(AB, CD);
}

INLINE __m256i pack(const __m256i *sums)
{
    __m256i words[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        words[i] = _mm256_srai_epi32(sums[i], PSTI_WEIGHT_BITS);
    return _mm256_packus_epi16(_mm256_packs_epi32(words[0], words[1]),
                               _mm256_packs_epi32(words[2], words[3]));
}

INLINE void load_rows(const uint8_t *const *rows, size_t at, __mmask32 mask, __m256i *out)
{
    UNROLL
    for (int t = 0; t < 4; t++)
        out[t] = _mm256_maskz_loadu_epi8(mask, rows[t] + at);
}

/* Up to four rows. */
INLINE __m256i down_four(const uint8_t *const *rows, const digits *w, size_t at, __mmask32 mask)
{
    __m256i row[4], x[4], sum[4];
    load_rows(rows, at, mask, row);
    interleave(row, x);
    UNROLL
    for (int i = 0; i < 4; i++) {
        sum[i] = _mm256_dpbusd_epi32(half_digit(), x[i], _mm256_set1_epi32((int)w->d2));
        sum[i] =
            _mm256_dpbusd_epi32(_mm256_slli_epi32(sum[i], 8), x[i], _mm256_set1_epi32((int)w->d1));
        sum[i] =
            _mm256_dpbusd_epi32(_mm256_slli_epi32(sum[i], 8), x[i], _mm256_set1_epi32((int)w->d0));
    }
    return pack(sum);
}

/* Any number of groups of four rows: the digits are summed apart. */
INLINE __m256i down_many(const uint8_t *const *rows, const digits *w, int groups, size_t at,
                         __mmask32 mask)
{
    __m256i s2[4], s1[4], s0[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        s2[i] = half_digit();
        s1[i] = s0[i] = _mm256_setzero_si256();
    }
    for (int g = 0; g < groups; g++) {
        __m256i row[4], x[4];
        load_rows(rows + 4 * g, at, mask, row);
        interleave(row, x);
        UNROLL
        for (int i = 0; i < 4; i++) {
            s2[i] = _mm256_dpbusd_epi32(s2[i], x[i], _mm256_set1_epi32((int)w[g].d2));
            s1[i] = _mm256_dpbusd_epi32(s1[i], x[i], _mm256_set1_epi32((int)w[g].d1));
            s0[i] = _mm256_dpbusd_epi32(s0[i], x[i], _mm256_set1_epi32((int)w[g].d0));
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        s1[i] = _mm256_add_epi32(_mm256_slli_epi32(s2[i], 8), s1[i]);
        s0[i] = _mm256_add_epi32(_mm256_slli_epi32(s1[i], 8), s0[i]);
    }
    return pack(s0);
}

INLINE __m256i down_block(const uint8_t *const *rows, const digits *w, int groups, size_t at,
                          __mmask32 mask)
{
    return groups == 1 ? down_four(rows, w, at, mask) : down_many(rows, w, groups, at, mask);
}

/* A whole row; the last block may be shorter than the others. */
INLINE void down_row(const uint8_t *const *rows, const digits *w, int groups, uint8_t *dst,
                     size_t bytes)
{
    size_t at = 0;
    for (; at + 32 <= bytes; at += 32)
        _mm256_storeu_si256((void *)(dst + at), down_block(rows, w, groups, at, ~(__mmask32)0));
    if (at < bytes) {
        const __mmask32 mask = mask_of(bytes - at);
        _mm256_mask_storeu_epi8(dst + at, mask, down_block(rows, w, groups, at, mask));
    }
}

static void down(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *dst,
                 size_t bytes)
{
    const int groups = (count + 3) / 4;
    if (groups > DOWN_GROUPS) {
        psti_c_down(rows, weights, count, dst, bytes);
        return;
    }
    digits w[DOWN_GROUPS];
    int32_t last[4] = {0}; /* rows past the last one have no weight */
    const uint8_t *pointers[4 * DOWN_GROUPS];
    for (int t = 0; t < 4 * groups; t++)
        pointers[t] = rows[t < count ? t : count - 1];
    for (int g = 0; g + 1 < groups; g++)
        w[g] = digits_of(weights + 4 * g);
    for (int t = 4 * (groups - 1); t < count; t++)
        last[t % 4] = weights[t];
    w[groups - 1] = digits_of(last);
    if (groups == 1)
        down_row(pointers, w, 1, dst, bytes);
    else
        down_row(pointers, w, groups, dst, bytes);
}

/* ---- the pass across ------------------------------------------------------------------------- */

/* 8 output bytes ("run") are the 8 sums of a register; four taps of each come out of one 32-byte
 * window of the source by one byte permutation. The table: steps [run][group of four taps], then
 * windows' offsets in the same order. */
typedef struct step {
    uint32_t pick[8], d2[8], d1[8], d0[8];
} step;

enum { GROUPS_MAX = 2, WINDOW = 32 };

static size_t runs_of(int out, int channels)
{
    return ((size_t)out * (size_t)channels + 31) / 32 * 4;
}

static size_t table_bytes(int out, int groups, int channels)
{
    return runs_of(out, channels) * (size_t)groups * (sizeof(step) + sizeof(int32_t));
}

static int32_t *offsets_of(const psti_across *across)
{
    const size_t runs = runs_of(across->axis->out, across->channels);
    return (int32_t *)((step *)across->table + runs * (size_t)across->pairs);
}

/* Byte positions of `taps` taps from the first one on. Taps that do not count have no weight and
 * may read any byte. */
INLINE uint32_t apart(int taps, int channels)
{
    const uint64_t counted = (1ull << 8 * taps) - 1;
    return (uint32_t)(0x03020100u & counted) * (uint32_t)channels;
}

/* Fills what concerns one pixel. False when a window is too small. */
INLINE bool fill_pixel(const psti_across *across, int channels, int groups, int32_t *offsets,
                       int pixel)
{
    const psti_axis *axis = across->axis;
    const int furthest =
        axis->in * channels - WINDOW; /* the last window that stays inside the row */
    const int32_t *weights = axis->weights + (size_t)pixel * (size_t)axis->stride;
    const size_t byte = (size_t)pixel * (size_t)channels;
    for (int g = 0; g < groups; g++) {
        const int start = (axis->first[pixel] + 4 * g) * channels;
        const int left = axis->count[pixel] - 4 * g, taps = left > 4 ? 4 : left > 0 ? left : 0;
        const digits w = digits_of(weights + 4 * g);
        UNROLL
        for (int c = 0; c < channels; c++) {
            const size_t sum = (byte + (size_t)c) % 8;
            const size_t at = (byte + (size_t)c) / 8 * (size_t)groups + (size_t)g;
            if (sum == 0)
                offsets[at] = start < furthest ? start : furthest;
            const int from = taps > 0 ? start + c - offsets[at] : 0;
            if (from + (taps - 1) * channels >= WINDOW)
                return false;
            step *s = (step *)across->table + at;
            s->pick[sum] = apart(taps, channels) + (uint32_t)from * 0x01010101u;
            s->d2[sum] = w.d2;
            s->d1[sum] = w.d1;
            s->d0[sum] = w.d0;
        }
    }
    return true;
}

INLINE bool fill_pixels(psti_across *across, int channels, int groups)
{
    int32_t *offsets = offsets_of(across);
    for (int pixel = 0; pixel < across->axis->out; pixel++) {
        if (!fill_pixel(across, channels, groups, offsets, pixel))
            return false;
    }
    return true;
}

static bool fill(psti_across *across)
{
    const size_t groups = (size_t)across->pairs,
                 last = runs_of(across->axis->out, across->channels) - 4;
    memset((step *)across->table + last * groups, 0, 4 * groups * sizeof(step));
    memset(offsets_of(across) + last * groups, 0, 4 * groups * sizeof(int32_t));
    return across->channels == 3 && groups == 1
               ? fill_pixels(across, 3, 1)
               : fill_pixels(across, across->channels, (int)groups);
}

INLINE __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

/* Adds one digit's products of `rows` rows. */
INLINE void add_digit(const uint32_t *digit, const __m256i *x, int rows, __m256i *sums)
{
    __m256i w = load(digit);
    KEEP(w);
    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_dpbusd_epi32(sums[r], x[r], w);
}

INLINE void next_digit(int rows, __m256i *sums)
{
    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_slli_epi32(sums[r], 8);
}

/* Sums of one run for `rows` rows. */
INLINE void sum_run(const step *steps, const int32_t *offsets, int groups,
                    const uint8_t *const *src, int rows, __m256i *sums)
{
    __m256i x[GROUPS_MAX][PSTI_ROWS_AT_ONCE];
    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = half_digit();
    UNROLL
    for (int g = 0; g < groups; g++) {
        __m256i pick = load(steps[g].pick);
        KEEP(pick);
        UNROLL
        for (int r = 0; r < rows; r++)
            x[g][r] = _mm256_permutexvar_epi8(pick, load(src[r] + offsets[g]));
        add_digit(steps[g].d2, x[g], rows, sums);
    }
    next_digit(rows, sums);
    UNROLL
    for (int g = 0; g < groups; g++)
        add_digit(steps[g].d1, x[g], rows, sums);
    next_digit(rows, sums);
    UNROLL
    for (int g = 0; g < groups; g++)
        add_digit(steps[g].d0, x[g], rows, sums);
}

INLINE void across_rows(const psti_across *across, int groups, const uint8_t *const *src,
                        uint8_t *const *dst, int rows)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const size_t bytes = (size_t)across->axis->out * (size_t)across->channels;
    const step *steps = across->table;
    const int32_t *offsets = offsets_of(across);
    for (size_t at = 0; at < bytes; at += 32, steps += 4 * groups, offsets += 4 * groups) {
        __m256i sums[4][PSTI_ROWS_AT_ONCE];
        UNROLL
        for (int i = 0; i < 4; i++)
            sum_run(steps + i * groups, offsets + i * groups, groups, src, rows, sums[i]);
        const __mmask32 mask = mask_of(bytes - at);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256i one[4] = {sums[0][r], sums[1][r], sums[2][r], sums[3][r]};
            _mm256_mask_storeu_epi8(dst[r] + at, mask, _mm256_permutexvar_epi32(order, pack(one)));
        }
    }
}

INLINE void across_any(const psti_across *across, int groups, const uint8_t *const *src,
                       uint8_t *const *dst, int n)
{
    if (n == PSTI_ROWS_AT_ONCE) {
        across_rows(across, groups, src, dst, PSTI_ROWS_AT_ONCE);
        return;
    }
    for (int r = 0; r < n; r++)
        across_rows(across, groups, src + r, dst + r, 1);
}

static void across_1(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                     int n)
{
    across_any(across, 1, src, dst, n);
}

static void across_2(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                     int n)
{
    across_any(across, 2, src, dst, n);
}

/* The level below, for pictures that shrink too much for one window. Copied when the tables are
 * filled, once. */
static psti_kernels below;

static size_t across_bytes(int out, int taps, int channels)
{
    const int groups = (taps + 3) / 4 < GROUPS_MAX ? (taps + 3) / 4 : GROUPS_MAX;
    const size_t mine = table_bytes(out, groups, channels),
                 theirs = below.across_bytes(out, taps, channels);
    return mine > theirs ? mine : theirs;
}

static void across_plan(psti_across *across)
{
    across->pairs = (across->axis->taps + 3) / 4; /* groups of four, here */
    if (across->axis->in * across->channels >= WINDOW && across->pairs <= GROUPS_MAX &&
        fill(across))
        across->run = across->pairs == 1 ? across_1 : across_2;
    else
        below.across_plan(across);
}

void psti_kernels_init_avx512(psti_kernels *kernels)
{
    if (!__builtin_cpu_supports("avx512vnni"))
        return;
    below = *kernels;
    kernels->across_bytes = across_bytes;
    kernels->across_plan = across_plan;
    kernels->down = down;
}
