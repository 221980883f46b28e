/* SPDX-License-Identifier: Apache-2.0
 * Gathers what the verdict is made of: a job's figures at two moments, what the pool did between
 * them, and what the model says of more cores, more cache, a faster source. The last few looks at a
 * job are kept, so that each call tells of the time since an earlier one. Any thread. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "engine/engine_priv.h"
#include "model/model.h"
#include "watch/verdict.h"

enum { LOOKS = 8 };
static const double APART_S = 0.5;      /* between two looks that are kept */
static const double WINDOW_S = 1;       /* a look at least so old is compared with … */
static const double WINDOW_BATCHES = 4; /* … if so many batches came since */
static const double NO_BATCH_S = 10;    /* then it is time to say why */
static const double ALL_IT_GETS =
    0.95; /* stall above which the consumer's own speed is not known */
/* Of a cache entry beside what it holds, at most: head, alignment, a rest of a block that is too
 * short to be another. Counts until there are entries to look at. */
static const double ENTRY_BYTES = 1024;
static const double NO_FORM_BYTES =
    1e15;                           /* the model wants one encoded form; this one saves nothing */
static const double TIMES_MOST = 8; /* of what there is: more than that is no advice */
static const double WORTH = 0.1;    /* gain that is worth a word */

typedef struct look {
    pst_job_stats stats;
    psti_feed_facts facts;
} look;

struct job_looks {
    look at[LOOKS]; /* oldest first */
    int count;
};

/* ---- looks ----------------------------------------------------------------------------------- */

void psti_job_facts(pst_job *job, psti_feed_facts *out)
{
    psti_feed_facts_get(job->feed, out);
    if (job->link && atomic_load(&job->served))
        remote_facts(job, out);
    if (!atomic_load(&job->has_client))
        return;
    out->first_wait_s = 1e-9 * (double)atomic_load(&job->client_first_ns);
    if (out->waiting_s < 1) /* the client has some that it did not take yet */
        out->waiting_s = 0;
}

void psti_job_client_waited(pst_job *job, uint64_t wait_ns)
{
    if (!atomic_exchange(&job->has_client, true))
        atomic_store(&job->client_first_ns, wait_ns);
    atomic_fetch_add(&job->client_wait_ns, wait_ns);
}

static void look_now(pst_job *job, look *out)
{
    out->stats.size = sizeof out->stats;
    pst_job_stats_get(job, &out->stats);
    psti_job_facts(job, &out->facts);
    if (atomic_load(&job->has_client))
        out->stats.wait_ns = atomic_load(&job->client_wait_ns);
}

void verdict_open(pst_job *job)
{
    psti_feed_facts_get(job->feed, &job->birth);
}

void verdict_close(pst_job *job)
{
    psti_free(job->looks);
    pthread_mutex_destroy(&job->looks_lock);
}

/* Counted from the first batch on: nothing then, but for what belongs to the start. */
static void look_at_birth(const pst_job *job, const look *now, look *out)
{
    *out = (look){.facts = job->birth};
    out->facts.now_s = now->facts.first_s > 0 ? now->facts.first_s : now->facts.opened_s;
    out->facts.first_wait_s = 0;
    out->facts.waiting_s = 0;
    out->stats.wait_ns = (uint64_t)(1e9 * now->facts.first_wait_s);
}

/* What is compared with: young enough, with enough in between. */
static void look_before_locked(const pst_job *job, const look *now, look *out)
{
    const struct job_looks *kept = job->looks;
    for (int i = kept ? kept->count - 1 : -1; i >= 0; i--) {
        const look *l = &kept->at[i];
        const double batches = (double)now->stats.batches - (double)l->stats.batches;
        if (l->facts.opened_s != now->facts.opened_s || l->facts.first_s <= 0)
            break;
        if (now->facts.now_s - l->facts.now_s >= WINDOW_S && batches >= WINDOW_BATCHES) {
            *out = *l;
            return;
        }
    }
    look_at_birth(job, now, out);
}

static void keep_locked(pst_job *job, const look *now)
{
    if (!job->looks)
        job->looks = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *job->looks);
    struct job_looks *kept = job->looks;
    if (!kept)
        return;
    if (kept->count > 0 && now->facts.now_s - kept->at[kept->count - 1].facts.now_s < APART_S)
        return;
    if (kept->count == LOOKS)
        memmove(&kept->at[0], &kept->at[1], (size_t)--kept->count * sizeof kept->at[0]);
    kept->at[kept->count++] = *now;
}

/* ---- figures between two looks --------------------------------------------------------------- */

static double since(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

static double waited_s(const look *l)
{
    return 1e-9 * (double)l->stats.wait_ns + l->facts.waiting_s;
}

static psti_work_part part_of(const char *name)
{
    return strcmp(name, "read") == 0         ? PSTI_PART_READ
           : strncmp(name, "decode", 6) == 0 ? PSTI_PART_DECODE
           : strcmp(name, "finish") == 0     ? PSTI_PART_FINISH
                                             : PSTI_PART_AUGMENT;
}

/* Seconds of workers for each delivered sample, by stage. */
static void fill_parts(psti_verdict_input *in, const look *a, const look *b)
{
    const double samples = fmax(1, in->samples);
    double most = 0, all = 0;
    for (uint32_t i = 0; i < b->stats.stage_count && i < PST_STAGES_MAX; i++) {
        const pst_stage_stats *s = &b->stats.stages[i];
        double took = 1e-9 * since(s->total_ns, a->stats.stages[i].total_ns);
        if (i == 0) /* reading: what others did meanwhile is no work */
            took -= 1e-9 * since(b->stats.read_away_ns, a->stats.read_away_ns);
        took = fmax(0, took);
        all += took;
        in->part_s[part_of(s->name)] += took / samples;
        if (i > 0 && (int)i <= b->facts.decoded_stages)
            in->form_s += took / samples;
        if (took <= most)
            continue;
        most = took;
        memcpy(in->stage, s->name,
               sizeof in->stage < sizeof s->name ? sizeof in->stage : sizeof s->name);
        in->stage[sizeof in->stage - 1] = 0;
        in->stage_is_call = i > 0 && (b->facts.calls >> (i - 1) & 1);
    }
    in->stage_share = all > 0 ? most / all : 0;
}

static void fill_workers(psti_verdict_input *in, const pst_job *job, const look *a, const look *b)
{
    const psti_feed_facts *f = &b->facts;
    /* From the birth on there is no earlier moment of the pool's than the job's opening. */
    const double begun = a->stats.batches ? a->facts.now_s : job->birth.now_s;
    const double seconds = fmax(1e-9, f->now_s - begun);
    in->workers = f->workers;
    in->cpus = job->engine->settings.cpus;
    in->busy = fmin(f->workers, fmax(0, f->busy_s - a->facts.busy_s) / seconds);
    in->cpu = fmax(0, f->cpu_s - a->facts.cpu_s) / seconds;
    in->queued = fmax(0, f->queued_s - a->facts.queued_s) / seconds;
    in->jobs = f->feeds;
}

static void fill_source(psti_verdict_input *in, const look *a, const look *b)
{
    const psti_feed_facts *f = &b->facts;
    const double away = 1e-9 * since(b->stats.read_away_ns, a->stats.read_away_ns);
    /* Those whose stored bytes were at hand were not read. */
    const double runs = since(b->stats.stages[0].runs, a->stats.stages[0].runs) -
                        since(b->stats.encoded_hits, a->stats.encoded_hits);
    in->source_bytes_s = since(b->stats.bytes_read, a->stats.bytes_read) / in->seconds;
    in->reads = away / in->seconds;
    in->read_s = runs > 0 ? away / runs : 0;
    in->reads_at_most = f->reads_limit > 0 && f->reads_most >= f->reads_limit && !f->reads_tried &&
                        in->reads > 0.5 * (f->reads_most - 2 * f->workers);
}

static double round_up(double bytes)
{
    double size = 0x1p20;
    while (size < bytes && size < 0x1p60)
        size *= size * 1.5 >= bytes && size * 1.5 < size * 2 ? 1.5 : 2;
    return size;
}

static void fill_rest(psti_verdict_input *in, const look *a, const look *b)
{
    const psti_feed_facts *f = &b->facts;
    const pst_job_stats *s = &b->stats, *t = &a->stats;
    const double shared = since(s->shared_hits, t->shared_hits);
    const double met = since(s->preparations, t->preparations) + shared;
    const double hits =
        since(s->cache_hits, t->cache_hits) + since(s->encoded_hits, t->encoded_hits) + shared;
    in->found = met > 0 ? fmin(1, hits / met) : 0;
    in->cache_bytes = f->cache_bytes;
    in->ready_order = f->ready;
    in->budget_bytes = f->budget_bytes;
    in->depth = f->depth;
    in->depth_wanted = f->depth_wanted;
    in->disk = f->disk;
    in->remote = f->remote;
    in->disk_errors = (double)s->disk_errors;
    in->remote_errors = (double)s->remote_errors;
}

static void fill_window(psti_verdict_input *in, const look *a, const look *b)
{
    const psti_feed_facts *f = &b->facts;
    const bool begun = f->first_s > 0;
    in->open_s = f->now_s - f->opened_s;
    /* A first batch that does not come is no start-up any more. */
    const double end = f->finished && f->last_s > 0 ? f->last_s : f->now_s;
    in->seconds = begun || in->open_s >= NO_BATCH_S ? fmax(0, end - a->facts.now_s) : 0;
    in->batches_ever = (double)b->stats.batches;
    in->samples = since(b->stats.samples, a->stats.samples);
    in->batches = since(b->stats.batches, a->stats.batches);
    in->skipped = since(b->stats.skipped, a->stats.skipped);
    in->finished = f->finished;
    in->wait_s = fmax(0, waited_s(b) - waited_s(a));
    const double last = f->last_s > 0 ? f->last_s : f->opened_s;
    in->quiet_s = f->waiting_s > 0 ? 0 : f->now_s - last;
    in->step_s =
        b->stats.batches > 1 ? (f->last_s - f->first_s) / (double)(b->stats.batches - 1) : 0;
    for (int i = 0; i < PSTI_FORS; i++)
        in->for_s[i] = fmax(0, f->waited_for_s[i] - a->facts.waited_for_s[i]);
    const double stall = in->seconds > 0 ? in->wait_s / in->seconds : 0;
    in->demand = stall > ALL_IT_GETS ? 0 : in->samples / fmax(1e-9, in->seconds - in->wait_s);
}

/* ---- what would help ------------------------------------------------------------------------- */

typedef struct asking {
    psti_model_input model;
    psti_verdict_input *in;
    double rate, need; /* need: times the rate; 0 = as much as can be had */
} asking;

static double core_share(const psti_verdict_input *in)
{
    const double both = in->for_s[PSTI_FOR_WORK] + in->for_s[PSTI_FOR_TURN];
    return in->jobs > 1 && both > 0 ? fmax(0.01, in->for_s[PSTI_FOR_WORK] / both) : 1;
}

static double entry_bytes(const pst_job_stats *s, int form, double content)
{
    return s->form_entries[form] > 0 ? (double)s->form_bytes[form] / (double)s->form_entries[form]
                                     : content + ENTRY_BYTES;
}

/* The job by itself, with its part of the cores; costs such that what was measured comes out.
 * Stored bytes are what the cache keeps before a slow source, or where there is no decoded form. */
static bool fill_model(asking *q, const look *now, bool source)
{
    const psti_feed_facts *f = &now->facts;
    const psti_verdict_input *in = q->in;
    psti_model_input *m = &q->model;
    const double cores = fmin(in->workers, in->cpus) * core_share(in);
    const double finish_s = in->part_s[PSTI_PART_FINISH];
    const double all = in->found * f->part_s + (1 - in->found) * f->whole_s + finish_s;
    const double scale = source || all <= 0 ? 1 : cores / (q->rate * all);
    const double bytes = f->encoded_bytes > 0 ? f->encoded_bytes : 1;
    *m = (psti_model_input){.samples = f->samples,
                            .cache_bytes = f->cache_bytes,
                            .cores = cores,
                            .out_bytes = f->out_bytes,
                            .crop_s = scale * f->whole_s,
                            .full_s = scale * fmax(f->made_s - f->part_s, f->whole_s),
                            .augment_s = scale * fmin(f->part_s, f->whole_s),
                            .finish_s = scale * finish_s,
                            .jobs = 1};
    double reads = 0; /* bytes/s for each byte of a sample */
    if (source)
        reads = q->rate * (1 - in->found);
    else if (in->reads > 0.5) /* it could do more reads at a time, as far as is known */
        reads = q->rate * fmax(1, (f->reads_limit - 2 * f->workers) / in->reads);
    m->bytes[PSTI_MODEL_ENCODED] = NO_FORM_BYTES;
    if (f->keeps && f->decoded_bytes > 0)
        m->bytes[PSTI_MODEL_DECODED] =
            entry_bytes(&now->stats, PSTI_MODEL_DECODED, f->decoded_bytes);
    if (f->keeps_encoded && (source || m->bytes[PSTI_MODEL_DECODED] <= 0))
        m->bytes[PSTI_MODEL_ENCODED] = entry_bytes(&now->stats, PSTI_MODEL_ENCODED, bytes);
    /* The model reckons with bytes of an entry; what is read of each is the same in proportion. */
    m->source_bytes_s = reads * m->bytes[PSTI_MODEL_ENCODED];
    return f->whole_s > 0 && q->rate > 0 && !psti_model_check(m);
}

/* Not the gain: that is over what the model says of now, with a cache that is full. */
static double rate_then(const asking *q, psti_model_change change, double amount)
{
    psti_model_input then = q->model;
    psti_model_answer answer;
    if (change == PSTI_MODEL_MORE_CACHE)
        then.cache_bytes += amount;
    else if (change == PSTI_MODEL_MORE_CORES)
        then.cores += amount;
    else
        then.source_bytes_s *= amount;
    psti_model_solve(&then, &answer);
    return answer.rate.total;
}

/* True: with that change there is no stall, or enough is gained. */
static bool helps(const asking *q, psti_model_change change, double amount, psti_whatif *out)
{
    const double rate = rate_then(q, change, amount), times = rate / q->rate;
    const bool enough = q->need > 0 ? times >= (1 - PSTI_NO_STALL) * q->need : times >= 1 + WORTH;
    const double most = q->rate * (q->need > 0 ? q->need : PSTI_TIMES_TOLD);
    if (enough)
        *out = (psti_whatif){amount, fmin(rate, most)};
    return enough;
}

static void ask_cores(asking *q)
{
    psti_verdict_input *in = q->in;
    const double now = q->model.cores;
    const double all = fmin(in->workers, in->cpus);
    double more =
        q->need > 0 ? ceil(now * ((1 - PSTI_NO_STALL) * q->need - 1) / core_share(in)) : all;
    more = fmax(1, more);
    if (more <= TIMES_MOST * all &&
        helps(q, PSTI_MODEL_MORE_CORES, more * core_share(in), &in->more_cores))
        in->more_cores.amount = more;
}

/* The smallest step that is enough, no larger than all samples and what the machine has. */
static void ask_cache(asking *q, const psti_feed_facts *f, double may_have)
{
    psti_whatif found = {0};
    const double *bytes = q->model.bytes;
    const double entry = bytes[PSTI_MODEL_DECODED] > 0               ? bytes[PSTI_MODEL_DECODED]
                         : bytes[PSTI_MODEL_ENCODED] < NO_FORM_BYTES ? bytes[PSTI_MODEL_ENCODED]
                                                                     : 0;
    const double most = round_up(f->samples * entry);
    double low = 0, high = fmin(most, may_have - f->budget_bytes);
    if (!f->keeps || entry <= 0 || high < 0x1p20 || !helps(q, PSTI_MODEL_MORE_CACHE, high, &found))
        return;
    /* Who takes all he gets is told of most of what there is to be had. */
    asking enough = *q;
    if (q->need <= 0)
        enough.need = 0.9 * found.rate / q->rate;
    for (int i = 0; i < 8; i++) {
        const double middle = (low + high) / 2;
        if (helps(&enough, PSTI_MODEL_MORE_CACHE, middle, &found))
            high = middle;
        else
            low = middle;
    }
    high = round_up(high);
    if (high <= may_have - f->budget_bytes && helps(q, PSTI_MODEL_MORE_CACHE, high, &found))
        q->in->more_cache = found;
}

/* The first step that is enough. Where none is, since cores or the consumer come next: the first
 * that brings as good as all of what the last brings. */
static void ask_source(asking *q)
{
    static const double times[] = {1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100};
    const size_t steps = sizeof times / sizeof *times;
    asking some = *q;
    psti_whatif *out = &q->in->faster_source, last = {0};
    some.need = 0;
    if (q->need > 0 && !helps(q, PSTI_MODEL_MORE_SOURCE, times[steps - 1], &last) &&
        helps(&some, PSTI_MODEL_MORE_SOURCE, times[steps - 1], &last))
        some.need = last.rate / q->rate;
    else
        some.need = q->need;
    for (size_t i = some.need > 0 ? 0 : 1; i < steps; i++)
        if (helps(&some, PSTI_MODEL_MORE_SOURCE, times[i], out))
            return;
}

/* Each worker takes so much of a core. */
static void ask_workers(asking *q)
{
    psti_verdict_input *in = q->in;
    const double each = in->busy > 0 ? in->cpu / in->busy : 1;
    const double most = fmin(each > 0 ? floor(in->cpus / each) : INFINITY,
                             TIMES_MOST * fmax(in->workers, in->cpus));
    const double want =
        q->need > 0 ? ceil(in->workers * (1 - PSTI_NO_STALL) * q->need) : 2 * in->workers;
    const double get = fmin(want, most);
    if (get <= in->workers)
        return;
    in->more_workers.amount = get - in->workers;
    in->more_workers.rate = q->rate * get / in->workers;
    if (q->need > 0)
        in->more_workers.rate = fmin(in->more_workers.rate, q->rate * q->need);
}

/* Batches: a ring is as deep as has room in half of what the cache leaves, or one batch. Samples:
 * where workers stand without bytes for a share of the time, the others have room for the rest; no
 * more than what all of them can work is to be had. */
static void ask_memory(asking *q, const psti_feed_facts *f, double may_have)
{
    psti_verdict_input *in = q->in;
    double more = 0, times = 1, waited = 0;
    for (int i = 0; i < PSTI_FORS; i++)
        waited += in->for_s[i];
    if (f->depth < f->depth_wanted) {
        more = 2 * f->fixed_most - (f->depth > 1 ? 2 : 1) * f->fixed_bytes;
        times = in->busy > 0 ? in->workers / in->busy : 1;
    } else if (in->for_s[PSTI_FOR_ROOM] > 0) {
        const double without = fmin(1 - 1 / TIMES_MOST, in->for_s[PSTI_FOR_ROOM] / waited);
        const double now = f->budget_bytes - f->cache_bytes - f->fixed_bytes;
        const double work = q->rate * f->whole_s; /* of so many workers, without their waits */
        times = fmin(1 / (1 - without), work > 0 ? fmax(1, in->workers / work) : INFINITY);
        more = (now > 0 ? now : f->budget_bytes) * (times - 1);
    }
    more = more > 0 ? round_up(more) : 0;
    if (more > may_have - f->budget_bytes)
        return;
    times = fmin(times, q->need > 0 ? q->need : PSTI_TIMES_TOLD);
    in->more_memory = (psti_whatif){more, q->rate * times};
}

static void fill_help(psti_verdict_input *in, const look *now, double may_have)
{
    const psti_feed_facts *f = &now->facts;
    const bool first = (double)now->stats.samples < f->samples + in->samples;
    asking q = {.in = in, .rate = in->seconds > 0 ? in->samples / in->seconds : 0};
    const double work = in->for_s[PSTI_FOR_WORK] + in->for_s[PSTI_FOR_TURN];
    const bool source = in->for_s[PSTI_FOR_SOURCE] > work;
    q.need = in->demand > 0 && q.rate > 0 ? in->demand / q.rate : 0;
    if (q.rate <= 0 || in->wait_s < PSTI_NO_STALL * in->seconds)
        return;
    if (!source)
        ask_workers(&q);
    ask_memory(&q, f, may_have);
    if (!fill_model(&q, now, source))
        return;
    /* What is there may do, once it is full: after the first epoch it is. */
    if (f->cache_bytes > 0 && f->keeps && first) {
        psti_model_answer full;
        psti_model_solve(&q.model, &full);
        in->filling =
            full.rate.total >= (q.need > 0 ? (1 - PSTI_NO_STALL) * in->demand : 2 * q.rate);
        if (in->filling)
            return;
    }
    if (source)
        ask_source(&q);
    else
        ask_cores(&q);
    ask_cache(&q, f, may_have);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int pst_job_verdict(pst_job *job, pst_verdict *out)
{
    if (out->size != sizeof *out)
        return -EINVAL;
    if (!job->feed)
        return PST_ECLOSED;
    if (job->engine->pid != getpid())
        return PST_EFORK;
    look now = {0}, before;
    psti_verdict_input in = {0};
    look_now(job, &now);
    pthread_mutex_lock(&job->looks_lock);
    look_before_locked(job, &now, &before);
    keep_locked(job, &now);
    pthread_mutex_unlock(&job->looks_lock);
    fill_window(&in, &before, &now);
    if (in.seconds > 0) {
        fill_parts(&in, &before, &now);
        fill_workers(&in, job, &before, &now);
        fill_source(&in, &before, &now);
        fill_rest(&in, &before, &now);
        fill_help(&in, &now, (double)job->engine->settings.may_have);
    }
    psti_verdict_make(&in, out);
    return 0;
}

/* Those who wait come first, then those who work; the others say nothing of the engine. */
static double weight(const pst_verdict *v)
{
    return v->kind == PST_VERDICT_IDLE       ? 0
           : v->kind == PST_VERDICT_STARTING ? 1
           : v->kind == PST_VERDICT_BAD      ? 4
                                             : 2 + v->stall;
}

/* Of all jobs, and of the engine as a whole. view: where those of its jobs go (NULL = nowhere). */
static void judge_all(pst_engine *engine, pst_verdict *out, psti_view *view)
{
    int waiting = 0, jobs = 0;
    *out = (pst_verdict){
        .size = sizeof *out, .kind = PST_VERDICT_IDLE, .text = "idle: no job is open"};
    pthread_mutex_lock(&engine->leave_lock);
    pthread_mutex_lock(&engine->lock);
    pst_job *job = engine->jobs;
    pthread_mutex_unlock(&engine->lock);
    for (; job; job = job->next) {
        pst_verdict one = {.size = sizeof one};
        if (pst_job_verdict(job, &one) != 0)
            continue;
        for (int i = 0; view && i < view->job_count; i++)
            if (view->jobs[i].id == job->id)
                view->jobs[i].verdict = one;
        waiting += one.stall >= PSTI_NO_STALL && one.kind != PST_VERDICT_IDLE;
        if (jobs++ == 0 || weight(&one) > weight(out))
            *out = one;
    }
    pthread_mutex_unlock(&engine->leave_lock);
    const size_t length = strlen(out->text);
    if (jobs > 1 && out->kind != PST_VERDICT_IDLE)
        snprintf(out->text + length, sizeof out->text - length, "; %d of %d jobs wait%s", waiting,
                 jobs, waiting == 1 ? "s" : "");
}

int pst_engine_verdict(pst_engine *engine, pst_verdict *out)
{
    if (out->size != sizeof *out)
        return -EINVAL;
    if (engine->pid != getpid())
        return PST_EFORK;
    judge_all(engine, out, NULL);
    return 0;
}

void psti_engine_judge(pst_engine *engine, psti_view *view)
{
    if (engine->pid == getpid())
        judge_all(engine, &view->verdict, view);
}
