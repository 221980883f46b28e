/* SPDX-License-Identifier: Apache-2.0
 * An engine inside a program that shows itself: a folder with a control socket, to be looked at by
 * the same user. Beside the HTTP library's thread and the looker's nothing runs. The engine opens
 * it through a table, since it may not know this room. In a forked child the socket is closed, so
 * that the child does not hide its parent's end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "serve/server.h"
#include "serve/show.h"
#include "serve/where.h"

enum { CONNECTIONS_MOST = 32, TIMEOUT_S = 5, MEMORY = 16 << 10, ENGINES_MOST = 64, FRESH_S = 60 };

typedef struct embedded {
    char dir[WHERE_BYTES];
    bool made; /* the folder was made for this, and goes with it */
    where at;
    int sock;
    looker *looker;
    show show;
    struct MHD_Daemon *http;
    pthread_mutex_t lock; /* guards sock against fork; a guarded leaf */
    psti_fork_guard forks;
} embedded;

static enum MHD_Result answer(void *user, struct MHD_Connection *to, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **per_request)
{
    (void)version;
    (void)data;
    embedded *e = user;
    enum MHD_Result shown;
    if (*data_bytes > 0)
        return MHD_NO;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return show_text(to, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD.\n");
    if (!*per_request) {
        *per_request = e;
        return MHD_YES;
    }
    if (show_answer(&e->show, to, method, url, &shown))
        return shown;
    return show_text(to, MHD_HTTP_NOT_FOUND, "There are /metrics, /v1/watch and /v1/stream.\n");
}

static void greet(void *user, struct MHD_Connection *c, void **state,
                  enum MHD_ConnectionNotificationCode code)
{
    (void)user;
    (void)state;
    if (code != MHD_CONNECTION_NOTIFY_STARTED)
        return;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred who;
    socklen_t size = sizeof who;
    if (!info || getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) ||
        !server_is_owner(who.uid))
        shutdown(info ? info->connect_fd : -1, SHUT_RDWR);
}

static void in_child(void *arg)
{
    embedded *e = arg;
    if (e->sock >= 0)
        close(e->sock);
    if (e->at.lock >= 0)
        close(e->at.lock);
    e->sock = e->at.lock = -1;
}

/* What a process left that was killed: nobody has its lock, and not because it was made just now.
 */
static void sweep(int parent, const char *name)
{
    struct stat st;
    if (strspn(name, "0123456789-") != strlen(name))
        return;
    const int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int lock = dir < 0 ? -1 : openat(dir, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock >= 0 && fstat(lock, &st) == 0 && time(NULL) - st.st_mtime > FRESH_S &&
        flock(lock, LOCK_EX | LOCK_NB) == 0) {
        unlinkat(dir, WHERE_CONTROL, 0);
        unlinkat(dir, "lock", 0);
        unlinkat(parent, name, AT_REMOVEDIR);
    }
    if (lock >= 0)
        close(lock);
    if (dir >= 0)
        close(dir);
}

static void sweep_all(const char *parent)
{
    DIR *dir = opendir(parent);
    const struct dirent *one;
    while (dir && (one = readdir(dir)))
        sweep(dirfd(dir), one->d_name);
    if (dir)
        closedir(dir);
}

/* A process may have several engines: PID, PID-2, and so on. */
static int take_own(embedded *e, pst_error *err)
{
    char parent[WHERE_BYTES];
    where top;
    int rc = where_find(NULL, parent);
    if (rc == 0)
        rc = where_take(parent, false, false, &top, err); /* it must be ours alone */
    if (rc == 0) {
        top.ours = false; /* a daemon may have its sockets there */
        where_leave(&top);
    }
    e->made = true;
    if (rc == 0)
        sweep_all(parent);
    for (int i = 1; rc == 0 && i <= ENGINES_MOST; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        const int len = snprintf(e->dir, sizeof e->dir, "%s/%d%s", parent, (int)getpid(), number);
        if (len >= (int)sizeof e->dir)
            break;
        rc = where_take(e->dir, false, true, &e->at, err);
        if (rc == 0)
            return 0;
        rc = rc == -EADDRINUSE ? 0 : rc;
    }
    return rc < 0 && err && err->code
               ? rc
               : psti_fail(err, rc < 0 ? rc : -EADDRINUSE, "watch", parent,
                           "no folder for the engine to show itself can be made");
}

static int take_place(embedded *e, const char *text, pst_error *err)
{
    if (strcmp(text, "auto") == 0)
        return take_own(e, err);
    if (where_find(text, e->dir) < 0)
        return psti_fail(err, -EINVAL, "watch", text, "the folder's name is too long");
    e->made = mkdir(e->dir, 0700) == 0;
    return where_take(e->dir, false, true, &e->at, err);
}

static void draw_instance(char instance[17])
{
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        drawn = psti_now_ns();
    snprintf(instance, 17, "%016llx", (unsigned long long)drawn);
}

/* The lock goes last: whoever has it next may make sockets of the same names. */
static void leave_place(embedded *e)
{
    const bool removes = e->made && e->at.ours;
    if (removes) {
        where_clear(&e->at, WHERE_CONTROL);
        unlinkat(e->at.dir, "lock", 0);
        e->at.ours = false;
    }
    where_leave(&e->at);
    if (removes)
        rmdir(e->dir);
}

static void embedded_close(void *watch)
{
    embedded *e = watch;
    psti_fork_guard_remove(&e->forks);
    show_end(&e->show);
    if (e->http)
        MHD_stop_daemon(e->http); /* closes the socket */
    else if (e->sock >= 0)
        close(e->sock);
    show_fini(&e->show);
    looker_close(e->looker);
    leave_place(e);
    pthread_mutex_destroy(&e->lock);
    psti_free(e);
}

static int start(embedded *e, pst_engine *engine, pst_error *err)
{
    char instance[17];
    draw_instance(instance);
    int rc = looker_open(engine, instance, false, &e->looker, err);
    if (rc < 0)
        return rc;
    show_init(&e->show, e->looker, SHOW_STREAMS_BESIDE);
    e->sock = where_listen(&e->at, WHERE_CONTROL, SOCK_STREAM, false, err);
    if (e->sock < 0)
        return e->sock;
    psti_fork_guard_add(&e->forks, &e->lock, in_child, e);
    sigset_t old;
    const ino_t inode = show_inode(e->sock);
    show_no_signals(&old);
    e->http = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, e,
        MHD_OPTION_LISTEN_SOCKET, e->sock, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY, MHD_OPTION_NOTIFY_CONNECTION, greet, e, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e->http)
        return 0;
    pthread_mutex_lock(&e->lock);
    show_not_started(e->sock, inode);
    e->sock = -1;
    pthread_mutex_unlock(&e->lock);
    return psti_fail(err, -EIO, "watch", e->dir, "the control socket does not start");
}

static int embedded_open(pst_engine *engine, const char *text, void **out, pst_error *err)
{
    embedded *e = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *e);
    if (!e)
        return psti_fail(err, -ENOMEM, "watch", NULL, "out of memory");
    e->sock = -1;
    e->at.dir = e->at.lock = -1;
    pthread_mutex_init(&e->lock, NULL);
    int rc = take_place(e, text, err);
    if (rc == 0)
        rc = start(e, engine, err);
    if (rc < 0) {
        embedded_close(e);
        return rc;
    }
    *out = e;
    return 0;
}

static const psti_watch_ops table = {.open = embedded_open, .close = embedded_close};

__attribute__((constructor)) static void attach(void)
{
    psti_watch_register(&table);
}
