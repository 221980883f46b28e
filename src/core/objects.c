/* SPDX-License-Identifier: Apache-2.0
 * Boxes that follow a picture. Every sum and product is one float operation, as in tensors of
 * float32; sizes become floats first. */
#include "core/objects.h"

#include <math.h>
#include <string.h>

/* As Tensor.clamp has it: NaN stays. */
static float clamp(float value, float least, float most)
{
    return value < least ? least : value > most ? most : value;
}

static bool is_empty(const float box[4])
{
    return !(box[2] > box[0] && box[3] > box[1]);
}

psti_box_verdict psti_box_judge(const float box[4], int64_t rows, int64_t cols)
{
    const float right = (float)cols, bottom = (float)rows;
    for (int i = 0; i < 4; i++)
        if (!isfinite(box[i]))
            return PSTI_BOX_NOT_FINITE;
    if (box[0] > right || box[1] > bottom || box[2] < 0 || box[3] < 0)
        return PSTI_BOX_OUTSIDE;
    if (is_empty(box))
        return PSTI_BOX_DROP;
    return box[0] == right || box[1] == bottom || box[2] == 0 || box[3] == 0 ? PSTI_BOX_OUTSIDE
                                                                             : PSTI_BOX_KEEP;
}

static float area(const float box[4])
{
    return (box[2] - box[0]) * (box[3] - box[1]);
}

float psti_box_iou(const float a[4], const float b[4])
{
    const float left = a[0] > b[0] ? a[0] : b[0], top = a[1] > b[1] ? a[1] : b[1];
    const float right = a[2] < b[2] ? a[2] : b[2], bottom = a[3] < b[3] ? a[3] : b[3];
    const float width = right - left, height = bottom - top;
    const float inter = (width < 0 ? 0 : width) * (height < 0 ? 0 : height);
    return inter / (area(a) + area(b) - inter);
}

bool psti_box_centre_in(const float box[4], int64_t left, int64_t top, int64_t right,
                        int64_t bottom)
{
    const float x = 0.5f * (box[0] + box[2]), y = 0.5f * (box[1] + box[3]);
    return (float)left < x && x < (float)right && (float)top < y && y < (float)bottom;
}

/* ---- following ------------------------------------------------------------------------------- */

/* The boxes from 0 on; the frame as one before them. */
static float *box_at(psti_objects *o, int i)
{
    return i < 0 ? o->frame : o->box[i];
}

static void clamp_all(psti_objects *o)
{
    for (int i = -1; i < o->count; i++) {
        float *box = box_at(o, i);
        for (int k = 0; k < 4; k++)
            box[k] = clamp(box[k], 0, (float)(k & 1 ? o->rows : o->cols));
    }
}

/* What was moved so far is moved by m. */
static void compose(psti_objects *o, const double m[6])
{
    const double *was = o->map;
    const double now[6] = {
        m[0] * was[0] + m[1] * was[3],        m[0] * was[1] + m[1] * was[4],
        m[0] * was[2] + m[1] * was[5] + m[2], m[3] * was[0] + m[4] * was[3],
        m[3] * was[1] + m[4] * was[4],        m[3] * was[2] + m[4] * was[5] + m[5]};
    memcpy(o->map, now, sizeof now);
}

void psti_objects_begin(psti_objects *o, int64_t rows, int64_t cols)
{
    static const double same[6] = {1, 0, 0, 0, 1, 0};
    memcpy(o->map, same, sizeof same);
    o->rows = rows;
    o->cols = cols;
    for (int k = 0; k < 4; k++)
        o->frame[k] = k < 2 ? 0 : (float)(k & 1 ? rows : cols);
    clamp_all(o);
}

void psti_objects_resize(psti_objects *o, int64_t rows, int64_t cols)
{
    const float by[2] = {(float)cols / (float)o->cols, (float)rows / (float)o->rows};
    for (int i = -1; i < o->count; i++)
        for (int k = 0; k < 4; k++)
            box_at(o, i)[k] *= by[k & 1];
    compose(o, (const double[6]){(double)cols / (double)o->cols, 0, 0, 0,
                                 (double)rows / (double)o->rows, 0});
    o->rows = rows;
    o->cols = cols;
}

static void shift(psti_objects *o, int64_t right, int64_t down, int64_t rows, int64_t cols)
{
    for (int i = -1; i < o->count; i++)
        for (int k = 0; k < 4; k++)
            box_at(o, i)[k] += (float)(k & 1 ? down : right);
    compose(o, (const double[6]){1, 0, (double)right, 0, 1, (double)down});
    o->rows = rows;
    o->cols = cols;
}

void psti_objects_crop(psti_objects *o, int64_t left, int64_t top, int64_t rows, int64_t cols)
{
    shift(o, -left, -top, rows, cols);
    clamp_all(o);
}

void psti_objects_pad(psti_objects *o, int64_t left, int64_t top, int64_t rows, int64_t cols)
{
    shift(o, left, top, rows, cols);
}

void psti_objects_hflip(psti_objects *o)
{
    const float width = (float)o->cols;
    for (int i = -1; i < o->count; i++) {
        float *box = box_at(o, i);
        const float left = box[0];
        box[0] = width - box[2];
        box[2] = width - left;
    }
    compose(o, (const double[6]){-1, 0, (double)o->cols, 0, 1, 0});
}

void psti_objects_vflip(psti_objects *o)
{
    const float height = (float)o->rows;
    for (int i = -1; i < o->count; i++) {
        float *box = box_at(o, i);
        const float top = box[1];
        box[1] = height - box[3];
        box[3] = height - top;
    }
    compose(o, (const double[6]){1, 0, 0, 0, -1, (double)o->rows});
}

void psti_objects_affine(psti_objects *o, const double m[6], int64_t rows, int64_t cols)
{
    for (int i = -1; i < o->count; i++) {
        float *box = box_at(o, i);
        double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
        for (int corner = 0; corner < 4; corner++) {
            const double x = box[corner & 1 ? 2 : 0], y = box[corner & 2 ? 3 : 1];
            for (int k = 0; k < 2; k++) {
                const double to = m[3 * k] * x + m[3 * k + 1] * y + m[3 * k + 2];
                low[k] = to < low[k] ? to : low[k];
                high[k] = to > high[k] ? to : high[k];
            }
        }
        for (int k = 0; k < 4; k++)
            box[k] = (float)(k < 2 ? low[k] : high[k - 2]);
    }
    compose(o, m);
    o->rows = rows;
    o->cols = cols;
    clamp_all(o);
}

/* ---- leaving out ----------------------------------------------------------------------------- */

static void keep_if(psti_objects *o, int *kept, int i, bool keep)
{
    if (!keep)
        return;
    memmove(o->box[*kept], o->box[i], sizeof o->box[i]);
    o->row[(*kept)++] = o->row[i];
}

void psti_objects_drop_empty(psti_objects *o)
{
    int kept = 0;
    for (int i = 0; i < o->count; i++)
        keep_if(o, &kept, i, !is_empty(o->box[i]));
    o->count = kept;
}

void psti_objects_drop_outside(psti_objects *o, int64_t left, int64_t top, int64_t right,
                               int64_t bottom)
{
    int kept = 0;
    for (int i = 0; i < o->count; i++)
        keep_if(o, &kept, i, psti_box_centre_in(o->box[i], left, top, right, bottom));
    o->count = kept;
}
