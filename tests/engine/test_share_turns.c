/* SPDX-License-Identifier: Apache-2.0
 * Exactness of sharing over many schedules: four jobs at 1 : 2 : 3 : 5 for five epochs, with others
 * that join and leave in mid-epoch, at four sizes of the cache. One thread lets the jobs take their
 * batches in turns, so that rates are counted in deliveries and nothing hangs on the clock; the
 * workers run free.
 *
 *   test_share_turns [SEEDS]      2 unless given */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_kit.h"

enum {
    IMAGES = 200,
    CLASSES = 4,
    EPOCHS = 5,
    BATCH = 4,
    MAIN = 4,   /* jobs that do all their epochs */
    GUESTS = 2, /* jobs that leave in mid-epoch */
    MEMBERS = MAIN + GUESTS,
    NUMBERS = 16 * IMAGES * EPOCHS,
    WAIT_S = 60
};

static char *folder;
static pst_dataset *data;
static uint64_t seed;
static int percent;

typedef struct member {
    pst_job *job;
    int rate, from; /* batches a turn; the turn it comes in */
    int leaves;     /* after so many batches it goes; 0: stays to the end */
    int away;       /* turns until it comes back with its state; 0: it does not */
    int batches;    /* taken so far */
    uint64_t ended; /* epochs */
    bool done;
    kit_sample *got;
    size_t count;
} member;

static uint32_t draw(uint32_t below)
{
    seed += 0x9e3779b97f4a7c15u;
    uint64_t z = seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % below);
}

static pst_job *job_of(pst_engine *engine, uint64_t number)
{
    const pst_job_options o = kit_sharing_options(BATCH, number, EPOCHS);
    return kit_job(engine, data, &o);
}

/* One batch, or the end of an epoch. */
static void take(member *m)
{
    pst_batch *batch;
    const int rc = pst_job_next(m->job, WAIT_S * 1000000000ll, &batch);
    if (rc < 0) {
        pst_error err;
        pst_job_error(m->job, &err);
        fprintf(stderr, "pst_job_next: %d %s\n", rc, err.message);
        abort(); /* nothing that follows would make sense */
    }
    if (rc == 0) {
        m->ended++;
        return;
    }
    const pst_batch_desc *desc = pst_batch_get(batch);
    CHECK(m->count + desc->slots <= (size_t)IMAGES * (EPOCHS + 1));
    m->count += kit_samples(desc, &m->got[m->count]);
    pst_batch_release(batch);
    m->batches++;
}

static void go(member *m, pst_engine *engine, int turn, uint64_t number)
{
    uint8_t state[16384];
    size_t bytes = 0;
    if (m->away)
        CHECK(pst_job_state(m->job, state, sizeof state, &bytes) == 0);
    pst_job_close(m->job);
    m->job = NULL;
    m->leaves = 0;
    m->done = !m->away;
    if (m->done)
        return;
    /* It comes back as another job of the same seed; what went on meanwhile is the others'. */
    m->from = turn + m->away;
    m->away = 0;
    m->job = job_of(engine, number);
    pst_error err;
    CHECKF(pst_job_load_state(m->job, state, bytes, &err) == 0, "%s", err.message);
}

static void turn_of(member *m, pst_engine *engine, int turn, uint64_t number)
{
    if (m->done || turn < m->from)
        return;
    if (!m->job)
        m->job = job_of(engine, number);
    for (int i = 0; i < m->rate && !m->done; i++) {
        take(m);
        if (m->leaves && m->batches >= m->leaves)
            go(m, engine, turn, number);
        else if (m->ended == EPOCHS) {
            pst_job_close(m->job);
            m->job = NULL;
            m->done = true;
        }
    }
}

/* Who comes and goes when. The slowest is there all the time, so that the group lives as long. */
static void plan(member *all)
{
    static const int rates[MEMBERS] = {1, 2, 3, 5, 2, 3};
    const uint32_t epoch = IMAGES / BATCH; /* batches */
    for (int i = 0; i < MEMBERS; i++) {
        all[i] = (member){.rate = rates[i]};
        all[i].got = calloc((size_t)IMAGES * (EPOCHS + 1), sizeof *all[i].got);
        all[i].from = i == 0 ? 0 : i < MAIN ? (int)draw(epoch / 2) : (int)draw(2 * epoch);
        if (i >= MAIN)
            all[i].leaves = (int)(epoch + 1 + draw(2 * epoch));
    }
    all[2].leaves = (int)(epoch + 1 + draw(epoch - 2));
    all[2].away = 1 + (int)draw(10);
}

/* Whole members: every sample once in each epoch. Guests: at most once. */
static void check_epochs(const member *m, bool whole)
{
    int seen[EPOCHS][IMAGES] = {0}, wrong = 0;
    for (size_t i = 0; i < m->count; i++)
        seen[m->got[i].epoch][m->got[i].id]++;
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < IMAGES; i++)
            wrong += whole ? seen[e][i] != 1 : seen[e][i] > 1;
    CHECKF(wrong == 0 && (!whole || m->count == (size_t)EPOCHS * IMAGES),
           "%d %% cached: %d samples not exactly once, %zu in all", percent, wrong, m->count);
}

/* No preparation twice to one member; for all of them it is the same sample and the same bytes.
 * Returns how many deliveries were of a preparation that another had, too. */
static int check_numbers(const member *all)
{
    static kit_sample first[NUMBERS];
    static int taker[NUMBERS];
    int shared = 0;
    memset(taker, 0, sizeof taker);
    for (int k = 0; k < MEMBERS; k++)
        for (size_t i = 0; i < all[k].count; i++) {
            const kit_sample *s = &all[k].got[i];
            if (s->number < 0 || s->number >= NUMBERS) {
                CHECKF(false, "preparation %lld", (long long)s->number);
                continue;
            }
            CHECKF(!(taker[s->number] & 1 << k), "preparation %lld twice to job %d",
                   (long long)s->number, k);
            if (!taker[s->number])
                first[s->number] = *s;
            else
                shared++;
            CHECK(first[s->number].id == s->id && first[s->number].crc == s->crc);
            taker[s->number] |= 1 << k;
        }
    return shared;
}

static void check_engine(pst_engine *engine, const member *one)
{
    char *text = NULL;
    CHECKF(pst_engine_check(engine, &text) == 0, "%s", text ? text : "");
    pst_free(text);
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(one->job, &s);
    const uint64_t most = (uint64_t)IMAGES * (uint64_t)percent / 100;
    CHECKF(s.form_entries[2] <= most, "%d %% cached: %d entries", percent, (int)s.form_entries[2]);
    if (s.form_entries[2])
        CHECKF(s.form_bytes[2] / s.form_entries[2] == KIT_ENTRY_BYTES, "an entry takes %d bytes",
               (int)(s.form_bytes[2] / s.form_entries[2]));
}

static void one_schedule(void)
{
    pst_engine *engine = kit_sharing_engine(3, IMAGES * percent / 100);
    member all[MEMBERS];
    plan(all);
    for (int turn = 0, more = 1; more; turn++) {
        more = 0;
        for (int i = 0; i < MEMBERS; i++) {
            turn_of(&all[i], engine, turn, (uint64_t)i + 1);
            more += !all[i].done;
        }
        if (all[0].job && turn % 16 == 0)
            check_engine(engine, &all[0]);
    }
    for (int i = 0; i < MEMBERS; i++)
        check_epochs(&all[i], i < MAIN);
    const int shared = check_numbers(all);
    CHECKF(shared > 0, "%d %% cached: nothing was shared", percent);
    for (int i = 0; i < MEMBERS; i++)
        free(all[i].got);
    pst_engine_free(engine);
}

static int seeds = 2;

static void every_sample_once_and_no_preparation_twice(void)
{
    static const int cached[] = {5, 20, 40, 100};
    for (int s = 1; s <= seeds; s++)
        for (size_t k = 0; k < sizeof cached / sizeof *cached; k++) {
            seed = (uint64_t)s;
            percent = cached[k];
            const int before = check_in_behaviour;
            one_schedule();
            if (check_in_behaviour > before)
                fprintf(stderr, "that was seed %d with %d %% cached\n", s, percent);
        }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seeds = atoi(argv[1]);
    folder = kit_folder();
    kit_images(folder, IMAGES, CLASSES);
    data = kit_dataset(folder);
    RUN(every_sample_once_and_no_preparation_twice);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
