/* SPDX-License-Identifier: Apache-2.0
 * The matrices of affine maps and rotations, with torchvision's and Pillow's order of operations,
 * on sines and cosines that do not depend on the C library (core/math.h). Part of the byte promise.
 * Pure functions. */
#include <string.h>

#include "core/math.h"
#include "op/geometry.h"

__extension__ typedef unsigned __int128 u128;

double psti_radians(double degrees)
{
    return degrees * (3.14159265358979323846 / 180.0);
}

double psti_atan_degrees(double x)
{
    return psti_atan(x) * (180.0 / 3.14159265358979323846);
}

psti_affine psti_affine_none(const psti_geom *in)
{
    return (psti_affine){.scale = 1, .center = {(double)in->cols * 0.5, (double)in->rows * 0.5}};
}

psti_matrix psti_matrix_affine(const psti_affine *f)
{
    const double rot = psti_radians(f->angle), sx = psti_radians(f->shear[0]),
                 sy = psti_radians(f->shear[1]);
    const double cos_y = psti_cos(sy), tan_x = psti_tan(sx);
    const double cos_r = psti_cos(rot - sy), sin_r = psti_sin(rot - sy);
    const double a = cos_r / cos_y, b = -cos_r * tan_x / cos_y - psti_sin(rot);
    const double c = sin_r / cos_y, d = -sin_r * tan_x / cos_y + psti_cos(rot);
    const double x = -f->center[0] - f->translate[0], y = -f->center[1] - f->translate[1];
    psti_matrix out = {{d / f->scale, -b / f->scale, 0, -c / f->scale, a / f->scale, 0}};
    double *m = out.m;
    m[2] = (m[0] * x + m[1] * y) + f->center[0];
    m[5] = (m[3] * x + m[4] * y) + f->center[1];
    return out;
}

psti_matrix psti_matrix_shear(double level, int axis)
{
    psti_affine affine = {.scale = 1};
    affine.shear[axis] = psti_atan_degrees(level);
    return psti_matrix_affine(&affine);
}

psti_matrix psti_matrix_translate(int64_t pixels, int axis, const psti_geom *in)
{
    psti_affine affine = psti_affine_none(in);
    affine.translate[axis] = (double)pixels;
    return psti_matrix_affine(&affine);
}

bool psti_matrix_is_none(const psti_matrix *matrix)
{
    const double *m = matrix->m;
    return m[0] == 1 && m[1] == 0 && m[2] == 0 && m[3] == 0 && m[4] == 1 && m[5] == 0;
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* x, of size 1 at most, rounded to 15 decimals: the decimal nearest to the very value of x, ties to
 * even, and the double nearest to that. */
static double round15(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    const int down = 1075 - exponent; /* size = mantissa * 2^-down */
    if (exponent == 0 || down > 115)
        return 0.0;
    const u128 mantissa = (bits & 0xfffffffffffffu) | (uint64_t)1 << 52;
    const u128 scaled = mantissa * 1000000000000000u;
    const u128 rest = scaled & (((u128)1 << down) - 1), tie = (u128)1 << (down - 1);
    uint64_t whole = (uint64_t)(scaled >> down);
    whole += rest > tie || (rest == tie && (whole & 1));
    const double size = (double)whole / 1e15;
    return x < 0 ? -size : size;
}

/* Between 0 and 360, exact. */
static double full_turns_off(double degrees)
{
    double rest = degrees - 360.0 * (double)(int64_t)(degrees / 360.0);
    if (rest < 0)
        rest += 360.0;
    return rest >= 360.0 ? rest - 360.0 : rest;
}

static double at_x(const double *m, double x, double y)
{
    return m[0] * x + m[1] * y + m[2];
}

static double at_y(const double *m, double x, double y)
{
    return m[3] * x + m[4] * y + m[5];
}

static int64_t floor_of(double v)
{
    const int64_t whole = (int64_t)v;
    return whole - (v < (double)whole);
}

/* Pixels that the four values reach over. */
static int64_t reach(const double v[4])
{
    double low = v[0], high = v[0];
    for (int i = 1; i < 4; i++) {
        low = v[i] < low ? v[i] : low;
        high = v[i] > high ? v[i] : high;
    }
    return -floor_of(-high) - floor_of(low);
}

/* Makes room for the whole picture and moves it to the middle of that. */
static void expand_to_fit(double *m, const psti_geom *in, psti_geom *out)
{
    const double w = (double)in->cols, h = (double)in->rows;
    const double xs[4] = {at_x(m, 0, 0), at_x(m, w, 0), at_x(m, w, h), at_x(m, 0, h)};
    const double ys[4] = {at_y(m, 0, 0), at_y(m, w, 0), at_y(m, w, h), at_y(m, 0, h)};
    out->cols = reach(xs);
    out->rows = reach(ys);
    const double x = -(double)(out->cols - in->cols) / 2.0,
                 y = -(double)(out->rows - in->rows) / 2.0;
    const double left = at_x(m, x, y), top = at_y(m, x, y);
    m[2] = left;
    m[5] = top;
}

/* Turns by quarters about the middle move pixels as they are. False for any other angle. */
static bool quarter_turn(double angle, bool expand, const psti_geom *in, psti_geom *out,
                         psti_matrix *matrix)
{
    const double w = (double)in->cols, h = (double)in->rows;
    if (angle == 0)
        *matrix = (psti_matrix){{1, 0, 0, 0, 1, 0}};
    else if (angle == 180)
        *matrix = (psti_matrix){{-1, 0, w, 0, -1, h}};
    else if ((angle == 90 || angle == 270) && (expand || in->rows == in->cols))
        *matrix =
            angle == 90 ? (psti_matrix){{0, -1, w, 1, 0, 0}} : (psti_matrix){{0, 1, 0, -1, 0, h}};
    else
        return false;
    if (angle == 90 || angle == 270)
        *out = (psti_geom){in->cols, in->rows, in->channels};
    return true;
}

psti_matrix psti_matrix_rotate(double degrees, const double *center, bool expand,
                               const psti_geom *in, psti_geom *out, bool *exact)
{
    const double turned = full_turns_off(degrees);
    psti_matrix matrix;
    *out = *in;
    *exact = !center && quarter_turn(turned, expand, in, out, &matrix);
    if (*exact)
        return matrix;
    const double x = center ? center[0] : (double)in->cols / 2.0,
                 y = center ? center[1] : (double)in->rows / 2.0;
    const double angle = -psti_radians(turned);
    const double cosine = round15(psti_cos(angle)), sine = round15(psti_sin(angle));
    matrix = (psti_matrix){{cosine, sine, 0, -sine, cosine, 0}};
    double *m = matrix.m;
    const double left = at_x(m, -x, -y), top = at_y(m, -x, -y);
    m[2] = left + x;
    m[5] = top + y;
    if (expand)
        expand_to_fit(m, in, out);
    return matrix;
}
