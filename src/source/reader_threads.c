/* SPDX-License-Identifier: Apache-2.0
 * Reading by a few threads that block: where the kernel has no io_uring, or it is not wanted. Same
 * answers as the ring. */
#include <errno.h>
#include <pthread.h>

#include "core/memory.h"
#include "source/crew.h"
#include "source/reader_priv.h"

enum { THREADS_MAX = 8 };

typedef struct pool {
    pthread_mutex_t lock; /* guards queue, idle, closed */
    pthread_cond_t more;
    psti_read_list queue;
    int idle;
    bool closed;

    int threads; /* fixed after open */
    pthread_t thread[THREADS_MAX];
} pool;

static void *pool_main(void *arg)
{
    pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        psti_read *read = psti_read_list_pop(&p->queue);
        if (!read && p->closed)
            break;
        if (!read) {
            p->idle++;
            pthread_cond_wait(&p->more, &p->lock);
            p->idle--;
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        const bool unsent = read->at.bucket && read->at.length;
        read->done(read, unsent ? -ENOMEM : psti_read_now(&read->at, read->buf));
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pool_close(void *self, bool forked)
{
    pool *p = self;
    if (!forked) {
        pthread_mutex_lock(&p->lock);
        p->closed = true;
        pthread_cond_broadcast(&p->more);
        pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < p->threads; i++)
            pthread_join(p->thread[i], NULL);
        pthread_cond_destroy(&p->more);
        pthread_mutex_destroy(&p->lock);
    }
    psti_free(p);
}

static void *pool_open(int depth, int *rc)
{
    pool *p = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *p);
    *rc = p ? 0 : -ENOMEM;
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    const int want = depth < THREADS_MAX ? depth : THREADS_MAX;
    while (p->threads < want && !*rc) {
        *rc = psti_thread_start(&p->thread[p->threads], pool_main, p);
        p->threads += !*rc;
    }
    if (p->threads) /* fewer than wished for is enough */
        *rc = 0;
    if (*rc) {
        pool_close(p, false);
        p = NULL;
    }
    return p;
}

static void pool_submit(void *self, psti_read *read)
{
    pool *p = self;
    pthread_mutex_lock(&p->lock);
    psti_read_list_push(&p->queue, read);
    if (p->idle)
        pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}

const psti_reader_ops psti_reader_threads = {pool_open, pool_submit, pool_close};
