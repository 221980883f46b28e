/* SPDX-License-Identifier: Apache-2.0
 * Packing and reading shapes of objects. A shape is the bytes that follow, its form, how many
 * parts, then the parts; whole numbers are 7 bits a byte, the lowest first; differences have their
 * sign in the lowest bit. */
#include "core/outline.h"

#include <math.h>
#include <string.h>

enum { REAL_BYTES = 8 };
/* Beyond this a coordinate in hundredths is no whole number of a double. */
#define HUNDREDTHS_MAX 1e13

static size_t put_number(uint8_t *dst, size_t at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7, at++)
        if (dst)
            dst[at] = (uint8_t)(value | 0x80);
    if (dst)
        dst[at] = (uint8_t)value;
    return at + 1;
}

static size_t put_signed(uint8_t *dst, size_t at, int64_t value)
{
    return put_number(dst, at, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static bool take_number(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool take_signed(const uint8_t **at, const uint8_t *end, int64_t *out)
{
    uint64_t bits;
    if (!take_number(at, end, &bits))
        return false;
    *out = (int64_t)(bits >> 1 ^ (0 - (bits & 1)));
    return true;
}

/* The coordinate in hundredths; false where these are not the very number. */
static bool in_hundredths(double value, int64_t *out)
{
    *out = 0;
    if (!(fabs(value) < HUNDREDTHS_MAX / 100))
        return false;
    *out = (int64_t)(value * 100 + (value < 0 ? -0.5 : 0.5));
    return (double)*out / 100 == value;
}

static bool all_hundredths(const psti_shape *shape)
{
    size_t numbers = 0;
    int64_t unused;
    for (size_t i = 0; i < shape->parts; i++)
        numbers += 2 * shape->counts[i];
    for (size_t i = 0; i < numbers; i++)
        if (!in_hundredths(shape->points[i], &unused))
            return false;
    return true;
}

static size_t put_polygons(const psti_shape *shape, bool hundredths, uint8_t *dst)
{
    const double *point = shape->points;
    size_t at = 0;
    int64_t last[2] = {0, 0}, now;
    for (size_t i = 0; i < shape->parts; i++) {
        at = put_number(dst, at, shape->counts[i]);
        for (uint64_t k = 0; k < 2 * shape->counts[i]; k++, point++) {
            if (!hundredths) {
                if (dst)
                    memcpy(dst + at, point, REAL_BYTES);
                at += REAL_BYTES;
                continue;
            }
            in_hundredths(*point, &now);
            at = put_signed(dst, at, now - last[k & 1]);
            last[k & 1] = now;
        }
    }
    return at;
}

static size_t put_runs(const psti_shape *shape, uint8_t *dst)
{
    size_t at = put_number(dst, 0, shape->rows);
    at = put_number(dst, at, shape->cols);
    for (size_t i = 0; i < shape->parts; i++)
        at = put_number(dst, at, shape->counts[i]);
    return at;
}

size_t psti_outline_pack(const psti_shape *shape, uint8_t *dst)
{
    psti_outline_form form = PSTI_OUTLINE_NONE;
    if (shape->rows)
        form = PSTI_OUTLINE_RUNS;
    else if (shape->parts)
        form = all_hundredths(shape) ? PSTI_OUTLINE_HUNDREDTHS : PSTI_OUTLINE_REALS;
    if (form == PSTI_OUTLINE_NONE)
        return put_number(dst, 0, 0);
    const bool hundredths = form == PSTI_OUTLINE_HUNDREDTHS;
    size_t body = put_number(NULL, 1, shape->parts);
    body += shape->rows ? put_runs(shape, NULL) : put_polygons(shape, hundredths, NULL);
    size_t at = put_number(dst, 0, body);
    if (!dst)
        return at + body;
    dst[at] = (uint8_t)form;
    at = put_number(dst, at + 1, shape->parts);
    return at +
           (shape->rows ? put_runs(shape, dst + at) : put_polygons(shape, hundredths, dst + at));
}

bool psti_outline_next(const uint8_t **at, const uint8_t *end, psti_outline *out)
{
    uint64_t body;
    *out = (psti_outline){0};
    if (!take_number(at, end, &body) || body > (uint64_t)(end - *at))
        return false;
    out->at = *at;
    out->end = *at += body;
    if (body == 0)
        return true;
    const uint8_t form = *out->at++;
    out->form = (psti_outline_form)form;
    return form >= PSTI_OUTLINE_HUNDREDTHS && form <= PSTI_OUTLINE_RUNS &&
           take_number(&out->at, out->end, &out->parts) &&
           (form != PSTI_OUTLINE_RUNS || (take_number(&out->at, out->end, &out->rows) &&
                                          take_number(&out->at, out->end, &out->cols)));
}

bool psti_outline_polygon(psti_outline *o, uint64_t *points)
{
    const bool polygons = o->form == PSTI_OUTLINE_HUNDREDTHS || o->form == PSTI_OUTLINE_REALS;
    if (!polygons || o->points || !o->parts || !take_number(&o->at, o->end, points))
        return false;
    /* Each takes two bytes at least, so a count that cannot be is seen before anyone relies on it.
     */
    if (*points > (uint64_t)(o->end - o->at) / 2)
        return false;
    o->parts--;
    o->points = *points;
    return true;
}

bool psti_outline_point(psti_outline *o, double *x, double *y)
{
    if (!o->points)
        return false;
    o->points--;
    if (o->form == PSTI_OUTLINE_REALS) {
        if (o->end - o->at < 2 * REAL_BYTES)
            return false;
        memcpy(x, o->at, REAL_BYTES);
        memcpy(y, o->at + REAL_BYTES, REAL_BYTES);
        o->at += 2 * REAL_BYTES;
        return true;
    }
    int64_t dx, dy;
    if (!take_signed(&o->at, o->end, &dx) || !take_signed(&o->at, o->end, &dy) ||
        __builtin_add_overflow(o->x, dx, &o->x) || __builtin_add_overflow(o->y, dy, &o->y))
        return false;
    *x = (double)o->x / 100;
    *y = (double)o->y / 100;
    return true;
}

bool psti_outline_run(psti_outline *o, uint64_t *length)
{
    if (o->form != PSTI_OUTLINE_RUNS || !o->parts || !take_number(&o->at, o->end, length))
        return false;
    o->parts--;
    return true;
}
