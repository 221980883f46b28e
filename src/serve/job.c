/* SPDX-License-Identifier: Apache-2.0
 * The job behind a connection: opened for what the client asks, its batches handed on as they are
 * ready, taken back when he is gone. The loop calls all of it but the opener and closer, which have
 * the connection to themselves, and the hooks, which workers call under the pool's lock. */
#include "serve/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/net.h"

static const uint64_t LOOK_NS = 500000000; /* between two looks at what goes into a verdict */

enum {
    SPEC_MOST = 256 << 20, /* ids and weights of a hundred million samples are not served */
    COPIES_MOST = 3        /* not released by a client that should have copied them */
};

/* ---- hooks ----------------------------------------------------------------------------------- */

static void on_wake(void *user)
{
    conn *c = user;
    if (!atomic_exchange(&c->woken, true))
        server_wake(c->server);
}

static void on_skipped(void *user, uint64_t epoch, int64_t position, int64_t share,
                       const pst_error *err)
{
    conn *c = user;
    skip_note *note = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *note);
    if (!note)
        return; /* the client's list lacks it; a resume meets the sample again */
    *note = (skip_note){NULL, epoch, position, share, *err};
    pthread_mutex_lock(&c->lock);
    if (c->last_skip)
        c->last_skip->next = note;
    else
        c->skips = note;
    c->last_skip = note;
    pthread_mutex_unlock(&c->lock);
}

static int on_may(void *user, int64_t id, pst_error *err)
{
    conn *c = user;
    return peer_may_read(&c->who, psti_dataset_unwrap(c->entry->data), id, err);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int read_spec(conn *c, pst_error *err)
{
    int rc = wire_blob_read(c->spec_fd, c->spec_bytes, SPEC_MOST, &c->spec.bytes);
    c->spec.size = c->spec_bytes;
    if (rc == 0)
        rc = spec_decode(&c->spec);
    return rc < 0 ? psti_fail(err, rc, "serve", NULL, "the job's options cannot be read: %s",
                              pst_strerror(rc))
                  : 0;
}

static int keep_text(conn *c, pst_error *err)
{
    const pst_job_options *o = &c->spec.options;
    c->text = (conn_text){.path = psti_strdup(PSTI_MEM_SERVE, c->entry->path),
                          .pipeline = psti_strdup(PSTI_MEM_SERVE, o->pipeline ? o->pipeline : ""),
                          .group = psti_strdup(PSTI_MEM_SERVE, o->group ? o->group : ""),
                          .batch = o->batch,
                          .rank = o->rank,
                          .world = o->world,
                          .ready = o->order == PST_ORDER_READY,
                          .shares = o->sampling == PST_SAMPLING_OPPORTUNISTIC};
    return c->text.path && c->text.pipeline && c->text.group
               ? 0
               : psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
}

/* Some of what is prepared ahead waits at the client. */
static pst_job_options shift_ahead(const pst_job_options *asked)
{
    pst_job_options o = *asked;
    const int depth = o.ready_depth ? o.ready_depth : 4;
    const int leases = (o.leases ? o.leases : 1) + WIRE_AHEAD;
    o.ready_depth = depth > WIRE_AHEAD ? depth - WIRE_AHEAD : 1;
    o.leases = leases < 64 ? leases : 64;
    return o;
}

/* Whoever comes when another leaves may have to wait for the memory that he gives back. */
static int open_hooked(conn *c, const psti_feed_hooks *hooks, pst_error *err)
{
    const pst_job_options o = shift_ahead(&c->spec.options);
    for (;;) {
        const uint64_t closed = server_closed(c->server);
        psti_error_clear(err);
        const int rc =
            psti_job_open_hooked(c->server->engine, c->entry->data, &o, hooks, &c->job, err);
        if (rc != PST_EBUDGET || !server_await_close(c->server, closed))
            return rc;
    }
}

/* Which dataset it is he need not say; what is in it goes to him as bytes. */
static int list_set(conn *c, pst_error *err)
{
    uint8_t *bytes = NULL;
    int rc = shelf_take_set(c->server, c->root, c->depot_revision, &c->entry, err);
    if (rc < 0)
        return rc;
    psti_dataset *data = psti_dataset_unwrap(c->entry->data);
    rc = psti_dataset_pack(data, &bytes, &c->listed_bytes);
    if (rc == 0)
        rc = c->listed_fd = wire_blob("penstock-listing", bytes, c->listed_bytes);
    psti_free(bytes);
    snprintf(c->depot_revision, sizeof c->depot_revision, "%s", c->entry->depot_revision);
    shelf_give(&c->server->shelf, c->entry);
    c->entry = NULL;
    return rc < 0 ? psti_fail(err, rc, "list", NULL, "the listing cannot be sent: %s",
                              pst_strerror(rc))
                  : 0;
}

static int take_data(conn *c, pst_error *err)
{
    if (!c->by_set)
        return shelf_take(&c->server->shelf, c->root, &c->spec, c->revision, &c->entry, err);
    const int rc = shelf_take_set(c->server, c->root, c->depot_revision, &c->entry, err);
    if (rc < 0 || memcmp(c->entry->revision, c->revision, sizeof c->revision) == 0)
        return rc;
    return psti_fail(err, PST_ECHANGED, "list", c->spec.path,
                     "the daemon sees other samples there than this process");
}

static int open_job(conn *c, pst_error *err)
{
    int rc = read_spec(c, err);
    if (rc == 0 && !c->by_set && c->spec.path && psti_is_bucket_url(c->spec.path) &&
        !server_offers(c->server, c->spec.path))
        rc = psti_fail(err, -EACCES, "list", c->spec.path,
                       "the daemon does not offer this dataset; its owner does so with penstock "
                       "serve --dataset NAME=URL");
    if (rc == 0)
        rc = take_data(c, err);
    if (rc < 0)
        return rc;
    rc = keep_text(c, err);
    if (rc < 0)
        return rc;
    const psti_feed_hooks hooks = {.take = segment_take,
                                   .give = segment_give,
                                   .wake = on_wake,
                                   .skipped = on_skipped,
                                   .may = c->foreign && !c->by_set ? on_may : NULL,
                                   .user = c,
                                   .id = c->facts.id,
                                   .pid = c->facts.pid,
                                   .uid = (uint32_t)c->who.uid,
                                   .path = c->entry->path};
    rc = open_hooked(c, &hooks, err);
    if (rc < 0)
        return rc;
    void *base; /* makes the ring; without a fixed shape there is none */
    size_t bytes;
    rc = pst_job_memory(c->job, 0, &base, &bytes);
    return rc < 0 && rc != -ENOENT
               ? psti_fail(err, rc, "serve", NULL, "no memory for the job's batches")
               : 0;
}

void job_open_thread(conn *c)
{
    psti_error_clear(&c->open_error);
    c->open_rc = c->lists ? list_set(c, &c->open_error) : open_job(c, &c->open_error);
}

void job_close_thread(conn *c)
{
    pst_job_close(c->job); /* first: what a live job gets back it fills again */
    for (uint32_t id = 0; id < segment_count(c); id++) {
        segment *seg = segment_at(c, id);
        if (seg && seg->lease)
            pst_batch_release(seg->lease); /* the end of seg; the client keeps his mapping */
    }
    shelf_give(&c->server->shelf, c->entry);
    c->entry = NULL;
}

bool job_announce(conn *c)
{
    wire_packet p;
    for (uint32_t id = 0; id < segment_count(c); id++) {
        segment *seg = segment_at(c, id);
        if (!seg || seg->once)
            continue;
        wire_init(&p, c->version, WIRE_SEGMENT, 0);
        p.segment.id = id;
        p.segment.bytes = seg->bytes;
        if (!conn_post(c, &p, seg->fd))
            return false;
        close(seg->fd);
        seg->fd = -1;
    }
    wire_init(&p, c->version, WIRE_OPENED, 0);
    return conn_post(c, &p, -1);
}

/* ---- handing on ------------------------------------------------------------------------------ */

static skip_note *next_skip(conn *c, uint64_t epoch)
{
    pthread_mutex_lock(&c->lock);
    skip_note *note = c->skips;
    if (note && note->epoch <= epoch) {
        c->skips = note->next;
        if (!c->skips)
            c->last_skip = NULL;
    } else {
        note = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return note;
}

/* Before the batch that they were skipped for: the client's record takes them in order. */
static bool post_skips(conn *c, uint64_t epoch)
{
    bool ok = true;
    skip_note *note;
    while (ok && (note = next_skip(c, epoch))) {
        wire_packet p;
        wire_init(&p, c->version, WIRE_SKIP, c->generation);
        p.skip.epoch = note->epoch;
        p.skip.position = note->position;
        p.skip.share = note->share;
        p.skip.error = note->error;
        if (note->epoch == epoch)
            ok = conn_post(c, &p, -1);
        psti_free(note);
    }
    return ok;
}

static void count_stats(conn *c, wire_stats *out)
{
    pst_job_stats s = {.size = sizeof s};
    pst_job_stats_get(c->job, &s);
    pthread_mutex_lock(&c->server->lock);
    c->facts.stats = (conn_stats){.batches = s.batches,
                                  .samples = s.samples,
                                  .skipped = s.skipped,
                                  .bytes_read = s.bytes_read,
                                  .cache_hits = s.cache_hits,
                                  .cache_misses = s.cache_misses,
                                  .held = c->held,
                                  .preparations = s.preparations,
                                  .hits = {s.encoded_hits, s.cache_hits, s.shared_hits}};
    pthread_mutex_unlock(&c->server->lock);
    wire_stats_put(out, &s);
    /* It looks at every worker: not for every batch. */
    const uint64_t now = psti_now_ns();
    if (now - c->looked_ns >= LOOK_NS) {
        c->looked_ns = now;
        psti_job_facts(c->job, &c->looked);
    }
    out->facts = c->looked;
}

static int write_positions(segment *seg, const psti_receipt *r, size_t at)
{
    int64_t *positions = (int64_t *)(seg->base + at);
    int pads = 0;
    for (int i = 0; i < r->slots; i++) {
        pads += !r->valid[i];
        if (at < seg->bytes)
            positions[i] = r->valid[i] ? r->positions[i] : -1 - r->positions[i];
    }
    return pads;
}

/* The oldest; -1 = there is none. */
static int64_t sent_take(conn *c)
{
    if (c->sent_count == 0)
        return -1;
    const int64_t batch = c->sent[0];
    memmove(c->sent, c->sent + 1, (size_t)--c->sent_count * sizeof c->sent[0]);
    return batch;
}

/* One that the client was given more credit for than he may have is as good as taken. */
static void sent_add(conn *c, const psti_receipt *r)
{
    if (c->sent_count == WIRE_AHEAD + 1)
        sent_take(c);
    c->sent[c->sent_count++] = psti_trace_step(r->epoch, r->step);
}

static bool post_batch(conn *c, pst_batch *batch)
{
    uint32_t id;
    psti_receipt r;
    psti_batch_receipt(batch, &r);
    segment *seg = segment_find(c, psti_batch_desc(batch), &id);
    if (!seg) { /* cannot be: it was made here */
        pst_batch_release(batch);
        return false;
    }
    seg->lease = batch;
    seg->copied = seg->once && !segment_charge(c, seg);
    c->copies += seg->copied;
    c->held++;
    c->credits--;
    sent_add(c, &r);
    if (!post_skips(c, r.epoch))
        return false;
    wire_packet p;
    wire_init(&p, c->version, WIRE_BATCH, c->generation);
    wire_batch *b = &p.batch;
    b->segment = id;
    b->flags = (seg->once ? WIRE_ONCE : 0) | (seg->copied ? WIRE_COPY : 0);
    b->segment_bytes = seg->bytes;
    b->bytes = seg->batch;
    b->positions = (seg->batch + 7) / 8 * 8;
    b->epoch = r.epoch;
    b->steps = r.steps;
    b->share_end = r.share_end;
    b->slots = r.slots;
    b->pads = write_positions(seg, &r, b->positions);
    count_stats(c, &b->stats);
    const bool ok = conn_post(c, &p, seg->fd);
    if (seg->fd >= 0)
        close(seg->fd);
    seg->fd = -1;
    return ok;
}

static bool post_end(conn *c, uint64_t epoch)
{
    const pst_job_options *o = &c->spec.options;
    if (!post_skips(c, epoch))
        return false;
    c->finished = o->epochs && pst_job_epoch(c->job) >= o->first_epoch + o->epochs;
    wire_packet p;
    wire_init(&p, c->version, WIRE_END, c->generation);
    p.end.epoch = epoch;
    return conn_post(c, &p, -1);
}

static bool post_failed(conn *c)
{
    wire_packet p;
    wire_init(&p, c->version, WIRE_FAILED, c->generation);
    pst_job_error(c->job, &p.failed.error);
    c->failed = true;
    return conn_post(c, &p, -1);
}

/* One more for the client. 1, 0 when there is nothing, negative when he is gone. */
static int hand_on(conn *c)
{
    pst_batch *batch;
    const uint64_t epoch = pst_job_epoch(c->job);
    const int rc = pst_job_next(c->job, 0, &batch);
    if (rc == -ETIMEDOUT)
        return 0;
    const bool ok = rc == 1 ? post_batch(c, batch) : rc == 0 ? post_end(c, epoch) : post_failed(c);
    return ok ? 1 : -EPIPE;
}

void job_pump(conn *c)
{
    int rc = 1;
    while (rc > 0 && c->state == CONN_OPEN && c->credits > 0 && !c->finished && !c->failed &&
           !c->letters && c->copies < COPIES_MOST)
        rc = hand_on(c);
    if (rc < 0)
        conn_leave(c);
}

/* ---- what the client says -------------------------------------------------------------------- */

/* What the client says that it waited. All his waits together are no longer than he is here: he
 * may say anything, and totals must not run over. */
static uint64_t wait_said(const conn *c, uint64_t wait_ns)
{
    const uint64_t here = psti_now_ns() - c->facts.opened_ns;
    const uint64_t most = here > c->facts.wait_ns ? here - c->facts.wait_ns : 0;
    return wait_ns < most ? wait_ns : most;
}

bool job_credit(conn *c, const wire_credit *credit)
{
    if (credit->head.generation != c->generation)
        return true; /* for batches that are void */
    if (credit->count > WIRE_AHEAD + 1 || c->credits + credit->count > WIRE_AHEAD + 1)
        return false;
    c->credits += credit->count;
    pthread_mutex_lock(&c->server->lock);
    const uint64_t waited = wait_said(c, credit->wait_ns);
    c->facts.waits++;
    c->facts.wait_ns += waited;
    if (c->job && credit->count == 1) /* the first ones are for batches that are to come */
        psti_job_client_waited(c->job, waited);
    c->facts.stats.held = c->held;
    pthread_mutex_unlock(&c->server->lock);
    if (credit->count == 1)
        psti_job_waited(c->job, sent_take(c), waited);
    return true;
}

bool job_release(conn *c, uint32_t id)
{
    segment *seg = segment_at(c, id);
    if (!seg || !seg->lease)
        return false;
    pst_batch *batch = seg->lease;
    seg->lease = NULL;
    c->copies -= seg->copied;
    c->held--;
    seg->copied = false;
    pst_batch_release(batch);
    return true;
}

static void forget_skips(conn *c)
{
    skip_note *note;
    while ((note = next_skip(c, UINT64_MAX)))
        psti_free(note);
}

static int load_state(conn *c, wire_mail *mail, pst_error *err)
{
    uint8_t *state;
    const size_t bytes = mail->packet.restart.bytes;
    const int fd = wire_take(mail, 0);
    int rc = fd < 0 ? -EPROTO : wire_blob_read(fd, bytes, SPEC_MOST, &state);
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        return psti_fail(err, rc, "state", NULL, "the state cannot be read: %s", pst_strerror(rc));
    rc = pst_job_load_state(c->job, state, bytes, err);
    psti_free(state);
    return rc;
}

bool job_restart(conn *c, wire_mail *mail)
{
    const wire_restart *restart = &mail->packet.restart;
    pst_error err;
    psti_error_clear(&err);
    if (restart->head.generation != c->generation + 1 || restart->epoch > UINT32_MAX)
        return false;
    c->generation++;
    c->credits = 0;
    c->sent_count = 0;
    c->finished = c->failed = false;
    forget_skips(c);
    const int rc =
        restart->bytes ? load_state(c, mail, &err) : pst_job_set_epoch(c->job, restart->epoch);
    if (rc == 0)
        return true;
    wire_packet p;
    wire_init(&p, c->version, WIRE_FAILED, c->generation);
    p.failed.error = err;
    p.failed.error.code = rc;
    c->failed = true;
    return conn_post(c, &p, -1);
}
