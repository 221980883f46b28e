/* SPDX-License-Identifier: Apache-2.0
 * The disk tier under an engine: it changes speed and nothing else. Ledgers with and without it are
 * the same, in the first run and after a restart, with files in it that are damaged, and with the
 * directory taken away at any moment; what was there is used. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_kit.h"

enum { IMAGES = 60, BATCH = 7, EPOCHS = 3 };
#define MIB ((uint64_t)1 << 20)

/* Slow enough to decode that keeping the form always pays. */
#define SLOW "decode | delay(0.3) | random_resized_crop(16) | hflip | normalize(imagenet)"

static void mute(int level, const char *text, void *user)
{
    (void)level;
    (void)user;
    (void)text;
}

/* A folder for a tier, which is not there yet. */
static char *tier_folder(void)
{
    char *folder = kit_folder();
    rmdir(folder);
    return folder;
}

typedef struct setup {
    const char *dir; /* NULL: no tier */
    const char *quota;
    uint64_t memory, cache;
    int workers;
    bool members;
} setup;

static pst_engine *engine_of(const setup *s)
{
    pst_engine_options o;
    char text[4200];
    pst_engine_options_init(&o);
    snprintf(text, sizeof text, "%s:%s", s->dir ? s->dir : "", s->quota ? s->quota : "64M");
    o.workers = s->workers ? s->workers : 2;
    o.memory_bytes = s->memory ? s->memory : 192 * MIB;
    o.cache_bytes = s->cache;
    o.disk = s->dir ? text : NULL;
    pst_engine *engine = kit_engine_with(&o);
    if (s->members)
        psti_pool_keep_members(psti_engine_pool(engine));
    return engine;
}

static pst_job_stats stats_of(const pst_job *job)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(job, &s);
    return s;
}

static pst_job_stats run(pst_dataset *data, const pst_job_options *o, const setup *s, ledger *out)
{
    pst_engine *engine = engine_of(s);
    pst_job *job = kit_job(engine, data, o);
    pst_error err = {0};
    if (kit_collect(job, 0, o->epochs, SIZE_MAX, out) != 0)
        pst_job_error(job, &err);
    CHECKF(!err.code, "%s", err.message);
    if (s->dir)
        psti_disk_flush(psti_engine_disk(engine));
    const pst_job_stats stats = stats_of(job);
    pst_job_close(job);
    CHECK(pst_engine_check(engine, NULL) == 0);
    pst_engine_free(engine);
    return stats;
}

/* The same order and bytes as `plain`. */
static pst_job_stats run_same(pst_dataset *data, const pst_job_options *o, const setup *s,
                              const ledger *plain, const char *what)
{
    ledger mine = {0};
    const pst_job_stats stats = run(data, o, s, &mine);
    CHECKF(ledger_same_order(plain, &mine), "%s: %s", o->pipeline, what);
    ledger_free(&mine);
    return stats;
}

/* Each entry of the tier. */
static void each_file(const char *dir, void (*fn)(const char *path, int number))
{
    int number = 0;
    for (int i = 0; i < 256; i++) {
        char folder[4200], path[4600];
        snprintf(folder, sizeof folder, "%s/%02x", dir, (unsigned)i);
        DIR *d = opendir(folder);
        struct dirent *f;
        while (d && (f = readdir(d))) {
            snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
            if (f->d_name[0] != '.')
                fn(path, number++);
        }
        if (d)
            closedir(d);
    }
}

/* ---- the same bytes -------------------------------------------------------------------------- */

static const char *const pipelines[] = {
    SLOW,
    KIT_PIPELINE,
    "decode | resize(20) | random_crop(16, padding=2) | hflip | normalize(imagenet)",
    "decode | resize(24) | center_crop(16)",
    "decode | hflip | vflip",
};

static void a_tier_changes_no_byte_and_no_order(void)
{
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    for (size_t p = 0; p < sizeof pipelines / sizeof *pipelines; p++)
        for (int way = 0; way < 4; way++) {
            char *dir = tier_folder();
            ledger plain = {0};
            const pst_job_options o = kit_options(pipelines[p], BATCH, 5, EPOCHS);
            setup s = {.cache = way & 1 ? 16 * MIB : 0, .members = way & 2};
            run(data, &o, &s, &plain);
            s.dir = dir;
            const pst_job_stats cold = run_same(data, &o, &s, &plain, "cold");
            const pst_job_stats warm = run_same(data, &o, &s, &plain, "warm");
            CHECK(!cold.disk_errors && !cold.disk_damaged && !cold.disk_off && !warm.disk_damaged);
            if (p == 0) {
                CHECKF(cold.disk_written == IMAGES, "%llu", (unsigned long long)cold.disk_written);
                CHECKF(warm.disk_misses == 0 && warm.bytes_read == 0, "%llu",
                       (unsigned long long)warm.disk_misses);
                CHECK(way & 1 || warm.disk_hits == EPOCHS * IMAGES);
            }
            s.workers = 4;
            run_same(data, &o, &s, &plain, "with four workers");
            ledger_free(&plain);
            kit_remove(dir);
        }
    pst_dataset_close(data);
    kit_remove(folder);
}

static void bad_samples_are_the_same_ones(void)
{
    char *folder = kit_folder(), *dir = tier_folder();
    kit_images(folder, IMAGES, 3);
    kit_break(folder, 11, 3);
    kit_break(folder, 30, 3);
    pst_dataset *data = kit_dataset(folder);
    pst_job_options o = kit_options(SLOW, BATCH, 5, EPOCHS);
    o.on_error = PST_SKIP;
    o.skip_limit = 5;
    for (int order = PST_ORDER_STRICT; order <= PST_ORDER_READY; order++) {
        o.order = order;
        ledger plain = {0}, tiered = {0};
        setup s = {0};
        const pst_job_stats a = run(data, &o, &s, &plain);
        s.dir = dir;
        const pst_job_stats b = run(data, &o, &s, &tiered);
        ledger_sort(&plain);
        ledger_sort(&tiered);
        CHECK(ledger_same(&plain, &tiered) && a.skipped == b.skipped && b.disk_hits > 0);
        ledger_free(&plain);
        ledger_free(&tiered);
    }
    pst_dataset_close(data);
    kit_remove(folder);
    kit_remove(dir);
}

static void a_changed_file_is_another_sample(void)
{
    char *folder = kit_folder(), *dir = tier_folder();
    kit_images(folder, IMAGES, 3);
    const pst_job_options o = kit_options(SLOW, BATCH, 5, 1);
    const setup s = {.dir = dir}, none = {0};
    for (int round = 0; round < 2; round++) {
        pst_dataset *data = kit_dataset(folder);
        ledger plain = {0};
        run(data, &o, &none, &plain);
        const pst_job_stats stats = run_same(data, &o, &s, &plain, "changed");
        CHECK(round == 0 || stats.disk_hits == IMAGES - 1);
        ledger_free(&plain);
        pst_dataset_close(data);
        char name[64];
        size_t size;
        uint8_t *bytes = kit_jpeg(31, 33, 4242, false, &size);
        kit_name(5, 3, name);
        kit_write(folder, name, bytes, size);
        free(bytes);
    }
    kit_remove(folder);
    kit_remove(dir);
}

/* ---- damage and loss ------------------------------------------------------------------------- */

static void flip(const char *path, int number)
{
    struct stat st;
    uint8_t byte = 0;
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    const off_t at = (off_t)((unsigned)number * 2654435761u % (unsigned)st.st_size);
    CHECK(pread(fd, &byte, 1, at) == 1);
    byte ^= (uint8_t)(1 << number % 8);
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void cut(const char *path, int number)
{
    CHECK(truncate(path, number % 3 ? 100 : 0) == 0);
}

static void replace(const char *path, int number)
{
    CHECK(unlink(path) == 0);
    if (number % 2)
        CHECK(symlink("/etc/passwd", path) == 0);
    else
        CHECK(mkdir(path, 0700) == 0);
}

/* Sizes that no such picture has, with sums that are right: as somebody would who can write there.
 * The sum of head and descriptions is at 76, where the content begins at 56. */
static void lie(const char *path, int number)
{
    static const int64_t lies[] = {20000, 1, INT32_MAX, -1, INT64_MAX};
    uint8_t head[4096];
    uint64_t front;
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, head, sizeof head, 0) > 280);
    memcpy(&front, head + 56, sizeof front);
    memcpy(head + 128 + number / 5 % 3 * 8, &lies[number % 5], 8); /* rows, columns or channels */
    memset(head + 76, 0, 4);
    const uint32_t crc = pst_crc32c(0, head, front);
    memcpy(head + 76, &crc, sizeof crc);
    CHECK(pwrite(fd, head, front, 0) == (ssize_t)front);
    close(fd);
}

static void damaged_entries_are_never_served(void)
{
    static void (*const harms[])(const char *, int) = {flip, cut, replace, lie};
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    for (int way = 0; way < 4; way++) {
        char *dir = tier_folder();
        ledger plain = {0};
        const pst_job_options o = kit_options(SLOW, BATCH, 5, EPOCHS);
        setup s = {0};
        run(data, &o, &s, &plain);
        s.dir = dir;
        run_same(data, &o, &s, &plain, "before");
        each_file(dir, harms[way]);
        const pst_job_stats hurt = run_same(data, &o, &s, &plain, "hurt");
        /* Whoever found one before it was written anew takes the new one for the old. */
        CHECKF(hurt.disk_damaged >= IMAGES && !hurt.disk_errors, "way %d: %llu, %llu", way,
               (unsigned long long)hurt.disk_damaged, (unsigned long long)hurt.disk_errors);
        run_same(data, &o, &s, &plain, "after");
        ledger_free(&plain);
        kit_remove(dir);
    }
    pst_dataset_close(data);
    kit_remove(folder);
}

/* The directory goes after so many batches. */
static void lose(pst_dataset *data, const setup *s, const ledger *plain, size_t batches)
{
    const pst_job_options o = kit_options(SLOW, BATCH, 5, EPOCHS);
    pst_engine *engine = engine_of(s);
    pst_job *job = kit_job(engine, data, &o);
    ledger mine = {0};
    int rc = kit_collect(job, 0, EPOCHS, batches, &mine);
    char away[4200];
    snprintf(away, sizeof away, "%s.away", s->dir);
    CHECK(rename(s->dir, away) == 0);
    kit_remove(strdup(away));
    if (rc >= 0 && mine.count < plain->count)
        rc = kit_collect(job, 0, EPOCHS, SIZE_MAX, &mine);
    CHECK(rc == 0);
    CHECKF(ledger_same_order(plain, &mine), "lost after %zu batches", batches);
    ledger_free(&mine);
    pst_job_close(job);
    pst_engine_free(engine);
}

static void a_tier_that_is_lost_costs_nothing_but_time(void)
{
    char *folder = kit_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    const pst_job_options o = kit_options(SLOW, BATCH, 5, EPOCHS);
    ledger plain = {0};
    setup s = {0};
    run(data, &o, &s, &plain);
    for (size_t batches = 1; batches < 26; batches += 6)
        for (int warm = 0; warm < 2; warm++) {
            char *dir = tier_folder();
            s.dir = dir;
            if (warm)
                run_same(data, &o, &s, &plain, "warm");
            lose(data, &s, &plain, batches);
            kit_remove(dir);
        }
    ledger_free(&plain);
    pst_dataset_close(data);
    kit_remove(folder);
}

/* Tasks go from job to job: what one left behind is nothing to the next. */
static void a_job_without_tiers_beside_one_with(void)
{
    char *folder = kit_folder(), *other = kit_folder(), *dir = tier_folder();
    kit_images(folder, IMAGES, 3);
    kit_images(other, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder), *changing = kit_dataset(other);
    const setup s = {.dir = dir}, none = {0};
    const pst_job_options o = kit_options(SLOW, BATCH, 5, EPOCHS);
    pst_job_options apart = kit_options(KIT_PIPELINE, BATCH, 5, 1);
    apart.no_cache = 1;
    ledger first = {0}, mine = {0}, plain = {0};
    pst_engine *engine = engine_of(&s);
    pst_job *job = kit_job(engine, data, &o);
    CHECK(kit_collect(job, 0, EPOCHS, SIZE_MAX, &first) == 0 && stats_of(job).disk_hits > 0);
    pst_job_close(job);
    for (int i = 0; i < IMAGES; i++) { /* every file of the other is another one now */
        char name[64];
        size_t size;
        uint8_t *bytes = kit_jpeg(40 + i % 9, 37, 7000 + (unsigned)i, false, &size);
        kit_name(i, 3, name);
        kit_write(other, name, bytes, size);
        free(bytes);
    }
    job = kit_job(engine, changing, &apart);
    CHECK(kit_collect(job, 0, 1, SIZE_MAX, &mine) == 0);
    CHECK(stats_of(job).bytes_read > 0 && stats_of(job).disk_hits == 0);
    pst_job_close(job);
    pst_engine_free(engine);
    run(changing, &apart, &none, &plain);
    CHECK(ledger_same_order(&plain, &mine));
    ledger_free(&first);
    ledger_free(&mine);
    ledger_free(&plain);
    pst_dataset_close(data);
    pst_dataset_close(changing);
    kit_remove(folder);
    kit_remove(other);
    kit_remove(dir);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void what_fits_is_kept(void)
{
    char *folder = kit_folder(), *dir = tier_folder();
    for (int i = 0; i < 40; i++) {
        char name[64];
        size_t size;
        uint8_t *bytes = kit_jpeg(200, 150, (unsigned)i, false, &size);
        kit_name(i, 2, name);
        kit_write(folder, name, bytes, size);
        free(bytes);
    }
    pst_dataset *data = kit_dataset(folder);
    const pst_job_options o = kit_options(SLOW, BATCH, 5, EPOCHS);
    ledger plain = {0};
    setup s = {0};
    run(data, &o, &s, &plain);
    s.dir = dir;
    s.quota = "1M";
    const pst_job_stats part = run_same(data, &o, &s, &plain, "part");
    CHECKF(part.disk_entries >= 8 && part.disk_entries <= 11 && part.disk_bytes <= MIB, "%llu",
           (unsigned long long)part.disk_entries);
    CHECK(part.disk_hits >= 2 * part.disk_entries - 2 && part.disk_evicted == 0);
    ledger_free(&plain);
    pst_dataset_close(data);
    kit_remove(folder);
    kit_remove(dir);
}

/* What a tier has may be larger than what may be read: then it is left where it is. */
static void a_form_that_is_too_large_makes_no_sample_bad(void)
{
    char *folder = kit_folder(), *dir = tier_folder();
    size_t size;
    uint8_t *bytes = kit_jpeg(1200, 900, 3, false, &size);
    for (int i = 0; i < 4; i++) {
        char name[64];
        kit_name(i, 2, name);
        kit_write(folder, name, bytes, size);
    }
    free(bytes);
    pst_dataset *data = kit_dataset(folder);
    const pst_job_options o = kit_options(SLOW, 2, 5, 2);
    ledger plain = {0};
    setup s = {.memory = 192 * MIB};
    run(data, &o, &s, &plain);
    s.dir = dir;
    CHECK(run_same(data, &o, &s, &plain, "large").disk_written == 4);
    CHECK(run_same(data, &o, &s, &plain, "large").disk_hits > 0);
    s.memory = 32 * MIB;
    CHECK(run_same(data, &o, &s, &plain, "in little memory").disk_hits == 0);
    ledger_free(&plain);
    pst_dataset_close(data);
    kit_remove(folder);
    kit_remove(dir);
}

static int darken(void *user, const pst_call_in *in, pst_call_out *out, pst_error *err)
{
    (void)user;
    (void)err;
    const size_t row = (size_t)(in->cols * in->channels);
    uint8_t *to = pst_call_size(out, in->rows, in->cols, in->channels);
    for (int64_t r = 0; to && r < in->rows; r++)
        for (size_t i = 0; i < row; i++)
            to[(size_t)r * row + i] = in->data[(size_t)r * in->stride + i] / 2;
    return 0;
}

static void what_a_function_made_stays_in_the_process(void)
{
    char *folder = kit_folder(), *dir = tier_folder();
    kit_images(folder, IMAGES, 3);
    pst_dataset *data = kit_dataset(folder);
    const pst_call call = {.name = "f", .run = darken};
    pst_job_options o =
        kit_options("decode | call(f, fixed=true) | random_resized_crop(16)", BATCH, 5, 2);
    o.calls = &call;
    o.call_count = 1;
    ledger plain = {0};
    setup s = {0};
    run(data, &o, &s, &plain);
    s.dir = dir;
    CHECK(run_same(data, &o, &s, &plain, "call").disk_entries == 0);
    s.members = true;
    CHECK(run_same(data, &o, &s, &plain, "call").disk_entries == IMAGES);
    const pst_job_stats warm = run_same(data, &o, &s, &plain, "call");
    CHECK(warm.disk_hits == 2 * IMAGES && warm.bytes_read == 0);
    each_file(dir, flip);
    CHECK(run_same(data, &o, &s, &plain, "stored bytes, hurt").disk_damaged == IMAGES);
    ledger_free(&plain);
    pst_dataset_close(data);
    kit_remove(folder);
    kit_remove(dir);
}

static void wrong_texts_are_refused(void)
{
    static const char *const texts[] = {"/tmp", "/tmp/x:1Q", "/tmp/x:10K", "/no/such/dir:1G"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pst_engine_options o;
        pst_engine *engine = NULL;
        pst_error err = {0};
        pst_engine_options_init(&o);
        o.workers = 1;
        o.memory_bytes = 64 * MIB;
        o.disk = texts[i];
        CHECKF(pst_engine_new(&o, &engine, &err) < 0 && err.message[0], "%s", texts[i]);
    }
}

int main(void)
{
    pst_log_set(mute, NULL);
    RUN(a_tier_changes_no_byte_and_no_order);
    RUN(bad_samples_are_the_same_ones);
    RUN(a_changed_file_is_another_sample);
    RUN(damaged_entries_are_never_served);
    RUN(a_tier_that_is_lost_costs_nothing_but_time);
    RUN(a_job_without_tiers_beside_one_with);
    RUN(what_fits_is_kept);
    RUN(a_form_that_is_too_large_makes_no_sample_bad);
    RUN(what_a_function_made_stays_in_the_process);
    RUN(wrong_texts_are_refused);
    return check_report();
}
