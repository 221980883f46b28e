/* SPDX-License-Identifier: Apache-2.0
 * Values of a sample, labels and other fields that need no decoding: finding them, checking them
 * before work is spent on the sample, and writing a finished sample into its slot. Called by
 * workers. */
#include <errno.h>
#include <string.h>

#include "sched/sched_priv.h"

static int64_t label_of(const void *value, size_t bytes)
{
    int64_t label = -1;
    if (bytes == sizeof label)
        memcpy(&label, value, sizeof label);
    return label;
}

/* A label that becomes one float per class. */
static int check_label(const psti_plan_output *out, const void *value, size_t bytes, pst_error *err)
{
    const int64_t label = label_of(value, bytes);
    if (label >= 0 && label < out->classes)
        return 0;
    return psti_fail(err, PST_EFIELD, "batch", NULL,
                     "the label %lld is none of the %lld classes that labels are blended over; "
                     "give the batch op a larger classes, or leave the sample out",
                     (long long)label, (long long)out->classes);
}

int value_check(const task *t, pst_error *err)
{
    const psti_feed *feed = t->feed;
    for (int i = 0; i < feed->outputs; i++) {
        const void *value;
        size_t bytes, want = psti_dtype_bytes(feed->out[i].dtype);
        if (output_read(feed, i))
            continue;
        if (value_of(feed, feed->out[i].input, t, &value, &bytes) < 0)
            return psti_fail(err, PST_EFIELD, "read", NULL, "the sample has no field %s",
                             feed->out[i].name);
        if (feed->out[i].classes) {
            const int rc = check_label(&feed->out[i], value, bytes, err);
            if (rc < 0)
                return rc;
            continue;
        }
        bool open = false;
        for (int d = 0; d < feed->out[i].rank; d++) {
            open |= feed->out[i].shape[d] < 0;
            want *= feed->out[i].shape[d] < 0 ? 1 : (size_t)feed->out[i].shape[d];
        }
        if (open && want && bytes % want)
            return psti_fail(err, PST_EFIELD, "read", NULL,
                             "field %s has %zu bytes, which is no multiple of %zu",
                             feed->out[i].name, bytes, want);
        if (!open && bytes != want)
            return psti_fail(err, PST_EFIELD, "read", NULL,
                             "field %s has %zu bytes where %zu were listed", feed->out[i].name,
                             bytes, want);
    }
    return 0;
}

int value_of(const psti_feed *feed, int field, const task *t, const void **value, size_t *bytes)
{
    static const int64_t no_label = -1;
    const int source = feed->spec.fields[field].source;
    const pst_field_info *info = &feed->source[source].info;
    if (fetch_value(feed, field, t, value, bytes))
        return 0;
    int rc = psti_dataset_value(feed->spec.data, t->id, source, value, bytes);
    if (rc == -EAGAIN) /* it was to come with the sample, and did not */
        rc = -ENOENT;
    if (rc == -ENOENT && info->kind == PST_LABEL && info->rank == 0 && info->dtype == PST_I64) {
        *value = &no_label;
        *bytes = sizeof no_label;
        return 0;
    }
    if (rc == -ENOENT && (info->kind == PST_TEXT || info->kind == PST_BYTES)) {
        *value = "";
        *bytes = 0;
        return 0;
    }
    return rc;
}

bool output_read(const psti_feed *feed, int output)
{
    return feed->out[output].objects ||
           feed->source[feed->spec.fields[feed->out[output].input].source].member;
}

void value_inputs(task *t)
{
    const psti_feed *feed = t->feed;
    for (int i = 0; i < feed->spec.field_count; i++) {
        const psti_feed_field *field = &feed->spec.fields[i];
        const void *value;
        size_t bytes;
        if (!feed->source[field->source].per_object && !field->hidden)
            continue;
        const int rc = value_of(feed, i, t, &value, &bytes);
        t->inputs[i] = (psti_input){rc < 0 ? NULL : bytes ? value : "", rc < 0 ? 0 : bytes, -1};
    }
}

int value_bytes(const psti_feed *feed, int output, const task *t, size_t *bytes)
{
    const void *value;
    const int rc = value_of(feed, feed->out[output].input, t, &value, bytes);
    if (rc == 0 && feed->out[output].classes)
        *bytes = (size_t)feed->out[output].classes * sizeof(float);
    return rc;
}

/* Of a field with several dimensions all but the first are as listed, and the first may be. */
void value_shape(const psti_plan_output *out, size_t bytes, int64_t *shape)
{
    size_t each = psti_dtype_bytes(out->dtype);
    for (int d = 1; d < out->rank; d++) {
        shape[d] = out->shape[d];
        each *= (size_t)out->shape[d];
    }
    const bool listed = out->rank > 1 && out->shape[0] >= 0;
    shape[0] = listed ? out->shape[0] : (int64_t)(bytes / (each ? each : 1));
}

void value_write(const psti_feed *feed, int output, const task *t, uint8_t *dst)
{
    const float one = 1;
    const size_t classes = (size_t)feed->out[output].classes;
    const void *value;
    size_t bytes;
    if (value_of(feed, feed->out[output].input, t, &value, &bytes) < 0)
        return;
    if (classes) {
        memset(dst, 0, classes * sizeof one);
        memcpy(dst + (size_t)label_of(value, bytes) * sizeof one, &one, sizeof one);
    } else if (bytes) {
        memcpy(dst, value, bytes);
    }
}

void write_outputs(const psti_feed *feed, const task *t, worker *w, pst_batch *block, int slot)
{
    const double clock = worker_begin(w);
    for (int i = 0; i < feed->outputs; i++) {
        uint8_t *dst = block_slot(block, &feed->layout, i, slot);
        if (output_read(feed, i))
            psti_work_finish(w->work, &w->kit, i, dst);
        else
            value_write(feed, i, t, dst);
    }
    worker_end(w, clock);
}
