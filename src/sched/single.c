/* SPDX-License-Identifier: Apache-2.0
 * A batch of one sample that belongs to no feed: what a prep gives out. Laid out as a job's batch
 * is, in one piece of ordinary memory; always dense, since one sample has one shape. Caller's
 * thread; no lock, no global. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sched/sched_priv.h"

enum { ALIGN = 64 };

static size_t align_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

typedef struct sketch {
    pst_field field[PSTI_OUTPUTS_MAX + EXTRA_FIELDS];
    uint32_t fields;
    size_t bytes;
} sketch;

static pst_field *add_field(sketch *s, const char *name, int kind, int dtype, size_t bytes)
{
    pst_field *field = &s->field[s->fields++];
    memset(field, 0, sizeof *field);
    snprintf(field->name, sizeof field->name, "%s", name);
    field->kind = (uint8_t)kind;
    field->dtype = (uint8_t)dtype;
    field->packing = PST_DENSE;
    field->data_bytes = field->slot_bytes = bytes;
    return field;
}

/* Gives every field its place behind the header. */
static void place(sketch *s)
{
    size_t at = align_up(sizeof(pst_batch_desc) + s->fields * sizeof(pst_field));
    for (uint32_t i = 0; i < s->fields; i++) {
        pst_field *field = &s->field[i];
        if (field->packing == PST_RAGGED) { /* the key */
            field->shapes_offset = at;
            field->offsets_offset = at + ALIGN;
            at += 2 * ALIGN;
        }
        field->data_offset = at;
        at += align_up(field->data_bytes);
    }
    s->bytes = at;
}

static void draw(const psti_single *from, sketch *s)
{
    const psti_plan_output *out;
    const int count = psti_plan_outputs(from->plan, &out);
    s->fields = 0;
    for (int i = 0; i < count; i++) {
        int64_t shape[PST_MAX_RANK] = {0};
        const size_t bytes = psti_work_shape(from->work, i, shape);
        pst_field *field = add_field(s, out[i].name, out[i].kind, out[i].dtype, bytes);
        field->layout = (uint8_t)out[i].layout;
        field->rank = (uint8_t)out[i].rank;
        memcpy(field->shape, shape, sizeof field->shape);
    }
    add_field(s, "id", PST_META, PST_I64, sizeof(int64_t));
    pst_field *key = add_field(s, "key", PST_TEXT, PST_U8, strlen(from->key));
    key->packing = PST_RAGGED;
    key->slot_bytes = 0;
    key->rank = 1;
    key->shape[0] = -1;
    add_field(s, "valid", PST_META, PST_BOOL, 1);
    place(s);
}

static void write_batch(const psti_single *from, const sketch *s, uint8_t *base)
{
    const int outputs = (int)s->fields - ALWAYS_FIELDS;
    const pst_field *id = &s->field[outputs], *key = id + 1, *valid = id + 2;
    memset(base, 0, s->field[0].data_offset);
    *(pst_batch_desc *)base = (pst_batch_desc){
        .magic = PST_BATCH_MAGIC,
        .version = PST_BATCH_VERSION,
        .header_bytes = sizeof(pst_batch_desc),
        .field_bytes = sizeof(pst_field),
        .fields = s->fields,
        .slots = 1,
        .valid_slots = 1,
        .world = 1,
        .epoch = from->epoch,
        .total_bytes = s->bytes,
        .mix = {.lam = 1},
    };
    memcpy(base + sizeof(pst_batch_desc), s->field, s->fields * sizeof *s->field);
    for (int i = 0; i < outputs; i++)
        psti_work_finish(from->work, from->kit, i, base + s->field[i].data_offset);
    memcpy(base + id->data_offset, &from->id, sizeof from->id);
    const int64_t length = (int64_t)key->data_bytes, offsets[2] = {0, length};
    memcpy(base + key->shapes_offset, &length, sizeof length);
    memcpy(base + key->offsets_offset, offsets, sizeof offsets);
    memcpy(base + key->data_offset, from->key, key->data_bytes);
    base[valid->data_offset] = 1;
}

int psti_batch_single(const psti_single *from, pst_batch **out, pst_error *err)
{
    sketch s;
    draw(from, &s);
    const size_t head = align_up(sizeof(pst_batch));
    char *memory = psti_malloc(PSTI_MEM_BATCH, head + ALIGN + s.bytes);
    if (!memory)
        return psti_fail(err, -ENOMEM, "batch", NULL, "no memory for a sample of %.1f MiB",
                         (double)s.bytes / 0x1p20);
    pst_batch *batch = (pst_batch *)memory;
    memset(batch, 0, sizeof *batch);
    batch->base = (uint8_t *)align_up((uintptr_t)memory + head);
    batch->bytes = s.bytes;
    write_batch(from, &s, batch->base);
    *out = batch;
    return 0;
}
