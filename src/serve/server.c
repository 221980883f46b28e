/* SPDX-License-Identifier: Apache-2.0
 * The daemon: a directory with its lock and sockets, an engine, and the loop that serves whoever
 * connects. See server.h for who runs where. */
#include "serve/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "depot/depot.h"
#include "net/net.h"

enum { CONNS_MOST = 512, EVENTS = 64 };

/* ---- waking and watching --------------------------------------------------------------------- */

void server_wake(pst_server *s)
{
    const uint64_t one = 1;
    const ssize_t n = write(s->event, &one, sizeof one);
    (void)n; /* a counter that is full wakes as well */
}

void server_watch(pst_server *s, conn *c, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->sock, &ev);
}

static int watch_new(pst_server *s, int fd, void *what)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* The URL without slashes at its end. */
static size_t url_length(const char *url, size_t len)
{
    while (len && url[len - 1] == '/')
        len--;
    return len;
}

bool server_offers(const pst_server *s, const char *url)
{
    const size_t wanted = url_length(url, strlen(url));
    for (const char *at = s->datasets; at && *at;) {
        const size_t all = strcspn(at, ",");
        const char *equal = memchr(at, '=', all), *mine = equal ? equal + 1 : at;
        const size_t len = url_length(mine, (size_t)(at + all - mine));
        if (len == wanted && memcmp(mine, url, len) == 0)
            return true;
        at += all + (at[all] == ',');
    }
    return false;
}

bool server_is_owner(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

bool server_allows(const pst_server *s, uid_t uid)
{
    if (s->allow_any || server_is_owner(uid))
        return true;
    for (int i = 0; i < s->allow_count; i++)
        if (s->allow[i] == uid)
            return true;
    return false;
}

static void add_conn(pst_server *s, int sock)
{
    conn *c = s->conn_count < CONNS_MOST ? conn_new(s, sock) : NULL;
    if (!c) {
        close(sock);
        return;
    }
    if (!server_allows(s, c->who.uid) || watch_new(s, sock, c) < 0) {
        conn_free(c);
        return;
    }
    pthread_mutex_lock(&s->lock);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->conn_count++;
    pthread_mutex_unlock(&s->lock);
}

static void remove_conn(pst_server *s, conn *c)
{
    pthread_mutex_lock(&s->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->conn_count--;
    pthread_mutex_unlock(&s->lock);
    conn_free(c);
}

/* Out of descriptors: whoever waits is turned away. Left in the queue, he would wake the loop again
 * and again. */
static bool turn_away(pst_server *s)
{
    if ((errno != EMFILE && errno != ENFILE) || s->spare < 0)
        return false;
    close(s->spare);
    const int sock = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    if (sock >= 0)
        close(sock);
    s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return sock >= 0;
}

static void accept_all(pst_server *s)
{
    for (;;) {
        const int sock = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (sock >= 0)
            add_conn(s, sock);
        else if (errno != EINTR && errno != ECONNABORTED && !turn_away(s))
            return;
    }
}

/* After the events of a turn, so that none of them speaks of a connection that is gone. */
static void tend_all(pst_server *s)
{
    for (conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (conn_tend(c)) {
            remove_conn(s, c);
            continue;
        }
        pthread_mutex_lock(&s->lock);
        c->facts.state = c->state;
        pthread_mutex_unlock(&s->lock);
    }
}

/* ---- jobs that are being closed: their memory comes back --------------------------------------
 */

void server_closing(pst_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing++;
    pthread_mutex_unlock(&s->lock);
}

void server_close_done(pst_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing--;
    s->closed++;
    pthread_cond_broadcast(&s->gone);
    pthread_mutex_unlock(&s->lock);
}

uint64_t server_closed(pst_server *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t closed = s->closed;
    pthread_mutex_unlock(&s->lock);
    return closed;
}

bool server_await_close(pst_server *s, uint64_t seen)
{
    pthread_mutex_lock(&s->lock);
    while (s->closing && s->closed == seen)
        pthread_cond_wait(&s->gone, &s->lock);
    const bool more = s->closed != seen;
    pthread_mutex_unlock(&s->lock);
    return more;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void on_event(pst_server *s, const struct epoll_event *ev)
{
    uint64_t count;
    conn *c = ev->data.ptr;
    if (ev->data.ptr == &s->listener) {
        accept_all(s);
    } else if (ev->data.ptr == &s->lifeline) {
        atomic_store(&s->stop, true);
    } else if (ev->data.ptr == &s->event) {
        const ssize_t n = read(s->event, &count, sizeof count);
        (void)n;
    } else if (c->sock >= 0) {
        if (ev->events & EPOLLOUT)
            conn_output(c);
        if (c->sock >= 0 && (ev->events & ~(uint32_t)EPOLLOUT))
            conn_input(c);
    }
}

/* Milliseconds until the idle time is over; -1 = no end in sight, 0 = it is. */
static int idle_left(pst_server *s)
{
    if (s->conns || s->idle_exit_s <= 0) {
        s->idle_since = 0;
        return -1;
    }
    const uint64_t now = psti_now_ns(), most = (uint64_t)s->idle_exit_s * 1000000000u;
    if (!s->idle_since)
        s->idle_since = now;
    const uint64_t spent = now - s->idle_since;
    if (spent >= most)
        return 0;
    const uint64_t left = (most - spent) / 1000000 + 1;
    return left < 1000000 ? (int)left : 1000000;
}

int pst_server_run(pst_server *s, pst_error *err)
{
    struct epoll_event events[EVENTS];
    while (!atomic_load(&s->stop)) {
        const int left = idle_left(s);
        if (left == 0)
            break;
        const int count = epoll_wait(s->epoll, events, EVENTS, left);
        if (count < 0 && errno != EINTR)
            return psti_fail(err, -errno, "serve", s->dir, "waiting for clients failed: %s",
                             pst_strerror(-errno));
        for (int i = 0; i < count; i++)
            on_event(s, &events[i]);
        tend_all(s);
    }
    return 0;
}

void pst_server_stop(pst_server *s)
{
    atomic_store(&s->stop, true);
    server_wake(s);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

void pst_server_options_init(pst_server_options *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->size = sizeof *opts;
    pst_engine_options_init(&opts->engine);
    opts->lifeline = -1;
}

static int copy_allowed(pst_server *s, const pst_server_options *o, pst_error *err)
{
    if (o->allow_count <= 0)
        return 0;
    s->allow = psti_calloc(PSTI_MEM_SERVE, (size_t)o->allow_count, sizeof *s->allow);
    if (!s->allow)
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    for (int i = 0; i < o->allow_count; i++)
        s->allow[i] = o->allow_uids[i];
    s->allow_count = o->allow_count;
    return 0;
}

/* NAME=URL, and so on: each is one that buckets are asked with. */
static int copy_datasets(pst_server *s, const pst_server_options *o, pst_error *err)
{
    if (!o->datasets || !*o->datasets)
        return 0;
    s->datasets = psti_strdup(PSTI_MEM_SERVE, o->datasets);
    if (!s->datasets)
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    for (const char *at = s->datasets; *at;) {
        const size_t all = strcspn(at, ",");
        const char *equal = memchr(at, '=', all);
        if (!equal || equal == at || !psti_is_bucket_url(equal + 1))
            return psti_fail(err, -EINVAL, "serve", NULL,
                             "a dataset is given as NAME=s3://BUCKET/PREFIX, not as '%.*s'",
                             (int)(all < 200 ? all : 200), at);
        at += all + (at[all] == ',');
    }
    return 0;
}

static int copy_depot(pst_server *s, const pst_server_options *o, pst_error *err)
{
    if (!o->depot || !*o->depot)
        return 0;
    if (strlen(o->depot) >= PST_PATH_BYTES)
        return psti_fail(err, -ENAMETOOLONG, "serve", NULL, "the folder's name is too long");
    s->depot = psti_strdup(PSTI_MEM_SERVE, o->depot);
    return s->depot ? psti_depot_make(s->depot, err)
                    : psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
}

/* Clients of the control socket tell by it that what they said before was said to another. */
static void draw_instance(pst_server *s)
{
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        drawn = psti_now_ns();
    snprintf(s->instance, sizeof s->instance, "%016llx", (unsigned long long)drawn);
}

static int start_engine(pst_server *s, const pst_server_options *o, pst_error *err)
{
    pst_engine_options options = o->engine;
    options.address = "embedded"; /* whatever the environment says */
    options.watch = "off";        /* the daemon's own socket shows it */
    const int rc = pst_engine_new(&options, &s->engine, err);
    if (rc < 0)
        return rc;
    pst_engine_settings(s->engine, &s->settings);
    const uint64_t share = s->settings.memory_bytes / 16, most = 256u << 20;
    s->client_cap = o->client_cap ? o->client_cap : share < most ? share : most;
    return 0;
}

static int start_loop(pst_server *s, pst_error *err)
{
    s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->event < 0 || s->epoll < 0 || watch_new(s, s->event, &s->event) < 0 ||
        watch_new(s, s->listener, &s->listener) < 0 ||
        (s->lifeline >= 0 && watch_new(s, s->lifeline, &s->lifeline) < 0))
        return psti_fail(err, -errno, "serve", NULL, "the sockets cannot be waited for: %s",
                         pst_strerror(-errno));
    return 0;
}

static int start(pst_server *s, const pst_server_options *o, pst_error *err)
{
    const bool others = o->allow_count > 0 || o->allow_any;
    s->allow_any = o->allow_any != 0;
    draw_instance(s);
    s->idle_exit_s = o->idle_exit_s;
    s->lifeline = o->lifeline;
    if (where_find(o->dir, s->dir) < 0)
        return psti_fail(err, -EINVAL, "serve", o->dir, "the directory's name is too long");
    pst_engine_options options = o->engine;
    options.address = "embedded"; /* whatever the environment says */
    options.watch = "off";        /* the daemon's own socket shows it */
    int rc =
        pst_settings_resolve(&options, &s->settings, err); /* refused before anything is taken */
    if (rc == 0)
        rc = copy_allowed(s, o, err);
    if (rc == 0)
        rc = copy_datasets(s, o, err);
    if (rc == 0)
        rc = copy_depot(s, o, err);
    if (rc == 0)
        rc = where_take(s->dir, others, &s->at, err);
    if (rc == 0)
        rc = start_engine(s, o, err);
    if (rc < 0)
        return rc;
    s->listener = where_listen(&s->at, WHERE_FEED, SOCK_SEQPACKET, others, err);
    if (s->listener < 0)
        return s->listener;
    rc = start_loop(s, err);
    if (rc == 0)
        rc = looker_open(s->engine, s->instance, o->http != NULL, &s->looker, err);
    if (rc == 0)
        rc = control_open(s, &s->control, err);
    return rc < 0 || !o->http ? rc : control_http(s, o, err);
}

int pst_server_open(const pst_server_options *opts, pst_server **out, pst_error *err)
{
    pst_server_options o;
    pst_server_options_init(&o);
    if (opts && opts->size != sizeof o)
        return psti_fail(err, -EINVAL, "serve", NULL,
                         "options of another version; call pst_server_options_init");
    if (opts)
        o = *opts;
    pst_server *s = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *s);
    if (!s)
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    s->listener = s->epoll = s->event = s->lifeline = s->spare = -1;
    s->at = (where){-1, -1};
    s->started_ns = psti_now_ns();
    s->next_id = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->gone, NULL);
    shelf_init(&s->shelf);
    sources_init(&s->sources);
    const int rc = start(s, &o, err);
    if (rc < 0) {
        pst_server_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

static void end_conns(pst_server *s)
{
    for (conn *c = s->conns; c; c = c->next)
        conn_leave(c);
    while (s->conns) {
        struct epoll_event ev;
        tend_all(s);
        if (s->conns && epoll_wait(s->epoll, &ev, 1, -1) > 0)
            on_event(s, &ev);
    }
}

void pst_server_close(pst_server *s)
{
    if (!s)
        return;
    control_http_close(s);
    control_close(s->control);
    looker_close(s->looker);
    if (s->listener >= 0)
        close(s->listener); /* from here on nobody comes */
    end_conns(s);
    pst_engine_free(s->engine);
    where_leave(&s->at);
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->event >= 0)
        close(s->event);
    if (s->spare >= 0)
        close(s->spare);
    psti_free(s->allow);
    psti_free(s->datasets);
    psti_free(s->depot);
    shelf_fini(&s->shelf);
    sources_fini(&s->sources);
    pthread_cond_destroy(&s->gone);
    pthread_mutex_destroy(&s->lock);
    psti_free(s);
}

const char *pst_server_dir(const pst_server *s)
{
    return s->dir;
}

int pst_server_find(const char *address, char *dir, size_t cap)
{
    char found[WHERE_BYTES];
    const int rc = where_find(address, found);
    if (rc < 0)
        return rc;
    return (size_t)snprintf(dir, cap, "%s", found) < cap ? 0 : -EINVAL;
}
