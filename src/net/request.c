/* SPDX-License-Identifier: Apache-2.0
 * One get over all the HTTP requests it takes: the first, those that race it when nothing comes,
 * those behind a failure. Bytes are handed on from one transfer only, the one whose body came
 * first; a later one goes on behind the last byte, with the same etag. On the net thread only.
 *
 * A get is QUEUED, then RUNNING (it has transfers), PAUSED (until due_ns) or SIGNING (until its
 * credentials are there), and ends in request_finish, once. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/status.h"
#include "net/net_priv.h"

enum {
    RACE_BELOW = 512 * 1024, /* bytes; longer ones are not asked for twice */
    RACES = 2,
    ANSWERS_KEPT = 8,
    SILENCE = 3, /* times what answers took of late */
    SLOW_S = 10,
    SLOW_BYTES = SLOW_S * 1024,
    FORGIVEN_BYTES = 1 << 20, /* so many more bytes, and the attempts count anew */
};
#define RACE_FIRST (2 * RETRY_S)
#define RACE_NEXT  (4 * RETRY_S)

static void start(psti_get *get, uint64_t now_ns, bool again);

/* ---- ends ------------------------------------------------------------------------------------ */

static void drop_transfers(psti_get *get, const psti_transfer *but)
{
    for (int i = 0; i < 3; i++) {
        psti_transfer *t = get->request.transfer[i];
        if (!t || t == but)
            continue;
        get->request.transfer[i] = NULL;
        loop_drop(t);
    }
}

static bool has_transfer(const psti_get *get)
{
    const struct psti_request *r = &get->request;
    return r->transfer[0] || r->transfer[1] || r->transfer[2];
}

void request_finish(psti_get *get, int status)
{
    drop_transfers(get, NULL);
    sum_drop(&get->request.sum);
    if (status < 0 && status != -ECANCELED) {
        count_up(&net_count.errors, 1);
        count_up(&net_kinds[get->bucket->s3].errors, 1);
    }
    get->took_ns = loop_now() - get->request.submitted_ns;
    loop_forget(get, status);
}

static void fail(psti_get *get, int code, const char *why, const char *more)
{
    char key[1400];
    snprintf(key, sizeof key, "%s/%.1024s", get->bucket->name, get->key);
    psti_fail(get->err, code, "bucket", key, "%s%s", why, more);
    request_finish(get, code);
}

static void note_silence(const psti_transfer *t)
{
    psti_bucket *b = t->get->bucket;
    transfer_silence(t, b->trouble, sizeof b->trouble);
    b->lost |= !transfer_is_connected(t);
}

static void give_up(psti_get *get, int code, uint64_t now_ns)
{
    char more[100];
    const struct psti_request *r = &get->request;
    const unsigned attempts = r->attempts + has_transfer(get);
    for (int i = 0; i < 3; i++)
        if (r->transfer[i])
            note_silence(r->transfer[i]);
    snprintf(more, sizeof more, "; given up after %u attempt%s and %llu s without a byte", attempts,
             attempts == 1 ? "" : "s", (unsigned long long)((now_ns - r->progress_ns) / RETRY_S));
    fail(get, code, *get->bucket->trouble ? get->bucket->trouble : "no answer", more);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Its bytes are the ones that are taken: what the answer says holds for the get. */
static void adopt(psti_transfer *t)
{
    psti_get *get = t->get;
    struct psti_request *r = &get->request;
    answer *a = &t->answer;
    const bool whole = get_is_whole(get, t->from);
    if (a->adopted)
        return;
    a->adopted = true;
    drop_transfers(get, t);
    if (!r->received)
        snprintf(get->seen_etag, sizeof get->seen_etag, "%s", a->etag);
    const uint64_t total = whole || r->kind != REQUEST_GET ? a->length : a->total;
    get->seen_size = total != UINT64_MAX ? total : get->size;
    if (r->end == UINT64_MAX && r->kind == REQUEST_GET && total != UINT64_MAX)
        r->end = total;
    if (r->received)
        return; /* the checksum of the first answer runs on over all its bytes */
    sum_drop(&r->sum);
    if (r->kind == REQUEST_GET && whole)
        r->sum = a->sum;
}

static void note_answer(psti_bucket *bucket, uint64_t after_ns)
{
    loop_answered(after_ns);
    bucket->answer_ns -= bucket->answer_ns / ANSWERS_KEPT;
    if (bucket->answer_ns < after_ns)
        bucket->answer_ns = after_ns;
}

/* How long nothing may come before it means something: as long as said, or longer where answers
 * take their time, as behind others in a server's queue. Asking again would only lengthen that. */
static uint64_t silence_ns(const psti_bucket *bucket, uint64_t least_ns)
{
    uint64_t usual_ns = SILENCE * bucket->answer_ns;
    if (usual_ns > net_patience_ns() / 4)
        usual_ns = net_patience_ns() / 4;
    return least_ns > usual_ns ? least_ns : usual_ns;
}

bool request_take(psti_transfer *t, const uint8_t *bytes, size_t count)
{
    psti_get *get = t->get;
    struct psti_request *r = &get->request;
    if (!t->body_begun)
        note_answer(get->bucket, loop_now() - t->added_ns);
    t->body_begun = true;
    adopt(t);
    const uint64_t at = get->offset + r->received;
    if (r->end != UINT64_MAX && count > r->end - at) {
        answer_say(&t->answer, LIE, -EPROTO, "the server sent more bytes than it said");
        return false;
    }
    if (sum_update(&r->sum, bytes, count) < 0) {
        answer_say(&t->answer, FINAL, -ENOMEM, "out of memory");
        return false;
    }
    if (get->buf) {
        memcpy(get->buf + r->received, bytes, count);
    } else if (get->sink(get, at, bytes, count)) {
        answer_say(&t->answer, FINAL, -ECANCELED, "stopped by the receiver");
        return false;
    }
    r->received += count;
    r->progress_ns = loop_now();
    count_up(&net_count.bytes, count);
    count_up(&net_kinds[get->bucket->s3].bytes, count);
    return true;
}

/* a: the answer to the question for the new etag, if one came. */
static void end_replaced(psti_get *get, const answer *a)
{
    char why[200];
    const bool known = a && a->verdict == GOOD && *a->etag;
    snprintf(why, sizeof why, "the object was replaced: its etag was %.60s%s%.60s",
             get_etag(get) ? get_etag(get) : "another", known ? ", is " : "", known ? a->etag : "");
    if (known)
        snprintf(get->seen_etag, sizeof get->seen_etag, "%s", a->etag);
    fail(get, PST_ECHANGED, why, "");
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* What came cannot be gone on from: begin anew, if nobody has seen it yet. */
static bool start_over(psti_get *get)
{
    struct psti_request *r = &get->request;
    if (r->received && !get->buf && r->kind != REQUEST_LIST)
        return false;
    r->received = r->forgiven = 0;
    sum_drop(&r->sum);
    return true;
}

static void pause_until(psti_get *get, uint8_t state, uint64_t at_ns)
{
    get->request.state = state;
    get->request.due_ns = at_ns;
    loop_due(at_ns);
    if (get->bucket->gate.shut) /* in an outage others may have its place */
        loop_place(get, false);
}

/* Whether only this object fails (others came since it last did), or nothing ever worked: then ten
 * attempts are enough. In an outage of all the bucket the attempts are few anyway, and patience
 * decides. */
static bool is_enough(const psti_get *get, uint64_t now_ns)
{
    const retry_gate *gate = &get->bucket->gate;
    const struct psti_request *r = &get->request;
    return r->attempts >= RETRY_ATTEMPTS && (!gate->success_ns || gate->success_ns > r->before_ns ||
                                             now_ns - r->failed_ns >= net_patience_ns());
}

static void again_later(psti_get *get, int code, bool throttled, uint64_t wait_s, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    const char *etag = get_etag(get);
    if (r->replaced) {
        end_replaced(get, NULL);
        return;
    }
    const bool resumable =
        r->kind == REQUEST_GET && r->received && etag && strncmp(etag, "W/", 2) != 0;
    if (r->received && !resumable && !start_over(get)) {
        fail(get, -EIO, get->bucket->trouble,
             "; it cannot be gone on from there, since the server gives no etag");
        return;
    }
    if (r->received >= r->forgiven + FORGIVEN_BYTES) {
        r->forgiven = r->received;
        r->attempts = 0;
    }
    if (!r->attempts++)
        r->failed_ns = now_ns;
    if (is_enough(get, now_ns) || now_ns - r->progress_ns >= net_patience_ns()) {
        give_up(get, code, now_ns);
        return;
    }
    r->before_ns = now_ns;
    uint64_t pause = retry_pause(r->attempts, throttled, loop_random());
    if (throttled)
        count_up(&net_count.throttled, 1);
    if (wait_s && wait_s <= 20 && pause < wait_s * RETRY_S)
        pause += wait_s * RETRY_S;
    pause_until(get, REQUEST_PAUSED, now_ns + pause);
}

/* The credentials ran out, or the clock is wrong: once more at once, with better ones. */
static bool renew(psti_get *get, const psti_transfer *t, verdict v)
{
    struct psti_request *r = &get->request;
    psti_bucket *b = get->bucket;
    if (r->renewed >= 2 || !b->creds)
        return false;
    r->renewed++;
    if (v == EXPIRED)
        return provider_expired(b, t->creds_version);
    const int64_t there_s = answer_time(&t->answer);
    if (there_s >= 0)
        b->skew_s = there_s - (int64_t)time(NULL);
    return there_s >= 0;
}

/* Some servers do not tell the new etag with 412; a message without it helps little. */
static bool ask_new_etag(psti_get *get, const answer *a, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    if (a->status != 412 || *a->etag || r->replaced || r->kind != REQUEST_GET)
        return false;
    r->replaced = 1;
    r->kind = REQUEST_HEAD;
    drop_transfers(get, NULL);
    start(get, now_ns, true);
    return true;
}

static void end_good(psti_get *get, uint64_t now_ns)
{
    const bool ends_outage = retry_success(&get->bucket->gate, now_ns);
    get->bucket->lost = false;
    psti_bucket *bucket = psti_bucket_ref(get->bucket); /* done may let it go */
    request_finish(get, 0);
    if (ends_outage)
        loop_release(bucket, now_ns);
    psti_bucket_unref(bucket);
}

static void end_final(psti_get *get, const answer *a, uint64_t now_ns)
{
    psti_bucket *b = get->bucket;
    if (ask_new_etag(get, a, now_ns))
        return;
    if (a->code == PST_ECHANGED && *a->etag)
        snprintf(get->seen_etag, sizeof get->seen_etag, "%s", a->etag);
    /* A refusal, too, says that the server is back. */
    if (a->status && b->gate.shut && retry_success(&b->gate, now_ns))
        loop_release(b, now_ns);
    fail(get, a->code, a->reason, "");
}

static void end_bad(psti_get *get, psti_transfer *t, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    const answer *a = &t->answer;
    if (a->verdict == AGAIN || a->verdict == THROTTLED)
        snprintf(get->bucket->trouble, sizeof get->bucket->trouble, "%s", a->reason);
    switch (a->verdict) {
    case EXPIRED:
    case SKEWED:
        if (renew(get, t, a->verdict))
            start(get, now_ns, true);
        else
            fail(get, a->code, a->reason, "");
        break;
    case FINAL:
        end_final(get, a, now_ns);
        break;
    case LIE:
        if (++r->lies >= RETRY_LIES || !start_over(get))
            fail(get, a->code, a->reason, "");
        else
            again_later(get, a->code, false, 0, now_ns);
        break;
    default:
        again_later(get, a->code, a->verdict == THROTTLED, a->retry_after_s, now_ns);
        break;
    }
}

/* All bytes are there, and are they right? */
static void check_whole(psti_transfer *t)
{
    struct psti_request *r = &t->get->request;
    if (!sum_right(&r->sum))
        answer_say(&t->answer, LIE, PST_ECORRUPT, "the checksum of what came is not the object's");
}

static bool is_complete(const psti_get *get)
{
    const struct psti_request *r = &get->request;
    return r->end != UINT64_MAX && get->offset + r->received == r->end;
}

static void judge_end(psti_transfer *t, CURLcode code)
{
    psti_get *get = t->get;
    struct psti_request *r = &get->request;
    answer *a = &t->answer;
    if (a->judged && a->verdict != GOOD)
        return; /* it was stopped for a reason */
    if (a->judged && a->status >= 300) {
        answer_judge_error(a, get);
        return;
    }
    if (code == CURLE_OK && !a->judged) {
        answer_say(a, LIE, -EPROTO, "the answer has no head");
        return;
    }
    const bool body = r->kind == REQUEST_GET;
    if (code == CURLE_OK) {
        adopt(t);
        if (body && r->end == UINT64_MAX)
            get->seen_size = r->end = get->offset + r->received;
    }
    if (a->adopted && body && is_complete(get))
        check_whole(t);
    else if (code != CURLE_OK)
        answer_judge_curl(a, get, code, t->detail);
    else if (body)
        answer_say(a, AGAIN, -EIO, "the answer ended too early");
}

void request_end_transfer(psti_transfer *t, CURLcode code, uint64_t now_ns)
{
    psti_get *get = t->get;
    struct psti_request *r = &get->request;
    judge_end(t, code);
    get->bucket->lost |= code == CURLE_COULDNT_CONNECT;
    for (int i = 0; i < 3; i++)
        if (r->transfer[i] == t)
            r->transfer[i] = NULL;
    loop_drop(t); /* its answer stays to be read until it is used again */
    const verdict v = t->answer.verdict;
    if (r->replaced) {
        end_replaced(get, &t->answer);
    } else if (v == GOOD) {
        end_good(get, now_ns);
    } else if (v != FINAL && has_transfer(get)) {
        return; /* another one races on */
    } else {
        end_bad(get, t, now_ns);
    }
}

/* ---- beginnings ------------------------------------------------------------------------------ */

static bool may_race(const psti_get *get)
{
    const struct psti_request *r = &get->request;
    if (r->kind == REQUEST_LIST)
        return false;
    return r->kind == REQUEST_HEAD ||
           (r->end != UINT64_MAX && r->end - get->offset - r->received < RACE_BELOW);
}

static int launch(psti_get *get, int place, bool fresh, uint64_t now_ns)
{
    psti_transfer *t = loop_transfer();
    if (!t)
        return -ENOMEM;
    int rc = transfer_prepare(t, get, fresh, (int64_t)time(NULL));
    if (rc == 0)
        rc = loop_add(t);
    if (rc < 0) {
        loop_keep(t);
        return rc;
    }
    t->speed_ns = now_ns;
    get->request.transfer[place] = t;
    count_up(&net_count.requests, 1);
    count_up(&net_kinds[get->bucket->s3].requests, 1);
    if (get->request.kind == REQUEST_LIST)
        count_up(&net_count.lists, 1);
    return 0;
}

static void set_due(psti_get *get, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    r->due_ns = now_ns + SLOW_S * RETRY_S;
    if (r->race_ns < r->due_ns)
        r->due_ns = r->race_ns;
    loop_due(r->due_ns);
}

static void start(psti_get *get, uint64_t now_ns, bool again)
{
    struct psti_request *r = &get->request;
    const uint64_t wait = retry_may(&get->bucket->gate, now_ns, again, loop_random());
    if (wait) {
        pause_until(get, REQUEST_PAUSED, now_ns + wait);
        return;
    }
    const int rc = launch(get, 0, false, now_ns);
    if (rc == -EAGAIN) {
        snprintf(get->bucket->trouble, sizeof get->bucket->trouble,
                 "the credentials ran out and are not renewed yet");
        pause_until(get, REQUEST_SIGNING, now_ns + 5 * RETRY_S);
        return;
    }
    if (rc < 0) {
        fail(get, rc,
             rc == -EACCES ? "the credentials ran out and cannot be renewed" : pst_strerror(rc),
             "");
        return;
    }
    if (r->attempts) {
        count_up(&net_count.retries, 1);
        count_up(&net_kinds[get->bucket->s3].retries, 1);
        count_up(&net_count.resumed, r->received > 0);
    }
    loop_place(get, true);
    r->state = REQUEST_RUNNING;
    r->races = 0;
    r->race_ns = may_race(get) ? now_ns + RACE_FIRST : UINT64_MAX;
    set_due(get, now_ns);
}

static int check(psti_get *get)
{
    struct psti_request *r = &get->request;
    const uint64_t size = get->size, length = get->length;
    r->end = r->kind == REQUEST_GET ? size : UINT64_MAX;
    if (length != UINT64_MAX && __builtin_add_overflow(get->offset, length, &r->end))
        return -EINVAL;
    if (r->end != UINT64_MAX && (r->end < get->offset || (size != UINT64_MAX && r->end > size)))
        return -EINVAL;
    return get->buf ? (length == UINT64_MAX ? -EINVAL : 0)
                    : (get->sink || r->kind == REQUEST_HEAD ? 0 : -EINVAL);
}

void request_begin(psti_get *get, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    retry_gate *gate = &get->bucket->gate;
    const int rc = check(get);
    if (rc < 0) {
        fail(get, rc, "this part of the object cannot be asked for", "");
        return;
    }
    if (r->kind == REQUEST_GET && r->end == get->offset) {
        snprintf(get->seen_etag, sizeof get->seen_etag, "%s", get->etag ? get->etag : "");
        request_finish(get, 0);
        return;
    }
    /* Those that waited for their turn through an outage do not begin to wait for it anew. */
    r->progress_ns = gate->shut ? r->submitted_ns : now_ns;
    if (now_ns - r->progress_ns >= net_patience_ns()) {
        give_up(get, -ETIMEDOUT, now_ns);
        return;
    }
    start(get, now_ns, false);
}

/* ---- what time brings ------------------------------------------------------------------------ */

static bool body_begun(const psti_get *get)
{
    for (int i = 0; i < 3; i++)
        if (get->request.transfer[i] && get->request.transfer[i]->body_begun)
            return true;
    return false;
}

/* When it was asked for last. */
static uint64_t asked_ns(const psti_get *get)
{
    uint64_t last_ns = 0;
    for (int i = 0; i < 3; i++) {
        const psti_transfer *t = get->request.transfer[i];
        if (t && t->added_ns > last_ns)
            last_ns = t->added_ns;
    }
    return last_ns;
}

static void race(psti_get *get, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    const uint64_t at_ns =
        asked_ns(get) + silence_ns(get->bucket, r->races ? RACE_NEXT : RACE_FIRST);
    r->race_ns = UINT64_MAX;
    if (body_begun(get) || r->races >= RACES)
        return;
    if (now_ns < at_ns) {
        r->race_ns = at_ns;
        return;
    }
    if (get->bucket->gate.shut || get->bucket->gate.tokens < RETRY_COST ||
        retry_may(&get->bucket->gate, now_ns, true, loop_random()))
        return;
    for (int i = 0; i < 3; i++)
        get->bucket->lost |= r->transfer[i] && !transfer_is_connected(r->transfer[i]);
    for (int i = 0; i < 3; i++)
        if (!r->transfer[i]) {
            if (launch(get, i, true, now_ns) == 0)
                count_up(&net_count.hedges, 1);
            break;
        }
    if (++r->races < RACES)
        r->race_ns = now_ns + RACE_NEXT;
}

/* Ends those that bring less than a kilobyte a second, or nothing for longer than others. */
static void end_slow(psti_get *get, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    for (int i = 0; i < 3; i++) {
        psti_transfer *t = r->transfer[i];
        if (!t || now_ns - t->speed_ns < SLOW_S * RETRY_S ||
            (!t->body_begun && now_ns - t->speed_ns < silence_ns(get->bucket, 0)))
            continue;
        if (t->bytes - t->speed_bytes >= SLOW_BYTES) {
            t->speed_bytes = t->bytes;
            t->speed_ns = now_ns;
            continue;
        }
        note_silence(t);
        r->transfer[i] = NULL;
        loop_drop(t);
    }
}

void request_due(psti_get *get, uint64_t now_ns)
{
    struct psti_request *r = &get->request;
    if (atomic_load_explicit(&r->cancelled, memory_order_relaxed)) {
        request_finish(get, -ECANCELED);
        return;
    }
    if (now_ns - r->progress_ns >= net_patience_ns()) {
        give_up(get, -ETIMEDOUT, now_ns);
        return;
    }
    if (r->state != REQUEST_RUNNING) {
        start(get, now_ns, r->attempts > 0);
        return;
    }
    if (now_ns >= r->race_ns)
        race(get, now_ns);
    end_slow(get, now_ns);
    if (!has_transfer(get))
        again_later(get, -ETIMEDOUT, false, 0, now_ns);
    else
        set_due(get, now_ns);
}
