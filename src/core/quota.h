/* SPDX-License-Identifier: Apache-2.0
 * What this process may use: CPUs by affinity and cgroup quota, memory by RAM and cgroup limits (v1
 * and v2, with all ancestors). Reads /proc and /sys; any thread. */
#ifndef PSTI_CORE_QUOTA_H
#define PSTI_CORE_QUOTA_H

#include <stdint.h>

/* root: "" for the real files, a directory with proc/ and sys/ below it for tests. */
int psti_quota_cpus(const char *root);
uint64_t psti_quota_memory(const char *root);

#endif
