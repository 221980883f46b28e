/* SPDX-License-Identifier: Apache-2.0
 * Rendering of made-up photographs: octaves of value noise for light and colour, soft ellipses for
 * things, grain on top. Worker threads of `synth`, one canvas each. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "scene.h"

enum {
    LEVEL = 16 /* steps of a grey level in the planes */,
    NOISE = 8191 /* prime, so that rows do not line up */
};

/* ---- draws ---------------------------------------------------------------------------------- */

static uint64_t scramble(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

draws draws_of(uint64_t seed, uint64_t stream)
{
    return (draws){
        .key = scramble(scramble(seed + 0x9e3779b97f4a7c15u) ^ (stream + 1) * 0xc2b2ae3d27d4eb4fu)};
}

uint64_t draws_u64(draws *d)
{
    return scramble(d->key + ++d->next * 0x9e3779b97f4a7c15u);
}

int draws_int(draws *d, int low, int high)
{
    const uint64_t range = (uint64_t)(high - low) + 1;
    return low + (int)((draws_u64(d) >> 32) * range >> 32);
}

/* ---- noise by octaves ----------------------------------------------------------------------- */

/* One octave: a lattice of random values every 2^shift pixels, joined smoothly. */
typedef struct octave {
    int shift;
    int amplitude; /* in levels */
    uint64_t key;
} octave;

static int lattice(const octave *o, int row, int col)
{
    const uint64_t bits = scramble(o->key ^ ((uint64_t)(uint32_t)row << 32 | (uint32_t)col));
    /* The sum of four bytes is close enough to a bell. */
    const int sum = (int)(bits & 255) + (int)(bits >> 8 & 255) + (int)(bits >> 16 & 255) +
                    (int)(bits >> 24 & 255);
    return (sum - 510) * o->amplitude * LEVEL / 256;
}

/* 3t^2 - 2t^3 of t / 2^shift, in 256ths. */
static int ease(int t, int shift)
{
    const int64_t one = (int64_t)1 << shift;
    return (int)(((int64_t)t * t * (3 * one - 2 * t) * 256) >> (3 * shift));
}

static void lattice_row(const octave *o, int row, int16_t *out, int width)
{
    const int step = 1 << o->shift;
    int slope[1 << 8];
    for (int t = 0; t < step; t++)
        slope[t] = ease(t, o->shift);
    int right = lattice(o, row, 0);
    for (int x0 = 0; x0 < width; x0 += step) {
        const int left = right, count = width - x0 < step ? width - x0 : step;
        right = lattice(o, row, (x0 >> o->shift) + 1);
        for (int t = 0; t < count; t++)
            out[x0 + t] = (int16_t)(left + ((right - left) * slope[t] >> 8));
    }
}

/* Loops of a known length are what compilers turn into vectors without being pressed. */
enum { LANES = 16 };

static void add_plain(int16_t *restrict plane, const int16_t *restrict upper,
                      const int16_t *restrict lower, int weight, int count)
{
    for (int x = 0; x < count; x++)
        plane[x] = (int16_t)(plane[x] + upper[x] + ((lower[x] - upper[x]) * weight >> 8));
}

static void add_masked(int16_t *restrict plane, const int16_t *restrict upper,
                       const int16_t *restrict lower, int weight, const int16_t *restrict mask,
                       int count)
{
    for (int x = 0; x < count; x++) {
        const int value = upper[x] + ((lower[x] - upper[x]) * weight >> 8);
        plane[x] = (int16_t)(plane[x] + (value * mask[x] >> 8));
    }
}

/* plane += octave, scaled by mask / 256 where there is one. */
static void add_row(int16_t *plane, const int16_t *upper, const int16_t *lower, int weight,
                    const int16_t *mask, int width)
{
    int x = 0;
    if (mask == NULL) {
        for (; x + LANES <= width; x += LANES)
            add_plain(plane + x, upper + x, lower + x, weight, LANES);
        add_plain(plane + x, upper + x, lower + x, weight, width - x);
        return;
    }
    for (; x + LANES <= width; x += LANES)
        add_masked(plane + x, upper + x, lower + x, weight, mask + x, LANES);
    add_masked(plane + x, upper + x, lower + x, weight, mask + x, width - x);
}

static void add_octave(const scene *s, canvas *c, int16_t *plane, const octave *o,
                       const int16_t *mask)
{
    int16_t *upper = c->rows, *lower = c->rows + s->width;
    const int step = 1 << o->shift;
    lattice_row(o, 0, lower, s->width);
    for (int y = 0; y < s->height; y++) {
        const size_t at = (size_t)y * (size_t)s->width;
        if ((y & (step - 1)) == 0) {
            int16_t *spare = upper;
            upper = lower;
            lower = spare;
            lattice_row(o, (y >> o->shift) + 1, lower, s->width);
        }
        add_row(plane + at, upper, lower, ease(y & (step - 1), o->shift), mask ? mask + at : NULL,
                s->width);
    }
}

/* ---- things --------------------------------------------------------------------------------- */

typedef struct ellipse {
    float x, y;       /* centre */
    float a, b, c;    /* a dx^2 + b dx dy + c dy^2 < 1 inside */
    float reach;      /* half of the box's side */
    float sharp;      /* how fast it fades at the rim */
    int dy, dcb, dcr; /* what it adds, in LEVELs */
} ellipse;

/* Directions at 22.5 degrees from each other; written out, so that no library rounds them. */
static const float directions[8][2] = {
    {1, 0}, {0.92388F, 0.38268F},  {0.70711F, 0.70711F},  {0.38268F, 0.92388F},
    {0, 1}, {-0.38268F, 0.92388F}, {-0.70711F, 0.70711F}, {-0.92388F, 0.38268F}};

/* A wave from -256 to 256 with straight flanks, period 1536. */
static int wave(int phase)
{
    const int p = ((phase % 1536) + 1536) % 1536;
    return p < 768 ? p * 2 / 3 - 256 : 768 - p * 2 / 3;
}

static ellipse draw_ellipse(draws *d, const scene *s)
{
    const int side = s->width < s->height ? s->width : s->height;
    const float *u = directions[draws_int(d, 0, 7)];
    const float long_radius = (float)draws_int(d, side / 16 + 2, side / 3 + 3);
    const float short_radius = long_radius * (float)draws_int(d, 30, 100) / 100.0F;
    const float p = 1.0F / (long_radius * long_radius), q = 1.0F / (short_radius * short_radius);
    const int hue = s->hue + draws_int(d, -500, 500), colour = draws_int(d, 0, 26);
    return (ellipse){.x = (float)draws_int(d, 0, s->width),
                     .y = (float)draws_int(d, 0, s->height),
                     .a = u[0] * u[0] * p + u[1] * u[1] * q,
                     .b = 2.0F * u[0] * u[1] * (p - q),
                     .c = u[1] * u[1] * p + u[0] * u[0] * q,
                     .reach = long_radius,
                     .sharp = (float)draws_int(d, 2, 24),
                     .dy = draws_int(d, -48, 48) * LEVEL,
                     .dcb = wave(hue) * colour * LEVEL / 256,
                     .dcr = wave(hue + 384) * colour * LEVEL / 256};
}

static int clamp_int(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static void add_ellipse(const scene *s, canvas *c, const ellipse *e)
{
    const int top = clamp_int((int)(e->y - e->reach), 0, s->height);
    const int bottom = clamp_int((int)(e->y + e->reach) + 1, 0, s->height);
    const int left = clamp_int((int)(e->x - e->reach), 0, s->width);
    const int right = clamp_int((int)(e->x + e->reach) + 1, 0, s->width);
    for (int y = top; y < bottom; y++) {
        const size_t row = (size_t)y * (size_t)s->width;
        const float dy = (float)y - e->y;
        for (int x = left; x < right; x++) {
            const float dx = (float)x - e->x;
            const float inside =
                (1.0F - (e->a * dx * dx + e->b * dx * dy + e->c * dy * dy)) * e->sharp;
            if (inside <= 0)
                continue;
            const int alpha = inside >= 1.0F ? 256 : (int)(inside * 256.0F);
            c->y[row + (size_t)x] = (int16_t)(c->y[row + (size_t)x] + (e->dy * alpha >> 8));
            c->cb[row + (size_t)x] = (int16_t)(c->cb[row + (size_t)x] + (e->dcb * alpha >> 8));
            c->cr[row + (size_t)x] = (int16_t)(c->cr[row + (size_t)x] + (e->dcr * alpha >> 8));
        }
    }
}

/* ---- grain and result ----------------------------------------------------------------------- */

static int16_t noise_table[NOISE];

/* Filled before main: the same for every picture, each row of which starts at a place of its own.
 */
__attribute__((constructor)) static void fill_noise(void)
{
    draws d = draws_of(0x6772616eu, 0);
    for (int i = 0; i < NOISE; i++) {
        const uint64_t bits = draws_u64(&d);
        const int sum = (int)(bits & 255) + (int)(bits >> 8 & 255) + (int)(bits >> 16 & 255) +
                        (int)(bits >> 24 & 255);
        noise_table[i] = (int16_t)((sum - 510) * LEVEL / 64); /* deviation about 2.3 levels */
    }
}

static void add_grain(const scene *s, int16_t *plane, draws *d, int strength)
{
    for (int y = 0; y < s->height; y++) {
        int at = draws_int(d, 0, NOISE - 1);
        int16_t *row = plane + (size_t)y * (size_t)s->width;
        for (int x = 0; x < s->width;) {
            const int count = NOISE - at < s->width - x ? NOISE - at : s->width - x;
            for (int i = 0; i < count; i++)
                row[x + i] = (int16_t)(row[x + i] + (noise_table[at + i] * strength >> 8));
            x += count;
            at = 0;
        }
    }
}

static uint8_t to_level(int value)
{
    const int level = (value + LEVEL / 2) >> 4;
    return (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
}

static void write_pixels(const scene *s, canvas *c)
{
    const size_t count = (size_t)s->width * (size_t)s->height;
    for (size_t i = 0; i < count; i++) {
        c->pixels[3 * i] = to_level(c->y[i]);
        c->pixels[3 * i + 1] = to_level(c->cb[i]);
        c->pixels[3 * i + 2] = to_level(c->cr[i]);
    }
}

/* ---- composition ---------------------------------------------------------------------------- */

static void reserve(const scene *s, canvas *c)
{
    const size_t count = (size_t)s->width * (size_t)s->height, row = (size_t)s->width * 2;
    if (count > c->capacity) {
        c->y = cli_realloc(c->y, count, sizeof *c->y);
        c->cb = cli_realloc(c->cb, count, sizeof *c->cb);
        c->cr = cli_realloc(c->cr, count, sizeof *c->cr);
        c->mask = cli_realloc(c->mask, count, sizeof *c->mask);
        c->pixels = cli_realloc(c->pixels, count, 3);
        c->capacity = count;
    }
    if (row > c->row_capacity) {
        c->rows = cli_realloc(c->rows, row, sizeof *c->rows);
        c->row_capacity = row;
    }
}

static void fill_plane(const scene *s, int16_t *plane, int top, int bottom)
{
    for (int y = 0; y < s->height; y++) {
        const int16_t value = (int16_t)(top + (bottom - top) * y / s->height);
        int16_t *row = plane + (size_t)y * (size_t)s->width;
        for (int x = 0; x < s->width; x++)
            row[x] = value;
    }
}

/* Where the picture is busy (up to 512) and where it is smooth (near 32), in 256ths. */
static void make_mask(const scene *s, canvas *c, draws *d)
{
    const size_t count = (size_t)s->width * (size_t)s->height;
    memset(c->mask, 0, count * sizeof *c->mask);
    for (int shift = 7; shift >= 5; shift--) {
        const octave o = {.shift = shift, .amplitude = 30, .key = draws_u64(d)};
        add_octave(s, c, c->mask, &o, NULL);
    }
    const int middle = draws_int(d, 120, 330);
    for (size_t i = 0; i < count; i++)
        c->mask[i] = (int16_t)(clamp_int(middle + c->mask[i] / 2, 24, 512) * s->texture >> 8);
}

static void add_octaves(const scene *s, canvas *c, draws *d)
{
    static const struct {
        int shift, light, colour;
        int masked;
    } bands[] = {{7, 26, 7, 0}, {6, 22, 6, 0}, {5, 18, 5, 0}, {4, 16, 4, 1},
                 {3, 15, 3, 1}, {2, 15, 3, 1}, {1, 15, 2, 1}};
    for (size_t i = 0; i < sizeof bands / sizeof bands[0]; i++) {
        const int16_t *mask = bands[i].masked ? c->mask : NULL;
        const octave light = {bands[i].shift, bands[i].light, draws_u64(d)};
        const octave blue = {bands[i].shift, bands[i].colour, draws_u64(d)};
        const octave red = {bands[i].shift, bands[i].colour, draws_u64(d)};
        add_octave(s, c, c->y, &light, mask);
        add_octave(s, c, c->cb, &blue, mask);
        add_octave(s, c, c->cr, &red, mask);
    }
}

void scene_render(const scene *s, canvas *c)
{
    draws d = draws_of(s->seed, 1);
    reserve(s, c);
    const int light = draws_int(&d, 90, 150), slope = draws_int(&d, -40, 40),
              colour = draws_int(&d, 18, 30);
    fill_plane(s, c->y, (light + slope) * LEVEL, (light - slope) * LEVEL);
    fill_plane(s, c->cb, 128 * LEVEL + wave(s->hue) * colour * LEVEL / 256,
               128 * LEVEL + wave(s->hue) * colour * LEVEL / 256);
    fill_plane(s, c->cr, 128 * LEVEL + wave(s->hue + 384) * colour * LEVEL / 256,
               128 * LEVEL + wave(s->hue + 384) * colour * LEVEL / 256);
    const int things = draws_int(&d, 4, 14);
    for (int i = 0; i < things; i++) {
        const ellipse e = draw_ellipse(&d, s);
        add_ellipse(s, c, &e);
    }
    make_mask(s, c, &d);
    add_octaves(s, c, &d);
    add_grain(s, c->y, &d, s->grain);
    add_grain(s, c->cb, &d, s->grain / 3);
    add_grain(s, c->cr, &d, s->grain / 3);
    write_pixels(s, c);
}

void canvas_fini(canvas *c)
{
    free(c->y);
    free(c->cb);
    free(c->cr);
    free(c->mask);
    free(c->rows);
    free(c->pixels);
    *c = (canvas){0};
}
