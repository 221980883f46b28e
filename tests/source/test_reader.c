/* SPDX-License-Identifier: Apache-2.0
 * Reading, the same table for the ring and for the threads: right bytes, every read completed once,
 * changed and vanished files noticed, nothing allocated on the way. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "core/memory.h"
#include "fixture.h"
#include "source/reader_priv.h"

static int backend; /* PST_IO_URING or PST_IO_THREADS */

/* A read with its buffer and answer. */
typedef struct job {
    psti_read read;
    int status;
    atomic_int completions;
    uint8_t buf[4096];
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards left */
static pthread_cond_t none_left = PTHREAD_COND_INITIALIZER;
static int left;

static void on_done(psti_read *read, int status)
{
    job *j = read->user;
    j->status = status;
    atomic_fetch_add(&j->completions, 1);
    pthread_mutex_lock(&lock);
    if (--left == 0)
        pthread_cond_signal(&none_left);
    pthread_mutex_unlock(&lock);
}

static void expect(int reads)
{
    pthread_mutex_lock(&lock);
    left = reads;
    pthread_mutex_unlock(&lock);
}

static void wait_all(void)
{
    pthread_mutex_lock(&lock);
    while (left)
        pthread_cond_wait(&none_left, &lock);
    pthread_mutex_unlock(&lock);
}

static void prepare(job *j, const psti_dataset *data, int64_t id)
{
    memset(j, 0, sizeof *j);
    CHECK(psti_dataset_extent(data, id, 0, &j->read.at) == 0);
    j->read.buf = j->buf;
    j->read.done = on_done;
    j->read.user = j;
}

static psti_reader *open_reader(int depth)
{
    psti_reader *reader = NULL;
    pst_error err = {0};
    CHECKF(psti_reader_open(backend, depth, &reader, &err) == 0, "%s", err.message);
    CHECK(reader && psti_reader_kind(reader) == backend);
    return reader;
}

/* One read to its end. */
static int read_one(psti_reader *reader, const psti_dataset *data, int64_t id, job *j)
{
    prepare(j, data, id);
    expect(1);
    psti_reader_submit(reader, &j->read);
    wait_all();
    return j->status;
}

static void make_files(int count)
{
    scratch_clear();
    for (int i = 0; i < count; i++) {
        uint8_t bytes[1024];
        memset(bytes, i & 255, sizeof bytes);
        put_bytes(at("d/%02d/%04d.jpg", i / 100, i), bytes, (size_t)(i % 1000) + 1);
    }
}

static bool holds(const job *j, int i)
{
    for (uint64_t k = 0; k < j->read.at.length; k++)
        if (j->buf[k] != (i & 255))
            return false;
    return j->read.at.length == (uint64_t)(i % 1000) + 1;
}

static void drop_from_page_cache(const char *path)
{
    const int fd = open(path, O_RDONLY);
    if (fd >= 0) {
        sync_file_range(fd, 0, 0,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static void a_thousand_reads_at_once(void)
{
    enum { N = 1000 };
    make_files(N);
    psti_dataset *data = open_plain(at("d"));
    job *jobs = calloc(N, sizeof *jobs);
    for (int depth = 1; depth <= 64; depth *= 8) {
        for (int i = 0; i < N; i += 50)
            drop_from_page_cache(at("d/%02d/%04d.jpg", i / 100, i));
        psti_reader *reader = open_reader(depth);
        expect(N);
        for (int i = 0; i < N; i++)
            prepare(&jobs[i], data, i);
        for (int i = 0; i < N; i++)
            psti_reader_submit(reader, &jobs[i].read);
        wait_all();
        for (int i = 0; i < N; i++)
            CHECKF(jobs[i].status == 0 && atomic_load(&jobs[i].completions) == 1 &&
                       holds(&jobs[i], i),
                   "read %d: %d", i, jobs[i].status);
        psti_reader_close(reader);
    }
    free(jobs);
    psti_dataset_unref(data);
}

static void close_finishes_what_was_submitted(void)
{
    enum { N = 200 };
    make_files(N);
    psti_dataset *data = open_plain(at("d"));
    job *jobs = calloc(N, sizeof *jobs);
    for (int i = 0; i < N; i += 10)
        drop_from_page_cache(at("d/%02d/%04d.jpg", i / 100, i));
    psti_reader *reader = open_reader(4);
    expect(N);
    for (int i = 0; i < N; i++) {
        prepare(&jobs[i], data, i);
        psti_reader_submit(reader, &jobs[i].read);
    }
    psti_reader_close(reader);
    for (int i = 0; i < N; i++)
        CHECKF(atomic_load(&jobs[i].completions) == 1 && jobs[i].status == 0 && holds(&jobs[i], i),
               "read %d", i);
    psti_reader_close(open_reader(1)); /* nothing submitted at all */
    psti_reader_close(NULL);
    free(jobs);
    psti_dataset_unref(data);
}

typedef struct submitter {
    psti_reader *reader;
    job *jobs;
    int count;
} submitter;

static void *submit_all(void *arg)
{
    submitter *s = arg;
    for (int i = 0; i < s->count; i++)
        psti_reader_submit(s->reader, &s->jobs[i].read);
    return NULL;
}

static void several_threads_submit(void)
{
    enum { N = 400, THREADS = 4 };
    make_files(N);
    psti_dataset *data = open_plain(at("d"));
    job *jobs = calloc(N, sizeof *jobs);
    psti_reader *reader = open_reader(8);
    for (int i = 0; i < N; i++) {
        prepare(&jobs[i], data, i);
        if (i % 40 == 0)
            drop_from_page_cache(at("d/%02d/%04d.jpg", i / 100, i));
    }
    expect(N);
    pthread_t thread[THREADS];
    submitter s[THREADS];
    for (int k = 0; k < THREADS; k++) {
        s[k] = (submitter){reader, jobs + k * (N / THREADS), N / THREADS};
        pthread_create(&thread[k], NULL, submit_all, &s[k]);
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(thread[k], NULL);
    wait_all();
    for (int i = 0; i < N; i++)
        CHECKF(jobs[i].status == 0 && holds(&jobs[i], i), "read %d", i);
    psti_reader_close(reader);
    free(jobs);
    psti_dataset_unref(data);
}

static void changed_files_are_noticed_and_renewed(void)
{
    static job j;
    make_files(8);
    psti_dataset *data = open_plain(at("d"));
    psti_reader *reader = open_reader(4);
    pst_error err;
    log_lines = 0;
    CHECK(read_one(reader, data, 3, &j) == 0);
    /* Longer, shorter, another time, another inode, another kind of thing. */
    const psti_id128 before = psti_dataset_identity(data, 0);
    put_text(at("d/00/0000.jpg"), "longer");
    put_text(at("d/00/0001.jpg"), "");
    set_time(at("d/00/0002.jpg"), OLD_TIME + 1, 0);
    put_text(at("other"), "\3\3\3\3");
    rename(at("other"), at("d/00/0003.jpg"));
    unlink(at("d/00/0004.jpg"));
    mkfifo(at("d/00/0004.jpg"), 0600);
    unlink(at("d/00/0005.jpg"));
    mkdir(at("d/00/0005.jpg"), 0700);
    for (int i = 0; i < 6; i++)
        CHECKF(read_one(reader, data, i, &j) == PST_ECHANGED, "file %d: %d", i, j.status);
    for (int i = 0; i < 4; i++)
        CHECKF(psti_dataset_renew(data, i, 0, &err) == 0, "file %d: %s", i, err.message);
    for (int i = 4; i < 6; i++)
        CHECKF(psti_dataset_renew(data, i, 0, &err) == PST_ECHANGED, "file %d", i);
    CHECKF(log_lines == 1, "%d messages", log_lines);
    CHECK(read_one(reader, data, 0, &j) == 0 && memcmp(j.buf, "longer", 6) == 0);
    CHECK(read_one(reader, data, 1, &j) == 0 && j.read.at.length == 0);
    CHECK(read_one(reader, data, 2, &j) == 0 && read_one(reader, data, 3, &j) == 0);
    CHECK(psti_dataset_identity(data, 0).lo != before.lo);
    psti_reader_close(reader);
    psti_dataset_unref(data);
}

static void vanished_files_are_noticed(void)
{
    static job j;
    make_files(3);
    psti_dataset *data = open_plain(at("d"));
    psti_reader *reader = open_reader(4);
    pst_error err;
    unlink(at("d/00/0001.jpg"));
    CHECK(read_one(reader, data, 1, &j) == -ENOENT);
    CHECK(psti_dataset_renew(data, 1, 0, &err) == -ENOENT);
    CHECK(read_one(reader, data, 2, &j) == 0 && holds(&j, 2));
    /* A whole folder, and something else in a folder's place. */
    remove_tree(at("d/00"));
    CHECK(read_one(reader, data, 2, &j) == -ENOENT);
    put_text(at("d/00"), "a file");
    CHECK(read_one(reader, data, 2, &j) == PST_ECHANGED);
    psti_reader_close(reader);
    psti_dataset_unref(data);
}

static void reads_from_shards(void)
{
    static tarball t;
    static job jobs[50];
    scratch_clear();
    t.len = 0;
    for (int i = 0; i < 50; i++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "%04d.jpg", i);
        snprintf(text, sizeof text, "sample %d", i);
        tar_file(&t, name, text);
    }
    tar_end(&t);
    tar_save(&t, at("s.tar"));
    psti_dataset *data = open_plain(at("s.tar"));
    drop_from_page_cache(at("s.tar"));
    psti_reader *reader = open_reader(16);
    expect(50);
    for (int i = 0; i < 50; i++) {
        prepare(&jobs[i], data, i);
        if (i % 2)
            jobs[i].read.at.shard_fd = -1; /* as when too many shards are open */
        psti_reader_submit(reader, &jobs[i].read);
    }
    wait_all();
    for (int i = 0; i < 50; i++) {
        char text[32];
        snprintf(text, sizeof text, "sample %d", i);
        CHECKF(jobs[i].status == 0 && memcmp(jobs[i].buf, text, strlen(text)) == 0, "read %d: %d",
               i, jobs[i].status);
    }
    set_time(at("s.tar"), OLD_TIME + 1, 0);
    CHECK(read_one(reader, data, 0, &jobs[0]) == PST_ECHANGED);
    psti_reader_close(reader);
    psti_dataset_unref(data);
}

static void large_reads_are_complete(void)
{
    enum { SIZE = 9 << 20 };
    scratch_clear();
    uint8_t *bytes = malloc(SIZE), *buf = malloc(SIZE);
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 12));
    put_bytes(at("d/big.npy"), bytes, SIZE);
    psti_dataset *data = open_plain(at("d"));
    static job j;
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            drop_from_page_cache(at("d/big.npy"));
        psti_reader *reader = open_reader(2);
        prepare(&j, data, 0);
        j.read.buf = buf;
        memset(buf, 0, SIZE);
        expect(1);
        psti_reader_submit(reader, &j.read);
        wait_all();
        CHECK(j.status == 0 && memcmp(buf, bytes, SIZE) == 0);
        psti_reader_close(reader);
    }
    free(bytes);
    free(buf);
    psti_dataset_unref(data);
}

static void bad_paths_never_reach_the_kernel(void)
{
    static job j;
    make_files(1);
    psti_dataset *data = open_plain(at("d"));
    psti_reader *reader = open_reader(2);
    prepare(&j, data, 0);
    j.read.at.path = "../secret.jpg";
    expect(1);
    psti_reader_submit(reader, &j.read);
    wait_all();
    CHECK(j.status == -EINVAL);
    psti_reader_close(reader);
    psti_dataset_unref(data);
}

static void nothing_is_allocated_per_read(void)
{
    static job jobs[100];
    make_files(100);
    psti_dataset *data = open_plain(at("d"));
    psti_reader *reader = open_reader(8);
    psti_mem_stats before, after;
    psti_mem_stats_total(&before);
    for (int round = 0; round < 5; round++) {
        expect(100);
        for (int i = 0; i < 100; i++) {
            prepare(&jobs[i], data, i);
            psti_reader_submit(reader, &jobs[i].read);
        }
        wait_all();
    }
    psti_mem_stats_total(&after);
    CHECK(after.allocs == before.allocs);
    psti_reader_close(reader);
    psti_dataset_unref(data);
}

static void a_forked_child_may_only_close(void)
{
    static job j;
    make_files(2);
    psti_dataset *data = open_plain(at("d"));
    psti_reader *reader = open_reader(2);
    const pid_t child = fork();
    if (child == 0) {
        psti_reader_close(reader); /* must not wait for threads that are not here */
        psti_dataset_unref(data);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read_one(reader, data, 1, &j) == 0 && holds(&j, 1));
    psti_reader_close(reader);
    psti_dataset_unref(data);
}

/* ---- parts of files whose blocks have checksums -------------------------------------------------
 */

enum { BLOCK = 4096, FIRST = 7, GUARDED = 40 * BLOCK + 777 };
static uint32_t sums[FIRST + 41];

static int blocks(void *user, uint64_t first, size_t count, uint32_t *out)
{
    CHECK(user == sums && first >= FIRST && first + count <= FIRST + 41);
    memcpy(out, sums + first, count * sizeof *out);
    return 0;
}

static const psti_guard guard = {.block_bytes = BLOCK, .blocks = blocks};

static uint8_t *make_guarded(psti_extent *out)
{
    uint8_t *bytes = psti_malloc(PSTI_MEM_SOURCE, GUARDED);
    psti_stamp stamp;
    scratch_clear();
    for (size_t i = 0; i < GUARDED; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t i = 0; i * BLOCK < GUARDED; i++)
        sums[FIRST + i] =
            pst_crc32c(0, bytes + i * BLOCK, i < 40 ? BLOCK : GUARDED - 40 * (size_t)BLOCK);
    put_bytes(at("d/guarded"), bytes, GUARDED);
    const int root = open(at("d"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(root >= 0 && psti_stamp_beneath(root, "guarded", &stamp) == 0);
    *out = (psti_extent){.root = root,
                         .path = "guarded",
                         .shard_fd = -1,
                         .file_size = GUARDED,
                         .mtime_ns = stamp.mtime_ns,
                         .inode = stamp.inode,
                         .guard = &guard,
                         .guard_user = sums,
                         .first_block = FIRST};
    return bytes;
}

/* By the reader; at once; and without waiting. */
static int read_part(psti_reader *reader, const psti_extent *at, uint8_t *buf)
{
    static job j;
    const int now = psti_read_now(at, buf), try = psti_read_try(at, buf);
    memset(buf, 0, at->length);
    memset(&j, 0, sizeof j);
    j.read = (psti_read){.at = *at, .buf = buf, .done = on_done, .user = &j};
    expect(1);
    psti_reader_submit(reader, &j.read);
    wait_all();
    CHECK(j.status == now && (try == now || try == -EAGAIN || try == -EINVAL));
    return j.status;
}

static const struct {
    uint64_t offset, length;
} parts[] = {{0, 1},
             {0, BLOCK},
             {5, BLOCK - 5},
             {BLOCK, 2 * BLOCK},
             {BLOCK - 1, 2},
             {3 * BLOCK + 512, 100},
             {2 * BLOCK + 512, 30 * BLOCK + 3},
             {40 * BLOCK, 777},
             {40 * BLOCK + 776, 1},
             {39 * BLOCK + 1, BLOCK + 700},
             {0, GUARDED}};

/* A flipped bit is found in every block that the part touches, and in no other. */
static void parts_are_compared_block_by_block(void)
{
    psti_extent at;
    uint8_t *bytes = make_guarded(&at), *buf = psti_malloc(PSTI_MEM_SOURCE, GUARDED);
    psti_reader *reader = open_reader(4);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at.offset = parts[i].offset;
        at.length = parts[i].length;
        CHECK(read_part(reader, &at, buf) == 0);
        CHECK(memcmp(buf, bytes + at.offset, at.length) == 0);
        const uint64_t from = at.offset / BLOCK, to = (at.offset + at.length - 1) / BLOCK;
        for (uint64_t block = from ? from - 1 : 0; block <= to + 1 && block <= 40; block++) {
            if (block == from + 2 && to > from + 4) /* the middle of a long one */
                block = to - 1;
            sums[FIRST + block] ^= 1;
            const bool touched = block >= from && block <= to;
            CHECKF(read_part(reader, &at, buf) == (touched ? PST_ECHANGED : 0),
                   "part %zu, block %llu", i, (unsigned long long)block);
            sums[FIRST + block] ^= 1;
        }
    }
    psti_reader_close(reader);
    close(at.root);
    psti_free(bytes);
    psti_free(buf);
}

/* The bytes beside a part count, too: they are of the same block. */
static void runs_of_an_extent_are_compared(void)
{
    psti_extent at;
    uint8_t *bytes = make_guarded(&at), *buf = psti_calloc(PSTI_MEM_SOURCE, GUARDED, 1);
    const psti_span span = {.offset = BLOCK + 100, .length = 50, .step = 3 * BLOCK, .count = 5};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/d/guarded", scratch);
    at.loose = true; /* it is written anew: the size alone must fit */
    at.offset = 10;
    at.length = GUARDED - 10;
    CHECK(psti_read_spans(&at, &span, false, buf) == 0);
    for (int64_t i = 0; i < span.count; i++) {
        const uint64_t first = span.offset + (uint64_t)i * span.step;
        CHECK(memcmp(buf + first, bytes + 10 + first, 50) == 0);
        bytes[(10 + first) / BLOCK * BLOCK + 3] ^= 16;
        put_bytes(path, bytes, GUARDED);
        CHECK(psti_read_spans(&at, &span, false, buf) == PST_ECHANGED);
        bytes[(10 + first) / BLOCK * BLOCK + 3] ^= 16;
    }
    put_bytes(path, bytes, GUARDED);
    CHECK(psti_read_spans(&at, &span, false, buf) == 0);
    close(at.root);
    psti_free(bytes);
    psti_free(buf);
}

static void ring_only(bool only)
{
#ifdef PSTI_HAVE_URING
    psti_reader_uring_ring_only(only);
#else
    (void)only;
#endif
}

static void run_table(const char *name, int io)
{
    backend = io;
    printf("-- %s\n", name);
    RUN(a_thousand_reads_at_once);
    RUN(close_finishes_what_was_submitted);
    RUN(several_threads_submit);
    RUN(changed_files_are_noticed_and_renewed);
    RUN(vanished_files_are_noticed);
    RUN(reads_from_shards);
    RUN(large_reads_are_complete);
    RUN(bad_paths_never_reach_the_kernel);
    RUN(nothing_is_allocated_per_read);
    RUN(parts_are_compared_block_by_block);
    RUN(runs_of_an_extent_are_compared);
    RUN(a_forked_child_may_only_close);
}

static void environment_and_demands(void)
{
    psti_reader *reader = NULL;
    pst_error err;
    setenv("PENSTOCK_IO", "threads", 1);
    CHECK(psti_reader_open(PST_IO_AUTO, 4, &reader, NULL) == 0 &&
          psti_reader_kind(reader) == PST_IO_THREADS);
    psti_reader_close(reader);
    log_lines = 0;
    setenv("PENSTOCK_IO", "nonsense", 1);
    CHECK(psti_reader_open(PST_IO_AUTO, 4, &reader, NULL) == 0 && log_lines == 1);
    psti_reader_close(reader);
    unsetenv("PENSTOCK_IO");
    CHECK(psti_reader_open(PST_IO_AUTO, 0, &reader, &err) == -EINVAL);
    CHECK(psti_reader_open(PST_IO_AUTO, 1025, &reader, &err) == -EINVAL);
    for (int io = PST_IO_AUTO; io <= PST_IO_THREADS; io++)
        for (uint64_t n = 1; n < 20; n++) { /* every allocation fails once */
            psti_mem_stats before, after;
            psti_mem_stats_total(&before);
            psti_mem_fail_at(n, false);
            const int rc = psti_reader_open(io, 4, &reader, &err);
            psti_mem_fail_at(0, false);
            if (rc == 0)
                psti_reader_close(reader);
            psti_mem_stats_total(&after);
            CHECKF(before.live == after.live, "io %d, allocation %llu leaks", io,
                   (unsigned long long)n);
        }
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    psti_reader *probe = NULL;
    run_table("threads", PST_IO_THREADS);
    if (psti_reader_open(PST_IO_URING, 4, &probe, NULL) == 0) {
        psti_reader_close(probe);
        run_table("io_uring", PST_IO_URING);
        ring_only(true);
        run_table("io_uring, all through the ring", PST_IO_URING);
        ring_only(false);
        psti_open_beneath_without_openat2(true);
        run_table("io_uring without openat2", PST_IO_URING);
        psti_open_beneath_without_openat2(false);
    } else {
        printf("skipped: this kernel has no io_uring for us\n");
    }
    RUN(environment_and_demands);
    remove_tree(scratch);
    return check_report();
}
