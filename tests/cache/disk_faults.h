/* SPDX-License-Identifier: Apache-2.0
 * System calls that fail, kill or hang on demand: the test is linked with --wrap for each of these.
 * Everything is off unless a test arms it. */
#ifndef PSTI_TESTS_DISK_FAULTS_H
#define PSTI_TESTS_DISK_FAULTS_H

#include <stdbool.h>

typedef enum fault_call {
    FAULT_OPENAT,
    FAULT_WRITE,
    FAULT_PWRITE,
    FAULT_PREAD,
    FAULT_RENAMEAT,
    FAULT_MKDIRAT,
    FAULT_CLOSE,
    FAULT_FLOCK,
    FAULT_UNLINKAT,
    FAULT_CALLS
} fault_call;

extern const char *const fault_names[FAULT_CALLS];

/* The call with this number from now on fails so; all later ones too if persistent. */
void fault_arm(fault_call call, int number, int error, bool persistent);
/* The process is killed in the middle of the call with that number, of any kind that changes the
 * directory: half of what a write writes is there. */
void fault_kill_at(int number);
/* Writes wait until fault_off. */
void fault_hang(void);
void fault_off(void);
int fault_count(void); /* calls of the kind armed */

#endif
