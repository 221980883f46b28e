/* SPDX-License-Identifier: Apache-2.0
 * An order: what a job draws from and how, checked and copied once when the job opens. It holds
 * nothing of one epoch; epoch.c turns it into positions. Made and freed by the engine, read by any
 * thread. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/status.h"
#include "sample/sample_priv.h"

static const char *const STAGE = "sampler";
enum { REPEAT_MAX = 1024 };
/* An occurrence is a 32-bit word of the random key. */
static const int64_t COUNTED_MAX = UINT32_MAX;

static bool is_weighted(int sampler)
{
    return sampler == PST_WEIGHTED || sampler == PST_WEIGHTED_ONCE;
}

static int no_memory(pst_error *err, const char *what, int64_t count)
{
    return psti_fail(err, -ENOMEM, STAGE, NULL, "out of memory for %s of %lld samples", what,
                     (long long)count);
}

static int check_spec(const psti_order_spec *spec, pst_error *err)
{
    if (spec->sampler < PST_SHUFFLE || spec->sampler > PST_GIVEN)
        return psti_fail(err, -EINVAL, STAGE, NULL, "sampler %d is not one of 0..%d", spec->sampler,
                         PST_GIVEN);
    if (spec->repeat < 1 || spec->repeat > REPEAT_MAX)
        return psti_fail(err, -EINVAL, STAGE, NULL, "repeat is %d; it must be 1..%d", spec->repeat,
                         REPEAT_MAX);
    if (spec->run > 1 && spec->sampler != PST_SHUFFLE)
        return psti_fail(err, -EINVAL, STAGE, NULL,
                         "runs of %d neighbours are for the sampler shuffle alone", spec->run);
    if (spec->dataset < 1 || (spec->ids && spec->ids_count < 1))
        return psti_fail(
            err, -EINVAL, STAGE, NULL,
            "there is nothing to draw from: the dataset has %lld samples, the list of ids %lld",
            (long long)spec->dataset, (long long)spec->ids_count);
    if (!is_weighted(spec->sampler))
        return 0;
    if (!spec->weights)
        return psti_fail(
            err, -EINVAL, STAGE, NULL,
            "a weighted sampler needs weights, one for each of the dataset's %lld samples",
            (long long)spec->dataset);
    if (spec->weights_count != spec->dataset)
        return psti_fail(
            err, -EINVAL, STAGE, NULL,
            "there are %lld weights for %lld samples; give one for each sample of the dataset",
            (long long)spec->weights_count, (long long)spec->dataset);
    if (spec->draws < 0)
        return psti_fail(err, -EINVAL, STAGE, NULL, "draws is %lld; it must be 0 or more",
                         (long long)spec->draws);
    return 0;
}

/* Finds the first entry that repeats an earlier id, -1 if none does. Ids are in range. */
static int find_duplicate(const psti_order_spec *spec, int64_t *found)
{
    *found = -1;
    int64_t i = 1;
    while (i < spec->ids_count && spec->ids[i] > spec->ids[i - 1])
        i++;
    if (i >= spec->ids_count)
        return 0;
    uint8_t *seen = psti_calloc(PSTI_MEM_SAMPLE, (size_t)(spec->dataset / 8 + 1), 1);
    if (!seen)
        return -ENOMEM;
    for (i = 0; i < spec->ids_count && *found < 0; i++) {
        const int64_t id = spec->ids[i];
        if (seen[id >> 3] & 1u << (id & 7))
            *found = i;
        seen[id >> 3] |= (uint8_t)(1u << (id & 7));
    }
    psti_free(seen);
    return 0;
}

static int check_ids(const psti_order_spec *spec, bool *duplicates, pst_error *err)
{
    *duplicates = false;
    if (!spec->ids)
        return 0;
    for (int64_t i = 0; i < spec->ids_count; i++)
        if (spec->ids[i] < 0 || spec->ids[i] >= spec->dataset)
            return psti_fail(err, -EINVAL, STAGE, NULL,
                             "entry %lld of the ids is %lld, but the dataset has samples 0..%lld",
                             (long long)i, (long long)spec->ids[i], (long long)spec->dataset - 1);
    int64_t twice;
    if (find_duplicate(spec, &twice) < 0)
        return no_memory(err, "a check", spec->dataset);
    if (twice >= 0 && spec->sampler != PST_GIVEN)
        return psti_fail(err, -EINVAL, STAGE, NULL,
                         "sample %lld is in the list of ids more than once (entry %lld repeats "
                         "it); only a given "
                         "order may repeat ids",
                         (long long)spec->ids[twice], (long long)twice);
    *duplicates = twice >= 0;
    return 0;
}

/* A list that counts up from 0 is the same as none. */
static int copy_ids(psti_order *order, const psti_order_spec *spec, pst_error *err)
{
    int64_t same = 0;
    while (spec->ids && same < spec->ids_count && spec->ids[same] == same)
        same++;
    if (!spec->ids || same == spec->ids_count)
        return 0;
    psti_id_list *list = &order->ids;
    list->wide = spec->dataset > (int64_t)1 << 32;
    const size_t each = list->wide ? sizeof(int64_t) : sizeof(uint32_t);
    list->data = psti_calloc(PSTI_MEM_SAMPLE, (size_t)spec->ids_count, each);
    if (!list->data)
        return no_memory(err, "the ids", spec->ids_count);
    if (list->wide) {
        memcpy(list->data, spec->ids, (size_t)spec->ids_count * each);
        return 0;
    }
    uint32_t *to = list->data;
    for (int64_t i = 0; i < spec->ids_count; i++)
        to[i] = (uint32_t)spec->ids[i];
    return 0;
}

/* Looks at the weights of the samples drawn from: the largest, and how many are positive. */
static int check_weights(const psti_order *order, const double *weights, double *largest,
                         int64_t *positive, pst_error *err)
{
    *largest = 0;
    *positive = 0;
    for (int64_t i = 0; i < order->count; i++) {
        const int64_t id = psti_id_list_at(&order->ids, i);
        const double w = weights[id];
        if (!(w >= 0 && w <= DBL_MAX))
            return psti_fail(
                err, -EINVAL, STAGE, NULL,
                "the weight of sample %lld is %g; weights must be finite and not negative",
                (long long)id, w);
        *positive += w > 0;
        if (w > *largest)
            *largest = w;
    }
    if (*positive == 0)
        return psti_fail(
            err, -EINVAL, STAGE, NULL,
            "all %lld weights are zero; at least one sample must have a positive weight",
            (long long)order->count);
    if (order->sampler == PST_WEIGHTED_ONCE && order->base > *positive)
        return psti_fail(
            err, -EINVAL, STAGE, NULL,
            "%lld draws without replacement were asked for, but only %lld samples have a positive "
            "weight; set draws to at most that",
            (long long)order->base, (long long)*positive);
    return 0;
}

/* Scales by a power of two, which is exact, so that sums and quotients neither overflow nor lose
 * bits; what is positive stays so. */
static int take_weights(psti_order *order, const psti_order_spec *spec, pst_error *err)
{
    double largest;
    int64_t positive;
    const int rc = check_weights(order, spec->weights, &largest, &positive, err);
    if (rc < 0)
        return rc;
    double *scaled = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->count, sizeof *scaled);
    if (!scaled)
        return no_memory(err, "the weights", order->count);
    int exponent;
    (void)frexp(largest, &exponent);
    for (int64_t i = 0; i < order->count; i++) {
        const double w = spec->weights[psti_id_list_at(&order->ids, i)];
        const double small = ldexp(w, -exponent);
        scaled[i] = w > 0 && small < DBL_MIN ? DBL_MIN : small;
    }
    if (order->sampler == PST_WEIGHTED) {
        if (psti_weights_cumulate(&order->weights, scaled, order->count) < 0)
            return no_memory(err, "the weights", order->count);
        return 0;
    }
    order->weights.value = scaled;
    order->weights.count = order->count;
    return 0;
}

int psti_count_earlier(int64_t positions, int64_t values,
                       int64_t (*value_at)(const void *user, int64_t position), const void *user,
                       uint32_t *earlier)
{
    uint32_t *seen = psti_calloc(PSTI_MEM_SAMPLE, (size_t)values, sizeof *seen);
    if (!seen)
        return -ENOMEM;
    for (int64_t p = 0; p < positions; p++)
        earlier[p] = seen[value_at(user, p)]++;
    psti_free(seen);
    return 0;
}

static int64_t given_at(const void *user, int64_t position)
{
    return psti_id_list_at(user, position);
}

static int count_given(psti_order *order, pst_error *err)
{
    order->earlier = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->count, sizeof(uint32_t));
    if (!order->earlier ||
        psti_count_earlier(order->count, order->dataset, given_at, &order->ids, order->earlier) < 0)
        return no_memory(err, "the given order", order->count);
    return 0;
}

/* base and repeat, and that what is counted per id fits into an occurrence. */
static int set_length(psti_order *order, const psti_order_spec *spec, pst_error *err)
{
    order->count = spec->ids ? spec->ids_count : spec->dataset;
    order->base = is_weighted(spec->sampler) && spec->draws ? spec->draws : order->count;
    order->repeat = spec->repeat;
    const bool counted = is_weighted(spec->sampler) || spec->sampler == PST_GIVEN;
    const int64_t most = counted ? COUNTED_MAX : INT64_MAX / 2;
    if (order->base > most / order->repeat || (counted && order->count > COUNTED_MAX))
        return psti_fail(
            err, -EINVAL, STAGE, NULL,
            "an epoch of %lld draws, each %d times, is too long: at most %lld positions",
            (long long)order->base, order->repeat, (long long)most);
    return 0;
}

static psti_id128 source_of(const psti_order *order, const psti_order_spec *spec)
{
    static const char kind[] = "penstock order 1";
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_text(&h, kind, sizeof kind - 1);
    psti_hash_u64(&h, (uint64_t)order->sampler);
    psti_hash_u64(&h, (uint64_t)order->count);
    psti_hash_u64(&h, (uint64_t)order->base);
    psti_hash_u64(&h, (uint64_t)order->repeat);
    psti_hash_u64(&h, order->ids.data != NULL);
    for (int64_t i = 0; order->ids.data && i < order->count; i++)
        psti_hash_u64(&h, (uint64_t)psti_id_list_at(&order->ids, i));
    if (order->run > 1) /* states from before there were runs stay valid */
        psti_hash_u64(&h, (uint64_t)order->run);
    psti_buckets_hash(order, &h);
    for (int64_t i = 0; is_weighted(order->sampler) && i < order->count; i++) {
        const double w = spec->weights[psti_id_list_at(&order->ids, i)] + 0.0; /* -0 becomes 0 */
        uint64_t bits;
        memcpy(&bits, &w, sizeof bits);
        psti_hash_u64(&h, bits);
    }
    return psti_hash_final(&h);
}

static int build(psti_order *order, const psti_order_spec *spec, pst_error *err)
{
    bool duplicates;
    int rc = check_ids(spec, &duplicates, err);
    if (rc == 0)
        rc = set_length(order, spec, err);
    if (rc == 0)
        rc = copy_ids(order, spec, err);
    if (rc == 0 && is_weighted(order->sampler))
        rc = take_weights(order, spec, err);
    if (rc == 0 && duplicates)
        rc = count_given(order, err);
    if (rc == 0)
        rc = psti_buckets_take(order, spec, err);
    if (rc == 0)
        order->source = source_of(order, spec);
    return rc;
}

int psti_order_new(const psti_order_spec *spec, psti_order **out, pst_error *err)
{
    *out = NULL;
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    psti_order *order = psti_calloc(PSTI_MEM_SAMPLE, 1, sizeof *order);
    if (!order)
        return no_memory(err, "an order", spec->dataset);
    order->sampler = spec->sampler;
    order->run = spec->run > 1 ? spec->run : 1;
    order->dataset = spec->dataset;
    order->seed = spec->seed;
    order->listed = spec->ids != NULL;
    rc = build(order, spec, err);
    if (rc < 0) {
        psti_order_free(order);
        return rc;
    }
    *out = order;
    return 0;
}

void psti_order_free(psti_order *order)
{
    if (!order)
        return;
    psti_weights_fini(&order->weights);
    psti_free(order->ids.data);
    psti_free(order->earlier);
    psti_free(order->buckets);
    psti_free(order->index_of);
    psti_free(order);
}

bool psti_order_invertible(const psti_order *order)
{
    return (order->sampler == PST_SHUFFLE || order->sampler == PST_SEQUENTIAL) &&
           order->repeat == 1 && order->dataset < UINT32_MAX && !order->buckets;
}

int psti_order_invert(psti_order *order)
{
    if (!order->ids.data || order->index_of)
        return 0;
    order->index_of = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->dataset, sizeof(uint32_t));
    if (!order->index_of)
        return -ENOMEM;
    for (int64_t i = 0; i < order->count; i++)
        order->index_of[psti_id_list_at(&order->ids, i)] = (uint32_t)i + 1;
    return 0;
}

int64_t psti_order_length(const psti_order *order)
{
    return order->base * order->repeat;
}

psti_id128 psti_order_source(const psti_order *order)
{
    return order->source;
}

int psti_order_given(const psti_order *order, int64_t **out, int64_t *count)
{
    *out = NULL;
    *count = 0;
    if (order->sampler != PST_GIVEN || !order->listed)
        return 0;
    *out = psti_calloc(PSTI_MEM_SAMPLE, (size_t)order->count, sizeof **out);
    if (!*out)
        return -ENOMEM;
    for (int64_t i = 0; i < order->count; i++)
        (*out)[i] = psti_id_list_at(&order->ids, i);
    *count = order->count;
    return 0;
}

int psti_order_sampler(const psti_order *order)
{
    return order->sampler;
}

bool psti_order_bucketed(const psti_order *order)
{
    return order->buckets != NULL;
}
