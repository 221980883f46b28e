/* SPDX-License-Identifier: Apache-2.0
 * The client of a served engine: finding the daemon, opening jobs there. Registered with the room
 * engine before main. Called by whoever makes engines and jobs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "serve/channel.h"
#include "serve/spec.h"
#include "serve/where.h"

static const int64_t ANSWER_NS = 10ll * 1000000000; /* to HELLO: the loop never takes long */

typedef struct remote { /* an engine */
    char dir[WHERE_BYTES];
} remote;

/* ---- connecting ------------------------------------------------------------------------------ */

/* 0 and a WELCOME in mail; PSTI_LINK_GONE; PSTI_LINK_ELSEWHERE with a REFUSED in mail. */
static int greet(channel *ch, wire_range says, wire_mail *mail)
{
    wire_packet p;
    wire_init(&p, says.newest, WIRE_HELLO, 0);
    p.hello.pid = (uint32_t)getpid();
    p.hello.oldest = says.oldest;
    if (wire_send(ch->sock, &p, NULL, 0) < 0 || channel_receive(ch, ANSWER_NS, mail) < 0)
        return PSTI_LINK_GONE;
    const wire_head *head = &mail->packet.head;
    if (head->kind == WIRE_REFUSED)
        return PSTI_LINK_ELSEWHERE;
    if (head->kind != WIRE_WELCOME || head->version < says.oldest || head->version > says.newest)
        return PSTI_LINK_GONE;
    ch->version = head->version;
    return 0;
}

static int connect_once(const char *dir, wire_range says, channel **out, wire_mail *mail,
                        uid_t *server)
{
    const int sock = where_connect(dir, WHERE_FEED, SOCK_SEQPACKET, server);
    if (sock < 0)
        return PSTI_LINK_GONE;
    channel *ch = channel_new(sock);
    if (!ch)
        return -ENOMEM;
    const int rc = greet(ch, says, mail);
    if (rc < 0)
        channel_free(ch);
    else
        *out = ch;
    return rc;
}

/* 0 and a WELCOME in mail; PSTI_LINK_GONE; PSTI_LINK_ELSEWHERE with err filled. A daemon from
 * before ranges refuses all but its own version, and says which that is: it is greeted again with
 * it. */
static int open_channel(const char *dir, channel **out, wire_mail *mail, uid_t *server,
                        pst_error *err)
{
    const wire_range mine = wire_speaks();
    wire_range says = mine;
    for (;;) {
        const int rc = connect_once(dir, says, out, mail, server);
        if (rc != PSTI_LINK_ELSEWHERE)
            return rc;
        const uint32_t theirs = mail->packet.refused.version;
        if (theirs >= says.newest || theirs < mine.oldest)
            return psti_fail(err, rc, "engine", NULL,
                             "the daemon speaks version %u of the feed protocol, this library "
                             "versions %u to %u",
                             theirs, mine.oldest, mine.newest);
        says.newest = (uint16_t)theirs;
    }
}

/* ---- engines and jobs ------------------------------------------------------------------------ */

static int open_remote(const char *address, void **out, pst_settings *settings, pst_error *err)
{
    const bool automatic = strcmp(address, "auto") == 0;
    if (!automatic && strncmp(address, "unix:", 5) != 0)
        return psti_fail(err, -EINVAL, "engine", address,
                         "an engine's address is embedded, auto, or unix:DIR");
    remote *r = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *r);
    if (!r || where_find(address, r->dir) < 0) {
        psti_free(r);
        return psti_fail(err, r ? -EINVAL : -ENOMEM, "engine", address, "the address is too long");
    }
    wire_mail mail;
    channel *ch = NULL;
    uid_t server = 0;
    pst_error why;
    int rc = open_channel(r->dir, &ch, &mail, &server, &why);
    const bool mine = rc == 0 && (server == geteuid() || server == 0);
    if (rc == 0)
        channel_free(ch);
    if (rc == 0 && (mine || !automatic)) {
        const wire_welcome *w = &mail.packet.welcome;
        settings->workers = (int)w->workers;
        settings->cpus = (int)w->cpus;
        settings->io = (int)w->io;
        settings->io_depth = (int)w->io_depth;
        settings->memory_bytes = w->memory_bytes;
        settings->cache_bytes = w->cache_bytes;
        settings->disk_bytes = w->disk_bytes;
        settings->may_have = w->may_have;
        memcpy(settings->cpu, w->cpu, sizeof settings->cpu);
        *out = r;
        return 1;
    }
    if (rc == PSTI_LINK_ELSEWHERE)
        psti_log(PSTI_LOG_WARN, "%s; jobs are prepared in this process", why.message);
    const char *dir = r->dir;
    if (rc == PSTI_LINK_GONE && !automatic)
        rc = psti_fail(err, -ECONNREFUSED, "engine", dir,
                       "nobody serves there; start it with: penstock serve --socket DIR");
    psti_free(r);
    return rc == -ECONNREFUSED || rc == -ENOMEM ? rc : 0;
}

static void close_remote(void *engine)
{
    psti_free(engine);
}

static int send_open(channel *ch, psti_dataset *data, const pst_job_options *opts, pst_error *err)
{
    psti_place place;
    psti_folder folder = {-1, NULL, ""};
    job_spec s = {.options = *opts};
    /* A daemon that has no sets takes the revision's folder, where all of it is there. */
    const bool by_set = ch->version >= WIRE_SETS && psti_dataset_folder(data, &folder) == 0;
    const char *url = by_set ? NULL : psti_dataset_url(data);
    if (!by_set && !psti_dataset_is_here(data))
        return psti_fail(err, PSTI_LINK_ELSEWHERE, "job", NULL,
                         "the daemon is of an earlier release, which reads no bucket for a set");
    if (by_set)
        place = (psti_place){.root = folder.set, .path = folder.path};
    else if (url)
        place = (psti_place){.root = -1, .path = url};
    else if (psti_dataset_place(data, &place) < 0)
        return psti_fail(err, PSTI_LINK_ELSEWHERE, "job", NULL,
                         "its samples come from this process, not from files in one place");
    s.name = place.name;
    s.path = place.path;
    int rc = spec_encode(&s);
    const int fd = rc < 0 ? rc : wire_blob("penstock-job", s.bytes, s.size);
    if (fd >= 0) {
        const int fds[2] = {url ? fd : place.root, fd}; /* a bucket has no directory */
        wire_packet p;
        wire_init(&p, ch->version, WIRE_OPEN, 0);
        p.open.spec_bytes = s.size;
        snprintf(p.open.depot_revision, sizeof p.open.depot_revision, "%s", folder.revision);
        psti_id128_store(psti_dataset_revision(data), p.open.revision);
        rc = wire_send(ch->sock, &p, fds, 2) < 0 ? PSTI_LINK_GONE : 0;
        close(fd);
    } else {
        rc = psti_fail(err, fd, "job", NULL, "the job cannot be sent: %s", pst_strerror(fd));
    }
    if (place.root >= 0)
        close(place.root);
    spec_fini(&s);
    return rc;
}

/* Not the job's fault: it can be done here. */
static bool is_ours(int code)
{
    return code == PST_ECHANGED || code == -EPROTO || code == -EFBIG || code == -ENOTDIR ||
           code == -EACCES;
}

static int on_refused(const wire_refused *refused, pst_error *err)
{
    *err = refused->error;
    err->message[sizeof err->message - 1] = err->key[sizeof err->key - 1] = 0;
    err->stage[sizeof err->stage - 1] = 0;
    if (refused->code >= 0 || is_ours(refused->code))
        return PSTI_LINK_ELSEWHERE;
    return refused->code;
}

/* SEGMENT…, then OPENED. Listing a large dataset may take its time. */
static int await_opened(channel *ch, pst_error *err)
{
    for (;;) {
        wire_mail mail;
        int rc = channel_receive(ch, -1, &mail);
        if (rc < 0)
            return PSTI_LINK_GONE;
        const wire_packet *p = &mail.packet;
        const int kind = p->head.kind;
        if (kind == WIRE_SEGMENT) {
            const int fd = wire_take(&mail, 0);
            rc = channel_map(ch, p->segment.id, fd, p->segment.bytes, false);
            if (fd >= 0)
                close(fd);
        } else if (kind == WIRE_REFUSED) {
            rc = on_refused(&p->refused, err);
        } else if (kind != WIRE_OPENED) {
            rc = PSTI_LINK_GONE;
        }
        wire_drop(&mail);
        if (kind != WIRE_SEGMENT || rc < 0)
            return rc == -EPROTO ? PSTI_LINK_GONE : rc;
    }
}

/* ---- datasets that the daemon keeps ------------------------------------------------------------
 */

enum { LISTING_MOST = 2000 << 20 };

static int await_listed(channel *ch, const psti_folder *asked, psti_dataset **out, pst_error *err)
{
    wire_mail mail;
    uint8_t *bytes = NULL;
    if (channel_receive(ch, -1, &mail) < 0)
        return PSTI_LINK_GONE;
    wire_packet *p = &mail.packet;
    int rc = PSTI_LINK_GONE;
    if (p->head.kind == WIRE_REFUSED)
        rc = on_refused(&p->refused, err);
    if (p->head.kind == WIRE_LISTED && mail.fd_count == 1) {
        psti_folder at = *asked;
        p->listed.depot_revision[WIRE_DEPOT_ROOM - 1] = 0;
        at.revision = p->listed.depot_revision;
        rc = wire_blob_read(mail.fds[0], p->listed.bytes, LISTING_MOST, &bytes);
        if (rc == 0)
            rc = psti_dataset_unpack(bytes, p->listed.bytes, &at, out, err);
        else
            psti_fail(err, rc, "list", at.path, "the listing cannot be read: %s", pst_strerror(rc));
        rc = rc == -EPROTO ? PSTI_LINK_ELSEWHERE : rc;
    }
    psti_free(bytes);
    wire_drop(&mail);
    return rc;
}

static int open_dataset(const char *address, int set, const char *path, const char *revision,
                        psti_dataset **out, pst_error *err)
{
    char dir[WHERE_BYTES];
    wire_mail mail;
    wire_packet p;
    uid_t server;
    channel *ch = NULL;
    if (where_find(address, dir) < 0)
        return PSTI_LINK_GONE;
    int rc = open_channel(dir, &ch, &mail, &server, err);
    if (rc < 0)
        return rc;
    if (ch->version < WIRE_SETS) {
        channel_close(ch);
        return psti_fail(err, PSTI_LINK_ELSEWHERE, "list", path,
                         "the daemon is of an earlier release, which lists none for others");
    }
    const psti_folder at = {.set = set, .path = path, .revision = revision};
    wire_init(&p, ch->version, WIRE_LIST, 0);
    if (strlen(revision) < PST_REVISION_BYTES)
        snprintf(p.list.depot_revision, sizeof p.list.depot_revision, "%s", revision);
    rc = wire_send(ch->sock, &p, &set, 1) < 0 ? PSTI_LINK_GONE : await_listed(ch, &at, out, err);
    channel_close(ch);
    return rc;
}

static int open_job(void *engine, psti_dataset *data, const pst_job_options *opts, void **out,
                    pst_error *err)
{
    const remote *r = engine;
    wire_mail mail;
    uid_t server;
    channel *ch = NULL;
    int rc = open_channel(r->dir, &ch, &mail, &server, err);
    if (rc < 0)
        return rc;
    ch->batch = opts->batch;
    ch->ready = opts->order == PST_ORDER_READY;
    ch->positions = psti_calloc(PSTI_MEM_SERVE, (size_t)opts->batch, sizeof *ch->positions);
    ch->valid = psti_calloc(PSTI_MEM_SERVE, (size_t)opts->batch, 1);
    rc = ch->positions && ch->valid ? send_open(ch, data, opts, err)
                                    : psti_fail(err, -ENOMEM, "job", NULL, "out of memory");
    if (rc == 0)
        rc = await_opened(ch, err);
    if (rc < 0) {
        channel_close(ch);
        return rc;
    }
    *out = ch;
    return 0;
}

static const psti_link_ops table = {
    .engine_open = open_remote,
    .engine_close = close_remote,
    .dataset_open = open_dataset,
    .job_open = open_job,
    .job_close = channel_close,
    .next = channel_next,
    .handed = channel_handed,
    .abort = channel_abort,
    .restart = channel_restart,
    .stats = channel_stats,
    .facts = channel_facts,
    .memory = channel_memory,
};

__attribute__((constructor)) static void attach(void)
{
    psti_link_register(&table);
}
