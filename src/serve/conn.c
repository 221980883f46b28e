/* SPDX-License-Identifier: Apache-2.0
 * A connection, which is a job: what the client says, what he gets, and how it ends. Everything
 * here runs in the loop, but for the hooks at the end, which workers call. A client that breaks the
 * protocol is left; nothing that it sends or writes into its segments can do more. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "serve/job.h"

/* ---- sending --------------------------------------------------------------------------------- */

static int post_later(conn *c, const wire_packet *packet, int fd)
{
    letter *l = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *l);
    if (!l)
        return -ENOMEM;
    memcpy(&l->packet, packet, packet->head.bytes);
    l->fd = fd >= 0 ? dup(fd) : -1;
    if (c->last_letter)
        c->last_letter->next = l;
    else
        c->letters = l;
    c->last_letter = l;
    if (!c->watched_out)
        server_watch(c->server, c, true);
    c->watched_out = true;
    return fd >= 0 && l->fd < 0 ? -errno : 0;
}

/* In order, now or when the socket takes it. fd stays the caller's. False: he is gone. */
bool conn_post(conn *c, const wire_packet *packet, int fd)
{
    int rc = c->letters ? -EAGAIN : wire_send(c->sock, packet, &fd, fd >= 0);
    if (rc == -EAGAIN)
        rc = post_later(c, packet, fd);
    return rc == 0;
}

static void drop_letter(conn *c)
{
    letter *l = c->letters;
    c->letters = l->next;
    if (!c->letters)
        c->last_letter = NULL;
    if (l->fd >= 0)
        close(l->fd);
    psti_free(l);
}

void conn_output(conn *c)
{
    int rc = 0;
    while (c->letters && rc == 0) {
        rc = wire_send(c->sock, &c->letters->packet, &c->letters->fd, c->letters->fd >= 0);
        if (rc == 0)
            drop_letter(c);
    }
    if (rc < 0 && rc != -EAGAIN) {
        conn_leave(c);
        return;
    }
    if (!c->letters && c->watched_out) {
        server_watch(c->server, c, false);
        c->watched_out = false;
        job_pump(c);
    }
}

static void refuse(conn *c, const pst_error *why)
{
    wire_packet p;
    wire_init(&p, c->server->speaks.newest, WIRE_REFUSED, 0);
    p.refused.code = why ? why->code : 0;
    p.refused.version = c->server->speaks.newest;
    if (why)
        p.refused.error = *why;
    conn_post(c, &p, -1);
}

/* ---- what the client says -------------------------------------------------------------------- */

/* A client that speaks none of the daemon's versions is told so, and goes on by itself. */
static bool on_hello(conn *c, const wire_hello *hello)
{
    if (c->state != CONN_NEW)
        return false;
    const uint16_t newest = hello->head.version;
    const wire_range theirs = {hello->oldest ? (uint16_t)hello->oldest : newest, newest};
    c->version = hello->oldest <= newest ? wire_agree(c->server->speaks, theirs) : 0;
    if (!c->version) {
        refuse(c, NULL);
        return false;
    }
    const pst_settings *s = &c->server->settings;
    wire_packet p;
    wire_init(&p, c->version, WIRE_WELCOME, 0);
    p.welcome.workers = (uint32_t)s->workers;
    p.welcome.cpus = (uint32_t)s->cpus;
    p.welcome.io = (uint32_t)s->io;
    p.welcome.io_depth = (uint32_t)s->io_depth;
    p.welcome.memory_bytes = s->memory_bytes;
    p.welcome.cache_bytes = s->cache_bytes;
    p.welcome.disk_bytes = s->disk_bytes;
    p.welcome.may_have = s->may_have;
    memcpy(p.welcome.cpu, s->cpu, sizeof p.welcome.cpu);
    strncpy(p.welcome.release, PST_VERSION, sizeof p.welcome.release - 1);
    pthread_mutex_lock(&c->server->lock);
    c->facts.pid = hello->pid;
    pthread_mutex_unlock(&c->server->lock);
    c->state = CONN_HELLO;
    return conn_post(c, &p, -1);
}

static bool on_open(conn *c, wire_mail *mail)
{
    const wire_open *open = &mail->packet.open;
    if (c->state != CONN_HELLO || mail->fd_count != 2 || c->root >= 0)
        return false;
    c->root = wire_take(mail, 0);
    c->spec_fd = wire_take(mail, 1);
    c->spec_bytes = open->spec_bytes;
    memcpy(c->revision, open->revision, sizeof c->revision);
    memcpy(c->depot_revision, open->depot_revision, sizeof c->depot_revision);
    c->depot_revision[sizeof c->depot_revision - 1] = 0;
    c->by_set = c->depot_revision[0] != 0;
    return conn_start(c, CONN_OPENING, job_open_thread);
}

/* Once a connection; who wants more comes again. */
static bool on_list(conn *c, wire_mail *mail)
{
    const wire_list *list = &mail->packet.list;
    if (c->state != CONN_HELLO || mail->fd_count != 1 || c->root >= 0)
        return false;
    c->root = wire_take(mail, 0);
    memcpy(c->depot_revision, list->depot_revision, sizeof c->depot_revision);
    c->depot_revision[sizeof c->depot_revision - 1] = 0;
    c->by_set = c->lists = true;
    return conn_start(c, CONN_OPENING, job_open_thread);
}

static bool on_mail(conn *c, wire_mail *mail)
{
    const wire_packet *p = &mail->packet;
    if (p->head.kind == WIRE_HELLO)
        return on_hello(c, &p->hello);
    if (p->head.kind == WIRE_OPEN)
        return on_open(c, mail);
    if (p->head.kind == WIRE_LIST)
        return on_list(c, mail);
    if (c->state != CONN_OPEN)
        return false;
    if (p->head.kind == WIRE_CREDIT)
        return job_credit(c, &p->credit);
    if (p->head.kind == WIRE_RELEASE)
        return job_release(c, p->release.segment);
    if (p->head.kind == WIRE_RESTART)
        return job_restart(c, mail);
    return false;
}

void conn_input(conn *c)
{
    enum { TURN = 64 }; /* packets, before others have their turn */
    for (int i = 0; i < TURN && c->sock >= 0; i++) {
        wire_mail mail;
        const int rc = wire_receive(c->sock, c->version, &mail);
        if (rc == -EAGAIN)
            break;
        const bool ok = rc == 0 && on_mail(c, &mail);
        if (rc == 0)
            wire_drop(&mail);
        if (!ok)
            conn_leave(c);
    }
    if (c->state == CONN_OPEN)
        job_pump(c);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

conn *conn_new(pst_server *s, int sock)
{
    conn *c = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *c);
    if (!c)
        return NULL;
    c->server = s;
    c->sock = sock;
    c->root = c->spec_fd = c->listed_fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    if (peer_of(sock, &c->who) < 0) {
        c->sock = -1;
        conn_free(c);
        return NULL;
    }
    c->foreign = c->who.uid != geteuid() && c->who.uid != 0;
    c->facts = (conn_facts){.id = s->next_id++, .opened_ns = psti_now_ns(), .uid = c->who.uid};
    return c;
}

static void close_job(conn *c)
{
    job_close_thread(c);
    server_close_done(c->server);
}

static void *run_thread(void *arg)
{
    conn *c = arg;
    if (c->state == CONN_OPENING)
        job_open_thread(c);
    else
        close_job(c);
    atomic_store(&c->done, true);
    server_wake(c->server);
    return NULL;
}

bool conn_start(conn *c, conn_state state, void (*work)(conn *))
{
    const conn_state before = c->state;
    atomic_store(&c->done, false);
    c->state = state;
    if (pthread_create(&c->thread, NULL, run_thread, c) == 0)
        return true;
    if (state == CONN_OPENING) {
        c->state = before;
        return false;
    }
    work(c); /* without a thread the others wait, but it must be done */
    c->state = CONN_CLOSED;
    server_wake(c->server);
    return true;
}

void conn_leave(conn *c)
{
    if (c->sock >= 0)
        close(c->sock); /* which takes it out of the epoll set */
    c->sock = -1;
    while (c->letters)
        drop_letter(c);
    if (c->state == CONN_NEW || c->state == CONN_HELLO) {
        c->state = CONN_CLOSED;
        server_wake(c->server);
    } else if (c->state == CONN_OPEN) {
        server_closing(c->server);
        conn_start(c, CONN_CLOSING, close_job);
    } /* an opener that is under way comes back to conn_tend */
}

/* He has it, and leaves or is left. */
static void tell_listed(conn *c)
{
    wire_packet p;
    wire_init(&p, c->version, WIRE_LISTED, 0);
    p.listed.bytes = c->listed_bytes;
    memcpy(p.listed.depot_revision, c->depot_revision, sizeof p.listed.depot_revision);
    conn_post(c, &p, c->listed_fd);
    c->state = CONN_HELLO;
}

static void opened(conn *c)
{
    if (c->lists && c->open_rc == 0 && c->sock >= 0) {
        tell_listed(c);
        return;
    }
    c->state = CONN_OPEN;
    if (c->sock < 0) {
        conn_leave(c);
        return;
    }
    if (c->open_rc < 0) {
        refuse(c, &c->open_error);
    } else if (job_announce(c)) {
        pthread_mutex_lock(&c->server->lock);
        c->facts.text = &c->text;
        pthread_mutex_unlock(&c->server->lock);
        return;
    }
    conn_leave(c);
}

bool conn_tend(conn *c)
{
    const bool threaded = c->state == CONN_OPENING || c->state == CONN_CLOSING;
    if (threaded && atomic_load(&c->done)) {
        pthread_join(c->thread, NULL);
        if (c->state == CONN_CLOSING)
            c->state = CONN_CLOSED;
        else
            opened(c);
    }
    if (c->state == CONN_OPEN && atomic_exchange(&c->woken, false))
        job_pump(c);
    return c->state == CONN_CLOSED;
}

void conn_free(conn *c)
{
    if (c->sock >= 0)
        close(c->sock);
    if (c->root >= 0)
        close(c->root);
    if (c->spec_fd >= 0)
        close(c->spec_fd);
    if (c->listed_fd >= 0)
        close(c->listed_fd);
    while (c->skips) {
        skip_note *note = c->skips;
        c->skips = note->next;
        psti_free(note);
    }
    segment_free_all(c);
    psti_free(c->text.path);
    psti_free(c->text.pipeline);
    psti_free(c->text.group);
    spec_fini(&c->spec);
    peer_fini(&c->who);
    pthread_mutex_destroy(&c->lock);
    psti_free(c);
}
