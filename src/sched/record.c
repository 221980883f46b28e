/* SPDX-License-Identifier: Apache-2.0
 * Records: prepared samples in engine memory, waiting for their slot (strict order with skips) or
 * for the rest of their batch (no fixed shape). They hold parcels, see pipeline.h; finish writes
 * those into the batch once its strides are known. A batch of one has nobody to wait for, so its
 * record is the batch already, but for the header. Filled and written by workers, kept on a free
 * list. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { ALIGN = 64 };

static size_t align_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

record *record_take_locked(psti_feed *feed)
{
    record *rec = feed->free_records;
    const size_t slices = (size_t)feed->outputs * sizeof *rec->out;
    if (rec)
        feed->free_records = rec->next;
    else
        rec = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *rec + slices);
    return rec;
}

static void let_go_locked(psti_feed *feed, record *rec)
{
    psti_buf_free(&rec->data);
    feed->pool->staged -= rec->charged;
    rec->charged = 0;
    if (rec->pages.base)
        pages_keep_locked(feed, &rec->pages);
}

/* Kept for the next sample, but for its memory where that is scarce. */
void record_drop_locked(psti_feed *feed, record *rec)
{
    if (rec->data.cap > (8u << 20) || rec->charged > rec->data.cap || rec->pages.base ||
        feed->pool->staged > pool_staged_max_locked(feed->pool) / 2)
        let_go_locked(feed, rec);
    rec->next = feed->free_records;
    feed->free_records = rec;
}

void record_free_all(psti_feed *feed)
{
    while (feed->free_records) {
        record *rec = feed->free_records;
        feed->free_records = rec->next;
        let_go_locked(feed, rec);
        psti_free(rec);
    }
}

/* A record was filled: counts its memory, and learns how large samples are. */
void record_count_locked(psti_feed *feed, record *rec)
{
    const size_t bytes = rec->data.cap + rec->pages.cap;
    feed->pool->staged += bytes - rec->charged;
    rec->charged = bytes;
    feed->stage_sample += ((double)rec->charged - feed->stage_sample) / 8;
}

/* ---- where the fields of a batch of records lie ------------------------------------------------
 */

/* Records of a batch, and its fields. */
typedef struct gathering {
    const psti_feed *feed;
    record *const *records;
    int slots;
    pst_field field[PSTI_OUTPUTS_MAX + EXTRA_FIELDS];
    size_t bytes; /* of the whole block */
} gathering;

/* Whether a dimension is a size, which may be rounded up to a multiple: rows, columns and planes,
 * moments of a recording, and whatever else varies. Channels and features are what they are. */
static bool is_size(const psti_plan_output *out, int d)
{
    switch (out->kind) {
    case PST_IMAGE:
        return d != (out->layout == PST_NCHW ? 0 : 2);
    case PST_MASK:
    case PST_VOLUME:
        return d >= out->rank - (out->rank == 4 ? 3 : 2);
    case PST_AUDIO:
        return d == 0;
    default:
        return out->shape[d] < 0;
    }
}

static void largest_shape(const gathering *g, int output, pst_field *field)
{
    const psti_plan_output *out = &g->feed->out[output];
    const int64_t multiple = g->feed->spec.fields[out->input].multiple;
    for (int d = 0; d < field->rank; d++) {
        field->shape[d] = 0;
        for (int i = 0; i < g->slots; i++)
            if (g->records[i]->out[output].parcel.shape[d] > field->shape[d])
                field->shape[d] = g->records[i]->out[output].parcel.shape[d];
        if (multiple > 1 && is_size(out, d))
            field->shape[d] = (field->shape[d] + multiple - 1) / multiple * multiple;
    }
}

static bool shape_bytes(const int64_t *shape, const pst_field *field, size_t *out)
{
    size_t bytes = psti_dtype_bytes(field->dtype);
    for (int d = 0; d < field->rank; d++)
        if (!psti_mul(bytes, (size_t)shape[d], &bytes))
            return false;
    *out = bytes;
    return true;
}

static bool size_of(const gathering *g, int output, pst_field *field, size_t *bytes)
{
    size_t one;
    if (field->packing == PST_RAGGED) {
        *bytes = 0;
        for (int i = 0; i < g->slots; i++)
            if (!shape_bytes(g->records[i]->out[output].parcel.shape, field, &one) ||
                !psti_add(*bytes, one, bytes))
                return false;
        return true;
    }
    if (!shape_bytes(field->shape, field, &one))
        return false;
    field->slot_bytes = one;
    return psti_mul(one, (size_t)g->slots, bytes);
}

/* Fills g->field and g->bytes. */
static int place_fields(gathering *g)
{
    const layout *l = &g->feed->layout;
    memcpy(g->field, l->field, sizeof g->field);
    size_t at = l->bytes; /* header, id, key, valid and what is dense */
    const size_t slots = (size_t)g->slots;
    for (int i = 0; i < g->feed->outputs; i++) {
        pst_field *field = &g->field[i];
        if (field->packing == PST_DENSE)
            continue;
        if (field->packing == PST_PADDED)
            largest_shape(g, i, field);
        size_t bytes;
        if (!size_of(g, i, field, &bytes) || bytes > SIZE_MAX / 4 - at)
            return -ENOMEM;
        field->shapes_offset = at;
        at += align_up(slots * (size_t)field->rank * sizeof(int64_t));
        if (field->packing == PST_RAGGED) {
            field->offsets_offset = at;
            at += align_up((slots + 1) * sizeof(int64_t));
        }
        field->data_offset = at;
        field->data_bytes = bytes;
        at += align_up(bytes);
    }
    g->bytes = at;
    return 0;
}

static const int64_t *box_of(const pst_field *field)
{
    return field->packing == PST_PADDED ? field->shape : NULL;
}

/* Where output's slot i begins. Writes what stands beside it of shapes and offsets, and about it
 * where it is padded. */
static uint8_t *note_slot(const gathering *g, const pages *p, int output, int i, size_t *at)
{
    const pst_field *field = &g->field[output];
    const int64_t *shape = g->records[i]->out[output].parcel.shape;
    uint8_t *base = p->base;
    uint8_t *data = base + field->data_offset;
    if (field->packing != PST_DENSE)
        memcpy(base + field->shapes_offset + (size_t)i * field->rank * sizeof *shape, shape,
               field->rank * sizeof *shape);
    if (field->packing != PST_RAGGED) {
        data += (size_t)i * field->slot_bytes;
        if (field->packing == PST_PADDED && p->used)
            psti_box_clear(data, field->shape, shape, field->rank, psti_dtype_bytes(field->dtype));
        return data;
    }
    size_t bytes = 0;
    shape_bytes(shape, field, &bytes);
    int64_t *offsets = (int64_t *)(base + field->offsets_offset) + i;
    data += *at;
    offsets[0] = (int64_t)*at;
    *at += bytes;
    offsets[1] = (int64_t)*at;
    return data;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* What every output of the sample at hand takes while it waits. */
static int measure(record *rec, psti_feed *feed, const task *t, worker *w, size_t *total)
{
    size_t at = 0;
    for (int i = 0; i < feed->outputs; i++) {
        slice *out = &rec->out[i];
        if (output_read(feed, i)) {
            psti_work_parcel(w->work, i, &out->parcel);
        } else {
            const int rc = value_bytes(feed, i, t, &out->parcel.bytes);
            if (rc < 0)
                return rc;
            out->parcel.finished = true;
            value_shape(&feed->out[i], out->parcel.bytes, out->parcel.shape);
        }
        out->offset = at;
        at += align_up(out->parcel.bytes);
    }
    *total = at;
    return 0;
}

static void pack(record *rec, psti_feed *feed, const task *t, worker *w)
{
    for (int i = 0; i < feed->outputs; i++) {
        uint8_t *dst = rec->data.data + rec->out[i].offset;
        if (output_read(feed, i))
            psti_work_pack(w->work, &w->kit, i, &rec->out[i].parcel, dst);
        else
            value_write(feed, i, t, dst);
    }
}

static void write_solo(const gathering *g, const task *t, worker *w, const pages *p)
{
    for (int i = 0; i < g->feed->outputs; i++) {
        size_t at = 0;
        uint8_t *dst = note_slot(g, p, i, 0, &at);
        if (output_read(g->feed, i))
            psti_work_finish_in(w->work, &w->kit, i, box_of(&g->field[i]), dst);
        else
            value_write(g->feed, i, t, dst);
    }
}

/* The batch of one itself. */
static int fill_solo(record *rec, psti_feed *feed, const task *t, worker *w, uint64_t most)
{
    gathering g = {.feed = feed, .records = &rec, .slots = 1};
    int rc = place_fields(&g);
    if (rc == 0 && g.bytes > most)
        rc = PST_EBUDGET;
    if (rc < 0 || (rc = pages_take(feed, g.bytes, &rec->pages)) < 0)
        return rc;
    const double clock = worker_begin(w);
    write_solo(&g, t, w, &rec->pages);
    worker_end(w, clock);
    return 0;
}

static int fill_parcels(record *rec, psti_feed *feed, const task *t, worker *w, size_t bytes)
{
    const int rc = psti_buf_need(PSTI_MEM_SCHED, &rec->data, bytes);
    if (rc < 0)
        return rc;
    const double clock = worker_begin(w);
    pack(rec, feed, t, w);
    worker_end(w, clock);
    return 0;
}

int record_fill(record *rec, psti_feed *feed, const task *t, worker *w, uint64_t most)
{
    const bool solo = feed->spec.batch == 1 && !feed->layout.dense;
    size_t total;
    int rc = measure(rec, feed, t, w, &total);
    if (rc == 0 && !solo && total > most)
        rc = PST_EBUDGET;
    if (rc == 0)
        rc = solo ? fill_solo(rec, feed, t, w, most) : fill_parcels(rec, feed, t, w, total);
    if (rc < 0)
        return rc;
    rec->id = t->id;
    rec->position = t->position;
    rec->share = t->share;
    rec->start = t->start;
    rec->number = t->number;
    rec->valid = t->valid;
    return 0;
}

/* ---- writing batches ------------------------------------------------------------------------- */

static void unpack(const record *rec, const psti_feed *feed, worker *w, int output,
                   const int64_t *box, uint8_t *dst)
{
    const slice *out = &rec->out[output];
    const int64_t own = w->at_id;
    w->at_id = rec->id;
    psti_plan_unpack(feed->spec.plan, &w->kit, output, &out->parcel, rec->data.data + out->offset,
                     box, dst);
    w->at_id = own;
}

/* Writes a record into its slot of a dense batch. */
void record_write(const record *rec, psti_feed *feed, worker *w, pst_batch *block, int slot)
{
    const double clock = worker_begin(w);
    for (int i = 0; i < feed->outputs; i++)
        unpack(rec, feed, w, i, NULL, block_slot(block, &feed->layout, i, slot));
    worker_end(w, clock);
}

static void write_records(const gathering *g, worker *w, const pages *p)
{
    const double clock = worker_begin(w);
    for (int i = 0; i < g->feed->outputs; i++) {
        size_t at = 0;
        for (int k = 0; k < g->slots; k++) {
            uint8_t *dst = note_slot(g, p, i, k, &at);
            unpack(g->records[k], g->feed, w, i, box_of(&g->field[i]), dst);
        }
    }
    worker_end(w, clock);
}

int gather_seal(pst_batch *block, psti_feed *feed, worker *w, pst_error *err)
{
    gathering g = {.feed = feed, .records = block->records, .slots = block->slots};
    if (place_fields(&g) < 0)
        return psti_fail(err, PST_ELIMIT, "batch", NULL, "a batch of these samples is too large");
    pages p = block->records[0]->pages;
    block->records[0]->pages = (pages){0};
    const bool written = p.base != NULL; /* a batch of one */
    if (!written && pages_take(feed, g.bytes, &p) < 0)
        return psti_fail(err, -ENOMEM, "batch", NULL, "no memory for a batch of %.1f MiB",
                         (double)g.bytes / 0x1p20);
    if (!written)
        write_records(&g, w, &p);
    block->base = p.base;
    block->bytes = g.bytes;
    block->cap = p.cap;
    block_seal(block, feed, g.field);
    return 0;
}
