/* SPDX-License-Identifier: Apache-2.0
 * What single samples cost: reading, the way from encoded bytes to the augmented form with as
 * little decoding as the draw needs, decoding whole and keeping, the way from a kept picture,
 * keeping an augmented one, finish. The same work that the engine's workers do, with the same
 * stages; only the clock differs. Caller's thread, no lock. */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "engine/engine_priv.h"
#include "engine/probe.h"

enum {
    KEEP = 4 << 20,   /* bytes that work and kit may hold between samples, as a worker's */
    STORE = 128 << 20 /* for kept pictures of a group; more where one sample alone is larger */
};

/* A sample's pictures in decoded form, in the store. */
typedef struct kept {
    psti_decoded picture[PSTI_FIELDS_MAX];
} kept;

struct probe {
    psti_dataset *data;
    const field_choice *choice;
    const psti_plan *plan;
    uint64_t seed;
    psti_work *work;
    psti_kit kit;
    bool kit_up;
    psti_fetch *fetch; /* of a dataset that fetches */
    psti_buf bytes[PSTI_FIELDS_MAX], store;
    uint8_t *ring; /* pages as those of batches */
    size_t ring_bytes, ring_at, store_at;
    psti_input inputs[PSTI_FIELDS_MAX];
    kept kept[PROBE_GROUP];
};

int probe_new(psti_dataset *data, const field_choice *choice, const psti_plan *plan, uint64_t seed,
              size_t ring, probe **out)
{
    probe *p = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (probe){.data = data, .choice = choice, .plan = plan, .seed = seed, .ring_bytes = ring};
    p->work = psti_work_new();
    p->kit_up = p->work && psti_kit_init(&p->kit) == 0;
    if (psti_dataset_fetches(data))
        p->fetch = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *p->fetch);
    if (!p->kit_up || (psti_dataset_fetches(data) && !p->fetch) ||
        !(p->ring = psti_pages_alloc(PSTI_MEM_ENGINE, ring))) {
        probe_free(p);
        return -ENOMEM;
    }
    memset(p->ring, 0, ring); /* its pages are there before the clock runs */
    *out = p;
    return 0;
}

void probe_free(probe *p)
{
    if (!p)
        return;
    if (p->fetch)
        psti_fetch_clear(p->fetch);
    psti_free(p->fetch);
    psti_work_free(p->work);
    if (p->kit_up)
        psti_kit_fini(&p->kit);
    for (int i = 0; i < PSTI_FIELDS_MAX; i++)
        psti_buf_free(&p->bytes[i]);
    if (p->ring)
        psti_pages_free(PSTI_MEM_ENGINE, p->ring, p->ring_bytes);
    psti_buf_free(&p->store);
    psti_free(p);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_member(probe *p, int64_t id, int i, probe_cost *c)
{
    psti_extent at;
    int rc = psti_dataset_extent(p->data, id, p->choice->field[i].source, &at);
    if (rc == -ENOENT)
        return 0; /* start says whether it can be done without */
    if (rc == 0)
        rc = psti_buf_need(PSTI_MEM_ENGINE, &p->bytes[i], (size_t)at.length);
    if (rc == 0)
        rc = psti_dataset_read_now(p->data, id, p->choice->field[i].source, at.length,
                                   p->bytes[i].data);
    if (rc < 0)
        return rc;
    p->inputs[i] = (psti_input){p->bytes[i].data, (size_t)at.length, -1};
    c->encoded += (double)at.length;
    return 0;
}

static int fetch_all(probe *p, int64_t id, probe_cost *c)
{
    psti_fetch_clear(p->fetch);
    p->fetch->id = id;
    const int rc = psti_fetch_now(p->data, p->fetch);
    const psti_source_field *fields;
    psti_dataset_fields(p->data, &fields);
    for (int i = 0; rc == 0 && i < p->choice->count; i++) {
        const psti_part *part = &p->fetch->sink.part[p->choice->field[i].source];
        if (!part->there || !fields[p->choice->field[i].source].member)
            continue;
        p->inputs[i] = (psti_input){part->bytes, part->size, -1};
        c->encoded += (double)part->size;
    }
    return rc;
}

/* What of the manifest the plan works on. */
static void take_values(probe *p, int64_t id, const psti_source_field *fields)
{
    for (int i = 0; i < p->choice->count; i++) {
        const psti_feed_field *field = &p->choice->field[i];
        const void *value;
        size_t bytes;
        if ((fields[field->source].per_object || field->hidden) &&
            psti_dataset_value(p->data, id, field->source, &value, &bytes) == 0)
            p->inputs[i] = (psti_input){value, bytes, -1};
    }
}

static int read_sample(probe *p, int64_t id, probe_cost *c)
{
    const psti_source_field *fields;
    psti_dataset_fields(p->data, &fields);
    c->encoded = 0;
    for (int i = 0; i < p->choice->count; i++)
        p->inputs[i] = (psti_input){NULL, 0, -1};
    take_values(p, id, fields);
    if (p->fetch)
        return fetch_all(p, id, c);
    int rc = psti_dataset_look(p->data, id);
    for (int i = 0; rc == 0 && i < p->choice->count; i++)
        if (fields[p->choice->field[i].source].member)
            rc = read_member(p, id, i, c);
    return rc;
}

/* ---- preparing ------------------------------------------------------------------------------- */

static psti_rng_key key_of(const probe *p, int64_t id, uint64_t epoch)
{
    return (psti_rng_key){.seed = p->seed, .epoch = epoch, .id = (uint64_t)id};
}

/* What a worker does once a sample is placed: memory beyond what it may keep is given back. */
static double clear(probe *p)
{
    const double since = psti_cpu_s();
    psti_work_clear(p->work, &p->kit, KEEP);
    return psti_cpu_s() - since;
}

static int steps(probe *p, bool decoded_only)
{
    int rc = 1;
    while (rc > 0 && !(decoded_only && psti_work_at_decoded(p->work)))
        rc = psti_work_step(p->work, &p->kit, NULL);
    return rc < 0 ? rc : 0;
}

/* Outputs larger than the ring, whole volumes, get one that they fit into. */
static void ring_grow(probe *p, size_t bytes)
{
    uint8_t *larger = psti_pages_alloc(PSTI_MEM_ENGINE, bytes);
    if (!larger)
        return;
    memset(larger, 0, bytes);
    psti_pages_free(PSTI_MEM_ENGINE, p->ring, p->ring_bytes);
    p->ring = larger;
    p->ring_bytes = bytes;
    p->ring_at = 0;
}

static uint8_t *ring_take(probe *p, size_t bytes)
{
    if (bytes > p->ring_bytes)
        return NULL;
    if (p->ring_at + bytes > p->ring_bytes)
        p->ring_at = 0;
    uint8_t *at = p->ring + p->ring_at;
    p->ring_at += (bytes + 63) & ~(size_t)63;
    return at;
}

/* What a cache would copy of a sample that is ready for finish. */
static void keep_augmented(probe *p, probe_cost *c)
{
    const psti_plan_output *outputs;
    const int count = psti_plan_outputs(p->plan, &outputs);
    const double since = psti_cpu_s();
    for (int i = 0; i < count; i++) {
        const psti_field *field = psti_work_field(p->work, i);
        if (!p->inputs[outputs[i].input].bytes || !field || !field->data)
            continue;
        psti_field copy = *field;
        if (outputs[i].picture >= 0)
            psti_field_pack(&copy); /* it may be a view */
        copy.data = ring_take(p, copy.bytes);
        if (copy.data && outputs[i].picture >= 0)
            psti_field_copy(field, &copy);
        else if (copy.data)
            memcpy(copy.data, field->data, copy.bytes);
        c->augmented += (double)copy.bytes;
    }
    c->keep_s = psti_cpu_s() - since;
}

static void finish(probe *p, probe_cost *c)
{
    const psti_plan_output *outputs;
    const int count = psti_plan_outputs(p->plan, &outputs);
    const double since = psti_cpu_s();
    for (int i = 0; i < count; i++) {
        int64_t shape[PST_MAX_RANK];
        if (!p->inputs[outputs[i].input].bytes)
            continue;
        const size_t bytes = psti_work_shape(p->work, i, shape);
        uint8_t *to = ring_take(p, bytes);
        if (to)
            psti_work_finish(p->work, &p->kit, i, to);
        c->out += (double)bytes;
    }
    c->finish_s = psti_cpu_s() - since;
}

/* Before the clock runs. */
static void ring_for(probe *p)
{
    const psti_plan_output *outputs;
    const int count = psti_plan_outputs(p->plan, &outputs);
    for (int i = 0; i < count; i++) {
        int64_t shape[PST_MAX_RANK];
        if (!p->inputs[outputs[i].input].bytes)
            continue;
        const size_t bytes = psti_work_shape(p->work, i, shape);
        if (bytes > p->ring_bytes)
            ring_grow(p, bytes);
    }
}

static void from_encoded(probe *p, int64_t id, uint64_t epoch, probe_cost *c)
{
    const psti_rng_key key = key_of(p, id, epoch);
    double since = psti_cpu_s();
    c->rc = read_sample(p, id, c);
    c->read_s = psti_cpu_s() - since;
    if (c->rc < 0)
        return;
    since = psti_cpu_s();
    psti_work_set_id(p->work, id);
    c->rc = psti_work_start(p->work, &p->kit, p->plan, &key, p->inputs, NULL);
    if (c->rc == 0)
        c->rc = steps(p, false);
    c->crop_s = psti_cpu_s() - since;
    if (c->rc == 0) {
        ring_for(p);
        finish(p, c);
        keep_augmented(p, c);
    }
    c->crop_s += clear(p);
}

/* ---- by way of the decoded form -------------------------------------------------------------- */

/* Room for all that the decoded stages make of a sample; the first one of a group always has it. */
static int store_room(probe *p)
{
    const int count = psti_plan_decoded_pictures(p->plan);
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        psti_field field = psti_work_decoded(p->work, i).field;
        psti_field_pack(&field);
        bytes += field.bytes + 128;
    }
    if (bytes <= p->store.cap - p->store_at)
        return 0;
    return p->store_at ? -ENOSPC : psti_buf_need(PSTI_MEM_ENGINE, &p->store, bytes);
}

/* Copies what the decoded stages made into the store. */
static int keep_decoded(probe *p, kept *k, probe_cost *c)
{
    const int count = psti_plan_decoded_pictures(p->plan);
    const int rc = store_room(p);
    if (rc < 0)
        return rc;
    for (int i = 0; i < count; i++) {
        const psti_decoded made = psti_work_decoded(p->work, i);
        k->picture[i] = made;
        psti_field *field = &k->picture[i].field;
        psti_field_pack(field);
        field->data = p->store.data + p->store_at;
        psti_field_copy(&made.field, field);
        p->store_at += (field->bytes + 127) & ~(size_t)63;
        c->decoded += (double)field->bytes;
    }
    return 0;
}

static void make_decoded(probe *p, int64_t id, uint64_t epoch, kept *k, probe_cost *c)
{
    const psti_rng_key key = key_of(p, id, epoch);
    probe_cost ignored = {0};
    if (c->rc < 0 || read_sample(p, id, &ignored) < 0)
        return;
    const double since = psti_cpu_s();
    psti_work_set_id(p->work, id);
    int rc = psti_work_start(p->work, &p->kit, p->plan, &key, p->inputs, NULL);
    if (rc == 0)
        rc = psti_work_whole(p->work, &p->kit, true, NULL);
    if (rc >= 0)
        rc = steps(p, true);
    if (rc >= 0 && psti_work_sound(p->work))
        rc = keep_decoded(p, k, c);
    if (rc < 0)
        c->decoded = 0;
    c->full_s = psti_cpu_s() - since;
    clear(p); /* the way from there, which follows in an engine, has it */
}

static void from_decoded(probe *p, int64_t id, uint64_t epoch, const kept *k, probe_cost *c)
{
    const psti_rng_key key = key_of(p, id, epoch);
    const double since = psti_cpu_s();
    psti_work_set_id(p->work, id);
    int rc = psti_work_start_decoded(p->work, &p->kit, p->plan, &key, p->inputs, k->picture, NULL);
    if (rc == 0)
        rc = steps(p, false);
    if (rc < 0)
        c->decoded = 0;
    clear(p);
    c->augment_s = psti_cpu_s() - since;
}

/* ---- a group --------------------------------------------------------------------------------- */

void probe_run(probe *p, const int64_t *ids, int count, uint64_t epoch, probe_cost *out)
{
    memset(out, 0, (size_t)count * sizeof *out);
    for (int i = 0; i < count; i++)
        from_encoded(p, ids[i], epoch, &out[i]);
    if (!psti_plan_decoded_pictures(p->plan) ||
        psti_buf_need(PSTI_MEM_ENGINE, &p->store, STORE) < 0)
        return;
    p->store_at = 0;
    for (int i = 0; i < count; i++)
        make_decoded(p, ids[i], epoch, &p->kept[i], &out[i]);
    for (int i = 0; i < count; i++)
        if (out[i].rc == 0 && out[i].decoded > 0)
            from_decoded(p, ids[i], epoch, &p->kept[i], &out[i]);
}
