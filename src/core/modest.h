/* SPDX-License-Identifier: Apache-2.0
 * For threads that carry bytes. */
#ifndef PSTI_CORE_MODEST_H
#define PSTI_CORE_MODEST_H

#include <pthread.h>
#include <sched.h>

/* From here on the calling thread takes no core from others when it is woken: where workers keep
 * all of them busy it waits for the end of a time slice. So more comes with each turn, and workers
 * are not thrown out of their caches some thousand times a second. Where a core is free it changes
 * nothing. */
static inline void psti_be_modest(void)
{
    const struct sched_param none = {0};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

#endif
