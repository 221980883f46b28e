/* SPDX-License-Identifier: Apache-2.0
 * Options to bytes and back: numbers in one fixed struct, then texts and arrays, each with its
 * length in the struct. No state, any thread. */
#include "serve/spec.h"

#include <errno.h>
#include <string.h>

#include "core/memory.h"

/* Part of the protocol: a change needs another WIRE_VERSION. */
typedef struct fixed {
    uint64_t seed, first_epoch, epochs;
    int64_t draws, skip_limit, reorder_window, draw_id;
    int64_t ids_count, weights_count; /* -1: none */
    int32_t batch, order, ends, rank, world, sampler, repeat, on_error, read_retries, ready_depth;
    int32_t leave_mix, raw_finish, leases, no_cache, sampling, schedule, without;
    /* Bytes with the terminator; 0: none. */
    uint32_t pipeline, split, fields, group, name, path;
    uint32_t bucket_by; /* was 0 before it was known */
    int32_t run, zero;  /* the second one: so that no bytes are left out */
} fixed;

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static fixed numbers_of(const job_spec *s)
{
    const pst_job_options *o = &s->options;
    return (fixed){
        .seed = o->seed,
        .first_epoch = o->first_epoch,
        .epochs = o->epochs,
        .draws = o->draws,
        .skip_limit = o->skip_limit,
        .reorder_window = o->reorder_window,
        .draw_id = o->draw_id,
        .ids_count = o->ids ? o->ids_count : -1,
        .weights_count = o->weights ? o->weights_count : -1,
        .batch = o->batch,
        .order = o->order,
        .ends = o->ends,
        .rank = o->rank,
        .world = o->world,
        .sampler = o->sampler,
        .repeat = o->repeat,
        .on_error = o->on_error,
        .read_retries = o->read_retries,
        .ready_depth = o->ready_depth,
        .leave_mix = o->leave_mix,
        .raw_finish = o->raw_finish,
        .leases = o->leases,
        .no_cache = o->no_cache,
        .sampling = o->sampling,
        .schedule = o->schedule,
        .without = o->without,
        .pipeline = (uint32_t)text_bytes(o->pipeline),
        .split = (uint32_t)text_bytes(o->split),
        .fields = (uint32_t)text_bytes(o->fields),
        .group = (uint32_t)text_bytes(o->group),
        .name = (uint32_t)text_bytes(s->name),
        .path = (uint32_t)text_bytes(s->path),
        .bucket_by = (uint32_t)text_bytes(o->bucket_by),
        .run = o->run,
    };
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t size)
{
    if (size)
        memcpy(at, bytes, size);
    return at + size;
}

int spec_encode(job_spec *s)
{
    const pst_job_options *o = &s->options;
    const fixed f = numbers_of(s);
    const size_t ids = f.ids_count > 0 ? (size_t)f.ids_count * sizeof *o->ids : 0;
    const size_t weights = f.weights_count > 0 ? (size_t)f.weights_count * sizeof *o->weights : 0;
    s->size = sizeof f + ids + weights + f.pipeline + f.split + f.fields + f.group + f.name +
              f.path + f.bucket_by;
    s->bytes = psti_malloc(PSTI_MEM_SERVE, s->size);
    if (!s->bytes)
        return -ENOMEM;
    uint8_t *at = put(s->bytes, &f, sizeof f);
    at = put(at, o->ids, ids); /* arrays first: they are aligned there */
    at = put(at, o->weights, weights);
    at = put(at, o->pipeline, f.pipeline);
    at = put(at, o->split, f.split);
    at = put(at, o->fields, f.fields);
    at = put(at, o->group, f.group);
    at = put(at, s->name, f.name);
    at = put(at, s->path, f.path);
    put(at, o->bucket_by, f.bucket_by);
    return 0;
}

/* ---- back ------------------------------------------------------------------------------------ */

typedef struct cursor {
    const uint8_t *at;
    size_t left;
    int bad;
} cursor;

static const void *take(cursor *c, uint64_t count, size_t size)
{
    size_t bytes;
    if (c->bad || !psti_mul((size_t)count, size, &bytes) || bytes > c->left) {
        c->bad = 1;
        return NULL;
    }
    const void *here = c->at;
    c->at += bytes;
    c->left -= bytes;
    return here;
}

static const char *take_text(cursor *c, uint32_t bytes)
{
    if (bytes == 0)
        return NULL;
    const char *text = take(c, bytes, 1);
    if (text && memchr(text, 0, bytes) != text + bytes - 1)
        c->bad = 1;
    return text;
}

static const void *take_array(cursor *c, int64_t count, size_t size)
{
    if (count < -1)
        c->bad = 1;
    return count < 0 ? NULL : take(c, (uint64_t)count, size);
}

int spec_decode(job_spec *s)
{
    fixed f;
    if (s->size < sizeof f)
        return -EPROTO;
    memcpy(&f, s->bytes, sizeof f);
    cursor c = {s->bytes + sizeof f, s->size - sizeof f, 0};
    pst_job_options *o = &s->options;
    pst_job_options_init(o);
    o->ids = take_array(&c, f.ids_count, sizeof *o->ids);
    o->ids_count = f.ids_count < 0 ? 0 : f.ids_count;
    o->weights = take_array(&c, f.weights_count, sizeof *o->weights);
    o->weights_count = f.weights_count < 0 ? 0 : f.weights_count;
    o->pipeline = take_text(&c, f.pipeline);
    o->split = take_text(&c, f.split);
    o->fields = take_text(&c, f.fields);
    o->group = take_text(&c, f.group);
    s->name = take_text(&c, f.name);
    s->path = take_text(&c, f.path);
    o->bucket_by = take_text(&c, f.bucket_by);
    o->seed = f.seed;
    o->first_epoch = f.first_epoch;
    o->epochs = f.epochs;
    o->draws = f.draws;
    o->skip_limit = f.skip_limit;
    o->reorder_window = f.reorder_window;
    o->draw_id = f.draw_id;
    o->batch = f.batch;
    o->order = f.order;
    o->ends = f.ends;
    o->rank = f.rank;
    o->world = f.world;
    o->sampler = f.sampler;
    o->repeat = f.repeat;
    o->run = f.run;
    o->on_error = f.on_error;
    o->read_retries = f.read_retries;
    o->ready_depth = f.ready_depth;
    o->leave_mix = f.leave_mix;
    o->raw_finish = f.raw_finish;
    o->leases = f.leases;
    o->no_cache = f.no_cache;
    o->sampling = f.sampling;
    o->schedule = f.schedule;
    o->without = f.without;
    return c.bad || c.left ? -EPROTO : 0;
}

void spec_fini(job_spec *s)
{
    psti_free(s->bytes);
    s->bytes = NULL;
}
