/* SPDX-License-Identifier: Apache-2.0
 * Measures listing and reading; no test. `bench_source list DIR` opens a folder first anew, then
 * from the remembered listing. `bench_source make DIR DIRS FILES` makes sparse files for it.
 * `bench_source read DIR ROUNDS DEPTH` reads every sample by both backends and prints wall and CPU
 * time for each read. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "core/clock.h"
#define PSTI_NO_CHECKS
#include "fixture.h"

static void make(const char *dir, int dirs, int files)
{
    mkdir(dir, 0755);
    for (int d = 0; d < dirs; d++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/n%08d", dir, d);
        mkdir(path, 0755);
        const int fd = open(path, O_RDONLY | O_DIRECTORY);
        for (int i = 0; i < files; i++) {
            char name[64];
            snprintf(name, sizeof name, "n%08d_%05d.JPEG", d, i);
            const int file = openat(fd, name, O_WRONLY | O_CREAT, 0644);
            if (file < 0 || ftruncate(file, 110000)) {
                perror(name);
                exit(1);
            }
            close(file);
        }
        close(fd);
        set_time(path, OLD_TIME, 0);
    }
    set_time(dir, OLD_TIME, 0);
}

static uint64_t cpu_ns(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000u;
}

static void list(const char *dir)
{
    const char *index = at("index");
    for (int round = 0; round < 3; round++) {
        const pst_dataset_options opts = {
            .size = sizeof opts, .index_dir = index, .refresh = round == 0};
        psti_dataset *data = NULL;
        const uint64_t wall = psti_now_ns(), cpu = cpu_ns();
        if (psti_dataset_open(dir, &opts, &data, &last_error)) {
            fprintf(stderr, "%s\n", last_error.message);
            exit(1);
        }
        const uint64_t opened = psti_now_ns();
        const double cpu_s = (double)(cpu_ns() - cpu) / 1e9;
        psti_dataset_revision(data);
        printf(
            "%-10s %lld samples: %.3f s wall, %.3f s CPU; revision %.3f s; %.1f bytes a sample\n",
            data->remembered ? "remembered" : "listed", (long long)psti_dataset_count(data),
            (double)(opened - wall) / 1e9, cpu_s, (double)(psti_now_ns() - opened) / 1e9,
            (double)psti_dataset_bytes(data) / (double)psti_dataset_count(data));
        psti_dataset_unref(data);
    }
}

typedef struct flight {
    psti_read read;
    psti_reader *reader;
    const psti_dataset *data;
} flight;

static atomic_llong next_id, reads_left;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;
static bool all_done;

static bool submit_next(flight *f)
{
    const long long n = atomic_fetch_add(&next_id, 1);
    if (n >= atomic_load(&reads_left))
        return false;
    psti_dataset_extent(f->data, n % psti_dataset_count(f->data), 0, &f->read.at);
    psti_reader_submit(f->reader, &f->read);
    return true;
}

static atomic_int flying;

static void on_done(psti_read *read, int status)
{
    flight *f = read->user;
    if (status)
        fprintf(stderr, "%s: %d\n", read->at.path, status);
    if (!submit_next(f) && atomic_fetch_sub(&flying, 1) == 1) {
        pthread_mutex_lock(&lock);
        all_done = true;
        pthread_cond_signal(&over);
        pthread_mutex_unlock(&lock);
    }
}

static void read_all(const psti_dataset *data, int io, int rounds, int depth)
{
    psti_reader *reader;
    flight *flights = calloc((size_t)depth, sizeof *flights);
    if (psti_reader_open(io, depth, &reader, &last_error)) {
        printf("%s\n", last_error.message);
        free(flights);
        return;
    }
    const long long total = (long long)rounds * psti_dataset_count(data);
    atomic_store(&next_id, 0);
    atomic_store(&reads_left, total);
    atomic_store(&flying, depth);
    all_done = false;
    const uint64_t wall = psti_now_ns(), cpu = cpu_ns();
    for (int i = 0; i < depth; i++) {
        flights[i] = (flight){.reader = reader, .data = data};
        flights[i].read.buf = malloc(32 << 20);
        flights[i].read.done = on_done;
        flights[i].read.user = &flights[i];
        submit_next(&flights[i]);
    }
    pthread_mutex_lock(&lock);
    while (!all_done)
        pthread_cond_wait(&over, &lock);
    pthread_mutex_unlock(&lock);
    const double wall_us = (double)(psti_now_ns() - wall) / 1e3,
                 cpu_us = (double)(cpu_ns() - cpu) / 1e3;
    printf("%-8s depth %3d: %.2f us wall, %.2f us CPU a read\n",
           io == PST_IO_URING ? "io_uring" : "threads", depth, wall_us / (double)total,
           cpu_us / (double)total);
    psti_reader_close(reader);
    for (int i = 0; i < depth; i++)
        free(flights[i].read.buf);
    free(flights);
}

static void read_both(const char *dir, int rounds, int depth)
{
    psti_dataset *data = open_plain(dir);
    if (!data) {
        fprintf(stderr, "%s\n", last_error.message);
        exit(1);
    }
    for (int pair = 0; pair < 5; pair++) {
        read_all(data, PST_IO_URING, rounds, depth);
        read_all(data, PST_IO_THREADS, rounds, depth);
    }
    psti_dataset_unref(data);
}

int main(int argc, char **argv)
{
    scratch_open();
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        make(argv[2], atoi(argv[3]), atoi(argv[4]));
    else if (argc == 3 && strcmp(argv[1], "list") == 0)
        list(argv[2]);
    else if (argc == 5 && strcmp(argv[1], "read") == 0)
        read_both(argv[2], atoi(argv[3]), atoi(argv[4]));
    else
        fprintf(stderr,
                "usage: bench_source list DIR | make DIR DIRS FILES | read DIR ROUNDS DEPTH\n");
    remove_tree(scratch);
    return 0;
}
