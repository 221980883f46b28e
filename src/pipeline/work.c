/* SPDX-License-Identifier: Apache-2.0
 * A sample on its way: taking it on, what memory it will take, letting it go. Everything a stage
 * leaves behind is in the psti_work, nothing in the kit, so any kit may run the next stage. One
 * thread at a time per work; storage is kept from sample to sample and only grows. Stages are run
 * by carry.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

psti_work *psti_work_new(void)
{
    return psti_calloc(PSTI_MEM_PIPELINE, 1, sizeof(psti_work));
}

void psti_work_free(psti_work *work)
{
    if (!work)
        return;
    for (int i = 0; i < work->shots_cap; i++) {
        psti_buf_free(&work->shots[i].buf[0]);
        psti_buf_free(&work->shots[i].buf[1]);
    }
    psti_free(work->shots);
    psti_free(work->steps);
    psti_free(work->inputs);
    psti_free(work->fields);
    psti_free(work->note);
    psti_cast_free(work->cast);
    psti_free(work);
}

void psti_work_set_id(psti_work *work, int64_t id)
{
    work->id = id;
}

/* ---- taking a sample on ---------------------------------------------------------------------- */

/* The array with room for `want` elements, new ones zeroed, or NULL; what it held stays. *cap
 * follows. */
static void *grown(void *array, int *cap, int want, size_t size)
{
    if (want <= *cap)
        return array;
    char *data = psti_realloc(PSTI_MEM_PIPELINE, array, (size_t)want, size);
    if (!data)
        return NULL;
    memset(data + (size_t)*cap * size, 0, (size_t)(want - *cap) * size);
    *cap = want;
    return data;
}

/* On failure the arrays that did grow stay as they are: the next sample finds them. */
static int reserve(psti_work *work, const psti_plan *plan, pst_error *err)
{
    const int steps = plan->picture_count * plan->stage_count;
    psti_input *inputs = grown(work->inputs, &work->inputs_cap, plan->count, sizeof *inputs);
    work->inputs = inputs ? inputs : work->inputs;
    psti_field *fields = grown(work->fields, &work->fields_cap, plan->count, sizeof *fields);
    work->fields = fields ? fields : work->fields;
    psti_shot *shots = grown(work->shots, &work->shots_cap, plan->picture_count, sizeof *shots);
    work->shots = shots ? shots : work->shots;
    psti_step *all = grown(work->steps, &work->steps_cap, steps, sizeof *all);
    work->steps = all ? all : work->steps;
    if (work->inputs_cap >= plan->count && work->fields_cap >= plan->count &&
        work->shots_cap >= plan->picture_count && work->steps_cap >= steps)
        return 0;
    return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for a sample");
}

static int check_array(const psti_plan_output *out, const psti_field *field, pst_error *err)
{
    bool fits =
        (!out->dtype || field->dtype == out->dtype) && (!out->dtype || field->rank == out->rank);
    for (int i = 0; fits && out->dtype && i < field->rank; i++)
        fits = out->shape[i] < 0 || out->shape[i] == field->shape[i];
    if (fits)
        return 0;
    return psti_fail(
        err, PST_EFIELD, "decode", NULL,
        "field %s: an array of type %s and %d dimensions where others are %s and %d, or of another "
        "shape; shapes may differ when it is asked for as %s=padded or %s=ragged",
        out->name, psti_dtype_name(field->dtype), field->rank, psti_dtype_name(out->dtype),
        out->rank, out->name, out->name);
}

/* A field that no op touches. It points into the caller's bytes. */
static int take_passing(psti_work *work, const psti_plan_output *out, pst_error *err)
{
    const int i = out->input;
    const psti_plan_input *plan = &work->plan->inputs[i];
    const psti_input *input = &work->inputs[i];
    psti_field *field = &work->fields[i];
    if (plan->encoded && plan->kind == PST_ARRAY && input->bytes) {
        const int rc = psti_npy_parse(input->bytes, input->size, field, err);
        return rc < 0 ? rc : check_array(out, field, err);
    }
    *field = (psti_field){.kind = (uint8_t)out->kind,
                          .dtype = (uint8_t)out->dtype,
                          .rank = (uint8_t)out->rank,
                          .data = (uint8_t *)input->bytes,
                          .bytes = input->bytes ? input->size : 0,
                          .first_damaged_row = PSTI_ROWS_SOUND};
    const size_t size = psti_dtype_bytes(out->dtype);
    for (int d = 0; d < out->rank; d++)
        field->shape[d] = input->bytes ? out->shape[d] : 0;
    if (out->rank == 1 && size)
        field->shape[0] = (int64_t)(field->bytes / size);
    return 0;
}

static int take_inputs(psti_work *work, const psti_input *inputs, bool decoded, pst_error *err)
{
    const psti_plan *plan = work->plan;
    int rc = 0;
    if (plan->count)
        memcpy(work->inputs, inputs, (size_t)plan->count * sizeof *inputs);
    for (int o = 0; rc == 0 && o < plan->output_count; o++) {
        const int i = plan->outputs[o].input;
        if (plan->outputs[o].objects)
            work->fields[i] = (psti_field){0};
        else if (plan->picture_of[i] < 0)
            rc = take_passing(work, &plan->outputs[o], err);
        else if (!inputs[i].bytes && !decoded)
            rc = psti_fail(err, PST_EFIELD, "decode", NULL, "the sample has no field %s",
                           plan->inputs[i].name);
    }
    for (int p = 0; p < plan->picture_count; p++) {
        work->shots[p].damage = -1;
        work->shots[p].at = 0;
        work->shots[p].now = (psti_field){0};
        work->shots[p].borrowed = false;
        work->shots[p].sound = false;
    }
    return rc;
}

/* Volumes have one channel, so that batches of them have a shape; more where the text says so. */
static int check_channels(const psti_work *work, int p, pst_error *err)
{
    const psti_picture *facts = &work->shots[p].facts;
    const bool keep = work->plan->pictures[p].decode.color == PSTI_COLOR_KEEP;
    if (facts->axes != PSTI_AXES_VOLUME || facts->channels == 1 || keep)
        return 0;
    return psti_fail(err, PST_EFIELD, "decode", NULL,
                     "the volume has %d channels: decode(keep) delivers all of them",
                     facts->channels);
}

static int read_headers(psti_work *work, psti_kit *kit, pst_error *err)
{
    for (int p = 0; p < work->plan->source_count; p++) {
        int rc = psti_work_open(work, kit, p, err);
        if (rc == 0)
            rc = check_channels(work, p, err);
        if (rc < 0)
            return psti_work_fail(work, "decode", p, rc, err);
    }
    return 0;
}

/* What the plan could not know: channels where decode keeps them, and masks of 16 bits. */
static int check_outputs(const psti_work *work, pst_error *err)
{
    const psti_plan *plan = work->plan;
    if (work->decided < plan->stage_count)
        return 0;
    for (int i = 0; i < plan->output_count; i++) {
        const psti_plan_output *out = &plan->outputs[i];
        const int p = out->picture;
        if (p < 0)
            continue;
        const psti_plan_picture *picture = &plan->pictures[p];
        const psti_geom *last = &psti_work_at(work, plan->stage_count - 1, p)->out;
        const int channels = (int)last->channels;
        if (picture->channels && picture->channels != channels)
            return psti_fail(err, PST_EFIELD, "normalize", NULL,
                             "field %s has %d channels, normalize has %d: decode(rgb) makes three",
                             out->name, channels, picture->channels);
        if (last->dtype == PST_U16 && out->dtype == PST_U8)
            return psti_fail(err, PST_EFIELD, "finish", NULL,
                             "field %s holds 16-bit values: write \"%s: to(u16)\" or a wider type",
                             out->name, plan->inputs[out->input].name);
    }
    return 0;
}

int psti_work_decide_late(psti_work *work, pst_error *err)
{
    work->grew = true;
    const int rc = psti_work_decide_on(work, err);
    return rc < 0 ? rc : check_outputs(work, err);
}

/* Downwards, so that the first picture's header is the one that stays read. */
static int measure_decodes(psti_work *work, psti_kit *kit, pst_error *err)
{
    for (int p = work->plan->source_count - 1; p >= 0; p--) {
        psti_shot *shot = &work->shots[p];
        int rc = psti_work_open(work, kit, p, err);
        if (rc == 0)
            rc = psti_decoder_need(kit->decoder, &shot->window, &shot->need, err);
        if (rc < 0)
            return psti_work_fail(work, "decode", p, rc, err);
    }
    return 0;
}

/* The pictures are there already: what their headers said is what decisions are made from. */
static void take_decoded(psti_work *work, const psti_decoded *pictures)
{
    for (int p = 0; p < work->plan->source_count; p++) {
        psti_shot *shot = &work->shots[p];
        const psti_geom *header = &pictures[p].header;
        shot->facts = (psti_picture){.rows = header->rows,
                                     .cols = header->cols,
                                     .channels = (int)header->channels,
                                     .dtype = header->dtype,
                                     .depth = header->depth,
                                     .axes = header->axes};
        memcpy(shot->facts.unit, header->unit, sizeof header->unit);
        shot->now = pictures[p].field;
        shot->borrowed = true;
    }
    /* What nobody has found in it yet may have to be looked for. */
    work->cursor = work->plan->decoded_stages - (work->plan->survey >= 0 && !work->note_known);
}

static void take_views(psti_work *work)
{
    for (int p = work->plan->source_count; p < work->plan->picture_count; p++)
        work->shots[p].facts = work->shots[work->plan->pictures[p].source].facts;
}

/* decoded: NULL, or the pictures in decoded form. */
static int start(psti_work *work, psti_kit *kit, const psti_rng_key *key, const psti_input *inputs,
                 const psti_decoded *decoded, pst_error *err)
{
    int rc = take_inputs(work, inputs, decoded != NULL, err);
    if (rc == 0 && decoded)
        take_decoded(work, decoded);
    else if (rc == 0)
        rc = read_headers(work, kit, err);
    if (rc == 0) {
        take_views(work);
        rc = psti_work_decide(work, key, err);
    }
    if (rc == 0)
        rc = check_outputs(work, err);
    if (rc == 0 && !decoded)
        rc = measure_decodes(work, kit, err);
    return rc;
}

static void begin(psti_work *work)
{
    work->plan = NULL;
    work->cursor = work->part = 0;
    work->whole = work->grew = false;
    work->kit_id = 0;
    work->note_known = work->note_given;
    work->note_given = work->note_found = work->note_wanted = false;
}

int psti_work_take(psti_work *work, const psti_plan *plan, const psti_input *inputs, pst_error *err)
{
    begin(work);
    int rc = reserve(work, plan, err);
    if (rc < 0)
        return rc;
    work->plan = plan;
    rc = take_inputs(work, inputs, true, err);
    if (rc < 0)
        work->plan = NULL;
    return rc;
}

int psti_work_start_decoded(psti_work *work, psti_kit *kit, const psti_plan *plan,
                            const psti_rng_key *key, const psti_input *inputs,
                            const psti_decoded *pictures, pst_error *err)
{
    const uint64_t since = psti_now_ns();
    begin(work);
    int rc = reserve(work, plan, err);
    if (rc < 0)
        return rc;
    work->plan = plan;
    rc = start(work, kit, key, inputs, pictures, err);
    if (plan->stage_count)
        psti_kit_spent(kit, work->cursor, since, psti_now_ns());
    if (rc < 0) {
        psti_kit_close(kit);
        work->plan = NULL;
    }
    return rc;
}

int psti_work_start(psti_work *work, psti_kit *kit, const psti_plan *plan, const psti_rng_key *key,
                    const psti_input *inputs, pst_error *err)
{
    return psti_work_start_decoded(work, kit, plan, key, inputs, NULL, err);
}

/* ---- the decoded form --------------------------------------------------------------------------
 */

int psti_work_whole(psti_work *work, psti_kit *kit, bool whole, pst_error *err)
{
    if (work->whole == whole)
        return 0;
    work->whole = whole;
    psti_work_aim(work);
    return measure_decodes(work, kit, err);
}

psti_decoded psti_work_decoded(const psti_work *work, int p)
{
    if (p == work->plan->source_count)
        return psti_work_decoded_note(work);
    const psti_shot *shot = &work->shots[p];
    psti_decoded out = {.header = psti_picture_geom(&shot->facts), .field = shot->now};
    if (work->cursor < work->plan->decoded_stages) {
        const psti_geom *size = &psti_work_at(work, work->plan->decoded_stages - 1, p)->out;
        out.field = psti_field_of(work->plan->inputs[work->plan->pictures[p].input].kind, size);
    }
    return out;
}

bool psti_work_decoded_fits(const psti_work *work)
{
    const psti_plan *plan = work->plan;
    for (int p = 0; p < plan->source_count; p++) {
        const psti_geom *size = &psti_work_at(work, plan->decoded_stages - 1, p)->out;
        const psti_field *now = &work->shots[p].now;
        const psti_field want = psti_field_of(plan->inputs[plan->pictures[p].input].kind, size);
        if (now->kind != want.kind || now->dtype != want.dtype || now->rank != want.rank ||
            now->axes != want.axes || memcmp(now->shape, want.shape, sizeof want.shape) != 0 ||
            now->x0 || now->y0 || now->z0 || now->whole_rows != want.whole_rows ||
            now->whole_cols != want.whole_cols || now->whole_depth != want.whole_depth ||
            now->first_damaged_row != PSTI_ROWS_SOUND || !psti_field_dense(now))
            return false;
    }
    return true;
}

int psti_work_cursor(const psti_work *work)
{
    return work->cursor;
}

bool psti_work_at_decoded(const psti_work *work)
{
    return work->cursor >= work->plan->decoded_stages;
}

bool psti_work_sound(const psti_work *work)
{
    bool sound = true;
    for (int p = 0; p < work->plan->source_count; p++)
        sound &= work->shots[p].sound;
    return sound;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What a psti_buf takes that must hold so many bytes, or what it has taken already. */
static size_t footprint(const psti_buf *buf, size_t bytes)
{
    const size_t want = bytes + 64;
    return larger(buf->cap, bytes ? want + want / 8 + 16 : 0);
}

/* Follows a picture through the remaining stages. Returns what its two buffers will take; *extra
 * grows to the most that a library or an op's scratch takes. */
static size_t follow_picture(const psti_work *work, int p, size_t *extra)
{
    const psti_shot *shot = &work->shots[p];
    size_t most[2] = {0, 0};
    int at = shot->at;
    if (shot->now.data && !shot->borrowed)
        most[at] = shot->now.bytes;
    for (int s = work->cursor; s < work->plan->stage_count; s++) {
        const psti_stage *stage = &work->plan->stages[s];
        const psti_step *step = psti_work_at(work, s, p);
        const bool decodes = stage->type.role == PSTI_ROLE_DECODE;
        size_t bytes = 0;
        if (!(stage->pictures & (uint32_t)1 << p) || work->plan->pictures[p].overlay == s ||
            (!decodes && (s >= work->decided || !step->draw.act)))
            continue;
        if (stage->type.role == PSTI_ROLE_VIEWS || stage->type.role == PSTI_ROLE_SURVEY ||
            (stage->type.op && stage->type.op->flags & PSTI_OP_VIEWS))
            continue;
        if (decodes) {
            at = 0;
            bytes = shot->need.out_bytes;
            *extra = larger(*extra, shot->need.library_bytes);
        } else {
            const psti_draw *part = psti_work_partial(work, s, p);
            psti_geom made = step->out;
            made.rows = part ? part->rows : made.rows;
            made.cols = part ? part->cols : made.cols;
            at = !at;
            psti_geom_bytes(&made, &bytes);
            if (stage->type.op->scratch)
                *extra = larger(*extra, stage->type.op->scratch(stage->params, &step->draw,
                                                                &step->in, &step->out));
        }
        most[at] = larger(most[at], bytes);
    }
    return footprint(&shot->buf[0], most[0]) + footprint(&shot->buf[1], most[1]);
}

size_t psti_work_need(const psti_work *work)
{
    size_t held = 0, extra = 0;
    if (!work->plan)
        return 0;
    for (int p = 0; p < work->plan->picture_count; p++)
        held += follow_picture(work, p, &extra);
    return held + extra + psti_cast_bytes(work->cast);
}

bool psti_work_grew(psti_work *work)
{
    const bool grew = work->grew;
    work->grew = false;
    return grew;
}

size_t psti_work_bytes(const psti_work *work, const psti_kit *kit)
{
    size_t bytes = sizeof *work + (size_t)work->inputs_cap * sizeof *work->inputs +
                   (size_t)work->fields_cap * sizeof *work->fields +
                   (size_t)work->shots_cap * sizeof *work->shots +
                   (size_t)work->steps_cap * sizeof *work->steps + psti_cast_bytes(work->cast) +
                   (work->note ? sizeof *work->note : 0);
    for (int i = 0; i < work->shots_cap; i++)
        bytes += work->shots[i].buf[0].cap + work->shots[i].buf[1].cap;
    return bytes + (kit ? psti_op_ctx_bytes(&kit->ops) : 0);
}

static bool free_largest(psti_work *work)
{
    psti_buf *most = NULL;
    for (int i = 0; i < 2 * work->shots_cap; i++) {
        psti_buf *buf = &work->shots[i / 2].buf[i % 2];
        if (buf->cap && (!most || buf->cap > most->cap))
            most = buf;
    }
    if (most)
        psti_buf_free(most);
    return most != NULL;
}

void psti_work_trim(psti_work *work, psti_kit *kit, size_t keep)
{
    while (psti_work_bytes(work, kit) > keep && free_largest(work))
        continue;
    if (kit && psti_work_bytes(work, kit) > keep)
        psti_op_ctx_trim(&kit->ops, keep);
}

void psti_work_clear(psti_work *work, psti_kit *kit, size_t keep)
{
    if (kit && kit->open && work->kit_id == kit->id && work->kit_opened == kit->opened)
        psti_kit_close(kit);
    work->plan = NULL;
    work->kit_id = 0;
    if (psti_cast_bytes(work->cast) > keep) {
        psti_cast_free(work->cast);
        work->cast = NULL;
    }
    psti_work_trim(work, kit, keep);
}
