/* SPDX-License-Identifier: Apache-2.0
 * Batch blocks: where fields lie in a batch, taking and giving back blocks, sealing a finished one.
 * A block is written by workers while it fills, then only read. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sched/sched_priv.h"

enum { ALIGN = 64 };

static size_t align_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void describe(pst_field *field, const char *name, int kind, int dtype, int layout_kind,
                     int rank, const int64_t *shape)
{
    memset(field, 0, sizeof *field);
    snprintf(field->name, sizeof field->name, "%s", name);
    field->kind = (uint8_t)kind;
    field->dtype = (uint8_t)dtype;
    field->layout = (uint8_t)layout_kind;
    field->packing = PST_DENSE;
    field->rank = (uint8_t)rank;
    for (int i = 0; i < rank; i++)
        field->shape[i] = shape[i];
}

/* Bytes of one slot; false when the shape is not known or overflows. */
static bool slot_bytes(const pst_field *field, size_t *out)
{
    size_t bytes = psti_dtype_bytes(field->dtype);
    for (int i = 0; i < field->rank; i++)
        if (field->shape[i] < 0 || !psti_mul(bytes, (size_t)field->shape[i], &bytes))
            return false;
    *out = bytes;
    return true;
}

static int place_dense(pst_field *field, size_t batch, size_t *at, pst_error *err)
{
    size_t bytes, total;
    if (!slot_bytes(field, &bytes) || !psti_mul(bytes, batch, &total) || total > SIZE_MAX / 4)
        return psti_fail(err, PST_ELIMIT, "batch", NULL, "field %s is too large for one batch",
                         field->name);
    field->slot_bytes = bytes;
    field->data_offset = *at;
    field->data_bytes = total;
    *at += align_up(total);
    return 0;
}

static void place_key(pst_field *field, size_t batch, size_t key_max, size_t *at)
{
    const int64_t varies = -1;
    describe(field, "key", PST_TEXT, PST_U8, PST_LAYOUT_NONE, 1, &varies);
    field->packing = PST_RAGGED;
    field->shapes_offset = *at;
    *at += align_up(batch * sizeof(int64_t));
    field->offsets_offset = *at;
    *at += align_up((batch + 1) * sizeof(int64_t));
    field->data_offset = *at;
    field->data_bytes = batch * key_max;
    *at += align_up(batch * key_max + 1);
}

/* The outputs as asked for; says whether all are dense. */
static int describe_outputs(psti_feed *feed, layout *l, pst_error *err)
{
    l->dense = true;
    for (int i = 0; i < feed->outputs; i++) {
        const psti_plan_output *o = &feed->out[i];
        pst_field *field = &l->field[i];
        describe(field, o->name, o->kind, o->dtype, o->layout, o->rank, o->shape);
        size_t bytes;
        const bool known = slot_bytes(field, &bytes);
        const int want = feed->spec.fields[o->input].packing;
        if (want == PST_DENSE && !known)
            return psti_fail(
                err, PST_EFIELD, "batch", o->name,
                "the pipeline does not give this field one shape, so it cannot be dense; resize or "
                "crop it, or ask for padded or ragged");
        field->packing = (uint8_t)(want ? want : known ? PST_DENSE : PST_RAGGED);
        if (o->mixed && field->packing != PST_DENSE)
            return psti_fail(err, PST_EFIELD, "batch", o->name,
                             "the pipeline's batch op mixes this field, so it must be dense: do "
                             "not ask for padded or ragged");
        if (field->packing != PST_DENSE)
            l->dense = false;
    }
    return 0;
}

int layout_make(psti_feed *feed, layout *l, pst_error *err)
{
    memset(l, 0, sizeof *l);
    const int outputs = feed->outputs;
    const size_t batch = (size_t)feed->spec.batch;
    int rc = describe_outputs(feed, l, err);
    if (rc < 0)
        return rc;
    l->fields = outputs + ALWAYS_FIELDS + (feed->group != NULL);
    size_t at = align_up(sizeof(pst_batch_desc) + (size_t)l->fields * sizeof(pst_field));
    describe(&l->field[outputs], "id", PST_META, PST_I64, PST_LAYOUT_NONE, 0, NULL);
    describe(&l->field[outputs + 2], "valid", PST_META, PST_BOOL, PST_LAYOUT_NONE, 0, NULL);
    if ((rc = place_dense(&l->field[outputs], batch, &at, err)) < 0)
        return rc;
    if (feed->group) {
        describe(&l->field[outputs + 3], "preparation", PST_META, PST_I64, PST_LAYOUT_NONE, 0,
                 NULL);
        if ((rc = place_dense(&l->field[outputs + 3], batch, &at, err)) < 0)
            return rc;
    }
    place_key(&l->field[outputs + 1], batch, psti_dataset_key_max(feed->spec.data), &at);
    if ((rc = place_dense(&l->field[outputs + 2], batch, &at, err)) < 0)
        return rc;
    for (int i = 0; i < outputs; i++)
        if (l->field[i].packing == PST_DENSE &&
            (rc = place_dense(&l->field[i], batch, &at, err)) < 0)
            return rc;
    l->bytes = at;
    return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int block_arrays(pst_batch *block, const psti_feed *feed)
{
    const size_t batch = (size_t)feed->spec.batch;
    block->ids = psti_calloc(PSTI_MEM_BATCH, batch, sizeof *block->ids);
    block->positions = psti_calloc(PSTI_MEM_BATCH, batch, sizeof *block->positions);
    block->starts = psti_calloc(PSTI_MEM_BATCH, batch, sizeof *block->starts);
    block->numbers = psti_calloc(PSTI_MEM_BATCH, batch, sizeof *block->numbers);
    block->valid = psti_calloc(PSTI_MEM_BATCH, batch, 1);
    if (!feed->layout.dense)
        block->records = psti_calloc(PSTI_MEM_BATCH, batch, sizeof *block->records);
    const bool ok = block->ids && block->positions && block->starts && block->valid &&
                    block->numbers && (feed->layout.dense || block->records);
    return ok ? 0 : -ENOMEM;
}

/* Pages for a batch of one shape, from the feed's owner if he has some. kept: as long as the feed.
 */
static int ring_pages(pst_batch *block, size_t bytes, bool kept)
{
    const psti_feed_hooks *hooks = &block->ring->hooks;
    block->base = hooks->take ? hooks->take(hooks->user, bytes, kept)
                              : psti_pages_alloc(PSTI_MEM_BATCH, bytes);
    if (!block->base)
        return -ENOMEM;
    block->bytes = block->cap = bytes;
    return 0;
}

static pst_batch *block_new(psti_feed *feed, size_t bytes, bool charged)
{
    pst_batch *block = psti_calloc(PSTI_MEM_BATCH, 1, sizeof *block);
    if (!block)
        return NULL;
    block->ring = feed->ring;
    if (block_arrays(block, feed) < 0)
        goto fail;
    block->charged = charged;
    if (bytes && ring_pages(block, bytes, charged) < 0)
        goto fail;
    return block;
fail:
    block_free(block);
    return NULL;
}

void block_free(pst_batch *block)
{
    if (!block)
        return;
    pages_give(&block->ring->hooks, &(pages){block->base, block->cap, true});
    psti_free(block->ids);
    psti_free(block->positions);
    psti_free(block->starts);
    psti_free(block->numbers);
    psti_free(block->valid);
    psti_free(block->records);
    psti_free(block);
}

/* A new block: one of the ring while that may grow, else one that goes when it comes back. */
static pst_batch *block_add_locked(psti_feed *feed)
{
    const bool charged = feed->blocks < feed->blocks_max;
    pst_batch *block = block_new(feed, feed->layout.dense ? feed->layout.bytes : 0, charged);
    if (!block)
        return NULL;
    if (block->charged && feed->layout.dense)
        feed->members[feed->blocks] = block;
    feed->blocks += block->charged;
    return block;
}

int block_ring_locked(psti_feed *feed)
{
    while (feed->layout.dense && feed->blocks < feed->blocks_max) {
        pst_batch *block = block_add_locked(feed);
        if (!block)
            return -ENOMEM;
        block->state = BLOCK_FREE;
        block->next = feed->free_blocks;
        feed->free_blocks = block;
    }
    return 0;
}

/* What the consumer holds is missing from the ring, so less is prepared ahead; but two batches are
 * always under way, in fresh memory if need be, however many it keeps. */
int64_t block_samples_max_locked(const psti_feed *feed)
{
    const int open = feed->way == FIXED ? 0 : 1;
    const int least = feed->depth > 1 ? 2 : feed->depth + 1;
    int batches = feed->blocks_max - feed->leased - open;
    batches = batches > feed->depth + 1 ? feed->depth + 1 : batches < least ? least : batches;
    return (int64_t)batches * feed->spec.batch;
}

/* A block to fill: a free one, or a new one. A consumer that keeps batches never waits for them:
 * when the ring is out, fresh memory is taken, and freed when it comes back. */
pst_batch *block_take_locked(psti_feed *feed, run *r, int64_t step, int slots)
{
    pst_batch *block = feed->free_blocks;
    if (block) {
        feed->free_blocks = block->next;
    } else {
        block = block_add_locked(feed);
        if (!block)
            return NULL;
        feed->fresh += feed->layout.dense && !block->charged;
    }
    block->next = NULL;
    block->state = BLOCK_FILLING;
    block->run = r;
    r->refs++;
    block->step = step;
    block->slots = slots;
    block->placed = block->filled = 0;
    block->gathered = 0;
    block->share_end = 0;
    block->error.code = 0;
    block->error_slot = -1;
    trace_batch_locked(block, PSTI_TRACE_BEGUN, 0);
    return block;
}

void block_drop_locked(psti_feed *feed, pst_batch *block)
{
    if (block->state == BLOCK_READY && !feed->layout.dense)
        feed->pool->staged -= block->cap;
    if (block->run) {
        run *r = block->run;
        trace_batch_locked(block, PSTI_TRACE_DROPPED, 0);
        for (int i = 0; r->cancelled && i < block->placed; i++)
            window_done_locked(feed, block->starts[i]);
        block->run = NULL;
        run_unref_locked(r);
    }
    for (int i = 0; block->records && i < feed->spec.batch; i++) {
        if (block->records[i])
            record_drop_locked(feed, block->records[i]);
        block->records[i] = NULL;
    }
    feed->leased -= block->state == BLOCK_LEASED;
    block->state = BLOCK_FREE;
    if (feed->layout.dense && block->charged && !feed->closing) {
        block->next = feed->free_blocks;
        feed->free_blocks = block;
        return;
    }
    if (block->charged)
        feed->blocks--;
    if (!feed->layout.dense) {
        pages_keep_locked(feed, &(pages){block->base, block->cap, true});
        block->base = NULL;
    }
    block_free(block);
}

uint8_t *block_slot(const pst_batch *block, const layout *l, int output, int slot)
{
    const pst_field *field = &l->field[output];
    return block->base + field->data_offset + (size_t)slot * field->slot_bytes;
}

/* ---- sealing: header, ids, keys, valid ----------------------------------------------------------
 */

/* Returns the bytes of all keys. */
static size_t seal_keys(pst_batch *block, const psti_feed *feed, const pst_field *field)
{
    int64_t *lengths = (int64_t *)(block->base + field->shapes_offset);
    int64_t *offsets = (int64_t *)(block->base + field->offsets_offset);
    uint8_t *data = block->base + field->data_offset;
    size_t at = 0;
    for (int i = 0; i < block->slots; i++) {
        char room[PSTI_KEY_ROOM];
        size_t len;
        const char *key = psti_dataset_key_in(feed->spec.data, block->ids[i], room, &len);
        memcpy(data + at, key, len);
        lengths[i] = (int64_t)len;
        offsets[i] = (int64_t)at;
        at += len;
    }
    offsets[block->slots] = (int64_t)at;
    return at;
}

void block_seal(pst_batch *block, const psti_feed *feed, const pst_field *given)
{
    pst_batch_desc *desc = (pst_batch_desc *)block->base;
    const int outputs = feed->outputs;
    const uint32_t slots = (uint32_t)block->slots;
    const size_t field_bytes = (size_t)feed->layout.fields * sizeof *given;
    pst_field fields[PSTI_OUTPUTS_MAX + EXTRA_FIELDS];
    memcpy(fields, given ? given : feed->layout.field, field_bytes);
    for (int i = 0; i < feed->layout.fields; i++)
        if (fields[i].slot_bytes)
            fields[i].data_bytes = fields[i].slot_bytes * slots;
    memcpy(block->base + fields[outputs].data_offset, block->ids, slots * sizeof *block->ids);
    memcpy(block->base + fields[outputs + 2].data_offset, block->valid, slots);
    if (feed->group)
        memcpy(block->base + fields[outputs + 3].data_offset, block->numbers,
               slots * sizeof *block->numbers);
    fields[outputs + 1].data_bytes = seal_keys(block, feed, &fields[outputs + 1]);
    memcpy(block->base + sizeof *desc, fields, field_bytes);
    uint32_t valid = 0;
    for (uint32_t i = 0; i < slots; i++)
        valid += block->valid[i];
    *desc = (pst_batch_desc){
        .magic = PST_BATCH_MAGIC,
        .version = PST_BATCH_VERSION,
        .header_bytes = sizeof *desc,
        .field_bytes = sizeof *fields,
        .fields = (uint32_t)feed->layout.fields,
        .slots = slots,
        .valid_slots = valid,
        .rank = (uint32_t)feed->spec.rank,
        .world = (uint32_t)feed->spec.world,
        .epoch = block->run->number,
        .step = (uint64_t)(block->run->first_step + block->step),
        .total_bytes = block->bytes,
        .mix = {.lam = 1},
    };
}

/* ---- what outlives the feed
 * ------------------------------------------------------------------------ */

int ring_new(psti_feed *feed, ring **out)
{
    ring *r = psti_calloc(PSTI_MEM_BATCH, 1, sizeof *r);
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    r->feed = feed;
    r->hooks = feed->spec.hooks;
    r->pid = getpid();
    atomic_init(&r->refs, 1);
    *out = r;
    return 0;
}

void ring_unref(ring *r)
{
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&r->lock);
    psti_free(r);
}

void ring_detach(ring *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->feed = NULL;
    pthread_mutex_unlock(&r->lock);
}

const pst_batch_desc *psti_batch_desc(const pst_batch *batch)
{
    return (const pst_batch_desc *)batch->base;
}

void psti_batch_release(pst_batch *batch)
{
    ring *r = batch->ring;
    if (!r) { /* of no feed, see single.c */
        if (batch->release)
            batch->release(batch->user, batch->base, batch->bytes);
        psti_free(batch);
        return;
    }
    if (r->pid != getpid())
        return;
    pthread_mutex_lock(&r->lock);
    psti_feed *feed = r->feed;
    if (feed) {
        pthread_mutex_lock(&feed->pool->lock);
        block_drop_locked(feed, batch);
        pool_pump_unlock(feed->pool); /* which r->lock keeps from going */
    } else {
        block_free(batch);
    }
    pthread_mutex_unlock(&r->lock);
    ring_unref(r);
}
