/* SPDX-License-Identifier: Apache-2.0
 * A copy of a job's options that outlives the caller's, for a job that may have to be opened a
 * second time. Pure. */
#include <string.h>

#include "engine/engine_priv.h"

static void copy_text(const char **text)
{
    if (*text)
        *text = psti_strdup(PSTI_MEM_ENGINE, *text);
}

static void *copy_array(const void *array, int64_t count, size_t size)
{
    void *copy = psti_calloc(PSTI_MEM_ENGINE, (size_t)(count > 0 ? count : 1), size);
    if (copy && count > 0)
        memcpy(copy, array, (size_t)count * size);
    return copy;
}

/* Functions are not copied: jobs that have some are never opened twice. */
pst_job_options *options_copy(const pst_job_options *o)
{
    pst_job_options *copy = psti_malloc(PSTI_MEM_ENGINE, sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *o;
    copy->calls = NULL;
    copy->call_count = 0;
    copy_text(&copy->pipeline);
    copy_text(&copy->split);
    copy_text(&copy->fields);
    copy_text(&copy->group);
    copy_text(&copy->bucket_by);
    if (o->buckets)
        copy->buckets = copy_array(o->buckets, o->buckets_count, sizeof *o->buckets);
    if (o->ids)
        copy->ids = copy_array(o->ids, o->ids_count, sizeof *o->ids);
    if (o->weights)
        copy->weights = copy_array(o->weights, o->weights_count, sizeof *o->weights);
    const bool whole = !copy->pipeline == !o->pipeline && !copy->split == !o->split &&
                       !copy->fields == !o->fields && !copy->group == !o->group &&
                       !copy->ids == !o->ids && !copy->weights == !o->weights &&
                       !copy->bucket_by == !o->bucket_by && !copy->buckets == !o->buckets;
    if (!whole) {
        options_free(copy);
        return NULL;
    }
    return copy;
}

void options_free(pst_job_options *o)
{
    if (!o)
        return;
    psti_free((void *)o->pipeline);
    psti_free((void *)o->split);
    psti_free((void *)o->fields);
    psti_free((void *)o->group);
    psti_free((void *)o->bucket_by);
    psti_free((void *)o->buckets);
    psti_free((void *)o->ids);
    psti_free((void *)o->weights);
    psti_free(o);
}
