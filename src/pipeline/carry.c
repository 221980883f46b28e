/* SPDX-License-Identifier: Apache-2.0
 * Carrying out: one stage on every picture it acts on, and finish. A picture goes back and forth
 * between its two buffers; ops that can work in place do. Worker threads; nothing blocks but
 * functions of the caller's and the op delay, and once buffers are large enough nothing is
 * allocated. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

/* ---- decode ---------------------------------------------------------------------------------- */

/* The rule of what damage does, in one place: a sample is bad if a row is damaged that it uses. */
static int check_damage(const psti_shot *shot, int64_t first_damaged_row, pst_error *err)
{
    if (first_damaged_row >= shot->used_rows)
        return 0;
    return psti_fail(err, PST_ECORRUPT, "decode", NULL,
                     "rows are damaged from %lld on, of %lld; rows up to %lld are used",
                     (long long)first_damaged_row, (long long)shot->facts.rows,
                     (long long)shot->used_rows);
}

static int run_decoder(psti_work *work, psti_kit *kit, int p, int64_t known, pst_error *err)
{
    psti_shot *shot = &work->shots[p];
    int rc = psti_work_open(work, kit, p, err);
    if (rc == 0)
        rc = psti_decoder_need(kit->decoder, &shot->window, &shot->need, err);
    if (rc == 0 && shot->need.out_bytes &&
        psti_buf_need(PSTI_MEM_PIPELINE, &shot->buf[0], shot->need.out_bytes) < 0)
        rc = psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for a picture of %zu bytes",
                       shot->need.out_bytes);
    if (rc == 0)
        rc = psti_decoder_run(kit->decoder, &shot->need, known, shot->buf[0].data, &shot->now, err);
    if (rc == 0)
        kit->warnings += (uint64_t)psti_decoder_warnings(kit->decoder);
    psti_kit_close(kit);
    shot->at = 0;
    /* The elements may lie in the input as they are. */
    shot->borrowed = rc == 0 && shot->now.data != shot->buf[0].data;
    shot->sound = rc == 0 && shot->now.first_damaged_row == PSTI_ROWS_SOUND;
    return rc;
}

static int decode_picture(psti_work *work, psti_kit *kit, int p, pst_error *err)
{
    psti_shot *shot = &work->shots[p];
    const int64_t known = work->inputs[work->plan->pictures[p].input].known_damage;
    int rc = known < 0 ? 0 : check_damage(shot, known, err);
    if (rc == 0)
        rc = run_decoder(work, kit, p, known, err);
    if (rc == 0) {
        if (shot->facts.unsure_end && known < 0)
            shot->damage = shot->now.first_damaged_row;
        rc = check_damage(shot, shot->now.first_damaged_row, err);
    }
    return rc < 0 ? psti_work_fail(work, "decode", p, rc, err) : 0;
}

/* ---- views ----------------------------------------------------------------------------------- */

/* A view begins as its source is, in the source's memory: nothing writes to that any more. */
static int begin_view(psti_work *work, int p)
{
    psti_shot *shot = &work->shots[p];
    shot->now = work->shots[work->plan->pictures[p].source].now;
    shot->at = 0;
    shot->borrowed = true;
    return 0;
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* Whether what an op makes of the field fits exactly where the field is. */
static bool same_place(const psti_field *in, const psti_geom *out)
{
    const psti_geom now = psti_field_geom(in);
    return now.rows == out->rows && now.cols == out->cols && now.channels == out->channels &&
           now.dtype == out->dtype && now.axes == out->axes && in->whole_rows == out->rows &&
           in->whole_cols == out->cols &&
           (now.axes != PSTI_AXES_VOLUME ||
            (now.depth == out->depth && in->whole_depth == out->depth && psti_field_dense(in)));
}

/* The field that an op writes: where it stands, or in the picture's other buffer. part: all that is
 * needed of it; NULL: everything is. */
static int place_output(psti_shot *shot, const psti_op *op, const psti_geom *size,
                        const psti_draw *part, psti_field *out)
{
    *out = shot->now;
    out->first_damaged_row = PSTI_ROWS_SOUND;
    const bool in_place = (op->flags & PSTI_OP_INPLACE) && !shot->borrowed;
    if (op->flags & PSTI_OP_VIEWS || (in_place && same_place(&shot->now, size)))
        return 0;
    psti_geom made = *size;
    if (part) {
        made.rows = part->rows;
        made.cols = part->cols;
    }
    size_t bytes;
    if (!psti_geom_bytes(&made, &bytes))
        return -EOVERFLOW;
    if (psti_buf_need(PSTI_MEM_PIPELINE, &shot->buf[!shot->at], bytes) < 0)
        return -ENOMEM;
    *out = psti_field_of(shot->now.kind, &made);
    out->data = shot->buf[!shot->at].data;
    if (part) {
        out->y0 = part->top;
        out->x0 = part->left;
        out->whole_rows = size->rows;
        out->whole_cols = size->cols;
    }
    return 0;
}

/* What run has left becomes what the picture is. */
static void take_output(psti_shot *shot, const psti_op *op, const psti_field *out, psti_step *step)
{
    if (op->flags & PSTI_OP_OPEN) {
        step->out.rows = out->shape[0];
        step->out.cols = out->shape[1];
    }
    /* A view stays where it is, and whose memory it is. */
    if (!(op->flags & PSTI_OP_VIEWS)) {
        if (out->data != shot->now.data)
            shot->at = !shot->at;
        shot->borrowed = false;
    }
    shot->now = *out;
}

/* Whether the window that the op cuts out is all there is in memory: then it is the result. */
static bool is_cut(psti_shot *shot, const psti_op *op, const psti_draw *draw)
{
    psti_field *now = &shot->now;
    if (!(op->flags & PSTI_OP_CUTS) || now->y0 != draw->top || now->x0 != draw->left ||
        now->shape[0] != draw->rows || now->shape[1] != draw->cols)
        return false;
    now->x0 = now->y0 = 0;
    now->whole_rows = draw->rows;
    now->whole_cols = draw->cols;
    now->first_damaged_row = PSTI_ROWS_SOUND;
    return true;
}

static int run_op(psti_work *work, psti_kit *kit, int p, pst_error *err)
{
    const psti_stage *stage = &work->plan->stages[work->cursor];
    psti_step *step = psti_work_at(work, work->cursor, p);
    psti_shot *shot = &work->shots[p];
    psti_field out;
    if (!step->draw.act || work->plan->pictures[p].overlay == work->cursor ||
        is_cut(shot, stage->type.op, &step->draw))
        return 0;
    int rc = place_output(shot, stage->type.op, &step->out,
                          psti_work_partial(work, work->cursor, p), &out);
    kit->ops.id = work->id;
    if (rc < 0)
        psti_fail(err, rc, stage->type.name, NULL, "out of memory for a picture of %lld x %lld",
                  (long long)step->out.rows, (long long)step->out.cols);
    else
        rc = stage->type.op->run(stage->params, &step->draw, &kit->ops, &shot->now, &out, err);
    if (rc < 0)
        return psti_work_fail(work, stage->type.name, p, rc, err);
    take_output(shot, stage->type.op, &out, step);
    return 0;
}

static int run_on(psti_work *work, psti_kit *kit, int p, pst_error *err)
{
    const psti_op_type *type = &work->plan->stages[work->cursor].type;
    switch (type->role) {
    case PSTI_ROLE_DECODE:
        return decode_picture(work, kit, p, err);
    case PSTI_ROLE_SURVEY:
        return psti_work_survey(work, p, err);
    case PSTI_ROLE_VIEWS:
        return begin_view(work, p);
    default:
        return psti_op_type_call(type) ? psti_work_call(work, p, err) : run_op(work, kit, p, err);
    }
}

/* How many steps the stage at the cursor takes; one where it has nothing to do. */
static int parts_of(const psti_work *work)
{
    const psti_plan *plan = work->plan;
    const psti_stage *stage = &plan->stages[work->cursor];
    if (stage->type.role != PSTI_ROLE_OP || !stage->type.op->parts)
        return 1;
    for (int p = 0; p < plan->picture_count; p++)
        if (stage->pictures & (uint32_t)1 << p && psti_work_at(work, work->cursor, p)->draw.act)
            return stage->type.op->parts(stage->params);
    return 1;
}

int psti_work_step(psti_work *work, psti_kit *kit, pst_error *err)
{
    const psti_plan *plan = work->plan;
    if (work->cursor >= plan->stage_count)
        return 0;
    const psti_stage *stage = &plan->stages[work->cursor];
    const uint64_t start = psti_now_ns();
    int rc = 0;
    for (int p = 0; rc == 0 && p < plan->picture_count; p++)
        if (stage->pictures & (uint32_t)1 << p)
            rc = run_on(work, kit, p, err);
    if (rc == 0 && (psti_stage_open(stage) ||
                    (stage->type.role == PSTI_ROLE_SURVEY && work->decided < plan->stage_count)))
        rc = psti_work_decide_late(work, err);
    const bool more = rc == 0 && ++work->part < parts_of(work);
    kit->stepped_ns = psti_now_ns();
    psti_kit_spent(kit, work->cursor, start, kit->stepped_ns);
    const bool idle = stage->type.role == PSTI_ROLE_SURVEY && !work->note_found;
    kit->stage_runs[work->cursor] += !more && !idle;
    if (rc < 0 || more)
        return rc < 0 ? rc : 1;
    work->part = 0;
    work->cursor++;
    return work->cursor < plan->stage_count;
}

/* ---- results --------------------------------------------------------------------------------- */

const psti_field *psti_work_field(const psti_work *work, int output)
{
    const psti_plan_output *out = &work->plan->outputs[output];
    return out->picture < 0 ? &work->fields[out->input] : &work->shots[out->picture].now;
}

size_t psti_work_shape(const psti_work *work, int output, int64_t shape[PST_MAX_RANK])
{
    const psti_plan_output *out = &work->plan->outputs[output];
    const psti_field *field = psti_work_field(work, output);
    if (out->objects)
        return psti_work_object_shape(work, out, shape);
    if (out->picture < 0) {
        memcpy(shape, field->shape, sizeof field->shape);
        return field->bytes;
    }
    psti_geom size = psti_field_geom(field);
    size_t bytes = 0;
    size.dtype = out->dtype;
    psti_shape_of(out->layout, &size, shape);
    psti_geom_bytes(&size, &bytes);
    return bytes;
}

/* The op that stands behind finish, where it acts. */
static void lay_over(const psti_work *work, int picture, const psti_finish *finish,
                     const psti_pitch *pitch, uint8_t *dst)
{
    const int s = work->plan->pictures[picture].overlay;
    if (s < 0 || !psti_work_at(work, s, picture)->draw.act)
        return;
    const psti_stage *stage = &work->plan->stages[s];
    stage->type.op->overlay(stage->params, &psti_work_at(work, s, picture)->draw, finish,
                            &work->shots[picture].now, pitch, dst);
}

psti_finish psti_output_finish(const psti_plan_output *out, const psti_field *field)
{
    psti_finish finish = out->finish;
    if (field->axes == PSTI_AXES_PICTURE)
        finish.channels = (int)field->shape[2];
    return finish;
}

void psti_work_finish(const psti_work *work, psti_kit *kit, int output, uint8_t *dst)
{
    psti_work_finish_in(work, kit, output, NULL, dst);
}

void psti_work_finish_in(const psti_work *work, psti_kit *kit, int output, const int64_t *box,
                         uint8_t *dst)
{
    const uint64_t start = psti_now_ns();
    const psti_plan_output *out = &work->plan->outputs[output];
    const psti_field *field = psti_work_field(work, output);
    if (out->objects) {
        psti_work_write_objects(work, out, box, dst);
    } else if (out->picture >= 0) {
        const psti_finish finish = psti_output_finish(out, field);
        const psti_pitch pitch = psti_pitch_of(&finish, field, box);
        psti_finish_write(&finish, field, &pitch, dst);
        lay_over(work, out->picture, &finish, &pitch, dst);
    } else if (box) {
        psti_box_copy(dst, box, field->data, field->shape, out->rank,
                      psti_dtype_bytes(field->dtype));
    } else if (field->bytes) {
        memcpy(dst, field->data, field->bytes);
    }
    psti_kit_spent(kit, work->plan->stage_count, start, psti_now_ns());
    kit->stage_runs[work->plan->stage_count] += output == work->plan->counted_output;
}

int64_t psti_work_damage(const psti_work *work, int input)
{
    if (!work->plan || work->plan->picture_of[input] < 0)
        return -1;
    return work->shots[work->plan->picture_of[input]].damage;
}
