/* SPDX-License-Identifier: Apache-2.0
 * Jobs: options checked and turned into a feed; the calls that drive it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/buckets.h"
#include "engine/engine_priv.h"
#include "engine/fields.h"

enum { CALLS_MOST = 256 };

void pst_job_options_init(pst_job_options *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->size = sizeof *opts;
    opts->batch = 32;
    opts->world = 1;
    opts->repeat = 1;
    opts->draw_id = -1;
}

/* ---- options --------------------------------------------------------------------------------- */

static int out_of_range(pst_error *err, const char *name, int64_t value, int64_t low, int64_t high)
{
    return psti_fail(err, -EINVAL, "options", NULL, "%s must be %lld..%lld, not %lld", name,
                     (long long)low, (long long)high, (long long)value);
}

static int check_calls(const pst_job_options *o, pst_error *err)
{
    for (int i = 0; i < o->call_count; i++) {
        const char *name = o->calls[i].name;
        if (!name || !*name || !o->calls[i].run)
            return psti_fail(err, -EINVAL, "options", NULL, "each of calls has a name and a run");
        for (int j = 0; j < i; j++)
            if (strcmp(name, o->calls[j].name) == 0)
                return psti_fail(err, -EINVAL, "options", NULL,
                                 "two functions are given for call(%s); name one of them otherwise",
                                 name);
    }
    return 0;
}

static int check_options(const pst_job_options *o, pst_error *err)
{
    if (o->size != sizeof *o)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "options of another version; call pst_job_options_init");
    if (!o->pipeline)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "a pipeline is required, for example \"decode | resize(224)\"");
    const struct {
        const char *name;
        int64_t value, low, high;
    } bounds[] = {
        {"batch", o->batch, 1, 1 << 20},
        {"world", o->world, 1, 65536},
        {"rank", o->rank, 0, (int64_t)o->world - 1},
        {"order", o->order, PST_ORDER_STRICT, PST_ORDER_READY},
        {"ends", o->ends, PST_ENDS_DEFAULT, PST_ENDS_SHORT},
        {"sampler", o->sampler, PST_SHUFFLE, PST_GIVEN},
        {"on_error", o->on_error, PST_RAISE, PST_SKIP},
        {"repeat", o->repeat, 1, 1024},
        {"run", o->run, 0, 65536},
        {"read_retries", o->read_retries, 0, 16},
        {"ready_depth", o->ready_depth, 0, 64},
        {"skip_limit", o->skip_limit, 0, INT64_MAX},
        {"draws", o->draws, 0, INT64_MAX / 16},
        {"reorder_window", o->reorder_window, 0, 1 << 30},
        {"draw_id", o->draw_id, -1, INT64_MAX},
        {"leave_mix", o->leave_mix, 0, 1},
        {"raw_finish", o->raw_finish, 0, 1},
        {"leases", o->leases, 0, 64},
        {"no_cache", o->no_cache, 0, 1},
        {"sampling", o->sampling, PST_SAMPLING_PLAIN, PST_SAMPLING_OPPORTUNISTIC},
        {"schedule", o->schedule, PST_SCHEDULE_PENSTOCK, PST_SCHEDULE_BATCH_PER_WORKER},
        {"without", o->without, 0, 2 * PST_WITHOUT_TUNER - 1},
        {"call_count", o->call_count, 0, o->calls ? CALLS_MOST : 0},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return out_of_range(err, bounds[i].name, bounds[i].value, bounds[i].low,
                                bounds[i].high);
    if (o->group && strlen(o->group) >= PST_NAME_BYTES)
        return psti_fail(err, -EINVAL, "options", NULL, "a group's name has at most %d bytes",
                         PST_NAME_BYTES - 1);
    if (o->first_epoch > UINT32_MAX || o->epochs > UINT32_MAX)
        return psti_fail(err, -EINVAL, "options", NULL, "epochs are numbered 0..2^32-1");
    return check_calls(o, err);
}

static int resolve_ends(const pst_job_options *o)
{
    return o->ends ? o->ends : o->world > 1 ? PST_ENDS_PAD : PST_ENDS_SHORT;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int unknown_split(const psti_dataset *data, const char *split, pst_error *err)
{
    char names[256] = "it has none";
    const int count = psti_dataset_splits(data);
    size_t at = 0;
    for (int i = 0; i < count && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, i ? ", %s" : "it has %s",
                               psti_dataset_split_name(data, i));
    return psti_fail(err, -ENOENT, "options", split, "the dataset has no such split; %s", names);
}

static int find_buckets(const pst_job *job, const pst_job_options *o, psti_order_spec *spec,
                        int32_t **out, pst_error *err)
{
    const buckets_of how = {
        .by = o->bucket_by, .ids = spec->ids, .drawn = spec->ids ? spec->ids_count : spec->dataset};
    if (o->buckets)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "give either buckets or bucket_by, not both");
    const int rc = buckets_find(job->data, &how, out, err);
    spec->buckets = *out;
    spec->buckets_count = spec->dataset;
    return rc;
}

static int make_order(pst_job *job, const pst_job_options *o, psti_order **out, pst_error *err)
{
    psti_order_spec spec = {
        .sampler = o->sampler,
        .dataset = psti_dataset_count(job->data),
        .ids = o->ids,
        .ids_count = o->ids_count,
        .weights = o->weights,
        .weights_count = o->weights_count,
        .draws = o->draws,
        .repeat = o->repeat,
        .seed = o->seed,
        .buckets = o->buckets,
        .buckets_count = o->buckets_count,
        .batch = o->batch,
        .run = o->run,
    };
    if (o->split && *o->split) {
        if (o->ids)
            return psti_fail(err, -EINVAL, "options", NULL,
                             "give either a split or a list of ids, not both");
        if (psti_dataset_split(job->data, o->split, &spec.ids, &spec.ids_count) < 0)
            return unknown_split(job->data, o->split, err);
    }
    int32_t *found = NULL;
    int rc = o->bucket_by && *o->bucket_by ? find_buckets(job, o, &spec, &found, err) : 0;
    if (rc == 0)
        rc = psti_order_new(&spec, out, err);
    psti_free(found);
    if (rc == 0 && psti_order_length(*out) == 0) {
        psti_order_free(*out);
        return psti_fail(err, PST_EDATASET, "options", NULL, "the job has no samples to read");
    }
    return rc;
}

static int make_plan(pst_job *job, const pst_job_options *o, const field_choice *choice,
                     psti_plan **out, pst_error *err)
{
    psti_plan_input inputs[PSTI_FIELDS_MAX];
    fields_inputs(job->data, choice, inputs);
    int rc = psti_plan_new(job->pipeline, inputs, choice->count, out, err);
    if (rc < 0)
        return rc;
    rc = fields_check(*out, err);
    if (rc == 0)
        rc = psti_plan_set_calls(*out, o->calls, o->call_count, err);
    if (rc < 0)
        psti_plan_free(*out);
    return rc;
}

static int note_bad(void *user, pst_error *err)
{
    pst_job *job = user;
    return engine_note_bad(job->engine, job->data, job->skip_limit, err);
}

static bool is_record(const pst_job *job, const psti_pool *pool)
{
    return job->engine->link && pool == job->engine->pool;
}

/* Pixels are those of this release and of the libraries that had a part in them. */
static psti_id128 tier_form(psti_id128 form)
{
    static const char *const makers[] = {"jpeg", "png", "webp", "gzip", "deflate", "flac", "fft"};
    const char *name, *detail;
    psti_hash hash;
    psti_hash_init(&hash);
    psti_hash_u64(&hash, form.lo);
    psti_hash_u64(&hash, form.hi);
    psti_hash_text(&hash, PST_VERSION, strlen(PST_VERSION));
    for (int i = 0; pst_feature(i, &name, &detail) >= 0; i++) {
        bool makes = false;
        for (size_t k = 0; k < sizeof makers / sizeof *makers; k++)
            makes |= strcmp(name, makers[k]) == 0;
        if (!makes)
            continue;
        psti_hash_text(&hash, name, strlen(name));
        psti_hash_text(&hash, detail, strlen(detail));
    }
    return psti_hash_final(&hash);
}

/* What is shown of it. Of what another process opened its owner knows best. */
static void label(const pst_job *job, const pst_job_options *o, psti_feed_spec *spec)
{
    const psti_feed_hooks *h = &spec->hooks;
    const char *where = h->path ? h->path : psti_dataset_path(job->data);
    psti_feed_label *l = &spec->label;
    l->id = job->id;
    l->pid = h->pid ? h->pid : (uint32_t)getpid();
    l->uid = h->pid ? h->uid : (uint32_t)geteuid();
    where = where ? where : psti_dataset_kind(job->data);
    snprintf(l->dataset, sizeof l->dataset, "%s", where);
    psti_view_name(where, l->name);
    snprintf(l->pipeline, sizeof l->pipeline, "%s", o->pipeline);
    spec->hooks.path = NULL;
}

int job_open_feed(pst_job *job, psti_pool *pool, const pst_job_options *o,
                  const psti_feed_hooks *hooks, psti_feed **out, pst_error *err)
{
    field_choice choice;
    psti_feed_spec spec = {
        .data = job->data,
        .batch = o->batch,
        .rank = o->rank,
        .world = o->world,
        .ends = resolve_ends(o),
        .mode = o->schedule == PST_SCHEDULE_INORDER ? PST_ORDER_STRICT : o->order,
        .seed = o->seed,
        .first_epoch = o->first_epoch,
        .epochs = o->epochs,
        .skip = o->on_error == PST_SKIP,
        .retries = o->read_retries,
        .ready_depth = o->ready_depth ? o->ready_depth : 4,
        .depth_free = !o->ready_depth,
        .window = o->reorder_window,
        .draw_id = o->draw_id,
        .leases = o->leases ? o->leases : 1,
        .cache = !o->no_cache,
        /* A record counts what came; who chose it does not matter. */
        .shares = o->sampling == PST_SAMPLING_OPPORTUNISTIC && !is_record(job, pool),
        .schedule = o->schedule,
        .without = o->without,
        .bad = note_bad,
        .user = job,
    };
    if (hooks)
        spec.hooks = *hooks;
    label(job, o, &spec);
    int rc = fields_choose(job->data, o->fields, &choice, err);
    if (rc == 0)
        rc = make_plan(job, o, &choice, &spec.plan, err);
    if (rc < 0)
        return rc;
    if (o->leave_mix || o->raw_finish) /* a batch op mixes finished values */
        psti_plan_leave_mix(spec.plan);
    spec.form = psti_plan_decoded_form(spec.plan, job->pipeline);
    spec.tier_form = tier_form(spec.form);
    spec.augmented = psti_plan_augmented_form(spec.plan, job->pipeline);
    spec.tier_augmented = tier_form(spec.augmented);
    snprintf(spec.group, sizeof spec.group, "%s", o->group ? o->group : "");
    if (o->raw_finish)
        psti_plan_raw_finish(spec.plan);
    rc = make_order(job, o, &spec.order, err);
    if (rc < 0) {
        psti_plan_free(spec.plan);
        return rc;
    }
    memcpy(spec.fields, choice.field, sizeof spec.fields);
    spec.field_count = choice.count;
    job->order_source = psti_order_source(spec.order);
    job->bucketed = psti_order_bucketed(spec.order);
    return psti_feed_open(pool, &spec, out, err);
}

static void job_free(pst_job *job)
{
    psti_pipeline_free(job->pipeline);
    psti_dataset_unref(job->data);
    options_free(job->options);
    verdict_close(job);
    psti_free(job);
}

int pst_job_open(pst_engine *engine, pst_dataset *data, const pst_job_options *opts, pst_job **out,
                 pst_error *err)
{
    return psti_job_open_hooked(engine, data, opts, NULL, out, err);
}

int psti_job_open_hooked(pst_engine *engine, pst_dataset *data, const pst_job_options *opts,
                         const psti_feed_hooks *hooks, pst_job **out, pst_error *err)
{
    if (engine->pid != getpid())
        return psti_fail(err, PST_EFORK, "job", NULL, "%s; make a new engine",
                         pst_strerror(PST_EFORK));
    int rc = check_options(opts, err);
    if (rc < 0)
        return rc;
    pst_job *job = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *job);
    if (!job)
        return psti_fail(err, -ENOMEM, "job", NULL, "out of memory while opening the job");
    job->engine = engine;
    job->id = atomic_fetch_add_explicit(&engine->job_count, 1, memory_order_relaxed) + 1;
    if (hooks && hooks->id)
        job->id = hooks->id;
    pthread_mutex_init(&job->looks_lock, NULL);
    job->data = psti_dataset_ref(data->data);
    job->skip_limit = opts->skip_limit;
    rc = psti_pipeline_parse(opts->pipeline, &job->pipeline, err);
    psti_feed *feed = NULL;
    if (rc == 0)
        rc = job_open_feed(job, engine->pool, opts, hooks, &feed, err);
    atomic_init(&job->feed, feed);
    if (rc == 0 && engine->link && (rc = remote_open(job, opts, err)) < 0)
        remote_detach(job);
    if (rc < 0) {
        job_free(job);
        return rc;
    }
    verdict_open(job);
    pthread_mutex_lock(&engine->lock);
    job->next = engine->jobs;
    engine->jobs = job;
    pthread_mutex_unlock(&engine->lock);
    *out = job;
    return 0;
}

/* Takes the job away from its engine; its handle stays valid and answers PST_ECLOSED. */
void job_detach(pst_job *job)
{
    pst_engine *engine = job->engine;
    pthread_mutex_lock(&engine->leave_lock);
    pthread_mutex_lock(&engine->lock);
    pst_job **at = &engine->jobs;
    while (*at && *at != job)
        at = &(*at)->next;
    if (*at)
        *at = job->next;
    pthread_mutex_unlock(&engine->lock);
    pthread_mutex_unlock(&engine->leave_lock);
    remote_detach(job); /* its workers may still note a bad sample with the engine */
    job->engine = NULL;
}

void pst_job_close(pst_job *job)
{
    if (!job)
        return;
    if (job->engine && job->engine->pid != getpid())
        return;
    if (job->engine)
        job_detach(job);
    job_free(job);
}

/* ---- driving --------------------------------------------------------------------------------- */

/* 0 when the job can be used; else the code, with the job's error filled. */
static int usable(pst_job *job)
{
    if (!job->feed)
        return psti_fail(&job->error, PST_ECLOSED, "job", NULL, "the engine of this job was freed");
    if (job->engine->pid != getpid())
        return psti_fail(&job->error, PST_EFORK, "job", NULL, "%s; make a new engine and job",
                         pst_strerror(PST_EFORK));
    return 0;
}

int pst_job_next(pst_job *job, int64_t timeout_ns, pst_batch **out)
{
    *out = NULL;
    const int rc = usable(job);
    if (rc < 0)
        return rc;
    if (job->link && !job->served)
        remote_look(job);
    return job->served ? remote_next(job, timeout_ns, out)
                       : psti_feed_next(job->feed, timeout_ns, out);
}

void pst_job_abort(pst_job *job)
{
    if (job->link)
        remote_abort(job);
    if (job->feed)
        psti_feed_abort(job->feed);
}

int pst_job_set_epoch(pst_job *job, uint64_t epoch)
{
    const int rc = usable(job);
    if (rc < 0)
        return rc;
    if (epoch > UINT32_MAX)
        return -EINVAL;
    return job->served ? remote_set_epoch(job, epoch) : psti_feed_set_epoch(job->feed, epoch);
}

/* Whether the job's locks may be taken: not in a forked child, where they may be held for ever. */
static bool alive(const pst_job *job)
{
    return job->feed && job->engine->pid == getpid();
}

uint64_t pst_job_epoch(const pst_job *job)
{
    return alive(job) ? psti_feed_epoch(job->feed) : 0;
}

int64_t pst_job_steps(const pst_job *job)
{
    return alive(job) ? psti_feed_steps(job->feed) : job->feed ? PST_EFORK : PST_ECLOSED;
}

void pst_job_error(const pst_job *job, pst_error *out)
{
    if (job->error.code || !alive(job))
        *out = job->error;
    else
        psti_feed_error(job->feed, out);
}

void pst_job_stats_get(const pst_job *job, pst_job_stats *out)
{
    const size_t size = out->size;
    memset(out, 0, sizeof *out);
    out->size = size;
    if (alive(job))
        psti_feed_stats(job->feed, out);
    if (alive(job) && job->link)
        remote_stats(job, out);
}

/* ---- what the receiver needs to know ------------------------------------------------------------
 */

static void describe_finish(const psti_plan *plan, const psti_plan_output *output, int index,
                            pst_finish_info *out)
{
    const psti_finish *finish = psti_plan_finish(plan, index);
    const bool planar = output->layout == PST_NCHW;
    const int64_t channels = output->rank == 3 ? output->shape[planar ? 0 : 2] : 1;
    out->raw = psti_plan_is_raw(plan, index);
    out->normalize = finish->normalize;
    out->channels = channels > 0 ? (int)channels : 0;
    out->dtype = finish->dtype;
    out->layout = finish->layout;
    for (int c = 0; c < 4; c++) {
        out->mean[c] = finish->normalize ? finish->mean[c] : 0.0;
        out->std[c] = finish->normalize ? finish->std[c] : 1.0;
        out->scale[c] = finish->scale[c];
        out->bias[c] = finish->bias[c];
    }
}

int pst_job_field(const pst_job *job, int index, pst_field_info *out)
{
    if (!job->feed)
        return PST_ECLOSED;
    const psti_plan_output *outputs;
    if (index < 0 || index >= psti_plan_outputs(psti_feed_plan(job->feed), &outputs))
        return -ENOENT;
    const psti_plan_output *o = &outputs[index];
    *out = (pst_field_info){
        .kind = (uint8_t)o->kind, .dtype = (uint8_t)o->dtype, .rank = (uint8_t)o->rank};
    memcpy(out->name, o->name, sizeof out->name);
    memcpy(out->shape, o->shape, sizeof out->shape);
    return 0;
}

int pst_job_finish(const pst_job *job, const char *field, pst_finish_info *out)
{
    if (!job->feed)
        return PST_ECLOSED;
    if (out->size != sizeof *out)
        return -EINVAL;
    const psti_plan *plan = psti_feed_plan(job->feed);
    const psti_plan_output *outputs;
    const int count = psti_plan_outputs(plan, &outputs);
    for (int i = 0; i < count; i++) {
        if (strcmp(outputs[i].name, field) != 0)
            continue;
        if (!psti_plan_finish(plan, i))
            return PST_EFIELD;
        describe_finish(plan, &outputs[i], i, out);
        return 0;
    }
    return -ENOENT;
}

int pst_job_memory(const pst_job *job, int index, void **base, size_t *bytes)
{
    if (!job->feed)
        return PST_ECLOSED;
    if (!alive(job))
        return PST_EFORK;
    return job->link ? remote_memory(job, index, base, bytes)
                     : psti_feed_memory(job->feed, index, base, bytes);
}
