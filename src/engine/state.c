/* SPDX-License-Identifier: Apache-2.0
 * Saving and loading where a job stands. What may not differ is compared here, naming both values.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_priv.h"

/* Slack: samples skipped between asking for the size and asking for the state take a few bytes
 * each. */
enum { TEXT_KEPT = 4096, SLACK = 1024 };

static int fill(const pst_job *job, psti_state *state)
{
    const int rc = psti_feed_progress(job->feed, state);
    if (rc < 0)
        return rc;
    state->revision = psti_dataset_revision(job->data);
    state->fingerprint = psti_pipeline_fingerprints(job->pipeline).whole;
    state->source = job->order_source;
    const char *text = psti_pipeline_text(job->pipeline);
    if (strlen(text) < TEXT_KEPT)
        state->pipeline = psti_strdup(PSTI_MEM_SAMPLE, text);
    return 0;
}

int pst_job_state(const pst_job *job, void *buf, size_t cap, size_t *bytes)
{
    if (!job->feed)
        return PST_ECLOSED;
    if (job->engine->pid != getpid())
        return PST_EFORK;
    psti_state state = {0};
    int rc = fill(job, &state);
    if (rc == 0) {
        *bytes = psti_state_size(&state);
        if (cap < *bytes) {
            *bytes += SLACK;
            rc = -ENOSPC;
        } else {
            psti_state_encode(&state, buf, cap);
        }
    }
    psti_state_fini(&state);
    return rc;
}

static int differ_hash(pst_error *err, const char *what, psti_id128 saved, psti_id128 now,
                       const char *todo)
{
    char a[33], b[33];
    psti_id128_hex(saved, a);
    psti_id128_hex(now, b);
    return psti_fail(err, PST_ESTATE, "state", NULL,
                     "%s: the state was saved with %s, this job has %s; %s", what, a, b, todo);
}

static bool same(psti_id128 a, psti_id128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* What must be equal for the state to mean the same. */
static int check_same(const pst_job *job, const psti_state *state, const psti_state *now,
                      pst_error *err)
{
    const psti_id128 fingerprint = psti_pipeline_fingerprints(job->pipeline).whole;
    const psti_id128 revision = psti_dataset_revision(job->data);
    if (!same(state->revision, revision))
        return differ_hash(err, "the dataset changed", state->revision, revision,
                           "restore the data, or start without the state");
    if (!same(state->fingerprint, fingerprint))
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "the pipeline differs: the state was saved with \"%s\", this job "
                         "has \"%s\"",
                         state->pipeline ? state->pipeline : "(a long one)",
                         psti_pipeline_text(job->pipeline));
    if (state->seed != now->seed)
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "the seed differs: the state was saved with %llu, this job has %llu",
                         (unsigned long long)state->seed, (unsigned long long)now->seed);
    if (job->bucketed && state->batch != now->batch)
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "the batch differs: the state was saved with %d samples a batch, this job "
                         "has %d; batches of one bucket are cut by it",
                         state->batch, now->batch);
    if (!same(state->source, job->order_source))
        return differ_hash(err, "the sampler differs", state->source, job->order_source,
                           "use the same sampler, split, ids, weights and buckets");
    if (state->length != now->length)
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "the epoch's length differs: the state has %lld, this job %lld",
                         (long long)state->length, (long long)now->length);
    if (state->order != now->order)
        return psti_fail(err, PST_ESTATE, "state", NULL,
                         "the order differs: the state was saved in %s order, this job is %s",
                         state->order == PST_ORDER_READY ? "ready" : "strict",
                         now->order == PST_ORDER_READY ? "ready" : "strict");
    if (state->per_rank && !state->merged && state->world > 1)
        return psti_fail(
            err, PST_ESTATE, "state", NULL,
            "this is the state of rank %d of %d alone; in ready order every rank saves its "
            "own: join them first (pst_state_merge; in Python penstock.merge_states)",
            state->rank, state->world);
    return 0;
}

int pst_job_load_state(pst_job *job, const void *bytes, size_t size, pst_error *err)
{
    if (!job->feed)
        return psti_fail(err, PST_ECLOSED, "state", NULL, "the engine of this job was freed");
    if (job->engine->pid != getpid())
        return psti_fail(err, PST_EFORK, "state", NULL, "%s; make a new engine and job",
                         pst_strerror(PST_EFORK));
    psti_state state = {0}, now = {0};
    int rc = psti_state_decode(bytes, size, &state, err);
    if (rc == 0 && (rc = psti_feed_progress(job->feed, &now)) < 0)
        psti_fail(err, rc, "state", NULL, "out of memory");
    if (rc == 0)
        rc = check_same(job, &state, &now, err);
    if (rc == 0)
        rc = psti_feed_resume(job->feed, &state, err);
    if (rc == 0 && job->served)
        rc = remote_state_loaded(job, state.epoch, bytes, size, err);
    psti_state_fini(&state);
    psti_state_fini(&now);
    return rc;
}

int pst_state_merge(const void *const *states, const size_t *bytes, size_t count, void **out,
                    size_t *out_bytes, pst_error *err)
{
    if (count == 0 || count > 65536)
        return psti_fail(err, PST_ESTATE, "state", NULL, "there are %zu states to join", count);
    psti_state joined = {0};
    psti_state *all = psti_calloc(PSTI_MEM_ENGINE, count, sizeof *all);
    int rc = all ? 0 : psti_fail(err, -ENOMEM, "state", NULL, "out of memory");
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = psti_state_decode(states[i], bytes[i], &all[i], err);
    if (rc == 0)
        rc = psti_state_join(all, count, &joined, err);
    if (rc == 0) {
        *out_bytes = psti_state_size(&joined);
        *out = psti_malloc(PSTI_MEM_ENGINE, *out_bytes);
        rc = *out ? 0 : psti_fail(err, -ENOMEM, "state", NULL, "out of memory");
        if (rc == 0)
            psti_state_encode(&joined, *out, *out_bytes);
    }
    for (size_t i = 0; all && i < count; i++)
        psti_state_fini(&all[i]);
    psti_free(all);
    psti_state_fini(&joined);
    return rc;
}
