/* SPDX-License-Identifier: Apache-2.0
 * Plans: measures what samples of a dataset cost on this machine, with as many threads as there are
 * cores, and asks the model. The calling thread is one of them and the only one that calls the
 * caller's progress function. Afterwards a plan is only read: any thread. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "cache/disk.h"
#include "core/clock.h"
#include "core/quota.h"
#include "engine/engine_priv.h"
#include "engine/plan.h"
#include "engine/probe.h"
#include "model/model.h"

enum {
    THREADS_MOST = 64,
    GROUP_FIRST = 4,
    COPY_BYTES = 32 << 20,
    COPY_ROUNDS = 6,
    RINGS = 256 << 20
};
/* The engine's own work where it cannot be measured: samples are few, or so slow that it does not
 * matter. */
static const double OTHER_S = 10e-6;
static const double OTHER_PART = 0.2; /* of the seconds, to measure it */
/* How far equal jobs stand apart, in epochs, and in samples: consumers take whole batches, so one
 * is ahead of another by a batch or two, however short the epoch is. */
static const double SPREAD = 0.02, APART = 64;
static const double SECONDS = 2;
/* CPU time of a byte from a remote tier: read, copied, compared. A running engine measures it. */
static const double REMOTE_S = 0.7e-9;
static const uint64_t GROUP_NS = 200000000;
/* What an entry takes of the budget besides its bytes. */
static const double ENTRY_BYTES = 192;

_Static_assert((int)PST_FORMS == (int)PSTI_MODEL_FORMS &&
                   (int)PST_PLAN_JOBS == (int)PSTI_MODEL_JOBS &&
                   (int)PST_LIMIT_CONSUMER == (int)PSTI_MODEL_CONSUMER &&
                   (int)PST_LIMIT_DISK == (int)PSTI_MODEL_DISK &&
                   (int)PST_LIMIT_REMOTE == (int)PSTI_MODEL_REMOTE,
               "the public names are those of the model");

struct pst_plan {
    pst_plan_inputs inputs;
    psti_model_input model;
    psti_model_answer answer;
};

void pst_plan_options_init(pst_plan_options *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->size = sizeof *opts;
    opts->jobs = 1;
    opts->seconds = SECONDS;
}

static int check_options(const pst_plan_options *o, pst_error *err)
{
    if (o->size != sizeof *o)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "options of another version; call pst_plan_options_init");
    if (!o->pipeline)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "a pipeline is required, for example \"decode | resize(224)\"");
    if (o->jobs < 1 || o->jobs > PST_PLAN_JOBS)
        return psti_fail(err, -EINVAL, "options", NULL, "jobs must be 1..%d, not %d", PST_PLAN_JOBS,
                         o->jobs);
    if (o->cores < 0 || o->cores > 1024)
        return psti_fail(err, -EINVAL, "options", NULL, "cores must be 0..1024, not %d", o->cores);
    if (!(o->seconds >= 0.05 && o->seconds <= 600))
        return psti_fail(err, -EINVAL, "options", NULL, "seconds must be 0.05..600, not %g",
                         o->seconds);
    psti_disk_spec disk;
    if (o->disk) { /* told before anything is measured */
        const int rc = psti_disk_parse(o->disk, &disk, err);
        if (rc < 0)
            return rc;
        psti_free(disk.dir);
    }
    for (int j = 0; o->consumer && j < o->jobs; j++)
        if (!isfinite(o->consumer[j]) || o->consumer[j] < 0)
            return psti_fail(err, -EINVAL, "options", NULL,
                             "the rate of a consumer must be 0 or more samples a second, not %g",
                             o->consumer[j]);
    return 0;
}

/* ---- measuring samples ----------------------------------------------------------------------- */

/* Everything that the measuring threads share. */
typedef struct survey {
    pst_dataset *handle;
    psti_dataset *data; /* its own */
    field_choice choice;
    psti_plan *plan;
    const pst_plan_options *opts;
    int threads;
    uint64_t begin_ns, end_ns;
    _Atomic int64_t next; /* of plan_pick */
    _Atomic int stop;
} survey;

typedef struct surveyor {
    survey *all;
    pthread_t thread;
    bool lead; /* the calling thread */
    int rc;
    probe *probe;
    probe_cost sum;
    int64_t measured, decoded, bad;
    double copied_s; /* to copy COPY_BYTES once */
    int first_bad;
} surveyor;

static void add_cost(surveyor *s, const probe_cost *c)
{
    if (c->rc < 0) {
        s->first_bad = s->bad++ ? s->first_bad : c->rc;
        return;
    }
    s->measured++;
    s->sum.encoded += c->encoded;
    s->sum.augmented += c->augmented;
    s->sum.out += c->out;
    s->sum.read_s += c->read_s;
    s->sum.crop_s += c->crop_s;
    s->sum.keep_s += c->keep_s;
    s->sum.finish_s += c->finish_s;
    if (c->decoded <= 0)
        return;
    s->decoded++;
    s->sum.decoded += c->decoded;
    s->sum.full_s += c->full_s;
    s->sum.augment_s += c->augment_s;
}

/* Tells the caller how far it is; he may stop it. */
static void report(survey *all, uint64_t now)
{
    const double span = (double)(all->end_ns - all->begin_ns);
    double done = span > 0 ? (double)(now - all->begin_ns) / span : 1;
    done = done > 1 ? 1 : done;
    if (all->opts->progress && all->opts->progress(done, all->opts->user))
        atomic_store(&all->stop, -ECANCELED);
}

/* Groups as large as fill a fifth of a second. */
static void walk(surveyor *s)
{
    survey *all = s->all;
    const int64_t count = psti_dataset_count(all->data);
    probe_cost costs[PROBE_GROUP];
    int64_t ids[PROBE_GROUP];
    int group = GROUP_FIRST;
    uint64_t now = psti_now_ns();
    for (uint64_t epoch = 0; !atomic_load(&all->stop) && (!epoch || now < all->end_ns); epoch++) {
        const int64_t first = atomic_fetch_add(&all->next, group);
        for (int i = 0; i < group; i++)
            ids[i] = plan_pick(count, all->opts->seed, (first + i) % count);
        probe_run(s->probe, ids, group, (uint64_t)(first / count), costs);
        for (int i = 0; i < group; i++)
            add_cost(s, &costs[i]);
        const uint64_t took = psti_now_ns() - now;
        now += took;
        group = took < GROUP_NS / 2 ? 2 * group : took > 2 * GROUP_NS ? group / 2 : group;
        group = group < 1 ? 1 : group > PROBE_GROUP ? PROBE_GROUP : group;
        if (s->lead)
            report(all, now);
    }
}

/* How fast this thread copies while the others do the same: the fastest of some rounds, by the
 * processor's clock, so that other programs' share of it does not count. */
static void copy(surveyor *s)
{
    uint8_t *memory = psti_pages_alloc(PSTI_MEM_ENGINE, 2 * (size_t)COPY_BYTES);
    if (!memory) {
        s->rc = -ENOMEM;
        return;
    }
    memset(memory, 1, 2 * (size_t)COPY_BYTES);
    for (int i = 0; i < COPY_ROUNDS; i++) {
        const double since = psti_cpu_s();
        memcpy(memory + (i & 1 ? 0 : COPY_BYTES), memory + (i & 1 ? COPY_BYTES : 0), COPY_BYTES);
        const double took = psti_cpu_s() - since;
        s->copied_s = i == 0 || took < s->copied_s ? took : s->copied_s;
    }
    psti_pages_free(PSTI_MEM_ENGINE, memory, 2 * (size_t)COPY_BYTES);
}

static void *survey_loop(void *arg)
{
    surveyor *s = arg;
    walk(s);
    if (!atomic_load(&s->all->stop))
        copy(s);
    return NULL;
}

/* Threads that cannot be started are done without: the figures are then those of fewer cores. */
static int survey_run(survey *all, surveyor *s)
{
    const size_t ring = (size_t)RINGS / (size_t)(all->threads > 4 ? all->threads : 4);
    int started = 1, rc = 0;
    for (int i = 0; i < all->threads && rc == 0; i++) {
        s[i] = (surveyor){.all = all, .lead = i == 0};
        rc = probe_new(all->data, &all->choice, all->plan, all->opts->seed, ring, &s[i].probe);
    }
    all->begin_ns = psti_now_ns();
    all->end_ns = all->begin_ns + (uint64_t)((1 - OTHER_PART) * all->opts->seconds * 1e9);
    while (rc == 0 && started < all->threads &&
           pthread_create(&s[started].thread, NULL, survey_loop, &s[started]) == 0)
        started++;
    if (rc == 0)
        survey_loop(&s[0]);
    for (int i = 1; i < started && rc == 0; i++)
        pthread_join(s[i].thread, NULL);
    for (int i = 0; i < all->threads; i++) {
        rc = rc ? rc : s[i].rc;
        probe_free(s[i].probe);
    }
    return rc;
}

/* ---- from sums to inputs --------------------------------------------------------------------- */

static void mean(double *to, double sum, int64_t count)
{
    *to = count ? sum / (double)count : 0;
}

static void fill_sizes(pst_plan_inputs *in, const surveyor *sum)
{
    const int64_t n = sum->measured;
    mean(&in->bytes[PST_FORM_ENCODED], sum->sum.encoded, n);
    mean(&in->bytes[PST_FORM_AUGMENTED], sum->sum.augmented, n);
    mean(&in->bytes[PST_FORM_DECODED], sum->sum.decoded, sum->decoded);
    for (int form = 0; form < PST_FORMS; form++)
        in->bytes[form] += in->bytes[form] > 0 ? ENTRY_BYTES : 0;
    mean(&in->out_bytes, sum->sum.out, n);
}

static void fill_inputs(pst_plan_inputs *in, const surveyor *s, int threads)
{
    surveyor sum = {0};
    double copied = 0;
    for (int i = 0; i < threads; i++) {
        sum.measured += s[i].measured;
        sum.decoded += s[i].decoded;
        sum.bad += s[i].bad;
        copied += s[i].copied_s > 0 ? 2.0 * COPY_BYTES / s[i].copied_s : 0;
        double *to = &sum.sum.encoded;
        const double *from = &s[i].sum.encoded;
        for (size_t k = 0; k < (sizeof(probe_cost) - offsetof(probe_cost, encoded)) / sizeof *to;
             k++)
            to[k] += from[k];
    }
    in->measured = sum.measured + sum.bad;
    in->bad = sum.bad;
    fill_sizes(in, &sum);
    mean(&in->read_s, sum.sum.read_s, sum.measured);
    mean(&in->crop_s, sum.sum.crop_s, sum.measured);
    mean(&in->keep_s, sum.sum.keep_s, sum.measured);
    mean(&in->finish_s, sum.sum.finish_s, sum.measured);
    mean(&in->full_s, sum.sum.full_s, sum.decoded);
    mean(&in->augment_s, sum.sum.augment_s, sum.decoded);
    in->memory_bytes_s = copied;
}

/* What a remote tier has of a sample. */
static int remote_form(const pst_plan_inputs *in)
{
    return in->bytes[PST_FORM_DECODED] > 0 ? PST_FORM_DECODED : PST_FORM_ENCODED;
}

static void to_model(const pst_plan_inputs *in, psti_model_input *m)
{
    *m = (psti_model_input){.samples = (double)in->samples,
                            .cache_bytes = (double)in->cache_bytes,
                            .cores = in->cores,
                            .out_bytes = in->out_bytes,
                            .read_s = in->read_s,
                            .crop_s = in->crop_s,
                            .full_s = in->full_s,
                            .augment_s = in->augment_s,
                            .keep_s = in->keep_s,
                            .finish_s = in->finish_s,
                            .other_s = in->other_s,
                            .source_bytes_s = in->source_bytes_s,
                            .memory_bytes_s = in->memory_bytes_s * in->cores,
                            .disk_bytes = (double)in->disk_bytes,
                            .disk_form = in->disk_form,
                            .disk_entry_bytes = in->disk_entry_bytes,
                            .disk_read_s = in->disk_read_s,
                            .disk_bytes_s = in->disk_bytes_s,
                            .remote_found = in->remote_bytes_s > 0,
                            .remote_bytes_s = in->remote_bytes_s,
                            .remote_s = REMOTE_S * in->bytes[remote_form(in)],
                            .remote_decoded = true,
                            .jobs = in->jobs};
    m->sharing.spread = fmax(SPREAD, APART / m->samples);
    memcpy(m->bytes, in->bytes, sizeof m->bytes);
    memcpy(m->consumer, in->consumer, sizeof m->consumer);
}

/* ---- putting it together --------------------------------------------------------------------- */

static int make_plan(survey *all, pst_error *err)
{
    psti_pipeline *pipeline;
    psti_plan_input inputs[PSTI_FIELDS_MAX];
    int rc = psti_pipeline_parse(all->opts->pipeline, &pipeline, err);
    if (rc < 0)
        return rc;
    rc = fields_choose(all->data, all->opts->fields, &all->choice, err);
    if (rc == 0) {
        fields_inputs(all->data, &all->choice, inputs);
        rc = psti_plan_new(pipeline, inputs, all->choice.count, &all->plan, err);
    }
    psti_pipeline_free(pipeline);
    if (rc == 0)
        rc = fields_check(all->plan, err);
    return rc == 0 ? psti_plan_set_calls(all->plan, NULL, 0, err) : rc;
}

static int measure_source(const survey *all, pst_plan_inputs *in, pst_error *err)
{
    if (all->opts->source_bytes_s) {
        in->source = PST_SOURCE_GIVEN;
        in->source_bytes_s = (double)all->opts->source_bytes_s;
        return 0;
    }
    source_rate rate = {0};
    const int rc = source_measure(all->data, &all->choice, all->opts->seed, all->opts->seconds / 2,
                                  &rate, err);
    in->source = rate.cold ? PST_SOURCE_COLD : PST_SOURCE_WARM;
    in->source_bytes_s = rate.bytes_s;
    return rc;
}

static int measure_samples(survey *all, pst_plan_inputs *in, pst_error *err)
{
    surveyor *s = psti_calloc(PSTI_MEM_ENGINE, (size_t)all->threads, sizeof *s);
    if (!s)
        return psti_fail(err, -ENOMEM, "plan", NULL, "out of memory");
    int rc = survey_run(all, s);
    const int stop = atomic_load(&all->stop);
    if (rc == 0)
        fill_inputs(in, s, all->threads);
    if (rc < 0)
        psti_fail(err, rc, "plan", NULL, "out of memory");
    else if (stop)
        rc = psti_fail(err, stop, "plan", NULL, "stopped by the caller");
    else if (in->measured == in->bad)
        rc = psti_fail(err, PST_EDATASET, "plan", NULL,
                       "none of %lld samples could be prepared: %s; 'penstock inspect --deep' says "
                       "more",
                       (long long)in->bad, pst_strerror(s[0].first_bad));
    psti_free(s);
    return rc;
}

static int measure(pst_plan *plan, survey *all, pst_error *err)
{
    pst_plan_inputs *in = &plan->inputs;
    const pst_plan_options *o = all->opts;
    const int cpus = psti_quota_cpus("");
    in->size = sizeof *in;
    in->samples = psti_dataset_count(all->data);
    in->cache_bytes = o->cache_bytes;
    in->jobs = o->jobs;
    in->remote_bytes_s = (double)o->remote_bytes_s;
    in->cores = o->cores ? o->cores : cpus;
    if (o->consumer)
        memcpy(in->consumer, o->consumer, (size_t)o->jobs * sizeof *o->consumer);
    all->threads = cpus < in->cores ? cpus : in->cores;
    all->threads = all->threads > THREADS_MOST ? THREADS_MOST : all->threads;
    psti_heap_tame();                      /* samples cost what they cost in an engine */
    int rc = measure_source(all, in, err); /* first: what samples read would be warm */
    if (rc == 0)
        rc = measure_samples(all, in, err);
    if (rc == 0 && o->disk)
        rc = plan_disk(all->data, all->plan, o->disk, in, err);
    if (rc < 0)
        return rc;
    const double other_s = own_work(all->handle, o, in->bytes[PST_FORM_DECODED], all->threads,
                                    OTHER_PART * o->seconds);
    in->other_s = other_s > 0 ? other_s : OTHER_S;
    in->memory_bytes_s /= all->threads; /* of one core, while all copy */
    to_model(in, &plan->model);
    in->memory_bytes_s = plan->model.memory_bytes_s;
    const char *wrong = psti_model_check(&plan->model);
    if (wrong)
        return psti_fail(err, PST_EDATASET, "plan", NULL,
                         "%s could not be measured on these samples", wrong);
    psti_model_solve(&plan->model, &plan->answer);
    return 0;
}

int pst_plan_new(pst_dataset *data, const pst_plan_options *opts, pst_plan **out, pst_error *err)
{
    int rc = opts ? check_options(opts, err)
                  : psti_fail(err, -EINVAL, "options", NULL, "options are required");
    if (rc < 0)
        return rc;
    survey all = {.handle = data, .data = data->data, .opts = opts};
    pst_plan *plan = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *plan);
    if (!plan)
        return psti_fail(err, -ENOMEM, "plan", NULL, "out of memory");
    if (psti_dataset_count(data->data) < 1)
        rc = psti_fail(err, PST_EDATASET, "plan", NULL, "the dataset has no samples");
    if (rc == 0)
        rc = make_plan(&all, err);
    if (rc == 0)
        rc = measure(plan, &all, err);
    psti_plan_free(all.plan);
    if (rc < 0) {
        pst_plan_free(plan);
        return rc;
    }
    *out = plan;
    return 0;
}

void pst_plan_free(pst_plan *plan)
{
    psti_free(plan);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int pst_plan_measured(const pst_plan *plan, pst_plan_inputs *out)
{
    if (out->size != sizeof *out)
        return -EINVAL;
    *out = plan->inputs;
    return 0;
}

static int to_point(const pst_plan *plan, const psti_model_split *split, pst_plan_point *out)
{
    if (out->size != sizeof *out)
        return -EINVAL;
    psti_model_rate r, first;
    psti_model_evaluate(&plan->model, split, true, &r);
    psti_model_evaluate(&plan->model, split, false, &first);
    *out = (pst_plan_point){.size = sizeof *out,
                            .samples_s = r.total,
                            .first_samples_s = first.total,
                            .capacity_s = r.capacity,
                            .preparations = r.preparations,
                            .from_disk = r.from_disk,
                            .from_source = r.from_source,
                            .from_remote = r.from_remote,
                            .cpu_s = r.cpu_s,
                            .source_s = r.source_s,
                            .memory_s = r.memory_s,
                            .disk_s = r.disk_s,
                            .remote_s = r.remote_s,
                            .limit = (int)r.binding};
    memcpy(out->share, split->share, sizeof out->share);
    memcpy(out->job_s, r.job, sizeof out->job_s);
    memcpy(out->from, r.from, sizeof out->from);
    return 0;
}

int pst_plan_best(const pst_plan *plan, pst_plan_point *out)
{
    return to_point(plan, &plan->answer.split, out);
}

int pst_plan_at(const pst_plan *plan, const double share[PST_FORMS], pst_plan_point *out)
{
    psti_model_split split;
    double sum = 0;
    for (int form = 0; form < PST_FORMS; form++) {
        if (!(share[form] >= 0))
            return -EINVAL;
        sum += split.share[form] = share[form];
    }
    return sum <= 1 + 1e-9 ? to_point(plan, &split, out) : -EINVAL;
}

void pst_plan_prices(const pst_plan *plan, double *cpu, double *source)
{
    *cpu = plan->answer.prices.cpu;
    *source = plan->answer.prices.source;
}

double pst_plan_gain(const pst_plan *plan, int change, double amount)
{
    static const psti_model_change changes[] = {[PST_MORE_CACHE] = PSTI_MODEL_MORE_CACHE,
                                                [PST_MORE_CORES] = PSTI_MODEL_MORE_CORES,
                                                [PST_MORE_SOURCE] = PSTI_MODEL_MORE_SOURCE};
    if (change < PST_MORE_CACHE || change > PST_MORE_SOURCE || !(amount >= 0))
        return NAN;
    return psti_model_gain(&plan->model, changes[change], amount);
}

int pst_plan_paper(const pst_plan *plan, double share[PST_FORMS], double *samples_s)
{
    psti_paper_input in;
    psti_model_split split;
    psti_paper_from(&plan->model, &in);
    *samples_s = psti_paper_grid(&in, &split);
    memcpy(share, split.share, sizeof split.share);
    return 0;
}
