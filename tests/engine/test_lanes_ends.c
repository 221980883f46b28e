/* SPDX-License-Identifier: Apache-2.0
 * Slow samples that are put aside, or finished and waiting for room, when something comes to an
 * end or goes wrong: another epoch, a closed or aborted job, a freed engine, other jobs, too little
 * memory, bad samples. Nothing may hang, and what goes on delivers each sample once. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "lanes_kit.h"

static char *folder;
static pst_dataset *data;
static ledger model; /* of LANES_PIPELINE, one epoch, sorted */
/* Nothing; slow samples are worked on; all are finished and as much as may be is held. */
static const int64_t idles[] = {0, 4000000, 60000000};
enum { IDLES = sizeof idles / sizeof *idles };

/* Opens a job, puts samples aside, then takes nothing for a while. */
static pst_job *open_aside(pst_engine *engine, int64_t idle_ns, ledger *out)
{
    const pst_job_options o = lanes_options(LANES_PIPELINE, 0);
    pst_job *job = kit_job(engine, data, &o);
    ledger own = {0};
    for (int e = 0; e < 5 && lanes_parks(job) == 0; e++)
        CHECK(lanes_drive(&job, 1, LANES_PACE, 12, out ? out : &own) == 0);
    CHECK(lanes_parks(job) > 0);
    ledger_free(&own);
    if (idle_ns)
        lanes_pause(idle_ns);
    return job;
}

static void check_epoch(const ledger *got, uint64_t epoch, const char *what)
{
    int seen[LANES_SAMPLES] = {0}, wrong = 0;
    for (size_t i = 0; i < got->count; i++)
        if (got->at[i].epoch == epoch)
            seen[got->at[i].id]++;
    for (int i = 0; i < LANES_SAMPLES; i++)
        wrong += seen[i] != 1;
    CHECKF(wrong == 0, "%s: %d samples not once", what, wrong);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void another_epoch_begins_anew(void)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    for (int i = 0; i < IDLES; i++) {
        ledger got = {0};
        pst_job *job = open_aside(engine, idles[i], NULL);
        CHECK(pst_job_set_epoch(job, 5) == 0);
        CHECK(lanes_drive(&job, 1, LANES_PACE, 0, &got) == 0);
        check_epoch(&got, 5, "another epoch");
        CHECK(got.count == LANES_SAMPLES);
        got.count = 0;
        CHECK(pst_job_set_epoch(job, 0) == 0 && lanes_drive(&job, 1, 0, 0, &got) == 0);
        ledger_sort(&got);
        CHECK(ledger_same(&got, &model));
        pst_job_close(job);
        ledger_free(&got);
    }
    pst_engine_free(engine);
}

static void jobs_close_and_engines_go(void)
{
    for (int i = 0; i < 3 * IDLES; i++) {
        pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
        pst_job *job = open_aside(engine, idles[i % IDLES], NULL);
        pst_batch *b;
        if (i / IDLES == 1) {
            pst_engine_free(engine);
            CHECK(pst_job_next(job, 0, &b) < 0);
        } else if (i / IDLES == 2) {
            pst_job_abort(job);
            CHECK(pst_job_next(job, -1, &b) == -ECANCELED);
        }
        pst_job_close(job);
        if (i / IDLES != 1)
            pst_engine_free(engine);
    }
}

static void closing_one_job_leaves_the_other_alone(void)
{
    for (int i = 0; i < IDLES; i++) {
        pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
        const pst_job_options o = lanes_options(LANES_PIPELINE, 1);
        ledger got = {0};
        pst_job *stays = kit_job(engine, data, &o);
        pst_job *goes = open_aside(engine, idles[i], NULL);
        CHECK(lanes_drive(&stays, 1, LANES_PACE, 4, &got) == 0);
        pst_job_close(goes);
        CHECK(lanes_drive(&stays, 1, LANES_PACE, 0, &got) == 0);
        ledger_sort(&got);
        CHECK(ledger_same(&got, &model));
        pst_job_close(stays);
        pst_engine_free(engine);
        ledger_free(&got);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The thread that opens the second job is the one that should take from the first. */
static void a_second_job_opens_beside_what_is_aside(void)
{
    for (int i = 0; i < IDLES; i++)
        for (int wide = 0; wide < 2; wide++) {
            pst_engine *engine = kit_engine(LANES_WORKERS, 16 << 20);
            ledger first = {0}, second = {0};
            pst_job *job = open_aside(engine, idles[i], &first);
            pst_job_options o = kit_options("decode | random_resized_crop(224)", 4, 1, 1);
            o.batch = wide ? 16 : 4; /* with sixteen only the shallowest ring fits */
            pst_job *other = kit_job(engine, data, &o);
            CHECK(kit_collect(other, 0, 1, SIZE_MAX, &second) == 0);
            CHECK(second.count == LANES_SAMPLES);
            CHECK(lanes_drive(&job, 1, 0, 0, &first) == 0);
            check_epoch(&first, first.at[first.count - 1].epoch, "the first job");
            pst_job_close(job);
            pst_job_close(other);
            pst_engine_free(engine);
            ledger_free(&first);
            ledger_free(&second);
        }
}

static void write_squares(const char *to, int index, const uint8_t *bytes, size_t size)
{
    char name[64];
    kit_name(index, 1, name);
    kit_write(to, name, bytes, size);
}

/* Slow samples of medium size, behind them large ones, which need most of the bytes there are: in
 * the folder `to`, LANES_SAMPLES in all. */
static void write_mixed(const char *to, int medium_side, int large_side)
{
    size_t small_size, medium_size, large_size;
    uint8_t *small = kit_jpeg(24, 24, 1, false, &small_size);
    uint8_t *medium = kit_jpeg(medium_side, medium_side, 2, false, &medium_size);
    uint8_t *large = kit_jpeg(large_side, large_side, 3, false, &large_size);
    for (int i = 0; i < LANES_SAMPLES; i++) {
        const int at = i % LANES_EVERY;
        if (at < LANES_RUN - 4)
            write_squares(to, i, medium, medium_size);
        else if (at < LANES_RUN + 4)
            write_squares(to, i, large, large_size);
        else
            write_squares(to, i, small, small_size);
    }
    free(small);
    free(medium);
    free(large);
}

/* How often samples were put aside. */
static uint64_t try_large(pst_dataset *from)
{
    pst_engine *engine = kit_engine(4, 16 << 20);
    pst_job_options o =
        lanes_options("decode | " LANES_DELAYS " | center_crop(16) | normalize(imagenet)", 1);
    o.batch = 8;
    o.without = PST_WITHOUT_PREDICTION; /* large ones would be known to be slow */
    ledger got = {0};
    pst_job *job = kit_job(engine, from, &o);
    const int rc = lanes_drive(&job, 1, 4 * LANES_PACE, 0, &got);
    CHECKF(rc == 0, "%s", pst_strerror(rc));
    check_epoch(&got, 0, "large samples");
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(job, &stats);
    /* The large ones pass the limit by what is aside, a quarter of what there is for them. */
    CHECKF(stats.peak_bytes <= 37 << 19, "%.1f MiB of 16", (double)stats.peak_bytes / 0x1p20);
    pst_job_close(job);
    pst_engine_free(engine);
    ledger_free(&got);
    return stats.slow_parked;
}

static void large_samples_do_not_wait_for_what_is_aside(void)
{
    char *mixed = kit_folder();
    write_mixed(mixed, 360, 1150);
    pst_dataset *from = kit_dataset(mixed);
    uint64_t parks = 0;
    for (int tries = 0; tries < 5 && parks == 0; tries++)
        parks += try_large(from);
    CHECK(parks > 0);
    pst_dataset_close(from);
    kit_remove(mixed);
}

/* All that the budget has left is what samples of the first job hold, some of which wait for its
 * consumer: this thread. */
static void a_job_opens_while_large_samples_are_held(void)
{
    char *mixed = kit_folder();
    write_mixed(mixed, 500, 500);
    pst_dataset *from = kit_dataset(mixed);
    for (int i = 0; i < 2 * IDLES; i++) {
        pst_engine *engine = kit_engine(4, 16 << 20);
        pst_job_options o =
            lanes_options("decode | " LANES_DELAYS " | center_crop(16) | normalize(imagenet)", 0);
        ledger first = {0}, second = {0};
        pst_job *job = kit_job(engine, from, &o);
        for (int e = 0; e < 5 && lanes_parks(job) == 0; e++)
            CHECK(lanes_drive(&job, 1, 2 * LANES_PACE, 1, &first) == 0);
        if (idles[i % IDLES])
            lanes_pause(idles[i % IDLES]);
        o = kit_options("decode | random_resized_crop(224)", 21 + i / IDLES, 1, 1);
        pst_job *other = kit_job(engine, data, &o);
        CHECK(kit_collect(other, 0, 1, SIZE_MAX, &second) == 0);
        CHECK(second.count == LANES_SAMPLES);
        CHECK(lanes_drive(&job, 1, 0, 0, &first) == 0);
        pst_job_close(job);
        pst_job_close(other);
        pst_engine_free(engine);
        ledger_free(&first);
        ledger_free(&second);
    }
    pst_dataset_close(from);
    kit_remove(mixed);
}

/* Each slow sample alone is more than may be put aside. */
static void without_memory_slow_samples_stay_where_they_are(void)
{
    char *mixed = kit_folder();
    write_mixed(mixed, 900, 900);
    pst_dataset *from = kit_dataset(mixed);
    pst_engine *engine = kit_engine(4, 16 << 20);
    pst_job_options o =
        lanes_options("decode | " LANES_DELAYS " | center_crop(16) | normalize(imagenet)", 1);
    o.batch = 8;
    ledger got = {0};
    pst_job *job = kit_job(engine, from, &o);
    CHECK(lanes_drive(&job, 1, 4 * LANES_PACE, 0, &got) == 0);
    check_epoch(&got, 0, "no memory");
    pst_job_close(job);
    pst_engine_free(engine);
    pst_dataset_close(from);
    kit_remove(mixed);
    ledger_free(&got);
}

/* ---- bad samples ----------------------------------------------------------------------------- */

static bool is_liked(int64_t id)
{
    return id < 100 || id % LANES_EVERY != 5; /* what is not liked is slow */
}

static int judge(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)user;
    const size_t row = (size_t)(in->cols * in->channels);
    uint8_t *to = pst_call_size(out, in->rows, in->cols, in->channels);
    for (int64_t y = 0; to && y < in->rows; y++)
        memcpy(to + (size_t)y * row, in->data + (size_t)y * in->stride, row);
    if (!is_liked(in->id))
        snprintf(err->message, sizeof err->message, "sample %d is not liked", (int)in->id);
    return to && is_liked(in->id) ? 0 : PST_ECALL;
}

static const pst_call judges[] = {{"judge", judge, NULL}};
static const int broken_files[] = {84, 130, 161, 246};
enum { BROKEN = sizeof broken_files / sizeof *broken_files };

static pst_job_options bad_options(int on_error)
{
    pst_job_options o = lanes_options("decode | random_resized_crop(16) | " LANES_DELAYS
                                      " | call(judge) | normalize(imagenet)",
                                      1);
    o.calls = judges;
    o.call_count = 1;
    o.on_error = on_error;
    o.skip_limit = on_error == PST_SKIP ? 20 : 0;
    return o;
}

static void check_skips(pst_dataset *from, int ends)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job_options o = bad_options(PST_SKIP);
    o.ends = ends;
    pst_job *job = kit_job(engine, from, &o);
    ledger got = {0};
    CHECK(lanes_drive(&job, 1, LANES_PACE, 0, &got) == 0);
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(job, &stats);
    int bad = BROKEN, seen[LANES_SAMPLES] = {0};
    for (int64_t id = 0; id < LANES_SAMPLES; id++)
        bad += !is_liked(id);
    CHECKF(stats.skipped == (uint64_t)bad, "%d skipped, %d are bad", (int)stats.skipped, bad);
    for (size_t i = 0; i < got.count; i++)
        seen[got.at[i].id] += got.at[i].valid;
    for (int i = 0; i < BROKEN; i++)
        seen[broken_files[i]]++;
    for (int64_t id = 0; id < LANES_SAMPLES; id++)
        CHECKF(seen[id] == is_liked(id), "ends %d: sample %d came %d times", ends, (int)id,
               seen[id]);
    pst_job_close(job);
    pst_engine_free(engine);
    ledger_free(&got);
}

static void bad_samples_are_skipped_or_told(void)
{
    char *to = lanes_folder();
    for (int i = 0; i < BROKEN; i++)
        kit_break(to, broken_files[i], 1);
    pst_dataset *from = kit_dataset(to);
    check_skips(from, PST_ENDS_SHORT);
    check_skips(from, PST_ENDS_PAD);
    for (int i = 0; i < 2; i++) { /* a function after the stages that are put off; a file */
        pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
        const pst_job_options o = bad_options(PST_RAISE);
        pst_job *job = kit_job(engine, i ? from : data, &o);
        ledger got = {0};
        const int rc = lanes_drive(&job, 1, LANES_PACE, 0, &got);
        CHECKF(i ? rc < 0 && rc != -ETIMEDOUT : rc == PST_ECALL, "%s", pst_strerror(rc));
        CHECK(got.count < LANES_SAMPLES);
        CHECK(pst_job_set_epoch(job, 1) == 0); /* an error is not for ever */
        CHECK(kit_collect(job, 0, 1, 2, &got) == 0);
        pst_job_close(job);
        pst_engine_free(engine);
        ledger_free(&got);
    }
    pst_dataset_close(from);
    kit_remove(to);
}

/* Slow samples at the end of an epoch turn out to be bad when the next epoch has taken all the
 * room: what makes up for them must start all the same. */
static int dislikes_the_last(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    const bool last = in->id >= LANES_SAMPLES - 8;
    if (last)
        snprintf(err->message, sizeof err->message, "sample %d is not liked", (int)in->id);
    return last ? PST_ECALL : judge(user, in, out, err);
}

static void what_makes_up_for_bad_slow_samples_finds_room(void)
{
    static const pst_call calls[] = {{"judge", dislikes_the_last, NULL}};
    for (int ends = PST_ENDS_DROP; ends <= PST_ENDS_PAD; ends++) {
        pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
        pst_job_options o = bad_options(PST_SKIP);
        o.calls = calls;
        o.ends = ends;
        o.epochs = 4;
        o.skip_limit = LANES_SAMPLES;
        pst_job *job = kit_job(engine, data, &o);
        ledger got = {0};
        for (int e = 0; e < 4; e++)
            CHECK(lanes_drive(&job, 1, e % 2 ? LANES_PACE : 0, 0, &got) == 0);
        pst_job_close(job);
        pst_engine_free(engine);
        ledger_free(&got);
    }
}

#define RUN_IN_TIME(behaviour)                                                                     \
    do {                                                                                           \
        alarm(120); /* a hang ends the program */                                                  \
        RUN(behaviour);                                                                            \
        fflush(stdout);                                                                            \
    } while (0)

int main(void)
{
    folder = lanes_folder();
    data = kit_dataset(folder);
    const pst_job_options o = lanes_options(LANES_PIPELINE, 1);
    model = lanes_model(data, &o, 1);
    RUN_IN_TIME(another_epoch_begins_anew);
    RUN_IN_TIME(jobs_close_and_engines_go);
    RUN_IN_TIME(closing_one_job_leaves_the_other_alone);
    RUN_IN_TIME(a_second_job_opens_beside_what_is_aside);
    RUN_IN_TIME(large_samples_do_not_wait_for_what_is_aside);
    RUN_IN_TIME(a_job_opens_while_large_samples_are_held);
    RUN_IN_TIME(without_memory_slow_samples_stay_where_they_are);
    RUN_IN_TIME(bad_samples_are_skipped_or_told);
    RUN_IN_TIME(what_makes_up_for_bad_slow_samples_finds_room);
    ledger_free(&model);
    pst_dataset_close(data);
    kit_remove(folder);
    return check_report();
}
