/* SPDX-License-Identifier: Apache-2.0
 * Names of servers are looked up by a thread of their own, one for each lookup: a name server that
 * does not answer takes as long as it likes, and nobody waits for it, neither the tier's thread nor
 * whoever closes the tier. The lookup belongs to both sides; the last one frees it. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cache/remote_priv.h"
#include "core/memory.h"

struct lookup {
    atomic_int owners;
    atomic_bool done; /* partner: lookup_done; what stands below is written before */
    int rc;
    char address[HOST_ROOM];
    place at;
    int wake; /* an eventfd of its own */
};

void lookup_drop(lookup *l)
{
    if (!l || atomic_fetch_sub_explicit(&l->owners, 1, memory_order_acq_rel) > 1)
        return;
    close(l->wake);
    psti_free(l);
}

static void *look(void *arg)
{
    const uint64_t one = 1;
    lookup *l = arg;
    l->rc = host_address(&l->at, true, l->address);
    atomic_store_explicit(&l->done, true, memory_order_release);
    const ssize_t told = write(l->wake, &one, sizeof one);
    (void)told; /* a counter that is full wakes as well */
    lookup_drop(l);
    return NULL;
}

lookup *lookup_start(const place *at, int wake)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    lookup *l = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *l);
    if (!l)
        return NULL;
    l->at = *at;
    l->wake = fcntl(wake, F_DUPFD_CLOEXEC, 0);
    atomic_init(&l->owners, 2);
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&thread, &attr, look, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        return l;
    lookup_drop(l);
    lookup_drop(l);
    return NULL;
}

bool lookup_done(const lookup *l)
{
    return atomic_load_explicit(&l->done, memory_order_acquire);
}

int lookup_take(lookup *l, char address[HOST_ROOM])
{
    const int rc = l->rc;
    if (rc == 0)
        memcpy(address, l->address, HOST_ROOM);
    lookup_drop(l);
    return rc;
}
