/* SPDX-License-Identifier: Apache-2.0
 * Where the foreground of a mask is: of each class the two parts that fill the largest boxes. Parts
 * are voxels of one class that touch by their faces, as in scipy.ndimage.label. A pure function of
 * the mask; any thread.
 *
 * One pass, all classes at once. Runs of equal labels in a row are joined with those of the row
 * before and of the same row in the plane before; only two planes of runs are kept. A part that
 * the present plane does not touch any more is complete, and all that is kept of it is its box, if
 * it is among the two largest of its class. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "op/volume/volume.h"

enum { CLASSES = 256, BEST = 2 };

/* Columns first .. end - 1 of a row. */
typedef struct run {
    int32_t first, end;
    int32_t part;
    uint8_t label;
} run;

/* A part, or what was joined with another one (parent >= 0). */
typedef struct part {
    psti_box box;
    int64_t born; /* the place of its first voxel, in the order of memory */
    int32_t parent;
    int32_t plane; /* the last one it was seen in */
    int32_t moved; /* its number in the next plane's list; -1: none yet */
} part;

typedef struct plane_runs {
    run *runs;
    int64_t count, cap;
    int64_t *row; /* where each row's runs begin, and the end of the last */
} plane_runs;

typedef struct parts {
    part *all;
    int64_t count, cap;
} parts;

typedef struct best {
    psti_box box;
    int64_t volume, born;
} best;

typedef struct finder {
    plane_runs planes[2]; /* the one before and the present one */
    parts lists[2];       /* likewise; the first is emptied and reused */
    uint8_t *line;        /* a row side by side */
    int64_t rows, cols;
    best found[CLASSES][BEST]; /* the larger one last */
} finder;

/* ---- memory ---------------------------------------------------------------------------------- */

static bool grow(void **memory, int64_t *cap, int64_t count, size_t size)
{
    if (count < *cap)
        return true;
    const int64_t more = *cap ? 2 * *cap : 256;
    void *grown = psti_realloc(PSTI_MEM_OP, *memory, (size_t)more, size);
    if (!grown)
        return false;
    *memory = grown;
    *cap = more;
    return true;
}

static void finder_free(finder *f)
{
    if (!f)
        return;
    for (int i = 0; i < 2; i++) {
        psti_free(f->planes[i].runs);
        psti_free(f->planes[i].row);
        psti_free(f->lists[i].all);
    }
    psti_free(f->line);
    psti_free(f);
}

static finder *finder_new(const psti_field *mask)
{
    finder *f = psti_calloc(PSTI_MEM_OP, 1, sizeof *f);
    if (!f)
        return NULL;
    f->rows = mask->shape[2];
    f->cols = mask->shape[3];
    f->line = psti_malloc(PSTI_MEM_OP, (size_t)f->cols);
    for (int i = 0; i < 2; i++)
        f->planes[i].row = psti_calloc(PSTI_MEM_OP, (size_t)f->rows + 1, sizeof(int64_t));
    if (f->line && f->planes[0].row && f->planes[1].row)
        return f;
    finder_free(f);
    return NULL;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int32_t root_of(part *all, int32_t at)
{
    while (all[at].parent >= 0) {
        const int32_t up = all[at].parent;
        if (all[up].parent >= 0)
            all[at].parent = all[up].parent;
        at = up;
    }
    return at;
}

static void stretch(psti_box *box, const psti_box *other)
{
    for (int d = 0; d < 3; d++) {
        box->low[d] = other->low[d] < box->low[d] ? other->low[d] : box->low[d];
        box->high[d] = other->high[d] > box->high[d] ? other->high[d] : box->high[d];
    }
}

/* The older one takes the younger one in. */
static void join(part *all, int32_t a, int32_t b)
{
    a = root_of(all, a);
    b = root_of(all, b);
    if (a == b)
        return;
    const int32_t keep = all[a].born < all[b].born ? a : b, gone = keep == a ? b : a;
    stretch(&all[keep].box, &all[gone].box);
    all[keep].plane = all[keep].plane > all[gone].plane ? all[keep].plane : all[gone].plane;
    all[gone].parent = keep;
}

static int64_t volume_of(const psti_box *box)
{
    int64_t volume = 1;
    for (int d = 0; d < 3; d++)
        volume *= box->high[d] - box->low[d];
    return volume;
}

static bool less(const best *a, const best *b)
{
    return a->volume < b->volume || (a->volume == b->volume && a->born < b->born);
}

/* Of two boxes of one volume the part that begins later counts as larger. */
static void complete(finder *f, const part *p)
{
    best *row = f->found[p->box.label];
    const best mine = {p->box, volume_of(&p->box), p->born};
    if (row[1].volume == 0 || less(&row[1], &mine)) {
        row[0] = row[1];
        row[1] = mine;
    } else if (row[0].volume == 0 || less(&row[0], &mine)) {
        row[0] = mine;
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The first column from x on that is not zero. */
static int64_t skip_zeros(const uint8_t *line, int64_t x, int64_t cols)
{
    uint64_t word = 0;
    for (; x + 8 <= cols; x += 8) {
        memcpy(&word, line + x, sizeof word);
        if (word)
            break;
    }
    while (x < cols && line[x] == 0)
        x++;
    return x;
}

static bool add_run(finder *f, int64_t z, int64_t y, const run *found)
{
    plane_runs *now = &f->planes[1];
    parts *list = &f->lists[1];
    if (!grow((void **)&now->runs, &now->cap, now->count, sizeof *now->runs) ||
        !grow((void **)&list->all, &list->cap, list->count, sizeof *list->all))
        return false;
    list->all[list->count] = (part){.box = {.label = found->label,
                                            .low = {(int32_t)z, (int32_t)y, found->first},
                                            .high = {(int32_t)z + 1, (int32_t)y + 1, found->end}},
                                    .born = (z * f->rows + y) * f->cols + found->first,
                                    .parent = -1,
                                    .plane = (int32_t)z,
                                    .moved = -1};
    now->runs[now->count] = *found;
    now->runs[now->count++].part = (int32_t)list->count++;
    return true;
}

static bool find_runs(finder *f, const uint8_t *line, int64_t z, int64_t y)
{
    for (int64_t x = skip_zeros(line, 0, f->cols); x < f->cols; x = skip_zeros(line, x, f->cols)) {
        run found = {.first = (int32_t)x, .label = line[x]};
        while (x < f->cols && line[x] == found.label)
            x++;
        found.end = (int32_t)x;
        if (!add_run(f, z, y, &found))
            return false;
    }
    return true;
}

/* Joins the runs a .. a_end of the present row with those of a neighbouring one. Both are in the
 * order of columns. */
static void join_rows(part *all, const run *a, const run *a_end, const run *b, const run *b_end)
{
    while (a < a_end && b < b_end) {
        if (a->label == b->label && a->first < b->end && b->first < a->end)
            join(all, a->part, b->part);
        if (a->end < b->end)
            a++;
        else
            b++;
    }
}

/* ---- planes ---------------------------------------------------------------------------------- */

/* The plane that was the present one becomes the one before: its parts, without what was joined,
 * are the beginning of a new list. Parts that it does not have are complete. */
static bool turn_plane(finder *f, int64_t z)
{
    const plane_runs runs = f->planes[0];
    f->planes[0] = f->planes[1];
    f->planes[1] = runs;
    f->planes[1].count = 0;
    parts *old = &f->lists[1], *next = &f->lists[0];
    next->count = 0;
    for (int64_t i = 0; i < old->count; i++)
        if (old->all[i].parent < 0 && old->all[i].plane < z)
            complete(f, &old->all[i]);
    for (int64_t i = 0; i < f->planes[0].count; i++) {
        run *r = &f->planes[0].runs[i];
        part *p = &old->all[root_of(old->all, r->part)];
        if (p->moved < 0) {
            if (!grow((void **)&next->all, &next->cap, next->count, sizeof *next->all))
                return false;
            p->moved = (int32_t)next->count;
            next->all[next->count] = *p;
            next->all[next->count++].moved = -1;
        }
        r->part = p->moved;
    }
    const parts list = *old;
    *old = *next;
    f->lists[0] = list;
    return true;
}

static bool add_plane(finder *f, const psti_field *mask, int64_t z)
{
    plane_runs *now = &f->planes[1], *before = &f->planes[0];
    for (int64_t y = 0; y < f->rows; y++) {
        const uint8_t *line = psti_volume_at(mask, 0, z, y);
        if (mask->step[3] != 1) {
            psti_volume_take(mask, 0, z, y, f->line);
            line = f->line;
        }
        now->row[y] = now->count;
        if (!find_runs(f, line, z, y))
            return false;
        if (now->count == now->row[y])
            continue;
        const run *a = now->runs + now->row[y], *a_end = now->runs + now->count;
        if (y > 0)
            join_rows(f->lists[1].all, a, a_end, now->runs + now->row[y - 1], a);
        if (before->count > 0)
            join_rows(f->lists[1].all, a, a_end, before->runs + before->row[y],
                      before->runs + before->row[y + 1]);
    }
    now->row[f->rows] = now->count;
    return turn_plane(f, z);
}

static int tell(finder *f, psti_box *out)
{
    int count = 0;
    for (int64_t i = 0; i < f->lists[1].count; i++)
        complete(f, &f->lists[1].all[i]);
    for (int label = 1; label < CLASSES; label++)
        for (int i = 0; i < BEST; i++)
            if (f->found[label][i].volume > 0)
                out[count++] = f->found[label][i].box;
    return count;
}

int psti_foreground(const psti_field *mask, psti_box out[PSTI_NOTE_ROWS], int *count,
                    pst_error *err)
{
    if (mask->axes != PSTI_AXES_VOLUME || mask->dtype != PST_U8 || mask->shape[0] != 1)
        return psti_fail(err, PST_EFIELD, "foreground", NULL,
                         "a mask of a volume has one channel of u8; this field has not");
    finder *f = finder_new(mask);
    bool fits = f != NULL;
    for (int64_t z = 0; fits && z < mask->shape[1]; z++)
        fits = add_plane(f, mask, z);
    if (fits)
        *count = tell(f, out);
    finder_free(f);
    return fits ? 0 : psti_fail(err, -ENOMEM, "foreground", NULL, "out of memory for runs");
}
