/* SPDX-License-Identifier: Apache-2.0
 * Kernels for AVX2 and F16C. Integers: a 22-bit weight is split into two parts of at most 12 bits,
 * so that 16-bit multiply-adds of two taps at a time give the very sums of the C version. Floats:
 * one multiplication and one subtraction, as written there. */
#include <stdbool.h>
#include <string.h>

#include "op/kernels/kernels.h"
#include "op/kernels/x86.h"

enum { LOW_MASK = (1 << PSTI_SPLIT_BITS) - 1 };

/* Two weights' high parts, or low parts, as the two halves of a word pair. */
static uint32_t high_pair(int32_t a, int32_t b)
{
    return ((uint32_t)(a >> PSTI_SPLIT_BITS) & 0xffff) | (uint32_t)(b >> PSTI_SPLIT_BITS) << 16;
}

static uint32_t low_pair(int32_t a, int32_t b)
{
    return (uint32_t)(a & LOW_MASK) | (uint32_t)(b & LOW_MASK) << 16;
}

INLINE __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

INLINE __m128i load16(const void *from)
{
    return _mm_loadu_si128(from);
}

/* high * 2^11 + low, to a value in the range of a byte or just outside. low has the half in it. */
INLINE __m256i join(__m256i high, __m256i low)
{
    const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, PSTI_SPLIT_BITS), low);
    return _mm256_srai_epi32(sum, PSTI_WEIGHT_BITS);
}

INLINE __m256i half(void)
{
    return _mm256_set1_epi32(1 << (PSTI_WEIGHT_BITS - 1));
}

/* ---- the pass down --------------------------------------------------------------------------- */

enum { DOWN_PAIRS = 128 };

/* 32 bytes of one output row. high and low: a word pair per pair of rows. */
INLINE __m256i down_block(const uint8_t *const *rows, const uint32_t *high, const uint32_t *low,
                          int pairs, size_t at)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i h[4] = {zero, zero, zero, zero}, l[4] = {half(), half(), half(), half()};
    UNROLL
    for (int p = 0; p < pairs; p++) {
        const __m256i wh = _mm256_set1_epi32((int)high[p]), wl = _mm256_set1_epi32((int)low[p]);
        const __m256i a = load(rows[2 * p] + at), b = load(rows[2 * p + 1] + at);
        const __m256i ab = _mm256_unpacklo_epi8(a, b), cd = _mm256_unpackhi_epi8(a, b);
        const __m256i x[4] = {_mm256_unpacklo_epi8(ab, zero), _mm256_unpackhi_epi8(ab, zero),
                              _mm256_unpacklo_epi8(cd, zero), _mm256_unpackhi_epi8(cd, zero)};
        UNROLL
        for (int i = 0; i < 4; i++) {
            h[i] = _mm256_add_epi32(h[i], _mm256_madd_epi16(x[i], wh));
            l[i] = _mm256_add_epi32(l[i], _mm256_madd_epi16(x[i], wl));
        }
    }
    const __m256i first = _mm256_packs_epi32(join(h[0], l[0]), join(h[1], l[1]));
    const __m256i second = _mm256_packs_epi32(join(h[2], l[2]), join(h[3], l[3]));
    return _mm256_packus_epi16(first, second);
}

/* A row of 32 bytes or more; the last block may overlap the one before. */
INLINE void down_row(const uint8_t *const *rows, const uint32_t *high, const uint32_t *low,
                     int pairs, uint8_t *dst, size_t bytes)
{
    size_t at = 0;
    for (; at + 32 <= bytes; at += 32)
        _mm256_storeu_si256((void *)(dst + at), down_block(rows, high, low, pairs, at));
    if (at < bytes)
        _mm256_storeu_si256((void *)(dst + bytes - 32),
                            down_block(rows, high, low, pairs, bytes - 32));
}

static void down(const uint8_t *const *rows, const int32_t *weights, int count, uint8_t *dst,
                 size_t bytes)
{
    const int pairs = (count + 1) / 2;
    if (bytes < 32 || pairs > DOWN_PAIRS) {
        psti_c_down(rows, weights, count, dst, bytes);
        return;
    }
    uint32_t high[DOWN_PAIRS], low[DOWN_PAIRS];
    const uint8_t *pointers[2 * DOWN_PAIRS];
    for (int p = 0; p < pairs; p++) {
        const bool odd = 2 * p + 1 == count; /* then the pair's second row counts nothing */
        const int32_t a = weights[2 * p], b = odd ? 0 : weights[2 * p + 1];
        pointers[2 * p] = rows[2 * p];
        pointers[2 * p + 1] = rows[2 * p + !odd];
        high[p] = high_pair(a, b);
        low[p] = low_pair(a, b);
    }
    if (pairs == 1)
        down_row(pointers, high, low, 1, dst, bytes);
    else if (pairs == 2)
        down_row(pointers, high, low, 2, dst, bytes);
    else
        down_row(pointers, high, low, pairs, dst, bytes);
}

/* ---- the pass across, near pixels ------------------------------------------------------------ */

/* Four output bytes ("quad") are the four sums of one 128-bit lane; two taps at a time come out of
 * one 16-byte window of the source by one byte shuffle. A block of 32 output bytes is 4 registers
 * of 2 quads; register g holds quads g and g + 4, so that packing to bytes leaves them in order. */
typedef struct step {
    uint32_t pick[8], high[8], low[8]; /* per sum: source bytes, weights' parts */
} step;

#define PICK_ZERO 0x80u       /* a byte shuffle writes 0 */
#define PICK_NONE 0x80008000u /* the upper bytes of two words */
enum { NEAR_PAIRS = 8 };

/* The table: steps [block][register][pair], then window offsets [block][register][pair][lane]. */
static size_t near_blocks(int out, int channels)
{
    return ((size_t)out * (size_t)channels + 31) / 32;
}

static size_t near_bytes(int out, int pairs, int channels)
{
    return near_blocks(out, channels) * 4 * (size_t)pairs * (sizeof(step) + 2 * sizeof(int32_t));
}

static int32_t *near_offsets(const psti_across *across)
{
    const size_t steps =
        near_blocks(across->axis->out, across->channels) * 4 * (size_t)across->pairs;
    return (int32_t *)((step *)across->table + steps);
}

/* Where near_fill writes for an output byte: its register of the table, and which of the 8 sums. */
INLINE size_t near_register(size_t byte)
{
    return byte / 32 * 4 + byte / 4 % 4;
}

INLINE size_t near_sum(size_t byte)
{
    return byte / 16 % 2 * 4 + byte % 4;
}

/* Sets the windows of the quad that begins with channel c of this pixel, if one does. */
INLINE void near_windows(const psti_across *across, int channels, bool shared, int32_t *offsets,
                         int pixel, int c)
{
    const psti_axis *axis = across->axis;
    const size_t byte = (size_t)pixel * (size_t)channels + (size_t)c;
    const int furthest = axis->in * channels - 16; /* the last that stays inside the row */
    if (byte % 4 != 0)
        return;
    int32_t *to = offsets + near_register(byte) * 2 * (size_t)across->pairs + byte / 16 % 2;
    for (int pair = 0; pair < across->pairs; pair++) {
        const int start = (axis->first[pixel] + (shared ? 0 : 2 * pair)) * channels;
        to[2 * pair] = start < furthest ? start : furthest;
    }
}

/* Fills one pair of taps of one pixel. False when a window is too small. */
INLINE bool near_pair(const psti_across *across, int channels, const int32_t *offsets, int pixel,
                      int pair)
{
    const psti_axis *axis = across->axis;
    const int32_t *weights = axis->weights + (size_t)pixel * (size_t)axis->stride + 2 * pair;
    const uint32_t high = high_pair(weights[0], weights[1]), low = low_pair(weights[0], weights[1]);
    const int left = axis->count[pixel] - 2 * pair,
              start = (axis->first[pixel] + 2 * pair) * channels;
    UNROLL
    for (int c = 0; c < channels; c++) {
        const size_t byte = (size_t)pixel * (size_t)channels + (size_t)c, sum = near_sum(byte);
        const size_t at = near_register(byte) * (size_t)across->pairs + (size_t)pair;
        const int one = start + c - offsets[2 * at + byte / 16 % 2], two = one + channels;
        if ((left > 0 && one > 15) || (left > 1 && two > 15))
            return false;
        step *s = (step *)across->table + at;
        s->pick[sum] = PICK_NONE | (left > 0 ? (uint32_t)one : PICK_ZERO) |
                       (left > 1 ? (uint32_t)two : PICK_ZERO) << 16;
        s->high[sum] = high;
        s->low[sum] = low;
    }
    return true;
}

INLINE bool near_pixels(psti_across *across, int channels, bool shared)
{
    int32_t *offsets = near_offsets(across);
    for (int pixel = 0; pixel < across->axis->out; pixel++) {
        UNROLL
        for (int c = 0; c < channels; c++)
            near_windows(across, channels, shared, offsets, pixel, c);
        for (int pair = 0; pair < across->pairs; pair++) {
            if (!near_pair(across, channels, offsets, pixel, pair))
                return false;
        }
    }
    return true;
}

/* Fills the table with one window per quad (shared) or one per quad and pair. False when a window
 * is too small. */
static bool near_fill(psti_across *across, bool shared)
{
    const size_t block = 4 * (size_t)across->pairs;
    const size_t last = near_blocks(across->axis->out, across->channels) - 1;
    memset((step *)across->table + last * block, 0, block * sizeof(step));
    memset(near_offsets(across) + last * block * 2, 0, block * 2 * sizeof(int32_t));
    return across->channels == 3 ? near_pixels(across, 3, shared)
                                 : near_pixels(across, across->channels, shared);
}

INLINE __m256i window(const uint8_t *src, const int32_t *offsets)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(src + offsets[0])),
                                   load16(src + offsets[1]), 1);
}

/* One block of 32 output bytes of `rows` rows. */
INLINE void near_block(const step *steps, const int32_t *offsets, int pairs, bool shared,
                       const uint8_t *const *src, int rows, __m256i *out)
{
    __m256i words[2][4];
    UNROLL
    for (int g = 0; g < 4; g++) {
        const __m256i zero = _mm256_setzero_si256();
        __m256i h[2] = {zero, zero}, l[2] = {half(), half()}, x[2] = {zero, zero};
        UNROLL
        for (int p = 0; p < pairs; p++) {
            const step *s = steps + g * pairs + p;
            const int32_t *o = offsets + 2 * (g * pairs + p);
            __m256i pick = load(s->pick), high = load(s->high), low = load(s->low);
            KEEP(pick);
            KEEP(high);
            KEEP(low);
            UNROLL
            for (int r = 0; r < rows; r++) {
                if (!shared || p == 0)
                    x[r] = window(src[r], o);
                const __m256i taps = _mm256_shuffle_epi8(x[r], pick);
                h[r] = _mm256_add_epi32(h[r], _mm256_madd_epi16(taps, high));
                l[r] = _mm256_add_epi32(l[r], _mm256_madd_epi16(taps, low));
            }
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            words[r][g] = join(h[r], l[r]);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        out[r] = _mm256_packus_epi16(_mm256_packs_epi32(words[r][0], words[r][1]),
                                     _mm256_packs_epi32(words[r][2], words[r][3]));
}

INLINE void near_rows(const psti_across *across, int pairs, bool shared, const uint8_t *const *src,
                      uint8_t *const *dst, int rows)
{
    const size_t bytes = (size_t)across->axis->out * (size_t)across->channels;
    const step *steps = across->table;
    const int32_t *offsets = near_offsets(across);
    for (size_t at = 0; at < bytes; at += 32, steps += 4 * pairs, offsets += 8 * pairs) {
        __m256i out[2];
        near_block(steps, offsets, pairs, shared, src, rows, out);
        for (int r = 0; r < rows; r++) {
            if (at + 32 <= bytes) {
                _mm256_storeu_si256((void *)(dst[r] + at), out[r]);
            } else {
                uint8_t rest[32];
                _mm256_storeu_si256((void *)rest, out[r]);
                memcpy(dst[r] + at, rest, bytes - at);
            }
        }
    }
}

/* Rows go two by two: a step is loaded once for both. */
INLINE void near_run(const psti_across *across, int pairs, bool shared, const uint8_t *const *src,
                     uint8_t *const *dst, int n)
{
    int row = 0;
    for (; row + 2 <= n; row += 2)
        near_rows(across, pairs, shared, src + row, dst + row, 2);
    if (row < n)
        near_rows(across, pairs, shared, src + row, dst + row, 1);
}

static void near_run_1(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                       int n)
{
    near_run(across, 1, true, src, dst, n);
}

static void near_run_2(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                       int n)
{
    near_run(across, 2, true, src, dst, n);
}

static void near_run_shared(const psti_across *across, const uint8_t *const *src,
                            uint8_t *const *dst, int n)
{
    near_run(across, across->pairs, true, src, dst, n);
}

static void near_run_any(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                         int n)
{
    near_run(across, across->pairs, false, src, dst, n);
}

/* ---- the pass across, far pixels ------------------------------------------------------------- */

/* Where a picture shrinks so much that neighbours' taps share no window: pixel by pixel, eight taps
 * at a time, four in each lane. The table holds each output's weights as 16-bit parts: stride high
 * ones, then stride low ones. */

static size_t far_bytes(int out, int taps)
{
    return (size_t)out * (size_t)((taps + 7) & ~7) * 2 * sizeof(int16_t);
}

static void far_fill(psti_across *across)
{
    const psti_axis *axis = across->axis;
    const size_t stride = (size_t)(axis->taps + 7) & ~(size_t)7;
    int16_t *to = across->table;
    for (int i = 0; i < axis->out; i++, to += 2 * stride) {
        const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        for (size_t t = 0; t < stride; t++) {
            const int32_t weight = t < (size_t)axis->count[i] ? weights[t] : 0;
            to[t] = (int16_t)(weight >> PSTI_SPLIT_BITS);
            to[stride + t] = (int16_t)(weight & LOW_MASK);
        }
    }
}

/* Byte shuffles that bring taps 0, 1 (pair 0) or 2, 3 (pair 1) of up to 4 channels side by side as
 * words. */
static __m256i far_pick(int channels, int pair)
{
    uint8_t pick[16];
    memset(pick, PICK_ZERO, sizeof pick);
    for (int c = 0; c < channels; c++) {
        pick[4 * c] = (uint8_t)(2 * pair * channels + c);
        pick[4 * c + 2] = (uint8_t)((2 * pair + 1) * channels + c);
    }
    return _mm256_broadcastsi128_si256(load16(pick));
}

/* Of eight 16-bit weights in both lanes: the pair's two, four times; taps 0..3 in the low
 * lane, 4..7 in the high one. */
INLINE __m256i far_weights(const int16_t *weights, int pair)
{
    const __m256i all = _mm256_broadcastsi128_si256(load16(weights));
    return pair == 0 ? _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2))
                     : _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3));
}

INLINE void far_store(__m256i high, __m256i low, int channels, uint8_t *dst)
{
    const __m128i h =
        _mm_add_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    const __m128i l = _mm_add_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    const __m128i sum = _mm_add_epi32(_mm_slli_epi32(h, PSTI_SPLIT_BITS), l);
    const __m128i value = _mm_srai_epi32(sum, PSTI_WEIGHT_BITS);
    const __m128i words = _mm_packs_epi32(value, value);
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(dst, &bytes, (size_t)channels);
}

/* One output pixel of `rows` rows. `taps` is a multiple of 8. */
INLINE void far_pixel(const int16_t *weights, size_t taps, int channels, const __m256i *pick,
                      size_t from, const uint8_t *const *src, uint8_t *const *dst, size_t to,
                      int rows)
{
    const __m256i start = _mm256_inserti128_si256(half(), _mm_setzero_si128(), 1);
    __m256i h[PSTI_ROWS_AT_ONCE], l[PSTI_ROWS_AT_ONCE];
    for (int r = 0; r < rows; r++) {
        h[r] = _mm256_setzero_si256();
        l[r] = start;
    }
    for (size_t t = 0; t < taps; t += 8, from += 8 * (size_t)channels) {
        const __m256i h0 = far_weights(weights + t, 0), h1 = far_weights(weights + t, 1);
        const __m256i l0 = far_weights(weights + taps + t, 0),
                      l1 = far_weights(weights + taps + t, 1);
        const int32_t offsets[2] = {0, 4 * channels};
        UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256i x = window(src[r] + from, offsets);
            const __m256i a = _mm256_shuffle_epi8(x, pick[0]), b = _mm256_shuffle_epi8(x, pick[1]);
            h[r] = _mm256_add_epi32(
                h[r], _mm256_add_epi32(_mm256_madd_epi16(a, h0), _mm256_madd_epi16(b, h1)));
            l[r] = _mm256_add_epi32(
                l[r], _mm256_add_epi32(_mm256_madd_epi16(a, l0), _mm256_madd_epi16(b, l1)));
        }
    }
    for (int r = 0; r < rows; r++)
        far_store(h[r], l[r], channels, dst[r] + to);
}

/* Outputs whose last window stays inside the row. */
static int far_safe(const psti_axis *axis, int channels, size_t taps)
{
    int safe = axis->out;
    while (safe > 0 && ((size_t)axis->first[safe - 1] + taps - 4) * (size_t)channels + 16 >
                           (size_t)axis->in * (size_t)channels)
        safe--;
    return safe;
}

INLINE void far_rows(const psti_across *across, int channels, const uint8_t *const *src,
                     uint8_t *const *dst, int n)
{
    const psti_axis *axis = across->axis;
    const size_t taps = (size_t)(axis->taps + 7) & ~(size_t)7;
    const int16_t *weights = across->table;
    const int safe = far_safe(axis, channels, taps);
    const __m256i pick[2] = {far_pick(channels, 0), far_pick(channels, 1)};
    for (int i = 0; i < safe; i++, weights += 2 * taps) {
        const size_t from = (size_t)axis->first[i] * (size_t)channels,
                     to = (size_t)i * (size_t)channels;
        if (n == PSTI_ROWS_AT_ONCE) {
            far_pixel(weights, taps, channels, pick, from, src, dst, to, PSTI_ROWS_AT_ONCE);
        } else {
            for (int r = 0; r < n; r++)
                far_pixel(weights, taps, channels, pick, from, src + r, dst + r, to, 1);
        }
    }
    psti_c_across_tail(across, safe, src, dst, n);
}

static void far_run(const psti_across *across, const uint8_t *const *src, uint8_t *const *dst,
                    int n)
{
    switch (across->channels) {
    case 1:
        far_rows(across, 1, src, dst, n);
        break;
    case 3:
        far_rows(across, 3, src, dst, n);
        break;
    default:
        far_rows(across, across->channels, src, dst, n);
    }
}

/* ---- the pass across, choosing --------------------------------------------------------------- */

static size_t across_bytes(int out, int taps, int channels)
{
    const int pairs = (taps + 1) / 2 < NEAR_PAIRS ? (taps + 1) / 2 : NEAR_PAIRS;
    const size_t near = near_bytes(out, pairs, channels), far = far_bytes(out, taps);
    return near > far ? near : far;
}

static void across_plan(psti_across *across)
{
    across->pairs = (across->axis->taps + 1) / 2;
    const bool wide = across->axis->in * across->channels >= 16;
    if (wide && across->pairs <= NEAR_PAIRS && near_fill(across, true))
        across->run = across->pairs == 1   ? near_run_1
                      : across->pairs == 2 ? near_run_2
                                           : near_run_shared;
    else if (wide && across->pairs <= NEAR_PAIRS && near_fill(across, false))
        across->run = near_run_any;
    else if (wide && across->axis->taps > 4) {
        far_fill(across);
        across->run = far_run;
    } else
        across->run = psti_c_across_run;
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* 32 bytes of pixels of 1, 2, 4 or 8 bytes, turned round. */
INLINE __m256i turn(__m256i x, __m256i lane_pick)
{
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, lane_pick), 0x4e);
}

/* By pixel size; filled once, before the first use. */
static uint8_t turns[9][16];

static void fill_turns(void)
{
    for (size_t size = 1; size <= 8; size *= 2) {
        for (size_t i = 0; i < 16; i++)
            turns[size][i] = (uint8_t)((16 / size - 1 - i / size) * size + i % size);
    }
}

/* Blocks are taken from both ends at once, so that it works in place. What is left in the middle
 * goes to the C version. */
static void reverse_even(const uint8_t *src, size_t pixels, size_t size, uint8_t *dst)
{
    const __m256i lane_pick = _mm256_broadcastsi128_si256(load16(turns[size]));
    size_t left = 0, right = pixels * size;
    for (; left + 64 <= right; left += 32, right -= 32) {
        const __m256i a = load(src + left), b = load(src + right - 32);
        _mm256_storeu_si256((void *)(dst + right - 32), turn(a, lane_pick));
        _mm256_storeu_si256((void *)(dst + left), turn(b, lane_pick));
    }
    psti_c_reverse(src + left, (right - left) / size, size, dst + left);
}

typedef struct three {
    __m128i v[3];
} three;

INLINE three load48(const uint8_t *from)
{
    return (three){{load16(from), load16(from + 16), load16(from + 32)}};
}

INLINE void store48(uint8_t *to, three x)
{
    for (int i = 0; i < 3; i++)
        _mm_storeu_si128((void *)(to + 16 * i), x.v[i]);
}

/* 16 pixels of 3 bytes, turned round. Z stands for a byte that comes from another part. */
INLINE three turn48(three x)
{
    enum { Z = -1 };
    const __m128i c0 = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, Z);
    const __m128i b0 = _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 14);
    const __m128i c1 = _mm_setr_epi8(Z, 0, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z);
    const __m128i b1 = _mm_setr_epi8(15, Z, 11, 12, 13, 8, 9, 10, 5, 6, 7, 2, 3, 4, Z, 0);
    const __m128i a1 = _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 15, Z);
    const __m128i b2 = _mm_setr_epi8(1, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z);
    const __m128i a2 = _mm_setr_epi8(Z, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    const __m128i first = _mm_or_si128(_mm_shuffle_epi8(x.v[2], c0), _mm_shuffle_epi8(x.v[1], b0));
    const __m128i middle =
        _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x.v[2], c1), _mm_shuffle_epi8(x.v[1], b1)),
                     _mm_shuffle_epi8(x.v[0], a1));
    const __m128i last = _mm_or_si128(_mm_shuffle_epi8(x.v[1], b2), _mm_shuffle_epi8(x.v[0], a2));
    return (three){{first, middle, last}};
}

static void reverse_3(const uint8_t *src, size_t pixels, uint8_t *dst)
{
    size_t left = 0, right = pixels * 3;
    for (; left + 96 <= right; left += 48, right -= 48) {
        const three a = load48(src + left), b = load48(src + right - 48);
        store48(dst + right - 48, turn48(a));
        store48(dst + left, turn48(b));
    }
    psti_c_reverse(src + left, (right - left) / 3, 3, dst + left);
}

static void reverse(const uint8_t *src, size_t pixels, size_t size, uint8_t *dst)
{
    if (size == 3)
        reverse_3(src, pixels, dst);
    else if (16 % size == 0)
        reverse_even(src, pixels, size, dst);
    else
        psti_c_reverse(src, pixels, size, dst);
}

void psti_kernels_init_avx2(psti_kernels *kernels)
{
    fill_turns();
    kernels->across_bytes = across_bytes;
    kernels->across_plan = across_plan;
    kernels->down = down;
    kernels->reverse = reverse;
    psti_kernels_init_avx2_finish(kernels);
    psti_kernels_init_avx2_blend(kernels);
    psti_kernels_init_avx2_warp(kernels);
}
