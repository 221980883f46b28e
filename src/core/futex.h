/* SPDX-License-Identifier: Apache-2.0
 * A word to wait on. Waking is async-signal-safe, which a condition variable's is not. */
#ifndef PSTI_CORE_FUTEX_H
#define PSTI_CORE_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Waits while *word == seen, at most until the monotonic deadline (NULL = without end). May return
 * early. */
static inline void psti_futex_wait(atomic_uint *word, unsigned seen,
                                   const struct timespec *deadline)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, deadline, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

static inline void psti_futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#endif
