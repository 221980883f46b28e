/* SPDX-License-Identifier: Apache-2.0
 * Signals become a flag, an aborted job or server, and a readable pipe. The handler runs on
 * whichever thread the kernel picks, so a sleeper waits on the pipe and not for EINTR. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"

static atomic_int signal_seen;
static _Atomic(pst_job *)
    current; /* with signal_seen: each side writes its own, then reads the other's */
static _Atomic(pst_server *) serving; /* the same */
static int wake_pipe[2] = {-1, -1};

static void on_signal(int number)
{
    const int saved = errno;
    atomic_store(&signal_seen, number);
    pst_job *job = atomic_load(&current);
    if (job != NULL)
        pst_job_abort(job);
    pst_server *server = atomic_load(&serving);
    if (server != NULL)
        pst_server_stop(server);
    if (write(wake_pipe[1], "!", 1) < 0) {
        /* The pipe is full: it is readable, which is all that matters. */
    }
    errno = saved;
}

void interrupt_setup(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        wake_pipe[0] = wake_pipe[1] = -1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags =
        (int)SA_RESETHAND | SA_RESTART; /* the second one does what it does by default */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write */
}

void interrupt_job(pst_job *job)
{
    atomic_store(&current, job);
    if (job != NULL && atomic_load(&signal_seen) != 0)
        pst_job_abort(job);
}

void interrupt_server(pst_server *server)
{
    atomic_store(&serving, server);
    if (server != NULL && atomic_load(&signal_seen) != 0)
        pst_server_stop(server);
}

void interrupt_forget(void)
{
    atomic_store(&signal_seen, 0);
}

int interrupt_signal(void)
{
    return atomic_load(&signal_seen);
}

bool interrupt_sleep(int64_t deadline_ns)
{
    struct pollfd wait = {.fd = wake_pipe[0], .events = POLLIN};
    while (interrupt_signal() == 0) {
        const int64_t left = deadline_ns - clock_ns();
        if (left <= 0)
            return true;
        const struct timespec time = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        ppoll(&wait, 1, &time, NULL);
    }
    return false;
}

int interrupt_exit_code(void)
{
    return CLI_SIGNAL + interrupt_signal();
}
