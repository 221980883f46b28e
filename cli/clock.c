/* SPDX-License-Identifier: Apache-2.0
 * Clocks and machine facts that reports need. Main thread only. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static int64_t start_ns; /* CLOCK_BOOTTIME at which the process began */

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* Field 22 of /proc/self/stat, in nanoseconds since boot; -1 when it cannot be read. */
static int64_t kernel_start_ns(int64_t tick_ns)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return -1;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold spaces */
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at == NULL ? -1 : strtoll(at, NULL, 10) * tick_ns;
}

/* The kernel counts in ticks of 10 ms, too coarse by itself: the CPU time spent until main narrows
 * it down. */
void clock_begin(void)
{
    const int64_t now = read_clock(CLOCK_BOOTTIME);
    const int64_t spent = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    const int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    const int64_t low = kernel_start_ns(tick_ns);
    start_ns = now - spent;
    if (low >= 0 && start_ns < low)
        start_ns = low;
    if (low >= 0 && start_ns > low + tick_ns)
        start_ns = low + tick_ns;
}

double clock_since_start(void)
{
    return (double)(read_clock(CLOCK_BOOTTIME) - start_ns) * 1e-9;
}

double clock_cpu(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

uint64_t memory_peak_rss(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
            break;
    }
    fclose(file);
    return (uint64_t)kib * 1024;
}

int machine_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return (int)sysconf(_SC_NPROCESSORS_ONLN);
    return CPU_COUNT(&set);
}
