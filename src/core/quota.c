/* SPDX-License-Identifier: Apache-2.0
 * See quota.h. A file that is missing or says "max" sets no limit. */
#include "core/quota.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static bool read_text(const char *root, const char *path, char *buf, size_t cap)
{
    char full[PATH_BYTES];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return false;
    FILE *f = fopen(full, "re");
    if (!f)
        return false;
    const size_t n = fread(buf, 1, cap - 1, f);
    buf[n] = 0;
    fclose(f);
    return n > 0;
}

/* The process's path in a hierarchy: controller NULL means v2. Returns false when it is not in one.
 */
static bool cgroup_path(const char *root, const char *controller, char *out, size_t cap)
{
    char text[8192];
    if (!read_text(root, "/proc/self/cgroup", text, sizeof text))
        return false;
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        names++;
        bool match = !controller && *names == 0;
        for (char *s2, *name = controller ? strtok_r(names, ",", &s2) : NULL; name && !match;
             name = strtok_r(NULL, ",", &s2))
            match = strcmp(name, controller) == 0;
        if (match) {
            snprintf(out, cap, "%s", strcmp(path, "/") == 0 ? "" : path);
            return true;
        }
    }
    return false;
}

static bool to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}

/* Calls see(text of file) for the cgroup and each of its ancestors. */
static void walk(const char *root, const char *mount, const char *path, const char *file,
                 void (*see)(const char *text, void *user), void *user)
{
    char below[PATH_BYTES / 2];
    snprintf(below, sizeof below, "%s", path);
    do {
        char full[PATH_BYTES], text[256];
        snprintf(full, sizeof full, "%s%s/%s", mount, below, file);
        if (read_text(root, full, text, sizeof text))
            see(text, user);
    } while (to_parent(below));
}

static void see_cpu_max(const char *text, void *user)
{
    double *cpus = user, quota, period;
    if (sscanf(text, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0 &&
        quota / period < *cpus)
        *cpus = quota / period;
}

static void see_bytes(const char *text, void *user)
{
    uint64_t *limit = user;
    char *end;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end != text && value > 0 && value < *limit)
        *limit = value;
}

static void v1_cpu(const char *root, const char *path, double *cpus)
{
    char file[PATH_BYTES], quota[64], period[64];
    char below[PATH_BYTES / 2];
    snprintf(below, sizeof below, "%s", path);
    do {
        snprintf(file, sizeof file, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", below);
        if (!read_text(root, file, quota, sizeof quota) || atoll(quota) <= 0)
            continue;
        snprintf(file, sizeof file, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", below);
        if (read_text(root, file, period, sizeof period) && atoll(period) > 0) {
            const double share = (double)atoll(quota) / (double)atoll(period);
            if (share < *cpus)
                *cpus = share;
        }
    } while (to_parent(below));
}

static int online_cpus(const char *root)
{
    char text[64];
    /* A test root names its CPU count in a file; the real one asks the scheduler. */
    if (*root)
        return read_text(root, "/cpus", text, sizeof text) && atoi(text) > 0 ? atoi(text) : 1;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int psti_quota_cpus(const char *root)
{
    double cpus = online_cpus(root);
    char path[PATH_BYTES / 2];
    if (cgroup_path(root, NULL, path, sizeof path)) {
        walk(root, "/sys/fs/cgroup", path, "cpu.max", see_cpu_max, &cpus);
        walk(root, "/sys/fs/cgroup/unified", path, "cpu.max", see_cpu_max, &cpus);
    }
    if (cgroup_path(root, "cpu", path, sizeof path))
        v1_cpu(root, path, &cpus);
    const int whole = (int)cpus;
    return whole < 1 ? 1 : whole;
}

uint64_t psti_quota_memory(const char *root)
{
    uint64_t limit = UINT64_MAX;
    char text[512], path[PATH_BYTES / 2];
    unsigned long long kib;
    if (read_text(root, "/proc/meminfo", text, sizeof text) &&
        sscanf(text, "MemTotal: %llu", &kib) == 1)
        limit = (uint64_t)kib * 1024;
    if (cgroup_path(root, NULL, path, sizeof path)) {
        walk(root, "/sys/fs/cgroup", path, "memory.max", see_bytes, &limit);
        walk(root, "/sys/fs/cgroup/unified", path, "memory.max", see_bytes, &limit);
    }
    if (cgroup_path(root, "memory", path, sizeof path))
        walk(root, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", see_bytes, &limit);
    return limit;
}
