/* SPDX-License-Identifier: Apache-2.0
 * Sharing keeps its promises whatever the schedule: a model that knows what each job got runs
 * beside thousands of random steps (joins, departures, stalls, cancelled preparations, evictions),
 * and the group's own check goes over its invariants.
 */
#include <stdlib.h>

#include "sample/share.h"
#include "sample_check.h"

enum { MOST_SAMPLES = 150, MOST_JOBS = 12, MOST_FLIGHT = 24, IDENTITIES = 4096 };

/* What was prepared, from its beginning to the end of the test. */
typedef struct item {
    uint32_t id;
    uint32_t entry;
    bool resident;
    uint8_t consumed[IDENTITIES / 8]; /* by which jobs, ever */
} item;

typedef struct job {
    int member; /* -1: not there */
    int identity;
    bool in_epoch, stalled;
    uint32_t got, owed;
    bool had[MOST_SAMPLES]; /* in this epoch, or excluded */
} job;

typedef struct flight {
    psti_share_pick pick;
    int identity; /* of who prepares */
} flight;

typedef struct model {
    psti_share *share;
    uint64_t random, hash;
    uint32_t samples, room, resident;
    int jobs, identities, in_flight;
    job job[MOST_JOBS];
    flight flight[MOST_FLIGHT];
    item **item;
    int items, item_cap;
    int hits, waits, ends, evicted, cancelled, replaced, departures, returns;
} model;

static uint32_t below(model *m, uint32_t n)
{
    return (uint32_t)(noise(&m->random) % n);
}

static void remember(model *m, uint64_t fact)
{
    m->hash = psti_mix64(m->hash ^ fact) + 1;
}

static void fresh_epoch(model *m, job *j)
{
    uint8_t seen[MOST_SAMPLES / 8 + 1] = {0};
    const bool some = below(m, 3) == 0;
    j->got = j->owed = 0;
    for (uint32_t id = 0; id < m->samples; id++) {
        j->had[id] = some && below(m, 4) == 0;
        seen[id / 8] |= (uint8_t)(j->had[id] << (id & 7));
        j->owed += !j->had[id];
    }
    psti_share_epoch(m->share, j->member, some ? seen : NULL);
    j->in_epoch = true;
}

static void join(model *m, job *j)
{
    const bool returning = j->identity >= 0 && below(m, 2);
    CHECK(psti_share_join(m->share, returning, &j->member, NULL) == 0);
    if (!returning)
        j->identity = m->identities++;
    m->returns += returning;
    j->in_epoch = j->stalled = false;
    for (int i = 0; i < m->jobs; i++)
        CHECK(&m->job[i] == j || m->job[i].member != j->member);
}

static void leave(model *m, job *j)
{
    psti_share_leave(m->share, j->member);
    j->member = -1;
    m->departures++;
}

static bool in_flight(const model *m, uint32_t id)
{
    for (int i = 0; i < m->in_flight; i++)
        if (m->flight[i].pick.id == id)
            return true;
    return false;
}

static void mark(item *it, int identity)
{
    it->consumed[identity / 8] |= (uint8_t)(1 << (identity & 7));
}

static void took_hit(model *m, job *j, const psti_share_pick *pick)
{
    item *it = pick->payload;
    CHECK(it->resident && it->id == pick->id && it->entry == pick->entry);
    CHECKF(!(it->consumed[j->identity / 8] >> (j->identity & 7) & 1),
           "job %d gets an entry of sample %u a second time", j->identity, pick->id);
    mark(it, j->identity);
    m->hits++;
}

/* A job that waits could not have been served: all it misses is in the making, or is of its own
 * making from an epoch before. */
static void check_wait(const model *m, const job *j)
{
    CHECK(j->got < j->owed);
    for (uint32_t id = 0; id < m->samples; id++)
        CHECKF(j->had[id] || in_flight(m, id), "waits, but sample %u is in no one's hands", id);
}

static void ask(model *m, job *j)
{
    psti_share_pick pick;
    psti_share_next(m->share, j->member, &pick);
    remember(m, (uint64_t)pick.kind << 32 | pick.id);
    if (pick.kind == PSTI_SHARE_NONE) {
        CHECKF(!j->in_epoch || j->got == j->owed, "%u of %u", j->got, j->owed);
        m->ends += j->in_epoch;
        if (below(m, 2))
            fresh_epoch(m, j);
        return;
    }
    CHECK(j->in_epoch);
    if (pick.kind == PSTI_SHARE_WAIT) {
        m->waits++;
        check_wait(m, j);
        return;
    }
    CHECKF(pick.id < m->samples && !j->had[pick.id], "sample %u comes twice", pick.id);
    j->had[pick.id] = true;
    j->got++;
    if (pick.kind == PSTI_SHARE_HIT) {
        took_hit(m, j, &pick);
        return;
    }
    CHECK(!in_flight(m, pick.id));
    m->flight[m->in_flight++] = (flight){.pick = pick, .identity = j->identity};
}

static void evict(model *m, uint32_t entry)
{
    item *it = psti_share_remove(m->share, entry);
    CHECK(it->resident && it->entry == entry);
    it->resident = false;
    m->resident--;
    m->evicted++;
}

static bool is_resident(void *user, void *payload)
{
    (void)user;
    return ((item *)payload)->resident;
}

static bool make_room(model *m)
{
    const psti_share_judge judge = {.may_leave = is_resident};
    uint32_t entry;
    double value;
    if (m->resident < m->room)
        return true;
    if (!m->room || !psti_share_victim(m->share, &judge, &entry, &value))
        return false;
    CHECK(value >= 0);
    evict(m, entry);
    return true;
}

static item *item_new(model *m, uint32_t id)
{
    if (m->items == m->item_cap) {
        m->item_cap = m->item_cap ? 2 * m->item_cap : 256;
        m->item = realloc(m->item, (size_t)m->item_cap * sizeof(item *));
    }
    item *it = calloc(1, sizeof *it);
    it->id = id;
    return m->item[m->items++] = it;
}

static void insert(model *m, const flight *f)
{
    item *it = item_new(m, f->pick.id);
    void *old = NULL;
    mark(it, f->identity);
    CHECK(psti_share_insert(m->share, &f->pick, it, &it->entry, &old) == 0);
    it->resident = true;
    m->resident++;
    if (!old)
        return;
    CHECK(((item *)old)->resident && ((item *)old)->id == it->id);
    ((item *)old)->resident = false;
    m->resident--;
    m->replaced++;
}

static void end_preparation(model *m)
{
    const uint32_t at = below(m, (uint32_t)m->in_flight);
    const flight f = m->flight[at];
    m->flight[at] = m->flight[--m->in_flight];
    CHECK(psti_share_wanted(m->share, &f.pick) >= 0);
    const uint32_t draw = below(m, 12);
    if (draw == 0) {
        psti_share_cancel(m->share, &f.pick);
        m->cancelled++;
    } else if (draw < 3 || !make_room(m)) {
        psti_share_finish(m->share, &f.pick);
    } else {
        insert(m, &f);
    }
}

/* Also without need: the cache gives memory back whenever it likes. */
static void evict_any(model *m)
{
    uint32_t entry;
    double value;
    if (m->resident && psti_share_victim(m->share, NULL, &entry, &value))
        evict(m, entry);
}

static void random_step(model *m)
{
    job *j = &m->job[below(m, (uint32_t)m->jobs)];
    const uint32_t draw = below(m, 1000);
    if (j->member < 0) {
        if (draw < 50)
            join(m, j);
    } else if (draw < 3) {
        leave(m, j);
    } else if (draw < 6) {
        fresh_epoch(m, j); /* drops what is left of the last one */
    } else if (draw < 16) {
        j->stalled = !j->stalled;
    } else if (draw < 20) {
        evict_any(m);
    } else if (m->in_flight && (draw < 350 || m->in_flight == MOST_FLIGHT)) {
        end_preparation(m);
    } else if (!j->stalled && m->in_flight < MOST_FLIGHT) {
        ask(m, j);
    }
}

static void model_open(model *m, uint64_t seed, uint64_t key)
{
    *m = (model){.random = seed};
    m->samples = 1 + below(m, below(m, 4) ? MOST_SAMPLES : 8);
    m->room = below(m, m->samples + 1);
    m->jobs = 1 + (int)below(m, MOST_JOBS);
    psti_share_spec spec;
    psti_share_spec_init(&spec);
    spec.samples = m->samples;
    spec.room = m->room;
    spec.key[0] = key;
    spec.window = below(m, 3) ? 0.05 : 0.5;
    spec.window_max = spec.window + below(m, 2) * 0.4;
    spec.probes = 1 + below(m, 20);
    CHECK(psti_share_new(&spec, &m->share, NULL) == 0);
    for (int i = 0; i < m->jobs; i++)
        m->job[i] = (job){.member = -1, .identity = -1};
}

static void model_close(model *m)
{
    psti_share_free(m->share);
    for (int i = 0; i < m->items; i++)
        free(m->item[i]);
    free(m->item);
}

/* Nothing may be left hanging: with no more joins and departures every epoch comes to its end. */
static void drain(model *m)
{
    for (int i = 0; i < m->jobs; i++) {
        job *j = &m->job[i];
        for (int guard = 0; j->member >= 0 && j->in_epoch && j->got < j->owed; guard++) {
            CHECKF(guard < 100000, "an epoch does not end");
            if (guard >= 100000)
                return;
            if (m->in_flight == MOST_FLIGHT || (m->in_flight && below(m, 3) == 0))
                end_preparation(m);
            else
                ask(m, j);
        }
    }
}

static bool is_sound(const model *m, int step)
{
    const char *wrong = psti_share_check(m->share);
    psti_share_counts counts;
    psti_share_counts_get(m->share, &counts);
    CHECKF(!wrong, "step %d: %s", step, wrong);
    CHECK(counts.resident == m->resident && counts.preparing == (uint64_t)m->in_flight);
    return !wrong;
}

static void random_schedules_keep_every_promise(void)
{
    model sum = {0};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        model m;
        model_open(&m, seed, seed);
        bool sound = true;
        for (int step = 0; step < 3000 && sound && !check_in_behaviour; step++) {
            random_step(&m);
            if (step % 8 == 0)
                sound = is_sound(&m, step);
        }
        drain(&m);
        CHECKF(is_sound(&m, -1), "seed %d", (int)seed);
        sum.hits += m.hits, sum.waits += m.waits, sum.ends += m.ends, sum.evicted += m.evicted;
        sum.cancelled += m.cancelled, sum.replaced += m.replaced, sum.returns += m.returns;
        sum.departures += m.departures;
        model_close(&m);
        if (check_in_behaviour)
            return;
    }
    printf("     %d hits, %d waits, %d ends, %d evicted, %d cancelled, %d replaced, %d departures, "
           "%d returns\n",
           sum.hits, sum.waits, sum.ends, sum.evicted, sum.cancelled, sum.replaced, sum.departures,
           sum.returns);
    CHECK(sum.hits > 1000 && sum.waits > 100 && sum.ends > 100 && sum.evicted > 1000);
    CHECK(sum.cancelled > 100 && sum.replaced > 100 && sum.departures > 100 && sum.returns > 20);
}

static uint64_t hash_of_schedule(uint64_t key)
{
    model m;
    model_open(&m, 3, key);
    for (int step = 0; step < 4000; step++)
        random_step(&m);
    const uint64_t hash = m.hash;
    model_close(&m);
    return hash;
}

static void choices_follow_from_the_key_and_the_calls(void)
{
    CHECK(hash_of_schedule(1) == hash_of_schedule(1));
    CHECK(hash_of_schedule(1) != hash_of_schedule(2));
}

int main(void)
{
    RUN(random_schedules_keep_every_promise);
    RUN(choices_follow_from_the_key_and_the_calls);
    return check_report();
}
