/* SPDX-License-Identifier: Apache-2.0
 * Colour kernels: rows of RGB pixels taken apart 64 at a time, changed in loops of fixed length
 * over arrays of their own, and put together again. Written once in C and compiled for each level
 * with that level's flags (PSTI_COLOR_INIT names the function that fills the table): the compiler
 * makes the vectors, and since nothing is contracted or reordered every level gives the same bytes.
 * Only taking pixels apart and putting them together is written out by hand, for it cannot. */
#include <stdbool.h>
#include <string.h>

#include "op/kernels/kernels.h"

#if defined(__SSSE3__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { CHUNK = 64 };

typedef struct trio {
    _Alignas(64) uint8_t r[CHUNK];
    _Alignas(64) uint8_t g[CHUNK];
    _Alignas(64) uint8_t b[CHUNK];
} trio;

/* ---- apart and together ---------------------------------------------------------------------- */

#if defined(__SSSE3__)

/* Where byte i of channel c stands in the third of 48 bytes; -1: in another third. */
#define PICK(c, part, i) (char)((3 * (i) + (c)) / 16 == (part) ? (3 * (i) + (c)) % 16 : -1)
/* The other way: which pixel of channel c byte i of a third is; -1: another channel's. */
#define LAY(c, part, i) (char)((16 * (part) + (i)) % 3 == (c) ? (16 * (part) + (i)) / 3 : -1)
#define SIXTEEN(of, c, part)                                                                       \
    _mm_setr_epi8(of(c, part, 0), of(c, part, 1), of(c, part, 2), of(c, part, 3), of(c, part, 4),  \
                  of(c, part, 5), of(c, part, 6), of(c, part, 7), of(c, part, 8), of(c, part, 9),  \
                  of(c, part, 10), of(c, part, 11), of(c, part, 12), of(c, part, 13),              \
                  of(c, part, 14), of(c, part, 15))
#define MIXED(of, c, x, y, z)                                                                      \
    _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, SIXTEEN(of, c, 0)),                              \
                              _mm_shuffle_epi8(y, SIXTEEN(of, c, 1))),                             \
                 _mm_shuffle_epi8(z, SIXTEEN(of, c, 2)))
#define LAID(part, x, y, z)                                                                        \
    _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, SIXTEEN(LAY, 0, part)),                          \
                              _mm_shuffle_epi8(y, SIXTEEN(LAY, 1, part))),                         \
                 _mm_shuffle_epi8(z, SIXTEEN(LAY, 2, part)))

INLINE void split(const uint8_t *src, trio *t)
{
    for (int i = 0; i < CHUNK; i += 16) {
        const __m128i *from = (const void *)(src + 3 * i);
        const __m128i x = _mm_loadu_si128(from), y = _mm_loadu_si128(from + 1),
                      z = _mm_loadu_si128(from + 2);
        _mm_store_si128((void *)(t->r + i), MIXED(PICK, 0, x, y, z));
        _mm_store_si128((void *)(t->g + i), MIXED(PICK, 1, x, y, z));
        _mm_store_si128((void *)(t->b + i), MIXED(PICK, 2, x, y, z));
    }
}

INLINE void join(const trio *t, uint8_t *dst)
{
    for (int i = 0; i < CHUNK; i += 16) {
        __m128i *to = (void *)(dst + 3 * i);
        const __m128i x = _mm_load_si128((const void *)(t->r + i)),
                      y = _mm_load_si128((const void *)(t->g + i)),
                      z = _mm_load_si128((const void *)(t->b + i));
        _mm_storeu_si128(to, LAID(0, x, y, z));
        _mm_storeu_si128(to + 1, LAID(1, x, y, z));
        _mm_storeu_si128(to + 2, LAID(2, x, y, z));
    }
}

#else

INLINE void split(const uint8_t *src, trio *t)
{
    for (int i = 0; i < CHUNK; i++) {
        t->r[i] = src[3 * i];
        t->g[i] = src[3 * i + 1];
        t->b[i] = src[3 * i + 2];
    }
}

INLINE void join(const trio *t, uint8_t *dst)
{
    for (int i = 0; i < CHUNK; i++) {
        dst[3 * i] = t->r[i];
        dst[3 * i + 1] = t->g[i];
        dst[3 * i + 2] = t->b[i];
    }
}

#endif

/* n pixels, up to CHUNK; those that are missing are black. */
INLINE void take(const uint8_t *src, size_t n, trio *t)
{
    if (n >= CHUNK) {
        split(src, t);
        return;
    }
    uint8_t rest[3 * CHUNK] = {0};
    memcpy(rest, src, 3 * n);
    split(rest, t);
}

INLINE void give(const trio *t, size_t n, uint8_t *dst)
{
    if (n >= CHUNK) {
        join(t, dst);
        return;
    }
    uint8_t rest[3 * CHUNK];
    join(t, rest);
    memcpy(dst, rest, 3 * n);
}

/* ---- grey ------------------------------------------------------------------------------------ */

/* Pillow: weights of 16 bits, rounded. */
INLINE void gray_pil(const trio *t, uint8_t *out)
{
    for (int i = 0; i < CHUNK; i++)
        out[i] = (uint8_t)((t->r[i] * 19595u + t->g[i] * 38470u + t->b[i] * 7471u + 0x8000u) >> 16);
}

/* Tensors: weights of float, cut off. */
INLINE void gray_tensor(const trio *t, uint8_t *out)
{
    for (int i = 0; i < CHUNK; i++)
        out[i] = (uint8_t)(int32_t)((0.2989f * (float)t->r[i] + 0.587f * (float)t->g[i]) +
                                    0.114f * (float)t->b[i]);
}

INLINE void gray_of(bool tensor, const trio *t, uint8_t *out)
{
    if (tensor)
        gray_tensor(t, out);
    else
        gray_pil(t, out);
}

INLINE uint64_t sum_rows(bool tensor, const uint8_t *src, size_t pixels)
{
    uint64_t total = 0;
    for (size_t at = 0; at < pixels; at += CHUNK) {
        trio t;
        uint8_t gray[CHUNK];
        take(src + 3 * at, pixels - at, &t);
        gray_of(tensor, &t, gray);
        uint32_t sum = 0;
        for (int i = 0; i < CHUNK; i++)
            sum += gray[i];
        total += sum;
    }
    return total;
}

INLINE void gray_rows(bool tensor, const uint8_t *src, size_t pixels, int channels, uint8_t *dst)
{
    for (size_t at = 0; at < pixels; at += CHUNK) {
        const size_t n = pixels - at < CHUNK ? pixels - at : CHUNK;
        trio t;
        uint8_t gray[CHUNK];
        take(src + 3 * at, n, &t);
        gray_of(tensor, &t, gray);
        if (channels == 1) {
            memcpy(dst + at, gray, n);
            continue;
        }
        memcpy(t.r, gray, CHUNK);
        memcpy(t.g, gray, CHUNK);
        memcpy(t.b, gray, CHUNK);
        give(&t, n, dst + 3 * at);
    }
}

/* ---- blends ---------------------------------------------------------------------------------- */

/* To a byte: held to 0..255, the rest cut off. */
INLINE uint8_t clip(float x)
{
    x = x > 0.0f ? x : 0.0f;
    x = x < 255.0f ? x : 255.0f;
    return (uint8_t)(int32_t)x;
}

/* One value of a blend; Pillow steps from the other picture, tensors add two shares. */
INLINE uint8_t blend(bool tensor, int other, int value, float factor, float rest)
{
    if (tensor)
        return clip(factor * (float)value + rest * (float)other);
    return clip((float)other + factor * (float)(value - other));
}

INLINE void blend_chunk(bool tensor, const uint8_t *other, uint8_t *values, float factor,
                        float rest)
{
    for (int i = 0; i < CHUNK; i++)
        values[i] = blend(tensor, other[i], values[i], factor, rest);
}

INLINE void saturate_rows(bool tensor, const uint8_t *src, size_t pixels, double by, uint8_t *dst)
{
    const float factor = (float)by, rest = (float)(1.0 - by);
    for (size_t at = 0; at < pixels; at += CHUNK) {
        trio t;
        uint8_t gray[CHUNK];
        take(src + 3 * at, pixels - at, &t);
        gray_of(tensor, &t, gray);
        blend_chunk(tensor, gray, t.r, factor, rest);
        blend_chunk(tensor, gray, t.g, factor, rest);
        blend_chunk(tensor, gray, t.b, factor, rest);
        give(&t, pixels - at, dst + 3 * at);
    }
}

/* The mean of 3 x 3 values with the middle one counted five times, rounded: thirteenths never lie
 * half way, so that floats, as the libraries have it, and integers agree. The first and last pixel
 * are blended with themselves, which tensors' arithmetic does not always leave as they are. */
INLINE void smooth_rows(bool tensor, const uint8_t *const rows[3], size_t pixels, size_t channels,
                        double by, uint8_t *restrict dst)
{
    const uint8_t *a = rows[0], *b = rows[1], *c = rows[2];
    const float factor = (float)by, rest = (float)(1.0 - by);
    const size_t d = channels, end = (pixels - 1) * d;
    for (size_t i = 0; i < d; i++) {
        dst[i] = blend(tensor, b[i], b[i], factor, rest);
        dst[end + i] = blend(tensor, b[end + i], b[end + i], factor, rest);
    }
    for (size_t i = d; i < end; i++) {
        const unsigned sum = (unsigned)a[i - d] + a[i] + a[i + d] + b[i - d] + b[i + d] + c[i - d] +
                             c[i] + c[i + d] + 5u * b[i];
        const uint16_t mean = (uint16_t)((uint16_t)(2 * sum + 13) / 26);
        dst[i] = blend(tensor, mean, b[i], factor, rest);
    }
}

/* ---- hue ------------------------------------------------------------------------------------- */

typedef struct wide {
    int32_t r[CHUNK], g[CHUNK], b[CHUNK];
} wide;

INLINE void widen(const trio *t, wide *w)
{
    for (int i = 0; i < CHUNK; i++) {
        w->r[i] = t->r[i];
        w->g[i] = t->g[i];
        w->b[i] = t->b[i];
    }
}

INLINE void narrow(const wide *w, trio *t)
{
    for (int i = 0; i < CHUNK; i++) {
        t->r[i] = (uint8_t)w->r[i];
        t->g[i] = (uint8_t)w->g[i];
        t->b[i] = (uint8_t)w->b[i];
    }
}

INLINE int32_t max3(int32_t a, int32_t b, int32_t c)
{
    const int32_t most = a > b ? a : b;
    return most > c ? most : c;
}

INLINE int32_t min3(int32_t a, int32_t b, int32_t c)
{
    const int32_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Straight lines only: with a branch the compiler makes no vectors. */
INLINE int32_t pick(bool which, int32_t yes, int32_t no)
{
    const int32_t mask = -(int32_t)which;
    return (yes & mask) | (no & ~mask);
}

/* Pillow's hue of 8 bits is 255 times the share of the circle, cut off; its floats fall below the
 * true value where that is an integer, if anywhere: below[k] says for which. */
static int32_t below[256];

/* Pillow's chain of roundings for the hue k / 255, with 255 as the range of the three values. */
static bool falls_below(int k)
{
    const int turns = 6 * k, base = turns <= 255 ? 0 : turns <= 765 ? 2 : turns <= 1275 ? 4 : 6;
    const int apart = turns - 255 * base;
    const float plus = (float)(apart < 0 ? 255 + apart : 255) / 255.0f,
                less = (float)(apart < 0 ? 255 : 255 - apart) / 255.0f;
    const float turn = (float)((base == 6 ? 0.0 : base) + ((double)plus - (double)less));
    const double round = (double)turn / 6.0 + 1.0;
    const float hue = (float)(round >= 1.0 ? round - 1.0 : round);
    return (int)((double)hue * 255.0) < k;
}

/* Quotients of integers this small are exact after cutting off, in float. */
INLINE int32_t quotient(int32_t a, int32_t b)
{
    return (int32_t)((float)a / (float)b);
}

INLINE void to_hsv_pil(wide *w)
{
    for (int i = 0; i < CHUNK; i++) {
        const int32_t r = w->r[i], g = w->g[i], b = w->b[i];
        const int32_t most = max3(r, g, b), range = most - min3(r, g, b);
        const bool red = r == most, green = g == most;
        int32_t turn = pick(red, g - b, pick(green, b - r, r - g) + pick(green, 2, 4) * range);
        turn += pick(turn < 0, 6 * range, 0);
        const int32_t whole = 2 * (range + (range == 0));
        const int32_t hue = quotient(85 * turn, whole);
        w->r[i] = hue - pick(hue * whole == 85 * turn, below[hue], 0);
        w->g[i] = quotient(255 * range, most + (most == 0));
        w->b[i] = most;
    }
}

/* Of three values one is the largest, one the smallest, and one, in the middle, falls or rises over
 * a sixth of the circle. */
INLINE void lay_sector(wide *w, int i, int32_t sixth, int32_t most, int32_t middle, int32_t least)
{
    w->r[i] =
        pick((sixth == 0) | (sixth == 5), most, pick((sixth == 1) | (sixth == 4), middle, least));
    w->g[i] =
        pick((sixth == 1) | (sixth == 2), most, pick((sixth == 0) | (sixth == 3), middle, least));
    w->b[i] =
        pick((sixth == 3) | (sixth == 4), most, pick((sixth == 2) | (sixth == 5), middle, least));
}

/* Back, with Pillow's roundings: what falls is a product of floats, what rises one of doubles.
 * Three loops, since doubles and choices do not become vectors together. */
INLINE void from_hsv_pil(wide *w, int32_t shift)
{
    float part[CHUNK], share[CHUNK];
    int32_t sixths[CHUNK], falling[CHUNK], rising[CHUNK];
    for (int i = 0; i < CHUNK; i++) {
        const int32_t six = ((w->r[i] + shift) & 255) * 6;
        sixths[i] = (six * 0x8081) >> 23; /* six / 255 */
        part[i] = (float)(six - 255 * sixths[i]) / 255.0f;
        share[i] = (float)w->g[i] / 255.0f;
    }
    for (int i = 0; i < CHUNK; i++) {
        const double less = (double)(share[i] * part[i]),
                     more = (double)share[i] * (1.0 - (double)part[i]), most = (double)w->b[i];
        falling[i] = (int32_t)(most * (1.0 - less) + 0.5);
        rising[i] = (int32_t)(most * (1.0 - more) + 0.5);
    }
    for (int i = 0; i < CHUNK; i++) {
        const int32_t sixth = pick(sixths[i] == 6, 0, sixths[i]), most = w->b[i];
        const int32_t odd = sixths[i] & 1;
        const int32_t least = ((most * (255 - w->g[i]) + 127) * 0x8081) >> 23; /* / 255 */
        lay_sector(w, i, sixth, most, pick(odd == 1, falling[i], rising[i]), least);
    }
}

/* torchvision's on uint8 tensors: everything in float on a scale of 0 to 1. */
INLINE void hue_chunk_tensor(wide *w, float shift)
{
    for (int i = 0; i < CHUNK; i++) {
        const int32_t top = max3(w->r[i], w->g[i], w->b[i]), low = min3(w->r[i], w->g[i], w->b[i]);
        const float r = (float)w->r[i] / 255.0f, g = (float)w->g[i] / 255.0f,
                    b = (float)w->b[i] / 255.0f, most = (float)top / 255.0f;
        const float range = most - (float)low / 255.0f, whole = top == low ? 1.0f : range;
        const float share = range / (top == low ? 1.0f : most);
        const float rc = (most - r) / whole, gc = (most - g) / whole, bc = (most - b) / whole;
        const float from_red = bc - gc, from_green = (2.0f + rc) - bc, from_blue = (4.0f + gc) - rc;
        const float turn = w->r[i] == top ? from_red : w->g[i] == top ? from_green : from_blue;
        float hue = turn / 6.0f + 1.0f;
        hue = hue - (hue >= 1.0f ? 1.0f : 0.0f) + shift;
        hue = hue + (hue < 0.0f ? 1.0f : 0.0f) - (hue >= 1.0f ? 1.0f : 0.0f);
        const float six = hue * 6.0f;
        const int32_t sixth = (int32_t)six;
        const float part = six - (float)sixth;
        const float less = sixth & 1 ? part : 1.0f - part;
        lay_sector(w, i, pick(sixth >= 6, 0, sixth), (int32_t)(most * 255.0f),
                   (int32_t)(most * (1.0f - share * less) * 255.0f),
                   (int32_t)(most * (1.0f - share) * 255.0f));
    }
}

INLINE void hue_rows(bool tensor, const uint8_t *src, size_t pixels, double by, uint8_t *dst)
{
    const int32_t shift = (int32_t)(by * 255.0) & 255;
    for (size_t at = 0; at < pixels; at += CHUNK) {
        trio t;
        wide w;
        take(src + 3 * at, pixels - at, &t);
        widen(&t, &w);
        if (tensor) {
            hue_chunk_tensor(&w, (float)by);
        } else {
            to_hsv_pil(&w);
            from_hsv_pil(&w, shift);
        }
        narrow(&w, &t);
        give(&t, pixels - at, dst + 3 * at);
    }
}

/* ---- blur ------------------------------------------------------------------------------------ */

/* Vectors are written out here: an array of sums would go to memory and back for every weight. */
#if defined(__AVX__)
typedef float lanes __attribute__((vector_size(32)));
#else
typedef float lanes __attribute__((vector_size(16)));
#endif
enum { LANES = sizeof(lanes) / sizeof(float), SPAN = 4 * LANES };

INLINE lanes load(const float *from)
{
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* weights[0] times the middle and weights[t] times the pair t away, added up from the middle
 * outwards. */
typedef struct quad {
    lanes a, b, c, d;
} quad;

INLINE quad middle(const float *from, float weight)
{
    return (quad){load(from) * weight, load(from + LANES) * weight, load(from + 2 * LANES) * weight,
                  load(from + 3 * LANES) * weight};
}

INLINE void add_pair(quad *sum, const float *one, const float *other, float weight)
{
    sum->a += (load(one) + load(other)) * weight;
    sum->b += (load(one + LANES) + load(other + LANES)) * weight;
    sum->c += (load(one + 2 * LANES) + load(other + 2 * LANES)) * weight;
    sum->d += (load(one + 3 * LANES) + load(other + 3 * LANES)) * weight;
}

static void blur_across(const float *src, size_t count, size_t step, const float *weights, int half,
                        float *dst)
{
    size_t at = 0;
    for (; at + SPAN <= count; at += SPAN) {
        quad sum = middle(src + at, weights[0]);
        for (int t = 1; t <= half; t++)
            add_pair(&sum, src + at - (size_t)t * step, src + at + (size_t)t * step, weights[t]);
        memcpy(dst + at, &sum, sizeof sum);
    }
    for (; at < count; at++) {
        float sum = src[at] * weights[0];
        for (int t = 1; t <= half; t++)
            sum += (src[at - (size_t)t * step] + src[at + (size_t)t * step]) * weights[t];
        dst[at] = sum;
    }
}

/* Adding this leaves no bits for fractions: what is cut off was rounded to nearest, ties to even.
 */
#define NO_FRACTION 8388608.0f

INLINE uint8_t rounded(float x)
{
    x = (x + NO_FRACTION) - NO_FRACTION;
    return (uint8_t)(int32_t)(x < 255.0f ? x : 255.0f);
}

static void blur_down(const float *const *rows, size_t count, const float *weights, int half,
                      uint8_t *dst)
{
    size_t at = 0;
    for (; at + SPAN <= count; at += SPAN) {
        quad sum = middle(rows[half] + at, weights[0]);
        for (int t = 1; t <= half; t++)
            add_pair(&sum, rows[half - t] + at, rows[half + t] + at, weights[t]);
        float values[SPAN];
        memcpy(values, &sum, sizeof sum);
        for (int i = 0; i < SPAN; i++)
            dst[at + (size_t)i] = rounded(values[i]);
    }
    for (; at < count; at++) {
        float sum = rows[half][at] * weights[0];
        for (int t = 1; t <= half; t++)
            sum += (rows[half - t][at] + rows[half + t][at]) * weights[t];
        dst[at] = rounded(sum);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void lut1(const uint8_t *src, size_t count, const uint8_t (*tables)[256], uint8_t *dst)
{
    const uint8_t *table = tables[0];
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const uint8_t four[4] = {table[src[i]], table[src[i + 1]], table[src[i + 2]],
                                 table[src[i + 3]]};
        memcpy(dst + i, four, sizeof four);
    }
    for (; i < count; i++)
        dst[i] = table[src[i]];
}

static void lut3(const uint8_t *src, size_t pixels, const uint8_t (*tables)[256], uint8_t *dst)
{
    for (size_t i = 0; i < 3 * pixels; i += 3) {
        const uint8_t r = tables[0][src[i]], g = tables[1][src[i + 1]], b = tables[2][src[i + 2]];
        dst[i] = r;
        dst[i + 1] = g;
        dst[i + 2] = b;
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t sum_pil(const uint8_t *src, size_t pixels)
{
    return sum_rows(false, src, pixels);
}

static uint64_t sum_tensor(const uint8_t *src, size_t pixels)
{
    return sum_rows(true, src, pixels);
}

static void gray_rows_pil(const uint8_t *src, size_t pixels, int channels, uint8_t *dst)
{
    gray_rows(false, src, pixels, channels, dst);
}

static void gray_rows_tensor(const uint8_t *src, size_t pixels, int channels, uint8_t *dst)
{
    gray_rows(true, src, pixels, channels, dst);
}

static void saturate_pil(const uint8_t *src, size_t pixels, double by, uint8_t *dst)
{
    saturate_rows(false, src, pixels, by, dst);
}

static void saturate_tensor(const uint8_t *src, size_t pixels, double by, uint8_t *dst)
{
    saturate_rows(true, src, pixels, by, dst);
}

static void hue_pil(const uint8_t *src, size_t pixels, double by, uint8_t *dst)
{
    hue_rows(false, src, pixels, by, dst);
}

static void hue_tensor(const uint8_t *src, size_t pixels, double by, uint8_t *dst)
{
    hue_rows(true, src, pixels, by, dst);
}

static void sharpen_pil(const uint8_t *const rows[3], size_t pixels, size_t channels, double by,
                        uint8_t *dst)
{
    smooth_rows(false, rows, pixels, channels, by, dst);
}

static void sharpen_tensor(const uint8_t *const rows[3], size_t pixels, size_t channels, double by,
                           uint8_t *dst)
{
    smooth_rows(true, rows, pixels, channels, by, dst);
}

void PSTI_COLOR_INIT(psti_kernels *kernels)
{
    for (int k = 0; k < 256; k++)
        below[k] = falls_below(k);
    kernels->color = (psti_color_kernels){
        .lut = {lut1, lut3},
        .gray_sum = {sum_pil, sum_tensor},
        .gray = {gray_rows_pil, gray_rows_tensor},
        .saturate = {saturate_pil, saturate_tensor},
        .hue = {hue_pil, hue_tensor},
        .sharpen = {sharpen_pil, sharpen_tensor},
        .blur_across = blur_across,
        .blur_down = blur_down,
    };
}
