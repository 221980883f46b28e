/* SPDX-License-Identifier: Apache-2.0
 * CPUs and memory as seen through a made-up root: cgroup v1, v2 and both, limits of ancestors, none
 * at all, and the machines that settings are documented for. */
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "core/quota.h"

static char root[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    (void)st, (void)flag, (void)where;
    return remove(path);
}

static void clear(void)
{
    if (root[0])
        nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    root[0] = 0;
}

/* Writes a file below the root, with its folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(full, 0755) != 0 && errno != EEXIST)
            perror(full);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        perror(full);
}

/* A fresh machine without cgroups. */
static void machine(int cpus, unsigned long long kib)
{
    char text[128];
    clear();
    snprintf(root, sizeof root, "/tmp/penstock-quota-XXXXXX");
    if (!mkdtemp(root))
        perror(root);
    snprintf(text, sizeof text, "%d\n", cpus);
    put("/cpus", text);
    snprintf(text, sizeof text, "MemTotal:       %llu kB\nMemFree:  5 kB\n", kib);
    put("/proc/meminfo", text);
}

enum { GIB = 1 << 20 }; /* in KiB */

static void check(int cpus, uint64_t kib)
{
    CHECKF(psti_quota_cpus(root) == cpus, "%d CPUs, not %d", psti_quota_cpus(root), cpus);
    CHECKF(psti_quota_memory(root) == kib * 1024, "%llu KiB, not %llu",
           (unsigned long long)psti_quota_memory(root) / 1024, (unsigned long long)kib);
}

static void without_cgroups_the_machine_counts(void)
{
    machine(2, 4 * GIB);
    check(2, 4 * GIB);
    machine(16, 128 * GIB);
    check(16, 128 * GIB);
}

static void a_v2_cgroup_limits_both(void)
{
    machine(16, 128 * GIB);
    put("/proc/self/cgroup", "0::/job.slice/train\n");
    put("/sys/fs/cgroup/job.slice/train/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/job.slice/train/memory.max", "1073741824\n");
    check(1, 1 * GIB);
}

static void max_means_no_limit(void)
{
    machine(16, 128 * GIB);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    check(16, 128 * GIB);
}

static void the_tightest_ancestor_counts(void)
{
    machine(16, 128 * GIB);
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/a/memory.max", "8589934592\n");
    check(3, 2 * GIB);
}

/* In a container /proc names a path that is not mounted; the limits lie at the mount's root. */
static void a_container_sees_its_limits_at_the_root(void)
{
    machine(16, 128 * GIB);
    put("/proc/self/cgroup", "0::/kubepods/burstable/pod1/abc\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    put("/sys/fs/cgroup/memory.max", "4294967296\n");
    check(2, 4 * GIB);
    put("/proc/self/cgroup", "0::/\n");
    check(2, 4 * GIB);
}

static void v1_cgroups_limit_each_by_its_controller(void)
{
    machine(16, 128 * GIB);
    put("/proc/self/cgroup", "9:pids:/p\n4:memory:/m/n\n3:cpu,cpuacct:/c/d\n1:name=systemd:/s\n");
    put("/sys/fs/cgroup/cpu/c/d/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/c/d/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "450000\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/m/n/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "6442450944\n");
    check(4, 6 * GIB);
}

static void v1_and_v2_together_both_count(void)
{
    machine(16, 128 * GIB);
    put("/proc/self/cgroup", "4:memory:/m\n0::/u\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "3221225472\n");
    put("/sys/fs/cgroup/unified/u/cpu.max", "700000 100000\n");
    check(7, 3 * GIB);
}

static void a_part_of_a_cpu_is_one_and_a_limit_above_the_machine_is_none(void)
{
    machine(2, 4 * GIB);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "25000 100000\n");
    put("/sys/fs/cgroup/a/memory.max", "99999999999999\n");
    check(1, 4 * GIB);
    put("/sys/fs/cgroup/a/cpu.max", "2500000 100000\n");
    check(2, 4 * GIB);
    put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    check(1, 4 * GIB);
}

static void files_that_make_no_sense_set_no_limit(void)
{
    machine(2, 4 * GIB);
    put("/proc/self/cgroup", "nonsense\n0:\n\n0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "100000\n");
    put("/sys/fs/cgroup/a/memory.max", "-\n");
    check(2, 4 * GIB);
    put("/sys/fs/cgroup/a/cpu.max", "0 0\n");
    put("/sys/fs/cgroup/a/memory.max", "");
    check(2, 4 * GIB);
}

static void the_real_machine_has_something(void)
{
    CHECK(psti_quota_cpus("") >= 1 && psti_quota_cpus("") <= 1 << 16);
    CHECK(psti_quota_memory("") >= 16u << 20 && psti_quota_memory("") < UINT64_MAX);
}

int main(void)
{
    RUN(without_cgroups_the_machine_counts);
    RUN(a_v2_cgroup_limits_both);
    RUN(max_means_no_limit);
    RUN(the_tightest_ancestor_counts);
    RUN(a_container_sees_its_limits_at_the_root);
    RUN(v1_cgroups_limit_each_by_its_controller);
    RUN(v1_and_v2_together_both_count);
    RUN(a_part_of_a_cpu_is_one_and_a_limit_above_the_machine_is_none);
    RUN(files_that_make_no_sense_set_no_limit);
    RUN(the_real_machine_has_something);
    clear();
    return check_report();
}
