/* SPDX-License-Identifier: Apache-2.0
 * Objects in a picture: boxes, and what else a dataset has a value of for each object, follow the
 * picture through its ops. Boxes are moved while decisions are made, before a pixel is read; an op
 * may leave objects out, and then all their values are left out. Masks are drawn at the end, at the
 * final size, from shapes that are moved and not from pixels. The inputs are known by their names:
 * boxes, iscrowd, annotation_id, masks; and width and height, which the picture must have. Worker
 * threads, one at a time per work. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"
#include "pipeline/polygons.h"

/* Pixels; no point of a shape lies farther from its picture. */
#define POINT_MOST 262144.0

/* ---- planning -------------------------------------------------------------------------------- */

static int input_named(const psti_plan *plan, const char *name, bool per_object)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->inputs[i].per_object == per_object && strcmp(plan->inputs[i].name, name) == 0)
            return i;
    return -1;
}

/* The first image. */
static int picture_of(const psti_plan *plan)
{
    for (int p = 0; p < plan->source_count; p++)
        if (plan->inputs[plan->pictures[p].input].kind == PST_IMAGE)
            return p;
    return -1;
}

static int refuse_stage(const psti_stage *stage, const char *why, pst_error *err)
{
    return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, stage->offset, "%s %s",
                        stage->type.name, why);
}

static bool resizes(const psti_stage *stage)
{
    const psti_call_params *call = stage->params;
    return psti_op_type_call(&stage->type) && (call->any || call->size.count);
}

static int check_stage(const psti_plan *plan, const psti_stage *stage, pst_error *err)
{
    const psti_op *op = stage->type.op;
    const int picture = plan->objects.picture;
    const bool needs = op && op->flags & PSTI_OP_OBJECTS;
    if (needs && picture < 0)
        return refuse_stage(stage,
                            "chooses by boxes: it needs images with objects, and boxes "
                            "among the fields",
                            err);
    if (picture < 0 || !(stage->pictures & (uint32_t)1 << picture))
        return needs ? refuse_stage(stage, "acts on another picture than the boxes are in", err)
                     : 0;
    if (op && ((op->flags & PSTI_OP_GEOMETRIC && !op->objects) || resizes(stage)))
        return refuse_stage(stage, "moves pixels in a way that boxes cannot follow", err);
    return 0;
}

int psti_plan_find_objects(psti_plan *plan, pst_error *err)
{
    psti_plan_objects *o = &plan->objects;
    *o = (psti_plan_objects){.boxes = input_named(plan, "boxes", true),
                             .crowd = input_named(plan, "iscrowd", true),
                             .names = input_named(plan, "annotation_id", true),
                             .shapes = input_named(plan, "masks", true),
                             .width = input_named(plan, "width", false),
                             .height = input_named(plan, "height", false)};
    o->picture = o->boxes < 0 ? -1 : picture_of(plan);
    const int fork = o->picture < 0 ? -1 : plan->pictures[o->picture].fork;
    if (fork >= 0)
        return refuse_stage(&plan->stages[fork],
                            "makes several pictures of one, and boxes can follow only one: leave "
                            "what belongs to objects out of the fields",
                            err);
    for (int s = 0; s < plan->stage_count; s++) {
        const psti_stage *stage = &plan->stages[s];
        const int rc = check_stage(plan, stage, err);
        if (rc < 0)
            return rc;
        if (stage->type.role == PSTI_ROLE_DECODE && o->picture >= 0 &&
            stage->pictures & (uint32_t)1 << o->picture)
            o->keep_crowds = ((const psti_decode_params *)stage->params)->crowd;
    }
    return 0;
}

void psti_plan_object_output(const psti_plan *plan, int i, psti_plan_output *out)
{
    const psti_plan_input *input = &plan->inputs[i];
    out->objects = true;
    out->dtype = input->dtype;
    out->rank = input->rank;
    memcpy(out->shape, input->shape, sizeof out->shape);
    out->shape[0] = -1;
    if (i != plan->objects.shapes)
        return;
    out->kind = PST_MASK;
    out->rank = 3;
    out->shape[1] = out->shape[2] = -1;
}

/* ---- taking a sample's ----------------------------------------------------------------------- */

static int no_memory(pst_error *err)
{
    return psti_fail(err, -ENOMEM, "boxes", NULL, "out of memory for the objects of a sample");
}

/* What an object is called in messages: the number that its annotation has, or its place. */
static long long name_of(const psti_work *work, int row)
{
    const int names = work->plan->objects.names;
    int64_t name = row;
    if (names >= 0 && work->inputs[names].size >= ((size_t)row + 1) * sizeof name)
        memcpy(&name, work->inputs[names].bytes + (size_t)row * sizeof name, sizeof name);
    return name;
}

/* Annotations may have been made for another file of the same name. */
static int check_size(const psti_work *work, int input, int64_t have, const char *noun,
                      pst_error *err)
{
    int64_t listed;
    if (input < 0 || work->inputs[input].size != sizeof listed)
        return 0;
    memcpy(&listed, work->inputs[input].bytes, sizeof listed);
    if (listed == have)
        return 0;
    return psti_fail(err, PST_EFIELD, "boxes", NULL,
                     "the annotations are of a picture of %lld %s, this one has %lld",
                     (long long)listed, noun, (long long)have);
}

static bool left_out(const psti_work *work, int row)
{
    const psti_plan_objects *o = &work->plan->objects;
    return o->crowd >= 0 && !o->keep_crowds && (size_t)row < work->inputs[o->crowd].size &&
           work->inputs[o->crowd].bytes[row];
}

/* 1: it stays; 0: it is left out; or the sample is bad. */
static int judge(const psti_work *work, int row, const float box[4], const psti_picture *facts,
                 pst_error *err)
{
    if (left_out(work, row))
        return 0;
    switch (psti_box_judge(box, facts->rows, facts->cols)) {
    case PSTI_BOX_KEEP:
        return 1;
    case PSTI_BOX_DROP:
        return 0;
    case PSTI_BOX_NOT_FINITE:
        return psti_fail(err, PST_EFIELD, "boxes", NULL,
                         "annotation %lld: the box has numbers that are none", name_of(work, row));
    default:
        return psti_fail(err, PST_EFIELD, "boxes", NULL,
                         "annotation %lld: the box from (%g, %g) to (%g, %g) lies outside the "
                         "picture, which has %lld columns and %lld rows",
                         name_of(work, row), (double)box[0], (double)box[1], (double)box[2],
                         (double)box[3], (long long)facts->cols, (long long)facts->rows);
    }
}

static int take_boxes(psti_work *work, const psti_picture *facts, pst_error *err)
{
    psti_cast *cast = work->cast;
    const psti_input *in = &work->inputs[work->plan->objects.boxes];
    const size_t stored = in->size / sizeof(float[4]);
    if (stored > INT32_MAX ||
        psti_buf_need(PSTI_MEM_PIPELINE, &cast->rows, stored * sizeof(int32_t) + 1) < 0 ||
        psti_buf_need(PSTI_MEM_PIPELINE, &cast->boxes, stored * sizeof(float[4]) + 1) < 0)
        return no_memory(err);
    psti_objects *now = &cast->now;
    *now = (psti_objects){.row = (int32_t *)cast->rows.data, .box = (float(*)[4])cast->boxes.data};
    for (int i = 0; i < (int)stored; i++) {
        float *box = now->box[now->count];
        memcpy(box, in->bytes + (size_t)i * sizeof(float[4]), sizeof(float[4]));
        const int stays = judge(work, i, box, facts, err);
        if (stays < 0)
            return stays;
        now->row[now->count] = i;
        now->count += stays;
    }
    psti_objects_begin(now, facts->rows, facts->cols);
    return 0;
}

/* Whether all its points are near some picture, and runs are of this one. */
static int check_shape(const psti_work *work, int row, psti_outline shape,
                       const psti_picture *facts, pst_error *err)
{
    uint64_t points = 0;
    double x = 0, y = 0;
    bool fine = true;
    if (shape.form == PSTI_OUTLINE_RUNS)
        fine = shape.rows == (uint64_t)facts->rows && shape.cols == (uint64_t)facts->cols;
    while (fine && psti_outline_polygon(&shape, &points))
        for (; fine && points > 0; points--)
            fine =
                psti_outline_point(&shape, &x, &y) && fabs(x) < POINT_MOST && fabs(y) < POINT_MOST;
    if (fine)
        return 0;
    return psti_fail(err, PST_EFIELD, "masks", NULL,
                     "annotation %lld: its shape is not one in a picture of %lld columns and %lld "
                     "rows",
                     name_of(work, row), (long long)facts->cols, (long long)facts->rows);
}

/* Where each stored shape begins. */
static int take_shapes(psti_work *work, const psti_picture *facts, pst_error *err)
{
    psti_cast *cast = work->cast;
    const psti_plan_objects *o = &work->plan->objects;
    const size_t stored = work->inputs[o->boxes].size / sizeof(float[4]);
    const uint8_t *at = work->inputs[o->shapes].bytes;
    const uint8_t *end = at + work->inputs[o->shapes].size;
    if (psti_buf_need(PSTI_MEM_PIPELINE, &cast->shapes, stored * sizeof(psti_outline) + 1) < 0)
        return no_memory(err);
    psti_outline *shapes = (psti_outline *)cast->shapes.data;
    for (size_t i = 0; i < stored; i++)
        if (!psti_outline_next(&at, end, &shapes[i]))
            return psti_fail(err, PST_EFIELD, "masks", NULL,
                             "annotation %lld: its shape is damaged", name_of(work, (int)i));
    int rc = 0;
    for (int i = 0; rc == 0 && i < cast->now.count; i++)
        rc = check_shape(work, cast->now.row[i], shapes[cast->now.row[i]], facts, err);
    return rc;
}

int psti_work_take_objects(psti_work *work, pst_error *err)
{
    const psti_plan_objects *o = &work->plan->objects;
    if (o->picture < 0)
        return 0;
    if (!work->cast)
        work->cast = psti_calloc(PSTI_MEM_PIPELINE, 1, sizeof *work->cast);
    if (!work->cast)
        return no_memory(err);
    const psti_picture *facts = &work->shots[o->picture].facts;
    int rc = check_size(work, o->width, facts->cols, "columns", err);
    if (rc == 0)
        rc = check_size(work, o->height, facts->rows, "rows", err);
    if (rc == 0)
        rc = take_boxes(work, facts, err);
    if (rc == 0 && o->shapes >= 0)
        rc = take_shapes(work, facts, err);
    return rc;
}

/* ---- following ------------------------------------------------------------------------------- */

void psti_work_follow_objects(psti_work *work, int s)
{
    const psti_stage *stage = &work->plan->stages[s];
    const int p = work->plan->objects.picture;
    if (p < 0 || !(stage->pictures & (uint32_t)1 << p) || !stage->type.op ||
        !stage->type.op->objects)
        return;
    const psti_step *step = psti_work_at(work, s, p);
    if (step->draw.act)
        stage->type.op->objects(stage->params, &step->draw, &step->in, &step->out,
                                &work->cast->now);
}

/* ---- results --------------------------------------------------------------------------------- */

int psti_work_settle_objects(psti_work *work, pst_error *err)
{
    const psti_plan *plan = work->plan;
    const int p = plan->objects.picture;
    if (p < 0)
        return 0;
    psti_cast *cast = work->cast;
    cast->canvas = psti_work_at(work, plan->stage_count - 1, p)->out;
    if (plan->objects.shapes < 0)
        return 0;
    size_t need = (size_t)cast->canvas.cols;
    const psti_outline *shapes = (const psti_outline *)cast->shapes.data;
    for (int i = 0; i < cast->now.count; i++) {
        const psti_outline *shape = &shapes[cast->now.row[i]];
        if (shape->form == PSTI_OUTLINE_RUNS && shape->rows * shape->cols > need)
            need = shape->rows * shape->cols;
    }
    return psti_buf_need(PSTI_MEM_PIPELINE, &cast->scratch, need) < 0 ? no_memory(err) : 0;
}

/* Bytes of one object's value. */
static size_t each_bytes(const psti_work *work, const psti_plan_output *out)
{
    const psti_geom *canvas = &work->cast->canvas;
    if (out->input == work->plan->objects.shapes)
        return (size_t)canvas->rows * (size_t)canvas->cols;
    size_t bytes = psti_dtype_bytes(out->dtype);
    for (int d = 1; d < out->rank; d++)
        bytes *= (size_t)out->shape[d];
    return bytes;
}

size_t psti_work_object_shape(const psti_work *work, const psti_plan_output *out,
                              int64_t shape[PST_MAX_RANK])
{
    const psti_cast *cast = work->cast;
    memcpy(shape, out->shape, sizeof out->shape);
    shape[0] = cast->now.count;
    if (out->input == work->plan->objects.shapes) {
        shape[1] = cast->canvas.rows;
        shape[2] = cast->canvas.cols;
    }
    return (size_t)cast->now.count * each_bytes(work, out);
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* What masks are drawn from: in a work, or packed as they wait for their batch. */
typedef struct masks {
    int32_t count;
    int64_t rows, cols; /* of the picture */
    double map[6];
    float frame[4];
} masks;

/* Where they are drawn. */
typedef struct easel {
    uint8_t *dst;
    size_t stride, plane; /* bytes from row to row, from mask to mask */
    psti_buf *scratch;
} easel;

static masks masks_of(const psti_cast *cast)
{
    masks m = {.count = cast->now.count, .rows = cast->canvas.rows, .cols = cast->canvas.cols};
    memcpy(m.map, cast->now.map, sizeof m.map);
    memcpy(m.frame, cast->now.frame, sizeof m.frame);
    return m;
}

static easel easel_in(const masks *m, const int64_t *box, uint8_t *dst, psti_buf *scratch)
{
    const size_t rows = (size_t)(box ? box[1] : m->rows), cols = (size_t)(box ? box[2] : m->cols);
    return (easel){dst, cols, rows * cols, scratch};
}

/* Where a pixel ends that the edge of the frame cuts, or begins. */
static size_t pixel_at(float edge, int64_t most)
{
    const double at = (double)edge + 0.5;
    return at < 1 ? 0 : at > (double)most ? (size_t)most : (size_t)at;
}

/* Shapes may be drawn beyond their picture, where a canvas shows around it. */
static void clear_outside(const masks *m, const easel *e, uint8_t *mask)
{
    const size_t rows = (size_t)m->rows, cols = (size_t)m->cols;
    const size_t left = pixel_at(m->frame[0], m->cols), right = pixel_at(m->frame[2], m->cols);
    const size_t top = pixel_at(m->frame[1], m->rows), bottom = pixel_at(m->frame[3], m->rows);
    if (left == 0 && top == 0 && right == cols && bottom == rows)
        return;
    for (size_t y = 0; y < rows; y++) {
        const bool inside = y >= top && y < bottom;
        memset(mask + y * e->stride, 0, inside ? left : cols);
        if (inside)
            memset(mask + y * e->stride + right, 0, cols - right);
    }
}

/* The mask's own part of where it is drawn, which may hold anything. */
static void clear_mask(const masks *m, const easel *e, uint8_t *mask)
{
    const size_t rows = (size_t)m->rows, cols = (size_t)m->cols;
    if (e->stride == cols)
        memset(mask, 0, rows * cols);
    for (size_t y = 0; e->stride != cols && y < rows; y++)
        memset(mask + y * e->stride, 0, cols);
}

/* Draws one. A shape that was thrown beyond all bounds covers nothing. */
static void draw_mask(const masks *m, const easel *e, psti_outline shape, int i)
{
    uint8_t *mask = e->dst + (size_t)i * e->plane;
    const psti_raster to = {
        .mask = mask, .rows = m->rows, .cols = m->cols, .stride = e->stride, .scratch = e->scratch};
    clear_mask(m, e, mask);
    if (psti_shape_raster(&shape, m->map, &to, NULL) < 0)
        clear_mask(m, e, mask);
    clear_outside(m, e, mask);
}

static const psti_outline *shape_of(const psti_cast *cast, int i)
{
    return &((const psti_outline *)cast->shapes.data)[cast->now.row[i]];
}

static void write_masks(const psti_work *work, const int64_t *box, uint8_t *dst)
{
    psti_cast *cast = work->cast;
    const masks m = masks_of(cast);
    const easel e = easel_in(&m, box, dst, &cast->scratch);
    for (int i = 0; i < m.count; i++)
        draw_mask(&m, &e, *shape_of(cast, i), i);
}

/* ---- masks in parcels ------------------------------------------------------------------------ */

/* A packed shape from its first byte on, where its length stands. */
static const uint8_t *packed_shape(const psti_work *work, int row, size_t *bytes)
{
    const psti_outline *shapes = (const psti_outline *)work->cast->shapes.data;
    const uint8_t *first =
        row ? shapes[row - 1].end : work->inputs[work->plan->objects.shapes].bytes;
    *bytes = (size_t)(shapes[row].end - first);
    return first;
}

size_t psti_work_pack_masks(const psti_work *work, uint8_t *dst)
{
    const psti_objects *now = &work->cast->now;
    const masks m = masks_of(work->cast);
    size_t at = sizeof m;
    if (dst)
        memcpy(dst, &m, sizeof m);
    for (int i = 0; i < now->count; i++) {
        size_t bytes;
        const uint8_t *shape = packed_shape(work, now->row[i], &bytes);
        if (dst)
            memcpy(dst + at, shape, bytes);
        at += bytes;
    }
    return at;
}

void psti_unpack_masks(const uint8_t *src, size_t bytes, psti_kit *kit, const int64_t *box,
                       uint8_t *dst)
{
    masks m;
    memcpy(&m, src, sizeof m);
    const uint8_t *at = src + sizeof m;
    const easel e = easel_in(&m, box, dst, &kit->ops.spare[0]);
    psti_outline shape;
    for (int i = 0; i < m.count && psti_outline_next(&at, src + bytes, &shape); i++)
        draw_mask(&m, &e, shape, i);
}

/* ---- all values ------------------------------------------------------------------------------ */

bool psti_output_is_masks(const psti_plan *plan, const psti_plan_output *out)
{
    return out->objects && out->input == plan->objects.shapes;
}

void psti_work_write_objects(const psti_work *work, const psti_plan_output *out, const int64_t *box,
                             uint8_t *dst)
{
    const psti_objects *now = &work->cast->now;
    const size_t each = each_bytes(work, out);
    const psti_input *in = &work->inputs[out->input];
    if (psti_output_is_masks(work->plan, out)) {
        write_masks(work, box, dst);
    } else if (out->input == work->plan->objects.boxes) {
        if (now->count)
            memcpy(dst, now->box, (size_t)now->count * each);
    } else {
        for (int i = 0; i < now->count; i++, dst += each) {
            const size_t at = (size_t)now->row[i] * each;
            if (at + each <= in->size)
                memcpy(dst, in->bytes + at, each);
            else
                memset(dst, 0, each);
        }
    }
}

size_t psti_cast_bytes(const psti_cast *cast)
{
    return cast ? sizeof *cast + cast->rows.cap + cast->boxes.cap + cast->shapes.cap +
                      cast->scratch.cap
                : 0;
}

void psti_cast_free(psti_cast *cast)
{
    if (!cast)
        return;
    psti_buf_free(&cast->rows);
    psti_buf_free(&cast->boxes);
    psti_buf_free(&cast->shapes);
    psti_buf_free(&cast->scratch);
    psti_free(cast);
}
