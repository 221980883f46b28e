/* SPDX-License-Identifier: Apache-2.0
 * Records: finished samples in engine memory, waiting for their slot (strict order with skips) or
 * for the rest of their batch (no fixed shape). gather_seal writes a complete batch of records
 * once, with strides known. Filled and written by workers, kept on a free list. */
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
    if (rec)
        feed->free_records = rec->next;
    else
        rec = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *rec);
    return rec;
}

static void let_go_locked(psti_feed *feed, record *rec)
{
    psti_buf_free(&rec->data);
    feed->pool->staged -= rec->charged;
    rec->charged = 0;
}

/* Kept for the next sample, but for its memory where that is scarce. */
void record_drop_locked(psti_feed *feed, record *rec)
{
    if (rec->data.cap > (8u << 20) || feed->pool->staged > pool_staged_max_locked(feed->pool) / 2)
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
    feed->pool->staged += rec->data.cap - rec->charged;
    rec->charged = rec->data.cap;
    feed->stage_sample += ((double)rec->charged - feed->stage_sample) / 8;
}

/* Sizes of every output of the sample at hand. */
static int measure(record *rec, psti_feed *feed, const task *t, worker *w, size_t *total)
{
    size_t at = 0;
    for (int i = 0; i < feed->outputs; i++) {
        if (output_read(feed, i)) {
            rec->bytes[i] = psti_work_shape(w->work, i, rec->shape[i]);
        } else {
            const int rc = value_bytes(feed, i, t, &rec->bytes[i]);
            if (rc < 0)
                return rc;
            const size_t size = psti_dtype_bytes(feed->out[i].dtype);
            if (feed->out[i].rank > 1) /* then it is known */
                memcpy(rec->shape[i], feed->out[i].shape, sizeof rec->shape[i]);
            else
                rec->shape[i][0] = (int64_t)(rec->bytes[i] / (size ? size : 1));
        }
        rec->offset[i] = at;
        at += align_up(rec->bytes[i]);
    }
    *total = at;
    return 0;
}

int record_fill(record *rec, psti_feed *feed, const task *t, worker *w, uint64_t most)
{
    size_t total;
    int rc = measure(rec, feed, t, w, &total);
    if (rc == 0 && total > most)
        rc = PST_EBUDGET;
    if (rc < 0 || (rc = psti_buf_need(PSTI_MEM_SCHED, &rec->data, total)) < 0)
        return rc;
    const double clock = worker_begin(w);
    for (int i = 0; i < feed->outputs; i++) {
        uint8_t *dst = rec->data.data + rec->offset[i];
        if (output_read(feed, i))
            psti_work_finish(w->work, &w->kit, i, dst);
        else
            value_write(feed, i, t, dst);
    }
    worker_end(w, clock);
    rec->id = t->id;
    rec->position = t->position;
    rec->share = t->share;
    rec->start = t->start;
    rec->number = t->number;
    rec->valid = t->valid;
    return 0;
}

/* Copies a record into its slot of a dense batch. */
void record_write(const record *rec, psti_feed *feed, pst_batch *block, int slot)
{
    for (int i = 0; i < feed->outputs; i++)
        memcpy(block_slot(block, &feed->layout, i, slot), rec->data.data + rec->offset[i],
               rec->bytes[i]);
}

/* ---- gathering a batch of records ---------------------------------------------------------------
 */

static void largest_shape(const pst_batch *block, int output, pst_field *field)
{
    for (int d = 0; d < field->rank; d++) {
        field->shape[d] = 0;
        for (int i = 0; i < block->slots; i++)
            if (block->records[i]->shape[output][d] > field->shape[d])
                field->shape[d] = block->records[i]->shape[output][d];
    }
}

static bool size_of(const pst_batch *block, int output, pst_field *field, size_t *bytes)
{
    size_t one = psti_dtype_bytes(field->dtype);
    if (field->packing == PST_RAGGED) {
        *bytes = 0;
        for (int i = 0; i < block->slots; i++)
            if (!psti_add(*bytes, block->records[i]->bytes[output], bytes))
                return false;
        return true;
    }
    for (int d = 0; d < field->rank; d++)
        if (!psti_mul(one, (size_t)field->shape[d], &one))
            return false;
    field->slot_bytes = one;
    return psti_mul(one, (size_t)block->slots, bytes);
}

static int place_fields(pst_batch *block, const psti_feed *feed, pst_field *fields, size_t *total)
{
    size_t at = feed->layout.bytes; /* header, id, key, valid and what is dense */
    const size_t slots = (size_t)block->slots;
    for (int i = 0; i < feed->outputs; i++) {
        pst_field *field = &fields[i];
        if (field->packing == PST_DENSE)
            continue;
        if (field->packing == PST_PADDED)
            largest_shape(block, i, field);
        size_t bytes;
        if (!size_of(block, i, field, &bytes) || bytes > SIZE_MAX / 4 - at)
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
    *total = at;
    return 0;
}

/* Copies a packed box of `shape` into the corner of a zeroed box of `outer`. */
static void copy_box(uint8_t *dst, const uint8_t *src, const int64_t *outer, const int64_t *shape,
                     int rank, size_t unit)
{
    if (rank == 0) {
        memcpy(dst, src, unit);
        return;
    }
    size_t dst_step = unit, src_step = unit;
    for (int d = 1; d < rank; d++) {
        dst_step *= (size_t)outer[d];
        src_step *= (size_t)shape[d];
    }
    if (dst_step == src_step) {
        memcpy(dst, src, src_step * (size_t)shape[0]);
        return;
    }
    for (int64_t i = 0; i < shape[0]; i++)
        copy_box(dst + (size_t)i * dst_step, src + (size_t)i * src_step, outer + 1, shape + 1,
                 rank - 1, unit);
}

static void write_field(pst_batch *block, int output, const pst_field *field)
{
    int64_t *shapes = (int64_t *)(block->base + field->shapes_offset);
    int64_t *offsets = (int64_t *)(block->base + field->offsets_offset);
    uint8_t *data = block->base + field->data_offset;
    const size_t unit = psti_dtype_bytes(field->dtype);
    size_t at = 0;
    for (int i = 0; i < block->slots; i++) {
        const record *rec = block->records[i];
        const uint8_t *src = rec->data.data + rec->offset[output];
        if (field->packing != PST_DENSE)
            memcpy(shapes + i * field->rank, rec->shape[output],
                   (size_t)field->rank * sizeof *shapes);
        if (field->packing == PST_PADDED) {
            copy_box(data + (size_t)i * field->slot_bytes, src, field->shape, rec->shape[output],
                     field->rank, unit);
            continue;
        }
        memcpy(data + at, src, rec->bytes[output]);
        if (field->packing == PST_RAGGED)
            offsets[i] = (int64_t)at;
        at += rec->bytes[output];
    }
    if (field->packing == PST_RAGGED)
        offsets[block->slots] = (int64_t)at;
}

int gather_seal(pst_batch *block, psti_feed *feed, pst_error *err)
{
    pst_field fields[PSTI_OUTPUTS_MAX + EXTRA_FIELDS];
    memcpy(fields, feed->layout.field, sizeof fields);
    size_t total;
    if (place_fields(block, feed, fields, &total) < 0)
        return psti_fail(err, PST_ELIMIT, "batch", NULL, "a batch of these samples is too large");
    if (block_pages(block, total, false) < 0)
        return psti_fail(err, -ENOMEM, "batch", NULL, "no memory for a batch of %.1f MiB",
                         (double)total / 0x1p20);
    for (int i = 0; i < feed->outputs; i++)
        write_field(block, i, &fields[i]);
    block_seal(block, feed, fields);
    return 0;
}
