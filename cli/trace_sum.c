/* SPDX-License-Identifier: Apache-2.0
 * Adding a trace up. The first reading takes the sums and finds the longest waits, the second finds
 * the sample that came last to each of their batches, the third what that sample did meanwhile: so
 * memory does not grow with the trace. */
#include "trace_sum.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

const char *const sum_forms[SUM_FORMS] = {"source", "encoded", "decoded", "augmented",
                                          "disk",   "remote",  "unknown"};

/* ---- distributions -------------------------------------------------------------------------- */

static int bin_of(uint64_t ns)
{
    if (ns < 32)
        return (int)ns;
    const int top = 63 - __builtin_clzll(ns);
    return 32 * (top - 4) + (int)(ns >> (top - 5) & 31);
}

void sum_hist_add(sum_hist *h, int64_t ns)
{
    h->bin[bin_of((uint64_t)ns)]++;
    h->count++;
}

double sum_hist_s(const sum_hist *h, double part)
{
    const double wanted = part * (double)h->count;
    uint64_t seen = 0;
    for (int i = 0; i < HIST_BINS; i++) {
        seen += h->bin[i];
        if (h->bin[i] == 0 || (double)seen < wanted)
            continue;
        const double middle =
            i < 32 ? i : (double)((uint64_t)(32 + i % 32) << (i / 32 - 1)) * (1 + 1.0 / 128);
        return 1e-9 * middle;
    }
    return 0;
}

/* ---- the first reading ---------------------------------------------------------------------- */

static bool is(const char *word, const char *wanted)
{
    return strcmp(word, wanted) == 0;
}

/* A file may claim anything; no sum of it is worth more than this. */
static void grow(int64_t *sum, int64_t by)
{
    if (__builtin_add_overflow(*sum, by, sum))
        *sum = INT64_MAX;
}

/* -1: there are too many. */
static int stage_of(sums *s, const char *name)
{
    for (int i = 0; i < s->stages; i++)
        if (is(s->stage[i].name, name))
            return i;
    if (s->stages == SUM_STAGES)
        return -1;
    memcpy(s->stage[s->stages].name, name, TRACE_WORD);
    return s->stages++;
}

static sum_worker *worker_of(sums *s, int64_t track)
{
    for (int i = 0; i < s->workers; i++)
        if (s->worker[i].track == track)
            return &s->worker[i];
    if (s->workers == SUM_WORKERS)
        return NULL;
    sum_worker *w = &s->worker[s->workers++];
    w->track = track;
    snprintf(w->name, sizeof w->name, "track %lld", (long long)track);
    return w;
}

static bool add_stage(sums *s, const trace_line *e)
{
    const int stage = stage_of(s, e->name);
    sum_worker *w = worker_of(s, e->track);
    if (stage < 0 || w == NULL)
        return false;
    grow(&s->stage[stage].ns, e->span_ns);
    grow(&w->stage_ns[stage], e->span_ns);
    return true;
}

static bool add_sample(sums *s, const trace_line *e)
{
    sum_worker *w = worker_of(s, e->track);
    if (w == NULL)
        return false;
    for (int i = 0; i < s->stages; i++) {
        if (w->stage_ns[i] > 0)
            sum_hist_add(&s->stage[i].took, w->stage_ns[i]);
        w->stage_ns[i] = 0;
    }
    grow(&w->busy_ns, e->span_ns);
    s->visits++;
    const bool placed = is(e->then, "placed");
    s->samples += placed;
    s->bad += is(e->then, "bad");
    w->samples += placed;
    for (int i = 0; placed && i < SUM_FORMS; i++)
        s->from[i] += is(e->from, sum_forms[i]);
    return true;
}

/* Keeps the longest, longest first. */
static void add_wait(sums *s, const trace_line *e)
{
    grow(&s->wait_ns, e->span_ns);
    sum_hist_add(s->waits, e->span_ns);
    int at = s->longest_count;
    while (at > 0 && s->longest[at - 1].span_ns < e->span_ns)
        at--;
    if (at == SUM_LONGEST)
        return;
    s->longest_count += s->longest_count < SUM_LONGEST;
    memmove(&s->longest[at + 1], &s->longest[at],
            (size_t)(s->longest_count - at - 1) * sizeof s->longest[0]);
    s->longest[at] = (sum_wait){.at_ns = e->at_ns,
                                .span_ns = e->span_ns,
                                .job = e->job,
                                .epoch = e->epoch,
                                .step = e->step,
                                .last = -1,
                                .first_ns = -1,
                                .aside_since = -1};
}

static void add_read(sums *s, const trace_line *e)
{
    if (e->phase == 'b') {
        memcpy(s->read_number, e->number, TRACE_WORD);
        s->read_since = e->at_ns;
    } else if (is(s->read_number, e->number) && e->at_ns >= s->read_since) {
        grow(&s->read_ns, e->at_ns - s->read_since);
        sum_hist_add(s->reads, e->at_ns - s->read_since);
    }
}

static void add_lane(sums *s, const trace_line *e)
{
    s->slow += e->phase == 'i';
    s->foreseen += e->phase == 'i' && e->foreseen == 1;
    s->parked += is(e->why, "parked");
    s->held += is(e->why, "held");
    s->put_off += is(e->why, "foreseen");
}

static void add_meta(sums *s, const trace_line *e)
{
    if (is(e->name, "penstock_trace_end")) {
        s->complete = true;
        s->dropped = e->dropped;
    }
    sum_worker *w = is(e->name, "thread_name") && strncmp(e->label, "worker ", 7) == 0
                        ? worker_of(s, e->track)
                        : NULL;
    if (w != NULL)
        memcpy(w->name, e->label, TRACE_WORD);
}

static void add_job(sums *s, const trace_line *e, int64_t end)
{
    int at = 0;
    while (at < s->jobs && s->job[at].id != e->job && at < SUM_JOBS - 1)
        at++;
    if (at == s->jobs) {
        s->job[at].id = e->job;
        s->job[at].from_ns = e->at_ns;
        s->job[at].to_ns = end;
        s->jobs++;
    }
    s->job[at].from_ns = e->at_ns < s->job[at].from_ns ? e->at_ns : s->job[at].from_ns;
    s->job[at].to_ns = end > s->job[at].to_ns ? end : s->job[at].to_ns;
}

static bool add_event(sums *s, const trace_line *e)
{
    if (e->phase == 'M') {
        add_meta(s, e);
        return true;
    }
    const int64_t end = e->at_ns + e->span_ns;
    s->from_ns = s->events == 0 || e->at_ns < s->from_ns ? e->at_ns : s->from_ns;
    s->to_ns = end > s->to_ns ? end : s->to_ns;
    s->events++;
    if (e->job > 0)
        add_job(s, e, end);
    if (is(e->category, "stage"))
        return add_stage(s, e);
    if (is(e->category, "sample"))
        return add_sample(s, e);
    if (is(e->category, "wait"))
        add_wait(s, e);
    else if (is(e->category, "read"))
        add_read(s, e);
    else if (is(e->category, "lane"))
        add_lane(s, e);
    else if (is(e->category, "batch") && e->phase == 'e') {
        s->batches += is(e->then, "taken");
        s->dropped_batches += is(e->then, "dropped");
    }
    return true;
}

/* ---- the second and the third --------------------------------------------------------------- */

static bool find_last(sums *s, const trace_line *e)
{
    const bool ready = e->phase == 'b' && is(e->category, "batch") && is(e->name, "ready");
    for (int i = 0; ready && i < s->longest_count; i++) {
        sum_wait *w = &s->longest[i];
        if (w->job == e->job && w->epoch == e->epoch && w->step == e->step && w->step >= 0 &&
            e->at_ns <= w->at_ns + w->span_ns)
            w->last = e->last;
    }
    return true;
}

static int64_t overlap(const sum_wait *w, int64_t from, int64_t to)
{
    const int64_t begin = from > w->at_ns ? from : w->at_ns;
    const int64_t wait_end = w->at_ns + w->span_ns, end = to < wait_end ? to : wait_end;
    return end > begin ? end - begin : 0;
}

static void touched(sum_wait *w, int64_t at)
{
    if (at <= w->at_ns + w->span_ns && (w->first_ns < 0 || at < w->first_ns))
        w->first_ns = at;
}

static void follow_aside(sum_wait *w, const trace_line *e)
{
    if (e->phase == 'b' && e->id == w->last && e->job == w->job) {
        w->aside_since = e->at_ns;
        memcpy(w->aside_number, e->number, TRACE_WORD);
        touched(w, e->at_ns);
    } else if (e->phase == 'e' && w->aside_since >= 0 && is(w->aside_number, e->number)) {
        grow(&w->aside_ns, overlap(w, w->aside_since, e->at_ns));
        w->aside_since = -1;
    }
}

/* A read's end follows its beginning at once, see add_read. */
static void follow_read(sums *s, sum_wait *w, const trace_line *e)
{
    if (e->phase == 'b' && e->id == w->last && e->job == w->job) {
        memcpy(s->read_number, e->number, TRACE_WORD);
        s->read_since = e->at_ns;
    } else if (e->phase == 'e' && is(s->read_number, e->number)) {
        if (overlap(w, s->read_since, e->at_ns) > 0)
            touched(w, s->read_since);
        grow(&w->read_ns, overlap(w, s->read_since, e->at_ns));
    }
}

static bool follow_last(sums *s, const trace_line *e)
{
    const bool stage = is(e->category, "stage"), read = is(e->category, "read");
    const bool aside = is(e->category, "lane") && is(e->name, "aside");
    for (int i = 0; (stage || read || aside) && i < s->longest_count; i++) {
        sum_wait *w = &s->longest[i];
        if (w->last < 0)
            continue;
        if (read)
            follow_read(s, w, e);
        else if (aside)
            follow_aside(w, e);
        else if (e->id == w->last && e->job == w->job) {
            const int64_t inside = overlap(w, e->at_ns, e->at_ns + e->span_ns);
            const int at = stage_of(s, e->name);
            if (at < 0)
                return false; /* it has changed since */
            grow(&w->stage_ns[at], inside);
            if (inside > 0)
                touched(w, e->at_ns);
        }
    }
    return true;
}

sum_why sums_why(const sum_wait *w, int64_t *ns, int *stage)
{
    sum_why why = WHY_UNKNOWN;
    *ns = 0;
    *stage = -1;
    for (int i = 0; i < SUM_STAGES; i++)
        if (w->stage_ns[i] > *ns) {
            *ns = w->stage_ns[i];
            *stage = i;
            why = WHY_STAGE;
        }
    const int64_t queued = w->first_ns > w->at_ns ? w->first_ns - w->at_ns : 0;
    const struct {
        sum_why why;
        int64_t ns;
    } others[] = {{WHY_READ, w->read_ns}, {WHY_ASIDE, w->aside_ns}, {WHY_QUEUED, queued}};
    for (size_t i = 0; w->last >= 0 && i < sizeof others / sizeof others[0]; i++)
        if (others[i].ns > *ns) {
            *ns = others[i].ns;
            *stage = -1;
            why = others[i].why;
        }
    return why;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int read_through(trace_reader *r, sums *s, bool (*each)(sums *, const trace_line *))
{
    trace_line e;
    int rc;
    while ((rc = trace_next(r, &e)) > 0)
        if (!each(s, &e))
            return fail("%s has more stages or workers than any engine", r->path);
    return rc < 0 ? CLI_FAIL : CLI_OK;
}

int sums_read(trace_reader *r, sums *s)
{
    *s = (sums){.stage = cli_alloc(SUM_STAGES * sizeof *s->stage),
                .worker = cli_alloc(SUM_WORKERS * sizeof *s->worker),
                .waits = cli_alloc(sizeof *s->waits),
                .reads = cli_alloc(sizeof *s->reads)};
    int exit_code = read_through(r, s, add_event);
    s->cut_line = r->closed ? 0 : r->line;
    if (exit_code == CLI_OK)
        exit_code = trace_rewind(r);
    if (exit_code == CLI_OK)
        exit_code = read_through(r, s, find_last);
    if (exit_code == CLI_OK)
        exit_code = trace_rewind(r);
    return exit_code == CLI_OK ? read_through(r, s, follow_last) : exit_code;
}

void sums_fini(sums *s)
{
    free(s->stage);
    free(s->worker);
    free(s->waits);
    free(s->reads);
}
