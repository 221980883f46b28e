/* SPDX-License-Identifier: Apache-2.0
 * Events as text: one JSON object a line, joined by ",\n". Numbers are put together by hand, since
 * this is where a trace's time goes. The writer thread alone comes here. */
#include <stdio.h>
#include <string.h>

#include "core/keys.h"
#include "watch/text.h"
#include "watch/trace_priv.h"

/* ---- pieces ---------------------------------------------------------------------------------- */

static void put(trace_text *t, const char *text, size_t bytes)
{
    memcpy(t->data + t->size, text, bytes);
    t->size += bytes;
}

static void add(trace_text *t, const char *text)
{
    put(t, text, strlen(text));
}
#define LITERAL(t, text) put(t, text, sizeof(text) - 1)

static void add_u64(trace_text *t, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    put(t, digits + at, sizeof digits - at);
}

static void add_i64(trace_text *t, int64_t value)
{
    if (value < 0)
        LITERAL(t, "-");
    add_u64(t, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Microseconds to the nanosecond. */
static void add_us(trace_text *t, uint64_t ns)
{
    const unsigned rest = (unsigned)(ns % 1000);
    const char tail[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                          (char)('0' + rest % 10)};
    add_u64(t, ns / 1000);
    put(t, tail, sizeof tail);
}

void text_escape(const char *from, char *to, size_t cap)
{
    static const char hex[] = "0123456789abcdef";
    size_t at = 0;
    for (size_t left = strlen(from); left > 0;) {
        const size_t len = psti_utf8_length(from, left);
        const unsigned char c = (unsigned char)*from;
        char piece[8];
        size_t bytes = len;
        if (len == 0 || c < 0x20 || c == 0x7f) { /* no name needs them */
            bytes = 1;
            piece[0] = '?';
        } else if (c == '"' || c == '\\' || c == '<') { /* '<': it may end up in a page */
            const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            bytes = sizeof code;
            memcpy(piece, code, bytes);
        } else {
            memcpy(piece, from, len);
        }
        if (at + bytes + 1 > cap)
            break;
        memcpy(to + at, piece, bytes);
        at += bytes;
        from += len ? len : 1;
        left -= len ? len : 1;
    }
    to[at] = '\0';
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void open_line(trace_text *t, char phase)
{
    if (t->any)
        LITERAL(t, ",\n");
    t->any = true;
    LITERAL(t, "{\"ph\":\"");
    put(t, &phase, 1);
    LITERAL(t, "\",\"pid\":");
    add_u64(t, (uint64_t)t->pid);
}

/* 0: it is the process's. Perfetto takes a thread 0 for the kernel's idle one. */
static void add_track(trace_text *t, int track)
{
    if (track == 0)
        return;
    LITERAL(t, ",\"tid\":");
    add_u64(t, (uint64_t)track);
}

static void add_time(trace_text *t, uint64_t at_ns)
{
    LITERAL(t, ",\"ts\":");
    add_us(t, at_ns > t->zero_ns ? at_ns - t->zero_ns : 0);
}

static void add_head(trace_text *t, const char *category, const char *name)
{
    LITERAL(t, ",\"cat\":\"");
    add(t, category);
    LITERAL(t, "\",\"name\":\"");
    add(t, name);
    LITERAL(t, "\"");
}

static void meta(trace_text *t, int track, const char *name)
{
    open_line(t, 'M');
    add_track(t, track);
    LITERAL(t, ",\"name\":\"");
    add(t, name);
    LITERAL(t, "\",\"args\":{");
}

/* Of a job: where its consumer's waits are, and its slow samples. */
static int wait_track(uint32_t job)
{
    return 1000000 + 2 * (int)(job & 0xffffff);
}

static int lane_track(uint32_t job)
{
    return wait_track(job) + 1;
}

void text_begins(trace_text *t, double wall_s)
{
    LITERAL(t, "[\n");
    meta(t, 0, "penstock_trace");
    LITERAL(t, "\"format\":1,\"penstock\":\"");
    add(t, PST_VERSION);
    LITERAL(t, "\",\"began\":");
    add_us(t, (uint64_t)(wall_s * 1e3)); /* seconds, to the millisecond */
    LITERAL(t, "}}");
    meta(t, 0, "process_name");
    LITERAL(t, "\"name\":\"penstock\"}}");
}

void text_ends(trace_text *t, uint64_t events, uint64_t dropped)
{
    meta(t, 0, "penstock_trace_end");
    LITERAL(t, "\"events\":");
    add_u64(t, events);
    LITERAL(t, ",\"dropped\":");
    add_u64(t, dropped);
    LITERAL(t, "}}");
}

void text_track(trace_text *t, int track, const char *name)
{
    meta(t, track, "thread_name");
    LITERAL(t, "\"name\":\"");
    add(t, name);
    LITERAL(t, "\"}}");
    meta(t, track, "thread_sort_index");
    LITERAL(t, "\"sort_index\":");
    add_u64(t, (uint64_t)track);
    LITERAL(t, "}}");
}

static void job_track(trace_text *t, int track, uint64_t id, const char *what)
{
    meta(t, track, "thread_name");
    LITERAL(t, "\"name\":\"job ");
    add_u64(t, id);
    add(t, what);
    LITERAL(t, "\"}}");
}

void text_job(trace_text *t, uint32_t number, const trace_job *job)
{
    meta(t, wait_track(number), "penstock_job");
    LITERAL(t, "\"job\":");
    add_u64(t, job->id);
    LITERAL(t, ",\"dataset\":\"");
    add(t, job->dataset);
    LITERAL(t, "\",\"pipeline\":\"");
    add(t, job->pipeline);
    LITERAL(t, "\"}}");
    job_track(t, wait_track(number), job->id, " waits");
    job_track(t, lane_track(number), job->id, " slow lane");
}

/* ---- events ---------------------------------------------------------------------------------- */

static const char *const forms[] = {"source", "encoded", "decoded", "augmented",
                                    "disk",   "remote",  "unknown"};
static const char *const ends[] = {"placed", "left", "bad", "unwanted"};
static const char *const whys[] = {"parked", "held", "foreseen"};

static void args(trace_text *t, const trace_job *job)
{
    LITERAL(t, ",\"args\":{\"job\":");
    add_u64(t, job ? job->id : 0);
}

static void arg_text(trace_text *t, const char *name, const char *word)
{
    LITERAL(t, ",\"");
    add(t, name);
    LITERAL(t, "\":\"");
    add(t, word);
    LITERAL(t, "\"");
}

static void arg_i64(trace_text *t, const char *name, int64_t value)
{
    LITERAL(t, ",\"");
    add(t, name);
    LITERAL(t, "\":");
    add_i64(t, value);
}

static void slice(trace_text *t, int track, const psti_trace_event *e, const char *category,
                  const char *name)
{
    open_line(t, 'X');
    add_track(t, track);
    add_time(t, e->at_ns);
    LITERAL(t, ",\"dur\":");
    add_us(t, e->span);
    add_head(t, category, name);
}

static void stage(trace_text *t, int track, const psti_trace_event *e, const trace_job *job)
{
    const char *name = e->what == PSTI_TRACE_STAGE_READ    ? "read"
                       : e->what == PSTI_TRACE_STAGE_KEEP  ? "keep"
                       : job && (int)e->what < job->stages ? job->stage[e->what]
                                                           : "stage";
    slice(t, track, e, "stage", name);
    args(t, job);
    if (e->id >= 0)
        arg_i64(t, "id", e->id);
    LITERAL(t, "}}");
}

static void sample(trace_text *t, int track, const psti_trace_event *e, const trace_job *job)
{
    slice(t, track, e, "sample", "sample");
    args(t, job);
    arg_i64(t, "id", e->id);
    arg_text(t, "from", forms[e->form <= PSTI_FROM_UNKNOWN ? e->form : PSTI_FROM_UNKNOWN]);
    arg_text(t, "then", ends[e->what <= PSTI_END_UNWANTED ? e->what : PSTI_END_UNWANTED]);
    LITERAL(t, "}}");
}

static void async(trace_text *t, char phase, uint64_t at_ns, const char *category, const char *name)
{
    open_line(t, phase);
    add_track(t, 0);
    add_time(t, at_ns);
    add_head(t, category, name);
}

/* An id of the process's own: Perfetto shows one of all processes apart from it. */
static void numbered(trace_text *t, uint64_t number)
{
    LITERAL(t, ",\"id2\":{\"local\":\"");
    add_u64(t, number);
    LITERAL(t, "\"}");
}

static void read_line(trace_text *t, const psti_trace_event *e, const trace_job *job)
{
    async(t, 'b', e->at_ns, "read", "read");
    numbered(t, ++t->reads);
    args(t, job);
    arg_i64(t, "id", e->id);
    LITERAL(t, "}}");
    async(t, 'e', e->at_ns + e->span, "read", "read");
    numbered(t, t->reads);
    LITERAL(t, "}");
}

static void lane(trace_text *t, const psti_trace_event *e, const trace_job *job)
{
    if (e->kind == PSTI_TRACE_SLOW) {
        open_line(t, 'i');
        add_track(t, lane_track(e->job));
        add_time(t, e->at_ns);
        add_head(t, "lane", "slow");
        LITERAL(t, ",\"s\":\"t\"");
        args(t, job);
        arg_i64(t, "id", e->id);
        arg_i64(t, "foreseen", e->what);
        LITERAL(t, "}}");
        return;
    }
    async(t, e->kind == PSTI_TRACE_ASIDE ? 'b' : 'e', e->at_ns, "lane", "aside");
    numbered(t, e->span);
    if (e->kind == PSTI_TRACE_ASIDE) {
        args(t, job);
        arg_i64(t, "id", e->id);
        arg_text(t, "why", whys[e->what <= PSTI_ASIDE_FORESEEN ? e->what : 0]);
        LITERAL(t, "}");
    }
    LITERAL(t, "}");
}

/* Perfetto has a track for each name of what is outermost: one for each job. */
static void batch_name(char out[32], const trace_job *job)
{
    snprintf(out, 32, "job %llu batch", (unsigned long long)(job ? job->id : 0));
}

static void batch_part(trace_text *t, char phase, const psti_trace_event *e, const char *name)
{
    async(t, phase, e->at_ns, "batch", name);
    LITERAL(t, ",\"id2\":{\"local\":\"");
    add_u64(t, e->job);
    LITERAL(t, ".");
    add_u64(t, (uint64_t)e->id >> 32);
    LITERAL(t, ".");
    add_u64(t, (uint64_t)e->id & 0xffffffff);
    LITERAL(t, "\"}");
}

static void batch_args(trace_text *t, const psti_trace_event *e, const trace_job *job)
{
    args(t, job);
    arg_i64(t, "epoch", (int64_t)((uint64_t)e->id >> 32));
    arg_i64(t, "step", (int64_t)((uint64_t)e->id & 0xffffffff));
}

/* Begun to handed over, and inside of that: filling, ready. */
static void batch(trace_text *t, const psti_trace_event *e, const trace_job *job)
{
    char whole[32];
    batch_name(whole, job);
    switch (e->kind) {
    case PSTI_TRACE_BEGUN:
        batch_part(t, 'b', e, whole);
        batch_args(t, e, job);
        LITERAL(t, "}}");
        batch_part(t, 'b', e, "filling");
        LITERAL(t, "}");
        break;
    case PSTI_TRACE_READY:
        batch_part(t, 'e', e, "filling");
        LITERAL(t, "}");
        batch_part(t, 'b', e, "ready");
        batch_args(t, e, job);
        if (e->span)
            arg_i64(t, "last", (int64_t)e->span - 1);
        LITERAL(t, "}}");
        break;
    default:
        batch_part(t, 'e', e, e->what ? "ready" : "filling");
        LITERAL(t, "}");
        batch_part(t, 'e', e, whole);
        args(t, job);
        arg_text(t, "then", e->kind == PSTI_TRACE_TAKEN ? "taken" : "dropped");
        LITERAL(t, "}}");
        break;
    }
}

static void waited(trace_text *t, const psti_trace_event *e, const trace_job *job)
{
    slice(t, wait_track(e->job), e, "wait", "wait");
    if (e->id >= 0)
        batch_args(t, e, job);
    else
        args(t, job);
    LITERAL(t, "}}");
}

static void counter(trace_text *t, const psti_trace_event *e, const trace_job *job)
{
    static const char *const names[] = {"ready", "busy", "active", "cache"};
    static const char *const units[] = {"batches", "workers", "workers", "bytes"};
    const int what = e->what <= PSTI_COUNT_CACHE ? e->what : 0;
    open_line(t, 'C');
    add_time(t, e->at_ns);
    LITERAL(t, ",\"name\":\"");
    if (what == PSTI_COUNT_READY) {
        LITERAL(t, "job ");
        add_u64(t, job ? job->id : 0);
        LITERAL(t, " ");
    }
    add(t, names[what]);
    LITERAL(t, "\",\"args\":{\"");
    add(t, units[what]); /* Perfetto calls it by both */
    LITERAL(t, "\":");
    add_u64(t, e->span);
    LITERAL(t, "}}");
}

void text_event(trace_text *t, const psti_trace_ring *ring, const psti_trace_event *e,
                const trace_job *job)
{
    switch (e->kind) {
    case PSTI_TRACE_STAGE:
        stage(t, ring->track, e, job);
        break;
    case PSTI_TRACE_SAMPLE:
        sample(t, ring->track, e, job);
        break;
    case PSTI_TRACE_READ:
        read_line(t, e, job);
        break;
    case PSTI_TRACE_SLOW:
    case PSTI_TRACE_ASIDE:
    case PSTI_TRACE_BACK:
        lane(t, e, job);
        break;
    case PSTI_TRACE_WAIT:
        waited(t, e, job);
        break;
    case PSTI_TRACE_COUNT:
        counter(t, e, job);
        break;
    default:
        batch(t, e, job);
        break;
    }
}
