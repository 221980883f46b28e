/* SPDX-License-Identifier: Apache-2.0
 * From figures to one sentence. A consumer that hardly waits is the limit itself. Where it waits,
 * what the workers' time went into meanwhile says what it waited for; what was measured of samples,
 * source, cache and tiers then says which of them is meant. Help is what the model foretold for the
 * thing that is short, never for another. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "watch/verdict.h"

static const double ENOUGH_S = 0.5, ENOUGH_BATCHES = 4, LONG_S = 10; /* to say anything */
static const double IDLE_S = 2, IDLE_STEPS = 5;                      /* without a request */
static const double BAD = 0.05, BAD_LEAST = 5; /* share of samples; how many */
static const double BUSY = 0.6;                /* of the workers' time: there is enough to do */
static const double IDLE_CORES = 0.25;         /* of the cores: more workers could use them */
static const double SLEEPS = 0.6; /* on a core, of the time in hand: below it workers wait inside */
static const double FORM_PART = 0.3; /* of a sample's work, that a decoded form has to save */
static const double HELD_UP = 0.25;  /* of the waits: workers had nothing left that may begin */
static const double STARVED = 0.5;   /* of a fair share of the workers */

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct line {
    char *at;
    size_t left;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->at, l->left, format, args);
    va_end(args);
    const size_t took = n < 0 ? 0 : (size_t)n < l->left ? (size_t)n : l->left - 1;
    l->at += took;
    l->left -= took;
}

static void add_bytes(line *l, double bytes)
{
    if (bytes >= 0x1p40)
        add(l, "%.4g TiB", bytes / 0x1p40);
    else if (bytes >= 0x1p30)
        add(l, "%.4g GiB", bytes / 0x1p30);
    else
        add(l, "%.4g MiB", bytes / 0x1p20);
}

static void add_time(line *l, double seconds)
{
    if (seconds >= 1)
        add(l, "%.3g s", seconds);
    else if (seconds >= 1e-3)
        add(l, "%.3g ms", 1e3 * seconds);
    else
        add(l, "%.3g us", 1e6 * seconds);
}

static void add_span(line *l, double seconds)
{
    if (seconds < 120)
        add(l, "%.0f s", seconds);
    else if (seconds < 7200)
        add(l, "%.0f min", seconds / 60);
    else
        add(l, "%.0f h", seconds / 3600);
}

/* "1 batch", "2 batches" */
static void add_count(line *l, double count, const char *one, const char *more)
{
    const double whole = floor(count + 0.5);
    add(l, "%.0f %s", whole, whole == 1 ? one : more);
}

static void add_rate(line *l, double rate)
{
    add(l, rate >= 100 ? "%.0f" : "%.3g", rate);
}

/* ---- what follows from the figures ----------------------------------------------------------- */

typedef struct view {
    const psti_verdict_input *in;
    pst_verdict *out;
    line text;
    double stall, rate, work_s;
    psti_work_part part; /* that takes most of the workers' time */
} view;

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double sum(const double *at, int count)
{
    double total = 0;
    for (int i = 0; i < count; i++)
        total += at[i];
    return total;
}

static const char *const part_names[PSTI_PARTS] = {"read", "decode", "augment", "finish"};

static int kind_of(psti_work_part part)
{
    return part == PSTI_PART_READ     ? PST_VERDICT_READ
           : part == PSTI_PART_DECODE ? PST_VERDICT_DECODE
                                      : PST_VERDICT_AUGMENT;
}

static void look(view *v)
{
    const psti_verdict_input *in = v->in;
    v->stall = share(in->wait_s, in->seconds);
    v->stall = v->stall > 1 ? 1 : v->stall < 0 ? 0 : v->stall;
    v->rate = share(in->samples, in->seconds);
    for (int i = 0; i < PSTI_PARTS; i++) {
        v->work_s += in->part_s[i];
        if (in->part_s[i] > in->part_s[v->part])
            v->part = (psti_work_part)i;
    }
}

static void number(view *v, const char *name, double value)
{
    pst_verdict *out = v->out;
    if (out->number_count == PST_VERDICT_NUMBERS || !isfinite(value))
        return;
    pst_verdict_number *n = &out->numbers[out->number_count++];
    snprintf(n->name, sizeof n->name, "%s", name);
    n->value = value;
}

static void numbers(view *v)
{
    static const char *const fors[PSTI_FORS] = {"waited_for_work",   "waited_for_turn",
                                                "waited_for_source", "waited_for_remote",
                                                "waited_for_room",   "waited_for_rest"};
    const psti_verdict_input *in = v->in;
    const double waited = sum(in->for_s, PSTI_FORS);
    number(v, "seconds", in->seconds);
    number(v, "rate", v->rate);
    number(v, "wanted_rate", in->demand);
    number(v, "cores", in->cpus);
    number(v, "cores_busy", in->cpu);
    number(v, "workers", in->workers);
    number(v, "workers_busy", in->busy);
    number(v, "workers_queued", in->queued);
    number(v, "sample_seconds", v->work_s);
    number(v, "read_seconds", in->part_s[PSTI_PART_READ]);
    number(v, "decode_seconds", in->part_s[PSTI_PART_DECODE]);
    number(v, "augment_seconds", in->part_s[PSTI_PART_AUGMENT]);
    number(v, "finish_seconds", in->part_s[PSTI_PART_FINISH]);
    number(v, "source_bytes_per_second", in->source_bytes_s);
    number(v, "reads", in->reads);
    number(v, "read_each_seconds", in->read_s);
    number(v, "cache_bytes", in->cache_bytes);
    number(v, "cache_found", in->found);
    number(v, "bad_samples", in->skipped);
    number(v, "jobs", in->jobs);
    for (int i = 0; i < PSTI_FORS; i++)
        number(v, fors[i], share(in->for_s[i], waited));
}

/* ---- help ------------------------------------------------------------------------------------ */

static void help(view *v, const char *what, const char *unit, const psti_whatif *change)
{
    pst_verdict *out = v->out;
    if (change->amount <= 0 || out->help_count == PST_VERDICT_HELPS)
        return;
    pst_verdict_help *h = &out->help[out->help_count++];
    snprintf(h->what, sizeof h->what, "%s", what);
    snprintf(h->unit, sizeof h->unit, "%s", unit);
    h->amount = change->amount;
    h->rate = change->rate;
    h->stall = v->in->demand > 0 ? fmax(0, 1 - change->rate / v->in->demand) : v->stall;
}

static void say_one(line *l, const pst_verdict_help *h, bool has_cache)
{
    if (strcmp(h->what, "cores") == 0)
        add_count(l, h->amount, "more core", "more cores");
    else if (strcmp(h->what, "workers") == 0)
        add_count(l, h->amount, "more worker", "more workers");
    else if (strcmp(h->what, "source") == 0)
        add(l, "a source %.3g times as fast", h->amount);
    else {
        add_bytes(l, h->amount);
        add(l, strcmp(h->what, "memory") == 0 ? " more memory"
               : has_cache                    ? " more cache"
                                              : " of cache");
    }
}

/* "3 more cores or 4 GiB of cache would remove the stall"; false: nothing would help. */
static bool say_help(view *v)
{
    const pst_verdict *out = v->out;
    for (int i = 0; i < out->help_count; i++) {
        add(&v->text, "%s", i == 0 ? "" : i + 1 < out->help_count ? ", " : " or ");
        say_one(&v->text, &out->help[i], v->in->cache_bytes > 0);
    }
    if (out->help_count == 0)
        return false;
    bool removed = v->in->demand > 0;
    for (int i = 0; i < out->help_count; i++)
        removed &= out->help[i].stall <= PSTI_NO_STALL + 1e-9;
    if (removed) {
        add(&v->text, " would remove the stall");
    } else {
        add(&v->text, " would bring ");
        for (int i = 0; i < out->help_count; i++) {
            const bool far = out->help[i].rate >= (PSTI_TIMES_TOLD - 1e-9) * v->rate;
            add(&v->text, "%s%s", i == 0 ? "" : " or ", far ? "at least " : "");
            add_rate(&v->text, out->help[i].rate);
        }
        add(&v->text, " samples/s");
    }
    return true;
}

static void say_stall(view *v)
{
    if (v->in->demand > 0)
        add(&v->text, "the consumer waits %.0f %% of the time", 100 * v->stall);
    else {
        add(&v->text, "the consumer takes all it gets, ");
        add_rate(&v->text, v->rate);
        add(&v->text, " samples/s");
    }
}

static void say_stage(view *v)
{
    add(&v->text, "%s takes %.0f %% of ", v->in->stage[0] ? v->in->stage : part_names[v->part],
        100 * v->in->stage_share);
    add_time(&v->text, v->work_s);
    add(&v->text, " a sample");
}

static void say_filling(view *v)
{
    add(&v->text, "; the cache is still being filled, which will %s",
        v->in->demand > 0 ? "remove the stall" : "make it faster");
}

static void tier_notes(view *v)
{
    if (v->in->remote == PSTI_STATE_DOWN && v->out->kind != PST_VERDICT_REMOTE)
        add(&v->text, "; the remote tier does not answer");
    if (v->in->disk == PSTI_STATE_DOWN && v->out->kind != PST_VERDICT_DISK)
        add(&v->text, "; the disk tier is off or full");
}

/* ---- one kind each --------------------------------------------------------------------------- */

static bool too_early(view *v)
{
    const psti_verdict_input *in = v->in;
    if (in->seconds >= LONG_S || (in->seconds >= ENOUGH_S && in->batches >= ENOUGH_BATCHES))
        return false;
    v->out->kind = PST_VERDICT_STARTING;
    if (in->batches_ever > 0) {
        add(&v->text, "starting: %s to say, ", in->finished ? "too little" : "too early");
        add_count(&v->text, in->batches, "batch", "batches");
        add(&v->text, " in %.1f s", in->seconds);
    } else
        add(&v->text, "starting: no batch yet, %.1f s after the job was opened", in->open_s);
    return true;
}

static bool is_idle(view *v)
{
    const psti_verdict_input *in = v->in;
    if (in->quiet_s < IDLE_S || (!in->finished && in->quiet_s < IDLE_STEPS * in->step_s))
        return false;
    v->out->kind = PST_VERDICT_IDLE;
    if (in->finished)
        add(&v->text, "idle: all epochs were handed over");
    else {
        add(&v->text, "idle: nobody has asked for a batch for ");
        add_span(&v->text, in->quiet_s);
    }
    return true;
}

static bool is_bad(view *v)
{
    const psti_verdict_input *in = v->in;
    const double met = in->samples + in->skipped;
    if (in->skipped < BAD_LEAST || share(in->skipped, met) < BAD)
        return false;
    v->out->kind = PST_VERDICT_BAD;
    add(&v->text, "bad samples: %.0f of %.0f could not be used and were skipped (%.0f %%); ",
        in->skipped, met, 100 * share(in->skipped, met));
    say_stall(v);
    return true;
}

static bool is_gpu(view *v)
{
    if (v->stall >= PSTI_NO_STALL)
        return false;
    v->out->kind = PST_VERDICT_GPU;
    add(&v->text, "GPU-bound: the consumer takes ");
    add_rate(&v->text, v->rate);
    if (v->stall < PSTI_NO_STALL / 4)
        add(&v->text, " samples/s and never waits");
    else
        add(&v->text, " samples/s and waits %.1f %% of the time", 100 * v->stall);
    tier_notes(v);
    return true;
}

static void say_errors(view *v, double errors)
{
    if (errors < 1)
        return;
    add(&v->text, " (");
    add_count(&v->text, errors, "error", "errors");
    add(&v->text, ")");
}

/* What the source and the decoder have to do only because the tier does not. */
static bool is_tier(view *v, bool source)
{
    const psti_verdict_input *in = v->in;
    if (!source && share(in->form_s, v->work_s) < FORM_PART)
        return false;
    const char *instead = source ? "bytes come from the source" : "samples are decoded again";
    if (in->remote == PSTI_STATE_DOWN) {
        v->out->kind = PST_VERDICT_REMOTE;
        add(&v->text, "remote-bound: the remote tier does not answer");
        say_errors(v, in->remote_errors);
    } else if (in->disk == PSTI_STATE_DOWN) {
        v->out->kind = PST_VERDICT_DISK;
        add(&v->text, "disk-bound: the disk tier is off or full");
        say_errors(v, in->disk_errors);
    } else
        return false;
    add(&v->text, ", so %s; ", instead);
    say_stall(v);
    return true;
}

/* It has a part of the samples, and would remove the stall with more of them. */
static bool is_cache(view *v, const char *otherwise)
{
    const psti_verdict_input *in = v->in;
    if (in->cache_bytes <= 0 || in->found <= 0 || in->more_cache.amount <= 0 || in->demand <= 0)
        return false;
    v->out->kind = PST_VERDICT_CACHE;
    add(&v->text, "cache-bound: ");
    help(v, "cache", "bytes", &in->more_cache);
    if (strcmp(otherwise, "source") == 0)
        help(v, "source", "times", &in->faster_source);
    else
        help(v, "cores", "cores", &in->more_cores);
    say_help(v);
    add(&v->text, " (%.0f %% of the samples come from it; ", 100 * in->found);
    say_stall(v);
    add(&v->text, ", %s-bound otherwise)", otherwise);
    return true;
}

static void say_source(view *v)
{
    const psti_verdict_input *in = v->in;
    v->out->kind = PST_VERDICT_SOURCE;
    add(&v->text, "source-bound: ");
    help(v, "source", "times", &in->faster_source);
    if (!in->filling)
        help(v, "cache", "bytes", &in->more_cache);
    const bool helps = say_help(v);
    add(&v->text, helps ? " (" : "");
    say_stall(v);
    if (in->source_bytes_s > 0)
        add(&v->text, "; %.3g MB/s arrive", 1e-6 * in->source_bytes_s);
    if (in->reads > 0 && in->read_s > 0) {
        add(&v->text, ", ");
        add_count(&v->text, fmax(1, in->reads), "sample waits ", "samples at a time wait ");
        add_time(&v->text, in->read_s);
        add(&v->text, " for %s", in->reads < 1.5 ? "its bytes" : "their bytes");
    }
    if (in->reads_at_most)
        add(&v->text, ", as many as may be: the time of each read is what is slow");
    add(&v->text, helps ? ")" : "");
    if (in->filling)
        say_filling(v);
    tier_notes(v);
}

static void say_memory(view *v)
{
    const psti_verdict_input *in = v->in;
    v->out->kind = PST_VERDICT_MEMORY;
    add(&v->text, "memory-bound: ");
    const bool cut = in->depth < in->depth_wanted;
    help(v, "memory", "bytes", &in->more_memory);
    if (v->out->help_count > 0) {
        if (cut) {
            say_one(&v->text, &v->out->help[0], false);
            add(&v->text, " would hold what should be ready");
        } else
            say_help(v);
        add(&v->text, "; ");
    }
    add(&v->text, "the budget of ");
    add_bytes(&v->text, in->budget_bytes);
    if (cut)
        add(&v->text, " has room for %.0f of %.0f batches ahead, and ", in->depth,
            in->depth_wanted);
    else
        add(&v->text, " is used up, and ");
    say_stall(v);
}

static void say_starved(view *v, double own)
{
    v->out->kind = PST_VERDICT_STARVED;
    add(&v->text, "starved: ");
    add_count(&v->text, v->in->jobs - 1, "other job takes", "other jobs take");
    add(&v->text, " %.0f %% of the workers' time while this one waits; ", 100 * (1 - own));
    say_stall(v);
    help(v, "cores", "cores", &v->in->more_cores);
    if (v->out->help_count) {
        add(&v->text, "; ");
        say_help(v);
    }
}

/* ---- workers that are busy ------------------------------------------------------------------- */

/* Cores stand idle beside workers that do not. */
static bool is_workers(view *v)
{
    const psti_verdict_input *in = v->in;
    const bool idle = in->cpu + in->queued < (1 - IDLE_CORES) * in->cpus;
    const bool sleep = in->cpu < SLEEPS * in->busy && in->queued < IDLE_CORES * in->busy;
    /* The caller's functions may exclude each other, as Python's do: more workers would wait. */
    const bool alone = in->stage_is_call && in->cpu + in->queued > SLEEPS;
    if (alone || !idle || !(sleep || in->workers < in->cpus) || in->more_workers.amount <= 0)
        return false;
    v->out->kind = PST_VERDICT_WORKERS;
    add(&v->text, "workers-bound: ");
    help(v, "workers", "workers", &in->more_workers);
    say_help(v);
    add(&v->text, " (");
    add_count(&v->text, in->workers, "worker is busy all the time and keeps",
              "workers are busy all the time and keep");
    add(&v->text, " %.1f of %.0f cores busy; ", in->cpu, in->cpus);
    say_stall(v);
    add(&v->text, ")");
    return true;
}

static void crowding(view *v)
{
    const psti_verdict_input *in = v->in;
    if (in->queued < IDLE_CORES * in->busy)
        return;
    if (in->workers > in->cpus) {
        add(&v->text, "; %.0f workers share ", in->workers);
        add_count(&v->text, in->cpus, "core", "cores");
        add(&v->text, ", so fewer would do as well");
    } else if (in->cpu < (1 - IDLE_CORES) * fmin(in->workers, in->cpus))
        add(&v->text, "; other programs have the cores: the workers got %.1f of %.0f", in->cpu,
            in->cpus);
}

static void say_work(view *v)
{
    const psti_verdict_input *in = v->in;
    v->out->kind = kind_of(v->part);
    add(&v->text,
        "%s-bound: ", v->out->kind == PST_VERDICT_AUGMENT ? "augment" : part_names[v->part]);
    /* A function of the caller's may exclude itself, as Python's do: that cores help is known only
     * where more than one was busy with it. */
    const bool beside = !in->stage_is_call || in->cpu > 1 + IDLE_CORES;
    /* Some wait inside, and yet one always runs: they exclude each other. */
    const double run = in->cpu + in->queued;
    const bool alone =
        !beside && in->workers > 1 && run > SLEEPS && in->busy - run > (1 - SLEEPS) * in->busy;
    if (beside)
        help(v, "cores", "cores", &in->more_cores);
    if (!in->filling)
        help(v, "cache", "bytes", &in->more_cache);
    const bool helps = say_help(v);
    if (!helps && beside && !in->filling && in->demand > 0)
        add(&v->text, "no sensible number of cores or amount of cache would remove the stall; ");
    add(&v->text, helps ? " (" : "");
    say_stall(v);
    add(&v->text, "; ");
    say_stage(v);
    add(&v->text, helps ? ")" : "");
    if (alone)
        add(&v->text,
            "; %.1f cores are busy with %.0f workers: the function seems to run one at a "
            "time, so make it cheaper or use ops",
            in->cpu, in->workers);
    if (in->filling)
        say_filling(v);
    if (!alone)
        crowding(v);
    tier_notes(v);
}

/* The workers have little to do, and yet what is asked for is not there. */
static void say_uneven(view *v, bool held)
{
    const psti_verdict_input *in = v->in;
    v->out->kind = kind_of(v->part);
    add(&v->text,
        "%s-bound: ", v->out->kind == PST_VERDICT_AUGMENT ? "augment" : part_names[v->part]);
    if (held)
        add(&v->text, "slow samples hold up the others%s; ",
            in->ready_order ? "" : ", which order=ready would let pass");
    else
        add(&v->text,
            "batches are taken in bursts, or have samples of very different cost; a larger "
            "ready_depth may help; ");
    say_stall(v);
    add(&v->text, " and the workers are %.0f %% busy; ", 100 * share(in->busy, in->workers));
    say_stage(v);
}

/* ---- all together ---------------------------------------------------------------------------- */

static int largest(const double *at, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (at[i] > at[best])
            best = i;
    return best;
}

static void judge_work(view *v)
{
    const psti_verdict_input *in = v->in;
    const double both = in->for_s[PSTI_FOR_WORK] + in->for_s[PSTI_FOR_TURN];
    const double own = share(in->for_s[PSTI_FOR_WORK], both);
    if (in->jobs > 1 && own < STARVED / in->jobs) {
        say_starved(v, own);
        return;
    }
    const char *name = kind_of(v->part) == PST_VERDICT_AUGMENT ? "augment" : part_names[v->part];
    if (!is_tier(v, false) && !is_workers(v) &&
        !(share(in->form_s, v->work_s) >= FORM_PART && is_cache(v, name)))
        say_work(v);
}

static void judge(view *v)
{
    const psti_verdict_input *in = v->in;
    double fors[PSTI_FORS];
    memcpy(fors, in->for_s, sizeof fors);
    /* Whose samples the workers have in hand is asked afterwards. */
    fors[PSTI_FOR_WORK] += fors[PSTI_FOR_TURN];
    fors[PSTI_FOR_TURN] = 0;
    const int cause = largest(fors, PSTI_FORS);
    const bool idle = in->busy < BUSY * in->workers;
    const double waited = sum(in->for_s, PSTI_FORS);
    const bool held = in->for_s[PSTI_FOR_REST] >= HELD_UP * waited;
    if (cause == PSTI_FOR_SOURCE) {
        if (!is_tier(v, true) && !is_cache(v, "source"))
            say_source(v);
    } else if (cause == PSTI_FOR_REMOTE) {
        v->out->kind = PST_VERDICT_REMOTE;
        add(&v->text, "remote-bound: the workers wait for the remote tier; ");
        say_stall(v);
    } else if (cause == PSTI_FOR_ROOM || (idle && in->depth < in->depth_wanted)) {
        say_memory(v);
    } else if (idle && in->jobs <= 1) {
        say_uneven(v, held);
    } else {
        judge_work(v);
    }
}

void psti_verdict_make(const psti_verdict_input *in, pst_verdict *out)
{
    const size_t size = out->size;
    *out = (pst_verdict){.size = size};
    view v = {.in = in, .out = out, .text = {out->text, sizeof out->text}};
    look(&v);
    out->stall = v.stall;
    if (!is_idle(&v) && !too_early(&v) && !is_bad(&v) && !is_gpu(&v))
        judge(&v);
    numbers(&v);
}

const char *pst_verdict_name(int kind)
{
    static const char *const names[] = {
#define PST_X(name, text) [name] = text,
        PST_VERDICT_LIST(PST_X)
#undef PST_X
    };
    return kind >= 0 && kind < (int)(sizeof names / sizeof names[0]) ? names[kind] : NULL;
}
