/* SPDX-License-Identifier: Apache-2.0
 * Members that are read in parts. Of an array file from which a crop is taken right after decoding,
 * dispatch reads the header alone; with that the sample is started, which makes its decisions, and
 * then only the bytes that these use are read, each to the place where it would lie had the file
 * been read whole. So nothing behind this knows of it. What the system has at hand is read by the
 * worker; else the task is sent off once more and started anew when the bytes are there. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

/* Magic, version, length and the longest header that is read. */
enum { HEAD_BYTES = 12 + 10000 };
/* Runs of bytes with less than this between them are read as one. */
enum { GAP_LEAST = 4096, FAR_GAP_LEAST = 64 << 10 };

void parts_open(psti_feed *feed)
{
    feed->part_inputs = 0;
    for (int i = 0; !feed->fetches && i < feed->spec.field_count; i++) {
        const psti_source_field *field = &feed->source[feed->spec.fields[i].source];
        if (field->member && strcmp(field->info.format, "npy") == 0 &&
            psti_plan_reads_parts(feed->spec.plan, i))
            feed->part_inputs |= (uint32_t)1 << i;
    }
}

/* Whether all of its bytes are wanted: to be kept, as stored or decoded. */
static bool kept_whole(const task *t)
{
    const psti_feed *feed = t->feed;
    psti_cache *cache = feed->pool->cache;
    if (!t->may_cache && !feed->encoded)
        return false;
    const psti_cache_content content = {.bytes = psti_dataset_sample_bytes(feed->spec.data, t->id)};
    if (t->may_cache && psti_cache_has_room(cache, feed->decoded, &content, 1))
        return true;
    return feed->encoded && psti_cache_owner_wanted(feed->encoded) &&
           psti_cache_has_room(cache, feed->encoded, &content, 1);
}

void parts_aim(task *t)
{
    t->part_inputs = t->part_have = 0;
    t->part_bytes = 0; /* of this reading */
    if (!t->feed->part_inputs || task_has_form(t) || kept_whole(t))
        return;
    t->part_inputs = t->feed->part_inputs;
    t->may_cache = false; /* nothing is made of a part */
}

uint64_t parts_head(const task *t, int input, uint64_t length)
{
    const bool part = t->part_inputs & (uint32_t)1 << input;
    return part && length > HEAD_BYTES ? HEAD_BYTES : length;
}

/* The whole, or the runs that are used; neighbours become one. False: not known yet. */
static bool span_of(const worker *w, const task *t, int input, psti_span *out)
{
    *out = (psti_span){.length = t->inputs[input].size, .count = 1};
    if (psti_work_reach(w->work, input, out) == PSTI_REACH_LATER)
        return false;
    const uint64_t gap = t->feed->far ? FAR_GAP_LEAST : GAP_LEAST;
    if (out->count > 1 && out->step < out->length + gap)
        *out = (psti_span){.offset = out->offset,
                           .length = out->step * (uint64_t)(out->count - 1) + out->length,
                           .count = 1};
    return true;
}

/* Whether these bytes are there, or on their way. What is wanted may be another than before: a note
 * was forgotten since, or found. */
static bool has(const task *t, int input, const psti_span *span)
{
    const psti_span *mine = &t->part_span[input];
    if (!(t->part_have & (uint32_t)1 << input))
        return false;
    return mine->length == t->inputs[input].size ||
           (mine->offset == span->offset && mine->length == span->length &&
            mine->step == span->step && mine->count == span->count);
}

/* Adds the runs to what is sent for. */
static int add_reads(task *t, const psti_extent *at, const psti_span *span, uint8_t *buf)
{
    const int count = t->part_count + (int)span->count;
    if (count > t->part_cap) {
        psti_read *reads =
            psti_realloc(PSTI_MEM_SCHED, t->part_reads, (size_t)count, sizeof *reads);
        if (!reads)
            return -ENOMEM;
        t->part_reads = reads;
        t->part_cap = count;
    }
    for (int64_t i = 0; i < span->count; i++) {
        const uint64_t first = span->offset + (uint64_t)i * span->step;
        psti_read *read = &t->part_reads[t->part_count++];
        *read = (psti_read){.at = *at, .buf = buf + first};
        read->at.offset += first;
        read->at.length = span->length;
    }
    return 0;
}

/* One input's. 0: they are there; 1: they must be sent for, as add_reads has noted. */
static int bring_one(task *t, int input, const psti_span *span, bool wait)
{
    const psti_feed *feed = t->feed;
    psti_extent at;
    uint8_t *buf = (uint8_t *)t->inputs[input].bytes; /* the task's own */
    int rc = psti_dataset_extent(feed->spec.data, t->id, feed->spec.fields[input].source, &at);
    if (rc == 0 && at.length != t->inputs[input].size)
        rc = PST_ECHANGED;
    if (rc == 0)
        rc = psti_read_spans(&at, span, !wait, buf);
    if (!wait && (rc == -EAGAIN || rc == -EINVAL)) { /* EINVAL: as in read_here */
        rc = add_reads(t, &at, span, buf);
        rc = rc < 0 ? rc : 1;
    }
    if (rc < 0)
        return rc;
    t->part_have |= (uint32_t)1 << input;
    t->part_span[input] = *span;
    t->part_bytes += span->length * (uint64_t)span->count;
    return rc;
}

/* All that is known to be used. 0: it is there; 1: some of it must be sent for; wait: it is waited
 * for instead. */
static int bring(worker *w, task *t, bool wait)
{
    int sent = 0;
    t->part_count = 0;
    for (int i = 0; i < t->feed->spec.field_count; i++) {
        psti_span span;
        if (!(t->part_inputs & (uint32_t)1 << i) || !t->inputs[i].bytes ||
            !span_of(w, t, i, &span) || has(t, i, &span))
            continue;
        const int rc = bring_one(t, i, &span, wait);
        if (rc < 0)
            return rc;
        sent |= rc;
    }
    return sent;
}

static void send_off(task *t)
{
    psti_pool *pool = t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    if (!t->feed->far)
        pool_reads_cold_locked(pool);
    lane_away_locked(t);
    read_send_locked(t, t->part_reads, t->part_count);
    pthread_mutex_unlock(&pool->lock);
}

int parts_bring(worker *w, task *t, pst_error *err)
{
    const uint64_t since = psti_now_ns();
    const int rc = bring(w, t, false);
    const uint64_t now = psti_now_ns();
    t->read_ns += now - since;
    if (rc == 0) {
        t->part_ns = now - since;
        trace_slice(w, PSTI_TRACE_STAGE_READ, t->id, since, now);
        return 0;
    }
    psti_work_clear(w->work, &w->kit, w->pool->keep);
    if (rc > 0) {
        send_off(t);
        return LANE_PARKED;
    }
    if (read_again(t, rc, err))
        return LANE_PARKED;
    if (!err->code)
        read_describe_failure(t, rc, err);
    return rc;
}

int parts_rest(worker *w, task *t, pst_error *err)
{
    int rc = bring(w, t, true);
    while (rc < 0 && read_mend(t, rc, err))
        rc = bring(w, t, true);
    if (rc < 0 && !err->code)
        read_describe_failure(t, rc, err);
    return rc;
}
