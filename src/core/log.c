/* SPDX-License-Identifier: Apache-2.0
 * One sink behind a mutex; it is called outside no lock but its own, from any thread. */
#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/fork.h"
#include "penstock.h"

static void to_stderr(int level, const char *text, void *user)
{
    (void)user;
    if (level <= PSTI_LOG_WARN)
        fprintf(stderr, "penstock: %s\n", text);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards sink and sink_user */
static void (*sink)(int, const char *, void *) = to_stderr;
static void *sink_user;
static psti_fork_guard guard; /* a forked child may have something to say */

__attribute__((constructor)) static void guard_lock(void)
{
    psti_fork_guard_add(&guard, &lock, NULL, NULL);
}

void pst_log_set(void (*fn)(int level, const char *text, void *user), void *user)
{
    pthread_mutex_lock(&lock);
    sink = fn;
    sink_user = user;
    pthread_mutex_unlock(&lock);
}

void psti_log(int level, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    void (*fn)(int, const char *, void *) = sink;
    void *user = sink_user;
    pthread_mutex_unlock(&lock);
    if (fn)
        fn(level, text, user);
}
