/* SPDX-License-Identifier: Apache-2.0
 * Groups: feeds of one dataset and one pipeline that share preparations. What one of them prepares
 * is offered to the others in augmented form; what a feed takes next is chosen by sample/share.h,
 * which looks at what is there. The share's books and the cache's entries change together, under
 * the cache's lock; the list of groups is under pool->lock.
 *
 * Through the remote tier preparations go from engine to engine, too: each is lent there once, and
 * whoever takes it has it as if it had been made there. See "between engines" below. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "sched/sched_priv.h"

struct group {
    group *next;
    psti_pool *pool;
    psti_id128 name;
    uint64_t key[2]; /* incarnation: its draws are nobody else's */
    psti_share *share;
    psti_cache_owner *owner;
    int users;
    double made_s, bytes; /* of a preparation and of its entry, running means */
    double rate;          /* deliveries a second to all its feeds; 0 = not known yet */
    double spread;        /* how far feeds of one order are apart, in epochs; the widest, fading */
    /* Between engines; under the cache's lock. */
    psti_id128 outside; /* its name there; fixed */
    double exchanged;   /* of the preparations that are looked after, those that others have a part
                           in; 0..1 */
    uint64_t alone_until_ns; /* nothing is taken from others before */
};

/* Of the widest spread seen, from one look to the next: half of it after some seven seconds. */
static const double FADING = 0.98;

/* Between engines. A preparation that nobody takes is gone after LIFE; one sample in PART, the same
 * ones everywhere, is always lent and asked for, and what becomes of these decides for the rest,
 * the last LATELY_ASKED of them above all. Two engines, until something is known. */
enum { LIFE_MS = 120000, PART = 16, LATELY_ASKED = 8 };
static const double EXCHANGED_FIRST = 0.5;
static const uint64_t LIFE_NS = LIFE_MS * UINT64_C(1000000);

/* ---- joining and leaving --------------------------------------------------------------------- */

/* The share counts rates in deliveries per delivery to the group, which it sees exactly. By the
 * clock they are known to some ten percent only, over a second or so, and jobs at the same pace
 * would be taken for jobs that drift apart. The clock gives what all of them get together: the
 * scale on which entries stand beside those of other owners. */
static double a_second(const group *g, double uses)
{
    return g->rate > 0 ? g->rate * uses : uses;
}

static double weight_of(void *user, const psti_cache_entry *entry)
{
    const group *g = user;
    return a_second(g, psti_share_value(g->share, (uint32_t)psti_cache_note(entry)));
}

static void evicted(void *user, psti_cache_entry *entry)
{
    group *g = user;
    psti_share_remove(g->share, (uint32_t)psti_cache_note(entry));
}

/* What it is called outside: pixels are those of one release and its libraries. */
static psti_id128 outside_of(const psti_feed *feed, psti_id128 name)
{
    static const char word[] = "augmented";
    psti_hash hash;
    psti_hash_init(&hash);
    psti_hash_u64(&hash, name.lo);
    psti_hash_u64(&hash, name.hi);
    psti_hash_u64(&hash, feed->spec.tier_augmented.lo);
    psti_hash_u64(&hash, feed->spec.tier_augmented.hi);
    psti_hash_text(&hash, word, sizeof word - 1);
    return psti_hash_final(&hash);
}

static psti_id128 name_of(psti_feed *feed)
{
    const psti_id128 data = psti_dataset_revision(feed->spec.data);
    psti_hash hash;
    psti_hash_init(&hash);
    psti_hash_u64(&hash, data.lo);
    psti_hash_u64(&hash, data.hi);
    psti_hash_u64(&hash, feed->spec.augmented.lo);
    psti_hash_u64(&hash, feed->spec.augmented.hi);
    psti_hash_text(&hash, feed->spec.group, strlen(feed->spec.group));
    return psti_hash_final(&hash);
}

static void group_free(group *g)
{
    if (g->owner)
        psti_cache_owner_close(g->pool->cache, g->owner);
    psti_share_free(g->share);
    psti_free(g);
}

/* Bytes of an entry before one was made: a byte for each element of a picture. */
static double guess_bytes(const psti_feed *feed)
{
    double all = 0;
    for (int i = 0; i < feed->outputs; i++) {
        double bytes = feed->out[i].picture >= 0;
        for (int d = 0; d < feed->out[i].rank; d++)
            bytes *= feed->out[i].shape[d] > 0 ? (double)feed->out[i].shape[d] : 256;
        all += bytes;
    }
    return all;
}

static int group_new(psti_feed *feed, psti_id128 name, group **out, pst_error *err)
{
    group *g = psti_calloc(PSTI_MEM_SCHED, 1, sizeof *g);
    if (!g)
        return psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    g->pool = feed->pool;
    g->name = name;
    g->bytes = guess_bytes(feed);
    g->outside = outside_of(feed, name);
    g->exchanged = EXCHANGED_FIRST;
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.samples = (uint64_t)psti_dataset_count(feed->spec.data);
    const psti_cache_owner_spec owner = {
        .form = PSTI_AUGMENTED, .weight = weight_of, .evicted = evicted, .user = g};
    int rc = getrandom(g->key, sizeof g->key, 0) == sizeof g->key ? 0 : -errno;
    if (rc < 0)
        psti_fail(err, rc, "job", NULL, "the system gives no random numbers");
    memcpy(spec.key, g->key, sizeof spec.key);
    if (rc == 0)
        rc = psti_share_new(&spec, &g->share, err);
    if (rc == 0 && !(g->owner = psti_cache_owner_open(feed->pool->cache, &owner)))
        rc = psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    if (rc < 0) {
        group_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

static int check(const psti_feed *feed, pst_error *err)
{
    const psti_feed_spec *s = &feed->spec;
    const char *why = NULL;
    if (s->mode != PST_ORDER_READY)
        why = "it decides by what is there, so it needs order=ready";
    else if (!s->cache || !feed->pool->cache)
        why = "it lives off the engine's cache: give it memory (cache=…)";
    else if (!psti_order_invertible(s->order))
        why = "every sample must stand at most once in an epoch, shuffled or in sequence; weights, "
              "repeats and given orders do not go with it";
    else if (s->draw_id >= 0)
        why = "its draws belong to preparations, so draw_id cannot be set";
    else if (psti_plan_augmented_pictures(s->plan) == 0)
        why = "the pipeline delivers no picture, or lays something over finished ones "
              "(random_erasing after normalize): put that before normalize; or it has boxes";
    if (!why)
        return 0;
    return psti_fail(err, -EINVAL, "options", NULL, "sampling=opportunistic: %s", why);
}

static int join_locked(psti_feed *feed, pst_error *err)
{
    psti_pool *pool = feed->pool;
    const psti_id128 name = name_of(feed);
    group *g = pool->groups;
    while (g && (g->name.lo != name.lo || g->name.hi != name.hi))
        g = g->next;
    int rc = g ? 0 : group_new(feed, name, &g, err);
    if (rc < 0)
        return rc;
    psti_cache_lock(pool->cache);
    rc = psti_share_join(g->share, false, &feed->member, err);
    psti_cache_unlock(pool->cache);
    if (rc < 0) {
        if (!g->users)
            group_free(g);
        return rc;
    }
    if (g->users++ == 0) {
        g->next = pool->groups;
        pool->groups = g;
    }
    feed->group = g;
    return 0;
}

int group_join(psti_feed *feed, pst_error *err)
{
    int rc = check(feed, err);
    if (rc == 0 && psti_order_invert(feed->spec.order) < 0)
        rc = psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&feed->pool->lock);
    rc = join_locked(feed, err);
    pthread_mutex_unlock(&feed->pool->lock);
    return rc;
}

void group_leave_locked(psti_feed *feed)
{
    group *g = feed->group;
    if (!g)
        return;
    psti_pool *pool = feed->pool;
    psti_cache_lock(pool->cache);
    psti_share_leave(g->share, feed->member);
    psti_cache_unlock(pool->cache);
    feed->group = NULL;
    if (--g->users)
        return;
    group **at = &pool->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    group_free(g);
}

/* ---- an epoch -------------------------------------------------------------------------------- */

/* Another rank's, left out at the end, or consumed before a resume. Looks every sample of the share
 * up: about 0.75 us each. */
int group_others(const run *r, uint8_t **out)
{
    const psti_feed *feed = r->feed;
    const int64_t count = psti_dataset_count(feed->spec.data);
    *out = NULL;
    if (r->share == count)
        return 0;
    uint8_t *bits = psti_malloc(PSTI_MEM_SCHED, (size_t)(count + 7) / 8);
    if (!bits)
        return -ENOMEM;
    memset(bits, 255, (size_t)(count + 7) / 8);
    for (int64_t s = 0; s < r->share; s++) {
        bool valid;
        int64_t id;
        uint32_t occurrence;
        psti_epoch_at(r->epoch, run_position(r, s, &valid), &id, &occurrence);
        bits[id >> 3] &= (uint8_t) ~(1u << (id & 7));
    }
    *out = bits;
    return 0;
}

/* What the cache has to hold for feeds that share an order, for each sample that they are apart. */
static const double FOLLOW_TIMES = 1.3;

static const double UNKNOWN_BYTES = 500e3; /* of an entry, where not even batches have a size */

/* Of one entry. A job that is alone keeps none: until there is one, what the sample has in a batch,
 * which is as much or more. */
static double entry_bytes(const psti_feed *feed)
{
    if (feed->group->bytes > 0)
        return feed->group->bytes;
    if (feed->layout.dense && feed->layout.bytes > 0)
        return (double)feed->layout.bytes / feed->spec.batch;
    return UNKNOWN_BYTES;
}

/* How many entries the cache would have room for, not how many there are: that is few while a job
 * is alone, and the target follows those that come to share an order. */
static uint64_t room_for(const psti_feed *feed)
{
    const group *g = feed->group;
    const psti_pool *pool = g->pool;
    uint64_t all = atomic_load_explicit(&pool->cache_allowed, memory_order_relaxed);
    int groups = 0;
    for (const group *other = pool->groups; other; other = other->next)
        groups++;
    if (all > pool->augmented_most)
        all = pool->augmented_most;
    return (uint64_t)((double)all / (FOLLOW_TIMES * entry_bytes(feed) * groups));
}

void group_epoch_locked(run *r)
{
    psti_feed *feed = r->feed;
    group *g = feed->group;
    psti_cache_lock(feed->pool->cache);
    psti_share_room(g->share, room_for(feed));
    psti_share_epoch(g->share, feed->member, r->others);
    psti_cache_unlock(feed->pool->cache);
    psti_free(r->others);
    r->others = NULL;
}

int group_return_locked(psti_feed *feed, pst_error *err)
{
    group *g = feed->group;
    if (!g)
        return 0;
    psti_cache_lock(feed->pool->cache);
    psti_share_leave(g->share, feed->member);
    const int rc = psti_share_join(g->share, true, &feed->member, err);
    /* It may have had, in another engine, what still waits there to be taken, or to be sent there:
     * that is over after twice its life. */
    g->alone_until_ns = psti_now_ns() + 2 * LIFE_NS;
    psti_cache_unlock(feed->pool->cache);
    return rc;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* The file changed since the entry was made. */
static bool stale(const psti_feed *feed, const psti_share_pick *pick)
{
    const psti_id128 now = psti_dataset_identity(feed->spec.data, pick->id);
    const psti_cache_key *key = psti_cache_entry_key(pick->payload);
    return now.lo != key->sample.lo || now.hi != key->sample.hi;
}

bool group_pick_locked(run *r)
{
    psti_feed *feed = r->feed;
    if (r->picked)
        return true;
    psti_cache_lock(feed->pool->cache);
    psti_share_next(feed->group->share, feed->member, &r->pick);
    if (r->pick.kind == PSTI_SHARE_HIT)
        psti_cache_pin_locked(r->pick.payload);
    psti_cache_unlock(feed->pool->cache);
    r->picked = r->pick.kind == PSTI_SHARE_HIT || r->pick.kind == PSTI_SHARE_PREPARE;
    if (r->pick.kind == PSTI_SHARE_HIT && stale(feed, &r->pick)) {
        psti_cache_unpin(feed->pool->cache, r->pick.payload);
        r->pick.kind = PSTI_SHARE_NONE; /* the feed prepares it for itself */
    }
    return r->picked;
}

void group_unpick_locked(run *r)
{
    if (!r->picked)
        return;
    psti_cache *cache = r->feed->pool->cache;
    if (r->pick.kind == PSTI_SHARE_HIT) {
        psti_cache_unpin(cache, r->pick.payload);
    } else if (r->pick.kind == PSTI_SHARE_PREPARE) {
        psti_cache_lock(cache);
        psti_share_cancel(r->feed->group->share, &r->pick);
        psti_cache_unlock(cache);
    }
    r->picked = false;
}

void group_aim_locked(task *t)
{
    run *r = t->run;
    t->pick = r->pick;
    t->id = r->pick.id;
    t->position = psti_epoch_find(r->epoch, t->id);
    t->occurrence = 0;
    t->valid = true;
    t->number = r->pick.kind == PSTI_SHARE_PREPARE ? r->pick.number : 0;
    t->augmented = r->pick.kind == PSTI_SHARE_HIT;
    if (!t->augmented)
        return;
    t->cached = r->pick.payload;
    t->may_cache = false;
    t->number = psti_cache_entry_key(t->cached)->form.lo;
}

psti_rng_key group_key(const task *t)
{
    const group *g = t->feed->group;
    return (psti_rng_key){.seed = g->key[0], .epoch = g->key[1], .id = t->pick.number};
}

/* ---- between engines ---------------------------------------------------------------------------
 * An engine that is about to prepare a sample asks for what another has lent of it (GETDEL: of all
 * that ask one gets it) and adopts it, under a number of its own; else it makes it and lends it.
 * What was adopted is not lent again, and what is one's own is dropped, so a job can meet a
 * preparation in its own engine alone, where the share sees to it that it gets it once. Jobs that
 * come from elsewhere with a state are why a group stays alone for a while, see above. */

static bool looked_after(const task *t)
{
    return t->form.sample.lo % PART == 0;
}

/* Whether all samples are worth asking for and lending, not only those that are looked after: one
 * that is exchanged spares its making for what getting it costs; each is stored. Under the cache's
 * lock. */
static bool exchange_pays(const psti_feed *feed)
{
    const group *g = feed->group;
    const double move_s = pays_move_s(feed->pool, g->bytes);
    return g->made_s == 0 || g->exchanged * (g->made_s - move_s) > move_s;
}

static bool alone(const group *g)
{
    return g->alone_until_ns && psti_now_ns() < g->alone_until_ns;
}

psti_cache_key group_outside_key(const task *t)
{
    const group *g = t->feed->group;
    return (psti_cache_key){t->form.sample, g ? g->outside : (psti_id128){0, 0}};
}

bool group_borrows_locked(const task *t)
{
    const psti_feed *feed = t->feed;
    if (!feed->tier_shared || t->pick.kind != PSTI_SHARE_PREPARE || !ask_lends(feed->pool))
        return false;
    psti_cache_lock(feed->pool->cache);
    const bool asks = !alone(feed->group) && (looked_after(t) || exchange_pays(feed));
    psti_cache_unlock(feed->pool->cache);
    return asks;
}

void group_heard(const task *t, bool others)
{
    group *g = t->feed->group;
    if (!looked_after(t))
        return;
    psti_cache_lock(t->feed->pool->cache);
    g->exchanged += (others - g->exchanged) / LATELY_ASKED;
    psti_cache_unlock(t->feed->pool->cache);
}

/* What was made here, for another engine; or, in the place of what was taken, a note that it was,
 * since who lends would not know it otherwise. */
static void lend(const worker *w, const task *t)
{
    const psti_feed *feed = t->feed;
    psti_cache *cache = feed->pool->cache;
    psti_decoded pictures[PSTI_OUTPUTS_MAX];
    psti_cache_content content = {.pictures = pictures};
    if (!feed->tier_shared || !ask_lends(feed->pool))
        return;
    const psti_id128 now = psti_dataset_identity(feed->spec.data, t->id);
    if (now.lo != t->form.sample.lo || now.hi != t->form.sample.hi)
        return; /* the file changed since it was asked for */
    psti_cache_lock(cache);
    const bool lends = looked_after(t) || (!t->adopted && exchange_pays(feed));
    psti_cache_unlock(cache);
    if (!lends)
        return;
    if (!t->adopted)
        content.count = psti_work_augmented(w->work, pictures);
    ask_lend(t, &content, LIFE_MS);
}

/* ---- offering -------------------------------------------------------------------------------- */

/* The sample's pictures as an entry that is not seen by anybody yet; NULL when it is not worth its
 * room. */
static psti_cache_entry *copy_of(worker *w, const task *t, double worth, size_t *bytes)
{
    const group *g = t->feed->group;
    psti_cache *cache = w->pool->cache;
    psti_decoded pictures[PSTI_OUTPUTS_MAX];
    const psti_cache_content content = {.pictures = pictures,
                                        .count = psti_work_augmented(w->work, pictures)};
    const psti_cache_key key = {psti_dataset_identity(t->feed->spec.data, t->id),
                                {t->pick.number, 0}};
    psti_cache_entry *entry = psti_cache_reserve(cache, g->owner, &key, &content, worth);
    if (!entry)
        return NULL;
    psti_decoded *mine = psti_cache_fill(entry);
    *bytes = 0;
    for (int i = 0; i < content.count; i++) {
        psti_field_copy(&pictures[i].field, &mine[i].field);
        *bytes += mine[i].field.bytes;
    }
    return entry;
}

static void insert(psti_cache *cache, group *g, task *t, psti_cache_entry *entry, size_t bytes)
{
    uint32_t number;
    void *replaced;
    int rc = -ECANCELED;
    psti_cache_lock(cache);
    if (t->adopted && alone(g)) /* who came meanwhile may have had it */
        psti_share_finish(g->share, &t->pick);
    else
        rc = psti_share_insert(g->share, &t->pick, entry, &number, &replaced);
    if (rc == 0) {
        psti_cache_set_note(entry, number);
        running_mean(&g->bytes, (double)bytes);
        psti_cache_publish_locked(cache, entry);
        if (replaced)
            psti_cache_retire_locked(cache, replaced);
    }
    psti_cache_unlock(cache);
    if (rc < 0)
        psti_cache_abandon(cache, entry, false);
    else
        psti_cache_unpin(cache, entry);
}

void group_offer(worker *w, task *t)
{
    group *g = t->feed->group;
    psti_cache *cache = w->pool->cache;
    if (!g || t->pick.kind != PSTI_SHARE_PREPARE)
        return;
    psti_cache_lock(cache);
    if (!t->adopted)
        running_mean(&g->made_s, 1e-9 * (double)(t->took_ns + t->read_ns));
    const double worth = a_second(g, psti_share_wanted(g->share, &t->pick));
    if (g->bytes > 0)
        psti_cache_owner_value(g->owner, g->made_s / g->bytes);
    psti_cache_unlock(cache);
    size_t bytes = 0;
    psti_cache_entry *entry = worth > 0 ? copy_of(w, t, worth, &bytes) : NULL;
    if (entry) {
        insert(cache, g, t, entry, bytes);
    } else {
        psti_cache_lock(cache);
        psti_share_finish(g->share, &t->pick);
        psti_cache_unlock(cache);
    }
    t->pick.kind = PSTI_SHARE_NONE;
    lend(w, t);
}

void group_end(task *t)
{
    group *g = t->feed->group;
    if (!g || t->pick.kind != PSTI_SHARE_PREPARE)
        return;
    psti_cache *cache = t->feed->pool->cache;
    psti_cache_lock(cache);
    psti_share_cancel(g->share, &t->pick);
    psti_cache_unlock(cache);
    t->pick.kind = PSTI_SHARE_NONE;
}

/* How far the feed is behind the first of those that go through the same permutation, in epochs.
 * Under the cache's lock. */
static double behind(const psti_pool *pool, const psti_feed *feed)
{
    psti_share_member mine, other;
    uint64_t first = 0;
    psti_share_member_get(feed->group->share, feed->member, &mine);
    for (const psti_feed *f = pool->feeds; f; f = f->next) {
        if (f->group != feed->group)
            continue;
        psti_share_member_get(f->group->share, f->member, &other);
        if (other.order == mine.order && other.delivered > first)
            first = other.delivered;
    }
    return mine.length && first > mine.delivered
               ? (double)(first - mine.delivered) / (double)mine.length
               : 0;
}

void group_rates_locked(const psti_pool *pool)
{
    for (group *g = pool->groups; g; g = g->next) {
        double rate = 0, spread = 0;
        psti_cache_lock(pool->cache);
        for (const psti_feed *f = pool->feeds; f; f = f->next) {
            if (f->group != g)
                continue;
            const double lag = behind(pool, f);
            rate += f->rate;
            spread = lag > spread ? lag : spread;
        }
        g->rate = rate;
        g->spread = spread > FADING * g->spread ? spread : FADING * g->spread;
        psti_cache_unlock(pool->cache);
    }
}

uint64_t group_targets_locked(const psti_pool *pool)
{
    uint64_t all = 0;
    for (const group *g = pool->groups; g; g = g->next) {
        psti_cache_lock(pool->cache); /* workers write it */
        const double bytes = g->bytes, spread = g->spread;
        psti_cache_unlock(pool->cache);
        const uint64_t one = worth_plan_locked(pool, g, bytes, spread);
        all = one > UINT64_MAX - all ? UINT64_MAX : all + one;
    }
    return all;
}

psti_cache *psti_pool_cache(psti_pool *pool)
{
    return pool->cache;
}

int psti_pool_check(psti_pool *pool, FILE *out)
{
    if (!pool->cache)
        return 0;
    int wrong = psti_cache_check(pool->cache, out);
    pthread_mutex_lock(&pool->lock);
    for (const group *g = pool->groups; g; g = g->next) {
        psti_cache_lock(pool->cache);
        const char *what = psti_share_check(g->share);
        psti_cache_unlock(pool->cache);
        if (what && out)
            fprintf(out, "sharing: %s\n", what);
        wrong += what != NULL;
    }
    pthread_mutex_unlock(&pool->lock);
    return wrong;
}
