/* SPDX-License-Identifier: Apache-2.0
 * Slow samples that are put aside in ready order: each sample comes once and with the bytes that it
 * always has, within the reorder window, whatever the ranks, ends, shapes, caches and resumes; no
 * stage runs twice and none is left out. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "lanes_kit.h"

enum { EPOCHS = 2, WINDOW = 64, TRIES = 5 /* on a busy machine nothing may be put aside */ };
static char *folder;
static pst_dataset *data;
static ledger model; /* of LANES_PIPELINE, EPOCHS epochs, sorted */

/* Of an epoch's lines, how many ids are there, and whether each has the model's bytes. */
static void check_bytes(ledger *got, const ledger *want, size_t missing, const char *what)
{
    ledger_sort(got);
    size_t j = 0, wrong = 0;
    for (size_t i = 0; i < got->count; i++, j++) {
        while (j < want->count &&
               (want->at[j].epoch != got->at[i].epoch || want->at[j].id != got->at[i].id))
            j++;
        wrong += j >= want->count || want->at[j].crc != got->at[i].crc;
    }
    CHECKF(wrong == 0, "%s: %zu samples twice or with other bytes", what, wrong);
    CHECKF(got->count + missing == want->count, "%s: %zu of %zu samples", what, got->count,
           want->count);
}

/* ---- once, with the same bytes --------------------------------------------------------------- */

static uint64_t drive_epochs(pst_dataset *from, const pst_job_options *o, int world, ledger *out)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job *jobs[LANES_RANKS];
    uint64_t parks = 0;
    lanes_open(engine, from, o, world, jobs);
    for (uint64_t e = 0; e < o->epochs; e++) {
        const int rc = lanes_drive(jobs, world, o->batch * LANES_PACE / 4, 0, out);
        CHECKF(rc == 0, "world %d, epoch %d: %s", world, (int)e, pst_strerror(rc));
    }
    for (int rank = 0; rank < world; rank++) {
        parks += lanes_parks(jobs[rank]);
        pst_job_close(jobs[rank]);
    }
    pst_engine_free(engine);
    return parks;
}

static void every_sample_comes_once_with_its_bytes(void)
{
    static const int batches[] = {4, 7, 3};
    uint64_t parks = 0;
    for (int world = 1; world <= LANES_RANKS; world += 2)
        for (int ends = PST_ENDS_DROP; ends <= PST_ENDS_SHORT; ends++) {
            pst_job_options o = lanes_options(LANES_PIPELINE, EPOCHS);
            o.batch = batches[ends - PST_ENDS_DROP];
            o.ends = ends;
            ledger got = {0};
            char what[64];
            snprintf(what, sizeof what, "world %d, ends %d", world, ends);
            parks += drive_epochs(data, &o, world, &got);
            const size_t whole = (size_t)(world * o.batch);
            check_bytes(&got, &model, ends == PST_ENDS_DROP ? EPOCHS * (LANES_SAMPLES % whole) : 0,
                        what);
            ledger_free(&got);
        }
    CHECK(parks > 0);
}

static void the_end_of_an_epoch_does_not_wait_for_the_next(void)
{
    int64_t ids[LANES_SAMPLES - 11]; /* the slow ones come last */
    enum { COUNT = sizeof ids / sizeof *ids };
    for (int i = 0; i < COUNT; i++)
        ids[i] = (i + LANES_RUN) % COUNT;
    pst_job_options o = lanes_options(LANES_PIPELINE, 3);
    o.sampler = PST_GIVEN;
    o.ids = ids;
    o.ids_count = COUNT;
    ledger got = {0};
    drive_epochs(data, &o, 1, &got);
    CHECK(got.count == 3 * COUNT);
    ledger_free(&got);
}

static void varying_shapes_come_once(void)
{
    static const char *const fields[] = {"image,label", "image=padded,label"};
    uint64_t parks = 0;
    for (int f = 0; f < 2; f++) {
        pst_job_options o = lanes_options("decode | hflip | " LANES_DELAYS, EPOCHS);
        o.fields = fields[f];
        ledger want = lanes_model(data, &o, EPOCHS), got = {0};
        parks += drive_epochs(data, &o, 1, &got);
        check_bytes(&got, &want, 0, fields[f]);
        ledger_free(&want);
        ledger_free(&got);
    }
    CHECK(parks > 0);
}

/* ---- age ------------------------------------------------------------------------------------- */

typedef struct marks {
    _Atomic int64_t handed_over; /* samples */
    _Atomic int64_t at[LANES_SAMPLES];
    atomic_int runs[LANES_SAMPLES];
} marks;

static int copy_through(const pst_call_in *in, pst_call_out *out)
{
    const size_t row = (size_t)(in->cols * in->channels);
    uint8_t *to = pst_call_size(out, in->rows, in->cols, in->channels);
    for (int64_t y = 0; to && y < in->rows; y++)
        memcpy(to + (size_t)y * row, in->data + (size_t)y * in->stride, row);
    return to ? 0 : PST_ECALL;
}

static int mark(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)err;
    marks *m = user;
    atomic_store(&m->at[in->id], atomic_load(&m->handed_over));
    atomic_fetch_add(&m->runs[in->id], 1);
    return copy_through(in, out);
}

static int64_t check_age(pst_job *job, marks *m)
{
    int64_t most = 0, handed_over = 0;
    pst_batch *b;
    int rc;
    while ((rc = pst_job_next(job, 20000000000, &b)) == 1) {
        const pst_batch_desc *desc = pst_batch_get(b);
        const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
        for (uint32_t i = 0; i < desc->slots; i++) {
            const int64_t age = handed_over - atomic_load(&m->at[ids[i]]);
            most = age > most ? age : most;
        }
        handed_over += desc->slots;
        atomic_store(&m->handed_over, handed_over);
        pst_batch_release(b);
        if (handed_over / 4 % 6 == 0)
            lanes_pause(6 * LANES_PACE);
    }
    CHECK(rc == 0 && handed_over == LANES_SAMPLES);
    return most;
}

/* Whether samples were put aside. */
static bool try_age(void)
{
    marks *m = calloc(1, sizeof *m);
    const pst_call calls[] = {{"mark", mark, m}};
    pst_job_options o = lanes_options(
        "decode | call(mark) | random_resized_crop(16) | " LANES_DELAYS " | normalize(imagenet)",
        1);
    o.calls = calls;
    o.call_count = 1;
    o.reorder_window = WINDOW;
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job *job = kit_job(engine, data, &o);
    const int64_t most = check_age(job, m);
    const bool parked = lanes_parks(job) > 0;
    CHECKF(most <= WINDOW, "one was overtaken by %d", (int)most);
    pst_job_close(job);
    pst_engine_free(engine);
    free(m);
    return parked && most > 4 * o.batch;
}

static void samples_are_overtaken_within_the_window(void)
{
    bool parked = false;
    for (int tries = 0; tries < TRIES && !parked; tries++)
        parked = try_age();
    CHECK(parked);
}

/* ---- no stage twice -------------------------------------------------------------------------- */

static pst_job_stats figures_of(const pst_job_options *o, ledger *out)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job *job = kit_job(engine, data, o);
    CHECK(lanes_drive(&job, 1, LANES_PACE, 0, out) == 0);
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(job, &stats);
    pst_job_close(job);
    pst_engine_free(engine);
    return stats;
}

/* Whether samples were put aside. */
static bool try_stages(void)
{
    static marks before, after;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    const pst_call calls[] = {{"before", mark, &before}, {"after", mark, &after}};
    pst_job_options o =
        lanes_options("decode | random_resized_crop(16) | call(before) | " LANES_DELAYS
                      " | call(after) | normalize(imagenet)",
                      1);
    o.calls = calls;
    o.call_count = 2;
    ledger a = {0}, b = {0};
    const pst_job_stats with = figures_of(&o, &a);
    for (int i = 0; i < LANES_SAMPLES; i++)
        CHECKF(before.runs[i] == 1 && after.runs[i] == 1, "sample %d: %d and %d times", i,
               before.runs[i], after.runs[i]);
    o.schedule = PST_SCHEDULE_PLAIN;
    const pst_job_stats plain = figures_of(&o, &b);
    CHECK(plain.slow_samples == 0 && plain.slow_parked == 0 && plain.slow_cutoff_ns == 0);
    CHECK(with.stage_count == plain.stage_count);
    for (uint32_t i = 0; i < with.stage_count; i++)
        CHECKF(with.stages[i].runs == plain.stages[i].runs && with.stages[i].runs > 0,
               "%s: %d and %d", with.stages[i].name, (int)with.stages[i].runs,
               (int)plain.stages[i].runs);
    CHECK(with.samples == LANES_SAMPLES && with.batches == plain.batches);
    CHECKF(with.fresh_batches == 0, "%d batches beyond the ring", (int)with.fresh_batches);
    CHECK(with.waits == with.batches && plain.waits == plain.batches);
    CHECK(with.preparations == LANES_SAMPLES && with.bytes_read == plain.bytes_read);
    ledger_sort(&a);
    ledger_sort(&b);
    CHECK(ledger_same(&a, &b));
    ledger_free(&a);
    ledger_free(&b);
    return with.slow_parked > 0 && with.slow_samples > 0 && with.slow_cutoff_ns > 0;
}

static void no_stage_runs_twice_and_none_is_lost(void)
{
    bool parked = false;
    for (int tries = 0; tries < TRIES && !parked; tries++)
        parked = try_stages();
    CHECK(parked);
}

static void lanes_can_be_left_out(void)
{
    pst_job_options o = lanes_options(LANES_PIPELINE, 1);
    o.without = PST_WITHOUT_LANES;
    ledger l = {0};
    const pst_job_stats stats = figures_of(&o, &l);
    CHECK(stats.slow_parked == 0 && stats.slow_samples == 0 && l.count == LANES_SAMPLES);
    ledger_free(&l);
}

/* ---- resuming -------------------------------------------------------------------------------- */

typedef struct blob {
    void *bytes;
    size_t size;
} blob;

static blob save(pst_job **jobs, int world)
{
    uint8_t parts[LANES_RANKS][9000];
    const void *at[LANES_RANKS];
    size_t sizes[LANES_RANKS];
    for (int rank = 0; rank < world; rank++) {
        at[rank] = parts[rank];
        CHECK(pst_job_state(jobs[rank], parts[rank], sizeof parts[rank], &sizes[rank]) == 0);
    }
    blob b;
    pst_error err;
    CHECK(pst_state_merge(at, sizes, (size_t)world, &b.bytes, &b.size, &err) == 0);
    return b;
}

/* Whether samples were aside when the state was taken. */
static bool resume_in(int world, int then, pst_engine *engine, int64_t idle_ns)
{
    const pst_job_options o = lanes_options(LANES_PIPELINE, 1);
    pst_job *jobs[LANES_RANKS];
    ledger got = {0};
    char what[64];
    snprintf(what, sizeof what, "world %d, then %d", world, then);
    lanes_open(engine, data, &o, world, jobs);
    CHECK(lanes_drive(jobs, world, LANES_PACE, world == 1 ? 12 : 3, &got) == 0);
    const bool aside = got.count < LANES_SAMPLES;
    if (idle_ns)
        lanes_pause(idle_ns); /* slow samples are finished and wait for room */
    blob b = save(jobs, world);
    for (int rank = 0; rank < world; rank++)
        pst_job_close(jobs[rank]);
    lanes_open(engine, data, &o, then, jobs);
    for (int rank = 0; rank < then; rank++) {
        pst_error err;
        const int rc = pst_job_load_state(jobs[rank], b.bytes, b.size, &err);
        CHECKF(rc == 0, "%s: %s", what, err.message);
    }
    CHECK(lanes_drive(jobs, then, LANES_PACE / 2, 0, &got) == 0);
    for (int rank = 0; rank < then; rank++)
        pst_job_close(jobs[rank]);
    check_bytes(&got, &model, LANES_SAMPLES, what); /* the model has two epochs */
    pst_free(b.bytes);
    ledger_free(&got);
    return aside;
}

static void a_resume_is_exact_while_samples_are_aside(void)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    int aside = 0;
    for (int c = 0; c < 8; c++)
        aside += resume_in(1 + (c & 1), 1 + (c >> 1 & 1), engine, c & 4 ? 60000000 : 0);
    CHECK(aside > 0);
    pst_engine_free(engine);
}

/* ---- caches, groups, fetched samples --------------------------------------------------------- */

static pst_engine *engine_of_form(int form)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = LANES_WORKERS;
    o.memory_bytes = 64 << 20;
    o.cache_bytes = 8 << 20;
    o.forms[form] = 1;
    return kit_engine_with(&o);
}

static void a_cache_changes_no_byte(void)
{
    uint64_t parks = 0;
    for (int form = 0; form < 2; form++) {
        pst_engine *engine = engine_of_form(form);
        const pst_job_options o = lanes_options(LANES_PIPELINE, EPOCHS);
        pst_job *job = kit_job(engine, data, &o);
        ledger got = {0};
        for (int e = 0; e < EPOCHS; e++)
            CHECK(lanes_drive(&job, 1, LANES_PACE, 0, &got) == 0);
        pst_job_stats stats = {.size = sizeof stats};
        pst_job_stats_get(job, &stats);
        parks += stats.slow_parked;
        CHECKF(form == 0 || stats.cache_hits > LANES_SAMPLES / 2, "%d found",
               (int)stats.cache_hits);
        check_bytes(&got, &model, 0, form ? "decoded" : "encoded");
        pst_job_close(job);
        pst_engine_free(engine);
        ledger_free(&got);
    }
    CHECK(parks > 0);
}

static void check_once(const ledger *l, size_t epochs, const char *what)
{
    int seen[LANES_SAMPLES] = {0}, wrong = 0;
    for (size_t i = 0; i < l->count; i++)
        seen[l->at[i].id]++;
    for (int i = 0; i < LANES_SAMPLES; i++)
        wrong += seen[i] != (int)epochs;
    CHECKF(wrong == 0, "%s: %d samples came more or less than %zu times", what, wrong, epochs);
}

/* One job's consumer stops while its samples are aside; the other one comes to its end. */
static void jobs_of_a_group_end_whatever_the_others_do(void)
{
    pst_engine *engine = kit_sharing_engine(LANES_WORKERS / 2, LANES_SAMPLES + 50);
    pst_job_options o = lanes_options(LANES_PIPELINE, 2);
    o.sampling = PST_SAMPLING_OPPORTUNISTIC;
    o.reorder_window = 240;
    pst_job *one = kit_job(engine, data, &o);
    ledger a = {0}, b = {0};
    CHECK(lanes_drive(&one, 1, 2 * LANES_PACE, 8, &a) == 0);
    lanes_pause(60000000);
    pst_job *other = kit_job(engine, data, &o);
    const int rc = lanes_drive(&other, 1, 0, 0, &b);
    CHECKF(rc == 0, "the other job: %s", pst_strerror(rc));
    check_once(&b, 1, "the other job");
    CHECK(lanes_drive(&one, 1, 0, 0, &a) == 0 && lanes_drive(&other, 1, LANES_PACE, 0, &b) == 0);
    check_once(&b, 2, "the other job");
    CHECK(a.count % LANES_SAMPLES == 0);
    check_once(&a, a.count / LANES_SAMPLES, "the job that stopped");
    pst_job_close(one);
    pst_job_close(other);
    pst_engine_free(engine);
    ledger_free(&a);
    ledger_free(&b);
}

static int fetch_file(void *user, int64_t id, pst_sink *sink, pst_error *err)
{
    (void)user;
    void *bytes;
    size_t size;
    const int rc = pst_dataset_read(data, id, "image", &bytes, &size, err);
    if (rc < 0)
        return rc;
    pst_sink_bytes(sink, 0, bytes, size);
    pst_sink_int(sink, 1, 0);
    pst_free(bytes);
    return 0;
}

static pst_dataset *fetched(void)
{
    pst_custom spec;
    pst_custom_init(&spec);
    spec.count = LANES_SAMPLES;
    spec.name = "lanes";
    spec.threads = 3;
    spec.read = fetch_file;
    pst_dataset *d = NULL;
    pst_error err;
    const int rc = pst_dataset_custom(&spec, &d, &err);
    CHECKF(rc == 0, "%s", err.message);
    return d;
}

static void fetched_samples_come_once(void)
{
    static const struct {
        int schedule, order;
    } cases[] = {{PST_SCHEDULE_PENSTOCK, PST_ORDER_READY},
                 {PST_SCHEDULE_BATCH_PER_WORKER, PST_ORDER_READY},
                 {PST_SCHEDULE_BATCH_PER_WORKER, PST_ORDER_STRICT}};
    pst_dataset *from = fetched();
    for (int c = 0; c < 3; c++) {
        pst_job_options o = lanes_options(LANES_PIPELINE, 1);
        o.schedule = cases[c].schedule;
        o.order = cases[c].order;
        ledger got = {0};
        const uint64_t parks = drive_epochs(from, &o, 1, &got);
        CHECK(parks == 0 || c == 0);
        check_bytes(&got, &model, LANES_SAMPLES, "fetched");
        ledger_free(&got);
    }
    pst_dataset_close(from);
}

int main(void)
{
    folder = lanes_folder();
    data = kit_dataset(folder);
    const pst_job_options o = lanes_options(LANES_PIPELINE, EPOCHS);
    model = lanes_model(data, &o, EPOCHS);
    CHECK(model.count == EPOCHS * LANES_SAMPLES);
    RUN(every_sample_comes_once_with_its_bytes);
    RUN(the_end_of_an_epoch_does_not_wait_for_the_next);
    RUN(varying_shapes_come_once);
    RUN(samples_are_overtaken_within_the_window);
    RUN(no_stage_runs_twice_and_none_is_lost);
    RUN(lanes_can_be_left_out);
    RUN(a_resume_is_exact_while_samples_are_aside);
    RUN(a_cache_changes_no_byte);
    RUN(jobs_of_a_group_end_whatever_the_others_do);
    RUN(fetched_samples_come_once);
    ledger_free(&model);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
