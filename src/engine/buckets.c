/* SPDX-License-Identifier: Apache-2.0
 * What a job's bucket_by means on its dataset: a bucket for each sample, from what the listing
 * knows, so that no file is opened. Called while a job is opened; pure. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buckets.h"

enum { FACTOR_MOST = 8 };

static int wrong(const char *text, const char *why, pst_error *err)
{
    return psti_fail(err, -EINVAL, "options", NULL,
                     "bucket_by '%s': %s; it is bytes:K, FIELD:K or aspect[:K]", text, why);
}

/* "WORD", "WORD:K": where the colon is, and K; 0 without one. False when K is no number 1..most. */
static bool split(const char *text, int most, size_t *word, int *k)
{
    const char *colon = strrchr(text, ':');
    *word = colon ? (size_t)(colon - text) : strlen(text);
    *k = 0;
    if (!colon)
        return true;
    char *end;
    const long value = strtol(colon + 1, &end, 10);
    *k = (int)value;
    return colon[1] >= '0' && colon[1] <= '9' && !*end && value >= 1 && value <= most;
}

/* ---- a number for each sample ---------------------------------------------------------------- */

static bool number_of(const psti_dataset *data, int64_t id, int field, double *out)
{
    const void *value;
    size_t bytes;
    const psti_source_field *fields;
    psti_dataset_fields(data, &fields);
    if (psti_dataset_value(data, id, field, &value, &bytes) < 0 || bytes != sizeof *out)
        return false;
    if (fields[field].info.dtype == PST_F64) {
        memcpy(out, value, sizeof *out);
    } else {
        int64_t whole;
        memcpy(&whole, value, sizeof whole);
        *out = (double)whole;
    }
    return *out == *out;
}

static int find_number(const psti_dataset *data, const char *name, size_t len)
{
    const psti_source_field *fields;
    const int count = psti_dataset_fields(data, &fields);
    for (int i = 0; i < count; i++) {
        const pst_field_info *info = &fields[i].info;
        if (strlen(info->name) == len && memcmp(info->name, name, len) == 0)
            return !fields[i].member && info->rank == 0 &&
                           (info->dtype == PST_I64 || info->dtype == PST_F64)
                       ? i
                       : -1;
    }
    return -1;
}

static int lacks(const char *text, const psti_dataset *data, int64_t id, pst_error *err)
{
    return psti_fail(err, PST_EFIELD, "options", psti_dataset_key(data, id),
                     "bucket_by '%s': this sample does not have the number: give buckets as an "
                     "array instead",
                     text);
}

/* ---- equal parts ----------------------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* k buckets of about equal size over the samples that are drawn from; equal numbers share one. */
static int quantiles(const double *of, int64_t count, const int64_t *ids, int64_t drawn, int k,
                     int32_t *out)
{
    double *sorted = psti_calloc(PSTI_MEM_ENGINE, (size_t)drawn, sizeof *sorted);
    if (!sorted)
        return -ENOMEM;
    for (int64_t i = 0; i < drawn; i++)
        sorted[i] = of[ids ? ids[i] : i];
    qsort(sorted, (size_t)drawn, sizeof *sorted, by_value);
    for (int64_t id = 0; id < count; id++) {
        out[id] = 0;
        for (int b = 1; b < k; b++)
            out[id] += of[id] >= sorted[drawn * b / k];
    }
    psti_free(sorted);
    return 0;
}

static int by_number(const psti_dataset *data, const buckets_of *how, const char *text, size_t word,
                     int k, int32_t *out, pst_error *err)
{
    const int64_t count = psti_dataset_count(data);
    const bool bytes = word == 5 && memcmp(text, "bytes", 5) == 0;
    const int field = bytes ? -1 : find_number(data, text, word);
    if (!bytes && field < 0)
        return wrong(text, "the dataset has no such field of numbers", err);
    double *of = psti_calloc(PSTI_MEM_ENGINE, (size_t)count, sizeof *of);
    if (!of)
        return psti_fail(err, -ENOMEM, "options", NULL, "out of memory for buckets");
    int rc = 0;
    for (int64_t i = 0; i < how->drawn && rc == 0; i++) {
        const int64_t id = how->ids ? how->ids[i] : i;
        if (bytes)
            of[id] = (double)psti_dataset_sample_bytes(data, id);
        else if (!number_of(data, id, field, &of[id]))
            rc = lacks(text, data, id, err);
    }
    if (rc == 0 && quantiles(of, count, how->ids, how->drawn, k, out) < 0)
        rc = psti_fail(err, -ENOMEM, "options", NULL, "out of memory for buckets");
    psti_free(of);
    return rc;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* torchvision's create_aspect_ratio_groups: bounds at 2^(i/k), i from -k to k; without k at 1. */
static int aspect_bucket(double width, double height, int k)
{
    static const double root[] = {2,
                                  2,
                                  1.4142135623730951,
                                  1.2599210498948732,
                                  1.189207115002721,
                                  1.148698354997035,
                                  1.122462048309373,
                                  1.1040895136738123,
                                  1.0905077326652577};
    const double ratio = width / height;
    int bucket = 0;
    double bound = k ? 0.5 : 1;
    for (int i = 0; i < (k ? 2 * k + 1 : 1); i++, bound *= root[k]) {
        const double exact = i == k ? 1 : i == 2 * k ? 2 : bound; /* products end a bit off */
        bucket += ratio >= exact;
    }
    return bucket;
}

static int by_aspect(const psti_dataset *data, const buckets_of *how, const char *text, int k,
                     int32_t *out, pst_error *err)
{
    const int wide = find_number(data, "width", 5), high = find_number(data, "height", 6);
    if (wide < 0 || high < 0)
        return wrong(text, "it needs the fields width and height", err);
    for (int64_t i = 0; i < how->drawn; i++) {
        const int64_t id = how->ids ? how->ids[i] : i;
        double width, height;
        if (!number_of(data, id, wide, &width) || !number_of(data, id, high, &height) ||
            !(width > 0) || !(height > 0))
            return lacks(text, data, id, err);
        out[id] = aspect_bucket(width, height, k);
    }
    return 0;
}

int buckets_find(const psti_dataset *data, const buckets_of *how, int32_t **out, pst_error *err)
{
    const char *text = how->by;
    size_t word;
    int k;
    const bool aspect = strncmp(text, "aspect", 6) == 0 && (!text[6] || text[6] == ':');
    if (!split(text, aspect ? FACTOR_MOST : PSTI_BUCKETS, &word, &k))
        return wrong(text, aspect ? "K is 1..8" : "K is 1..63", err);
    if (!aspect && k == 0)
        return wrong(text, "how many there are to be is missing", err);
    const int64_t count = psti_dataset_count(data);
    for (int64_t i = 0; how->ids && i < how->drawn; i++)
        if (how->ids[i] < 0 || how->ids[i] >= count)
            return psti_fail(err, -EINVAL, "options", NULL,
                             "entry %lld of the ids is %lld, but the dataset has samples 0..%lld",
                             (long long)i, (long long)how->ids[i], (long long)count - 1);
    int32_t *buckets = psti_calloc(PSTI_MEM_ENGINE, (size_t)count + 1, sizeof *buckets);
    if (!buckets)
        return psti_fail(err, -ENOMEM, "options", NULL, "out of memory for buckets");
    const int rc = aspect ? by_aspect(data, how, text, k, buckets, err)
                          : by_number(data, how, text, word, k, buckets, err);
    if (rc < 0)
        psti_free(buckets);
    else
        *out = buckets;
    return rc;
}
