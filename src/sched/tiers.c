/* SPDX-License-Identifier: Apache-2.0
 * Tiers outside RAM in the way of a sample: what they have takes the place of what would be read
 * and decoded, what was read or decoded goes to them. A disk hit is an ordinary read of another
 * file; what the remote tier has comes by asking.c. Whatever a tier brings is opened by the worker,
 * and anything wrong with it leads back to the source: whether a sample is good, and every byte of
 * it, is the same without tiers. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

/* What a tier brings may take that part of the memory for encoded bytes, no more: a form that is
 * larger than what is left for reading must not make its sample bad. */
enum { PART_OF_ENCODED = 8 };
static const uint64_t QUEUE_LEAST = 1 << 20, QUEUE_MOST = 64 << 20;

/* ---- opening --------------------------------------------------------------------------------- */

/* What waits to be written, or to be sent. */
static uint64_t queue_bytes(const psti_pool_spec *spec)
{
    const uint64_t part = spec->memory_bytes / 16;
    return part < QUEUE_LEAST ? QUEUE_LEAST : part > QUEUE_MOST ? QUEUE_MOST : part;
}

uint64_t tiers_memory(const psti_pool_spec *spec)
{
    return (spec->disk ? queue_bytes(spec) : 0) + (spec->remote ? queue_bytes(spec) : 0);
}

int tiers_open_pool(psti_pool *pool, const psti_pool_spec *spec, pst_error *err)
{
    psti_disk_spec disk;
    if (spec->disk) {
        int rc = psti_disk_parse(spec->disk, &disk, err);
        if (rc < 0)
            return rc;
        disk.queue = queue_bytes(spec);
        rc = psti_disk_open(&disk, &pool->disk, err);
        psti_free(disk.dir);
        if (rc < 0)
            return rc;
    }
    return spec->remote ? ask_open_pool(pool, spec->remote, queue_bytes(spec), spec->workers, err)
                        : 0;
}

void tiers_close_pool(psti_pool *pool)
{
    ask_close_pool(pool);
    psti_disk_close(pool->disk);
}

/* Each epoch of each job asks once for every sample, for its form and for each of its members; an
 * entry that was not asked for in two of them is of no use to anybody here. */
void tiers_feeds_changed_locked(psti_pool *pool)
{
    uint64_t finds = 0;
    if (!pool->disk)
        return;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        if (f->tiered)
            finds +=
                (uint64_t)psti_order_length(f->spec.order) * (1 + (uint64_t)f->spec.field_count);
    psti_disk_horizon(pool->disk, finds ? 2 * finds : UINT64_MAX);
}

static void use(const psti_feed *feed, bool used)
{
    const psti_pool *pool = feed->pool;
    if (!pool->disk || !feed->tiered)
        return;
    psti_disk_use(pool->disk, feed->spec.tier_form, used);
    psti_disk_use(pool->disk, feed->tier_owner, used);
}

/* A function of the caller's is known by its name in this process alone, and so are samples that
 * one brings. */
void tiers_open_feed(psti_feed *feed)
{
    const psti_pool *pool = feed->pool;
    feed->tiered = feed->spec.cache && !feed->fetches && (pool->disk || pool->asker);
    feed->tier_forms = feed->tiered && psti_plan_decoded_pictures(feed->spec.plan) > 0 &&
                       !psti_plan_decoded_calls(feed->spec.plan);
    feed->tier_members = feed->tiered && (feed->far || pool->tier_members);
    feed->tier_shared = feed->tiered && pool->asker && feed->spec.shares &&
                        psti_plan_augmented_travels(feed->spec.plan);
    if (feed->tiered)
        feed->tier_owner = psti_dataset_revision(feed->spec.data);
    pays_open(feed);
    use(feed, true);
}

void tiers_close_feed(psti_feed *feed)
{
    use(feed, false);
}

/* ---- finding --------------------------------------------------------------------------------- */

void tiers_begin(task *t)
{
    t->tiers_off = t->answered = t->asks = t->tier_kept = t->opened = false;
    t->borrows = t->adopted = false;
    t->form_from = TIER_NONE;
    t->tier_reads = 0;
    t->open_ns = 0;
    t->kept = t->clock = (pays_clock){0};
    t->form_bytes = 0;
    for (int i = 0; t->load && i < TIER_SLOTS; i++) /* it may have been another feed's */
        t->load->part[i].from = TIER_NONE;
}

void tiers_free(task *t)
{
    if (t->load)
        ask_free(t);
    psti_free(t->load);
    t->load = NULL;
}

psti_cache_key tiers_form_key(const task *t)
{
    return (psti_cache_key){t->form.sample, t->feed->spec.tier_form};
}

psti_cache_key tiers_member_key(const task *t, int input)
{
    return (psti_cache_key){t->form.sample,
                            {(uint64_t)t->feed->spec.fields[input].source, PSTI_ENCODED}};
}

static bool on_disk_locked(task *t, int slot, psti_cache_key key)
{
    psti_pool *pool = t->feed->pool;
    tier_part *part = &t->load->part[slot];
    psti_disk_place place;
    if (!pool->disk || !psti_disk_find(pool->disk, &key, &place) ||
        place.size > pool_encoded_max_locked(pool) / PART_OF_ENCODED)
        return false;
    part->from = TIER_DISK;
    part->key = key;
    part->size = place.size;
    part->dir = place.dir;
    memcpy(part->name, place.name, sizeof part->name);
    t->tier_reads++;
    return true;
}

/* Its envelope tells whether it is the right one: no stamp is compared. */
static psti_extent extent_of(const tier_part *part)
{
    return (psti_extent){.root = part->dir,
                         .path = part->name,
                         .shard_fd = -1,
                         .length = part->size,
                         .file_size = part->size,
                         .loose = true};
}

psti_extent tiers_form_extent(const task *t)
{
    return extent_of(&t->load->part[TIER_FORM]);
}

static bool same_key(const psti_cache_key *a, const psti_cache_key *b)
{
    return a->sample.lo == b->sample.lo && a->sample.hi == b->sample.hi &&
           a->form.lo == b->form.lo && a->form.hi == b->form.hi;
}

/* What the remote tier answered stays good as long as the sample is the one it was asked for. */
static bool still_answered(const task *t, int slot)
{
    const tier_part *part = &t->load->part[slot];
    if (t->tiers_off || !t->answered || part->from != TIER_REMOTE)
        return false;
    const psti_cache_key now = slot == TIER_SHARED ? group_outside_key(t)
                               : slot == TIER_FORM ? tiers_form_key(t)
                                                   : tiers_member_key(t, slot);
    return same_key(&part->key, &now);
}

/* What another engine prepared takes the place of everything that there is of the sample here; or
 * it does no more, and the rest is looked for again. */
static void adopt_locked(task *t, bool adopts)
{
    if (adopts) {
        form_drop(t);
        t->may_cache = false;
        t->form_from = TIER_REMOTE;
        t->augmented = t->adopted = true;
    } else if (t->adopted) {
        t->augmented = t->adopted = false;
        form_find(t);
    }
}

void tiers_aim_locked(task *t)
{
    const psti_feed *feed = t->feed;
    t->form_from = TIER_NONE;
    t->tier_reads = 0;
    t->opened = t->asks = false;
    if (!feed->tiered)
        return;
    if (!t->load)
        t->load = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *t->load);
    if (!t->load)
        return;
    for (int i = 0; i < TIER_SLOTS; i++)
        if (!still_answered(t, i))
            t->load->part[i].from = TIER_NONE;
    adopt_locked(t, t->load->part[TIER_SHARED].from == TIER_REMOTE);
    if (t->tiers_off || t->augmented || t->cached || !feed->tier_forms)
        return;
    if (t->load->part[TIER_FORM].from == TIER_REMOTE ||
        on_disk_locked(t, TIER_FORM, tiers_form_key(t)))
        t->form_from = t->load->part[TIER_FORM].from;
}

tier tiers_member_locked(task *t, int input, psti_extent *at)
{
    const psti_feed *feed = t->feed;
    if (!feed->tiered || t->tiers_off || !t->load)
        return TIER_NONE;
    const tier_part *part = &t->load->part[input];
    if (part->from == TIER_NONE && feed->tier_members &&
        on_disk_locked(t, input, tiers_member_key(t, input)))
        *at = extent_of(part);
    return part->from;
}

void tiers_aimed_locked(task *t)
{
    t->asks = t->feed->tiered && t->load && !t->tiers_off && !t->answered && !t->unseen &&
              !t->part_inputs && ask_wanted_locked(t);
}

void tiers_place(task *t, int slot, const uint8_t *packed)
{
    if (t->load && t->load->part[slot].from == TIER_DISK)
        t->load->part[slot].packed = packed;
}

/* ---- opening what came ----------------------------------------------------------------------- */

/* Sizes that a file's header could have said. */
static bool header_sane(const psti_geom *h)
{
    static const int64_t most = INT32_MAX;
    size_t bytes;
    for (int i = 0; i < 3; i++)
        if (!(h->unit[i] >= 0 && h->unit[i] <= 1e12))
            return false;
    return h->rows <= most && h->cols <= most && h->channels <= most && h->depth >= 0 &&
           h->depth <= most && psti_geom_bytes(h, &bytes) && bytes <= SIZE_MAX / 4;
}

/* Whether a decoded form can be one of this plan's, as far as is known before it is started:
 * whoever can write to a tier can make one up. */
static bool form_fits(const task *t, const psti_envelope *form)
{
    const psti_plan *plan = t->feed->spec.plan;
    const int pictures = psti_plan_decoded_pictures(plan);
    if (form->count < pictures || form->count > pictures + 1)
        return false;
    for (int p = 0; p < pictures; p++) {
        const psti_decoded *d = &form->pictures[p];
        if (!header_sane(&d->header) || !d->field.bytes)
            return false;
    }
    if (form->count == pictures)
        return true;
    const psti_note *note = (const psti_note *)form->pictures[pictures].field.data;
    return form->pictures[pictures].field.bytes == sizeof *note && note->count >= 0 &&
           note->count <= PSTI_NOTE_ROWS;
}

/* 0, or what is wrong with it. */
static int open_part(task *t, int slot)
{
    const tier_part *part = &t->load->part[slot];
    psti_envelope *form = &t->load->form;
    psti_envelope member;
    if (slot == TIER_SHARED) {
        const int rc = psti_envelope_open(&part->key, part->packed, part->size, form);
        return rc || !psti_plan_augmented_fits(t->feed->spec.plan, form->pictures, form->count)
                   ? PST_ECORRUPT
                   : 0;
    }
    if (slot == TIER_FORM) {
        const int rc = psti_envelope_open(&part->key, part->packed, part->size, form);
        if (rc || !form_fits(t, form))
            return PST_ECORRUPT;
        /* What others found in it is not taken on trust; it is looked for again. */
        if (part->from == TIER_REMOTE)
            form->count = psti_plan_decoded_pictures(t->feed->spec.plan);
        return 0;
    }
    const int rc = psti_envelope_open(&part->key, part->packed, part->size, &member);
    if (rc || member.count)
        return PST_ECORRUPT;
    t->inputs[slot] = (psti_input){member.bytes, member.size, -1};
    return 0;
}

/* What came from the disk: its reads have ended. */
static bool open_reads(task *t)
{
    psti_pool *pool = t->feed->pool;
    bool good = true;
    for (int i = 0; i < t->read_count; i++) {
        const int slot = t->read_field[i];
        if (t->load->part[slot].from != TIER_DISK || t->read_result[i] == -ECANCELED)
            continue;
        const int rc = t->read_result[i] < 0 ? t->read_result[i] : open_part(t, slot);
        if (rc < 0)
            psti_disk_failed(pool->disk, &t->load->part[slot].key, rc);
        good &= rc == 0;
    }
    return good;
}

static bool open_answers(task *t)
{
    bool good = true;
    const uint64_t since = psti_now_ns();
    for (int slot = 0; t->answered && slot < TIER_SLOTS; slot++) {
        if (t->load->part[slot].from != TIER_REMOTE || open_part(t, slot) == 0)
            continue;
        ask_wrong(t, slot);
        good = false;
    }
    t->open_ns = psti_now_ns() - since;
    return good;
}

void tiers_promote(task *t)
{
    const psti_feed *feed = t->feed;
    psti_cache *cache = feed->pool->cache;
    const psti_cache_content content = {.pictures = t->load->form.pictures,
                                        .count = t->load->form.count};
    const bool may = t->may_cache;
    t->may_cache = false; /* there is nothing left to make */
    if (t->form_from == TIER_REMOTE && feed->pool->disk) {
        const psti_cache_key key = tiers_form_key(t);
        psti_disk_put(feed->pool->disk, &key, feed->spec.tier_form, &content, NULL);
    }
    if (!may || !psti_cache_has_room(cache, feed->decoded, &content, 1))
        return;
    psti_cache_entry *entry = psti_cache_reserve(cache, feed->decoded, &t->form, &content, 1);
    if (!entry)
        return;
    psti_decoded *mine = psti_cache_fill(entry);
    for (int p = 0; p < content.count; p++)
        psti_field_copy(&content.pictures[p].field, &mine[p].field);
    psti_cache_publish(cache, entry);
    psti_cache_unpin(cache, entry);
}

bool tiers_open(task *t)
{
    if (t->opened || !t->load || (!t->tier_reads && !t->answered))
        return true;
    const bool good = open_reads(t);
    if (!open_answers(t) || !good)
        return false;
    if (atomic_load(&t->read_status) < 0) /* of the source's own */
        return true;
    t->opened = true;
    return true;
}

void tiers_refuse_form(task *t)
{
    const tier_part *part = &t->load->part[TIER_FORM];
    if (part->from == TIER_DISK)
        psti_disk_failed(t->feed->pool->disk, &part->key, PST_ECORRUPT);
    else
        ask_wrong(t, TIER_FORM);
    tiers_bypass(t);
}

void tiers_bypass(task *t)
{
    psti_pool *pool = t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    t->tiers_off = true;
    form_find(t);
    const int rc = read_find_again_locked(t);
    pthread_mutex_unlock(&pool->lock);
    t->unread = rc > 0 && t->read_count > 0;
    if (rc < 0)
        t->read_count = 0;
    atomic_store(&t->read_status, rc < 0 ? rc : 0);
}

void tiers_answered(task *t)
{
    psti_pool *pool = t->feed->pool;
    pthread_mutex_lock(&pool->lock);
    t->answered = true;
    const int rc = read_find_again_locked(t);
    if (rc < 0) {
        t->read_count = 0;
        atomic_store(&t->read_status, rc);
        task_runnable_locked(t);
    } else {
        read_rest_locked(t);
    }
    pthread_mutex_unlock(&pool->lock);
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* Whether a form saves more than it takes to read back. What is not measured yet counts as yes. */
static bool decoding_costs(const psti_feed *feed, size_t packed)
{
    const double saves = atomic_load_explicit(&feed->decode_saves_s, memory_order_relaxed);
    return saves == 0 || saves > PSTI_DISK_READ_BACK_S * (double)packed;
}

static uint64_t stored_bytes(const task *t)
{
    uint64_t bytes = 0;
    for (int i = 0; i < t->read_count; i++)
        bytes += t->reads[i].at.length;
    for (int i = 0; i < t->stored_count; i++) {
        size_t one;
        psti_cache_bytes(t->stored[i], &one);
        bytes += one;
    }
    return bytes;
}

/* Where stored bytes could be kept instead, a form must not take many times their room, unless
 * there is room for all. */
static bool small_enough(const task *t, size_t packed)
{
    const psti_feed *feed = t->feed;
    psti_disk_stats stats;
    if (!feed->tier_members || packed <= PSTI_DISK_DECODED_TIMES * stored_bytes(t))
        return true;
    psti_disk_stats_get(feed->pool->disk, &stats);
    return (double)packed * (double)psti_dataset_count(feed->spec.data) <= (double)stats.limit;
}

bool tiers_want_form(task *t, const psti_cache_content *content)
{
    const psti_feed *feed = t->feed;
    const psti_pool *pool = feed->pool;
    if (!feed->tier_forms || task_has_form(t) || t->part_inputs)
        return false;
    const size_t packed = t->form_bytes = psti_envelope_size(content);
    if (ask_wants_form(t, packed))
        return true;
    const psti_cache_key key = tiers_form_key(t);
    return pool->disk && decoding_costs(feed, packed) && small_enough(t, packed) &&
           psti_disk_wants(pool->disk, &key, packed);
}

void tiers_keep_form(task *t, const psti_cache_content *content)
{
    const psti_feed *feed = t->feed;
    const psti_cache_key key = tiers_form_key(t);
    const size_t packed = psti_envelope_size(content);
    const pays_clock since = pays_now(feed);
    if (ask_wants_form(t, packed))
        ask_keep_form(t, content);
    if (feed->pool->disk && decoding_costs(feed, packed) && small_enough(t, packed))
        psti_disk_put(feed->pool->disk, &key, feed->spec.tier_form, content, NULL);
    t->tier_kept = true;
    t->kept = pays_since(feed, &since);
}

static bool still_the_same(const task *t)
{
    const psti_id128 now = psti_dataset_identity(t->feed->spec.data, t->id);
    return now.lo == t->form.sample.lo && now.hi == t->form.sample.hi;
}

/* Whether the decoded form is kept, so that nobody reads the pictures again. */
static bool form_kept(const task *t)
{
    const psti_cache_key key = tiers_form_key(t);
    return t->tier_kept || task_has_form(t) ||
           (t->feed->tier_forms && t->feed->pool->disk && psti_disk_has(t->feed->pool->disk, &key));
}

void tiers_keep_members(const task *t)
{
    const psti_feed *feed = t->feed;
    if (!feed->tier_members || t->part_inputs || t->augmented || !t->read_count ||
        !still_the_same(t))
        return;
    const bool kept = form_kept(t);
    for (int i = 0; i < t->read_count; i++) {
        const int input = t->read_field[i];
        if (read_from_tier(t, i) || (kept && psti_plan_is_picture(feed->spec.plan, input)))
            continue;
        const psti_cache_key key = tiers_member_key(t, input);
        const psti_cache_content content = {.bytes = t->inputs[input].size};
        if (feed->pool->disk)
            psti_disk_put(feed->pool->disk, &key, feed->tier_owner, &content,
                          t->inputs[input].bytes);
        ask_keep_member(t, input);
    }
}

/* ---- figures --------------------------------------------------------------------------------- */

void tiers_count_locked(psti_feed *feed, const task *t)
{
    bool disk = false, remote = false;
    if (!feed->tiered || t->cached)
        return;
    for (int slot = 0; t->opened && slot < TIER_SLOTS; slot++) {
        const tier_part *part = &t->load->part[slot];
        disk |= part->from == TIER_DISK;
        remote |= part->from == TIER_REMOTE;
        feed->disk_bytes += part->from == TIER_DISK ? part->size : 0;
        feed->remote_bytes += part->from == TIER_REMOTE ? part->size : 0;
    }
    feed->disk_hits += disk;
    feed->disk_misses += feed->pool->disk && !disk;
    feed->remote_hits += remote;
    feed->remote_misses += t->answered && !remote;
}

void tiers_stats_locked(const psti_feed *feed, pst_job_stats *out)
{
    const psti_pool *pool = feed->pool;
    out->disk_hits = feed->disk_hits;
    out->disk_misses = feed->disk_misses;
    out->disk_read_bytes = feed->disk_bytes;
    out->remote_hits = feed->remote_hits;
    out->remote_misses = feed->remote_misses;
    out->remote_read_bytes = feed->remote_bytes;
    out->adopted = feed->adopted;
    out->remote_left = pool->asker && feed->tier_forms &&
                       atomic_load_explicit(&feed->pays.form, memory_order_relaxed) != PAYS;
    ask_stats(pool, out);
    if (!pool->disk)
        return;
    psti_disk_stats disk;
    psti_disk_stats_get(pool->disk, &disk);
    out->disk_entries = disk.entries;
    out->disk_bytes = disk.bytes;
    out->disk_written = disk.written;
    out->disk_evicted = disk.evicted;
    out->disk_damaged = disk.damaged;
    out->disk_dropped = disk.dropped;
    out->disk_errors = disk.errors;
    out->disk_off = disk.off;
}

void psti_pool_keep_members(psti_pool *pool)
{
    pool->tier_members = true;
}

psti_disk *psti_pool_disk(psti_pool *pool)
{
    return pool->disk;
}
