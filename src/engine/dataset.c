/* SPDX-License-Identifier: Apache-2.0
 * The public face of datasets, and of header facts. Thin: the work is in the source and codec
 * rooms. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "engine/arrays.h"
#include "engine/engine_priv.h"

void pst_dataset_options_init(pst_dataset_options *opts)
{
    memset(opts, 0, sizeof *opts);
    opts->size = sizeof *opts;
}

int pst_dataset_open(const char *path, const pst_dataset_options *opts, pst_dataset **out,
                     pst_error *err)
{
    pst_dataset_options o;
    pst_dataset_options_init(&o);
    if (opts && opts->size != sizeof o)
        return psti_fail(err, -EINVAL, "dataset", path,
                         "options of another version; call pst_dataset_options_init");
    if (opts)
        o = *opts;
    if (o.threads < 0 || o.threads > 256)
        return psti_fail(err, -EINVAL, "dataset", path, "threads must be 0..256, not %d",
                         o.threads);
    pst_dataset *data = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *data);
    if (!data)
        return psti_fail(err, -ENOMEM, "dataset", path, "out of memory");
    const int rc = pulled_open(path, &o, &data->data, err);
    if (rc < 0) {
        psti_free(data);
        return rc;
    }
    *out = data;
    return 0;
}

int pst_dataset_custom(const pst_custom *spec, pst_dataset **out, pst_error *err)
{
    pst_dataset *data = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *data);
    if (!data)
        return psti_fail(err, -ENOMEM, "dataset", NULL, "out of memory");
    const int rc = psti_dataset_custom(spec, &data->data, err);
    if (rc < 0) {
        psti_free(data);
        return rc;
    }
    *out = data;
    return 0;
}

int psti_dataset_wrap(psti_dataset *inner, pst_dataset **out, pst_error *err)
{
    pst_dataset *data = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *data);
    if (!data) {
        psti_dataset_unref(inner);
        return psti_fail(err, -ENOMEM, "dataset", NULL, "out of memory");
    }
    data->data = inner;
    *out = data;
    return 0;
}

psti_dataset *psti_dataset_unwrap(const pst_dataset *data)
{
    return data->data;
}

void pst_files_init(pst_files *spec)
{
    memset(spec, 0, sizeof *spec);
    spec->size = sizeof *spec;
}

int pst_dataset_files(const pst_files *spec, pst_dataset **out, pst_error *err)
{
    pst_dataset *data = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *data);
    if (!data)
        return psti_fail(err, -ENOMEM, "dataset", NULL, "out of memory");
    const int rc = psti_dataset_files(spec, &data->data, err);
    if (rc < 0) {
        psti_free(data);
        return rc;
    }
    *out = data;
    return 0;
}

int pst_dataset_files_same(const pst_dataset *data, const pst_files *spec, pst_error *err)
{
    return psti_dataset_files_same(data->data, spec, err);
}

void pst_dataset_close(pst_dataset *data)
{
    if (!data)
        return;
    psti_dataset_unref(data->data);
    psti_free(data);
}

int64_t pst_dataset_count(const pst_dataset *data)
{
    return psti_dataset_count(data->data);
}

const char *pst_dataset_kind(const pst_dataset *data)
{
    return psti_dataset_kind(data->data);
}

int pst_dataset_field_count(const pst_dataset *data)
{
    const psti_source_field *fields;
    return psti_dataset_fields(data->data, &fields);
}

int pst_dataset_field(const pst_dataset *data, int index, pst_field_info *out)
{
    const psti_source_field *fields;
    if (index < 0 || index >= psti_dataset_fields(data->data, &fields))
        return -ENOENT;
    *out = fields[index].info;
    if (fields[index].member)
        arrays_look(data->data, index, out);
    return 0;
}

static int find_field(const psti_dataset *data, const char *name)
{
    const psti_source_field *fields;
    const int count = psti_dataset_fields(data, &fields);
    for (int i = 0; i < count; i++)
        if (strcmp(fields[i].info.name, name) == 0)
            return i;
    return -ENOENT;
}

int pst_dataset_sample(const pst_dataset *data, int64_t id, pst_sample_info *out)
{
    if (id < 0 || id >= psti_dataset_count(data->data))
        return -ENOENT;
    out->key = psti_dataset_key(data->data, id);
    if (!out->key || psti_dataset_keep_versions(data->data) < 0)
        return -ENOMEM;
    psti_dataset_look(data->data, id); /* of a file that is missing: 0 bytes */
    psti_id128_store(psti_dataset_identity(data->data, id), out->identity);
    out->bytes = psti_dataset_sample_bytes(data->data, id);
    out->label = -1;
    const void *value;
    size_t bytes;
    const int label = find_field(data->data, "label");
    if (label >= 0 && psti_dataset_value(data->data, id, label, &value, &bytes) == 0 &&
        bytes == sizeof(int64_t))
        memcpy(&out->label, value, sizeof out->label);
    return 0;
}

const char *pst_dataset_class(const pst_dataset *data, int64_t label)
{
    return psti_dataset_class(data->data, label);
}

int64_t pst_dataset_class_count(const pst_dataset *data)
{
    return psti_dataset_classes(data->data);
}

const int64_t *pst_dataset_labels(const pst_dataset *data)
{
    return psti_dataset_labels(data->data);
}

int pst_dataset_labels_of(const pst_dataset *data, const int64_t *ids, int64_t count, int64_t *out)
{
    const int field = find_field(data->data, "label");
    for (int64_t i = 0; i < count; i++) {
        const void *value;
        size_t bytes;
        if (field < 0 || psti_dataset_value(data->data, ids[i], field, &value, &bytes) < 0 ||
            bytes != sizeof *out)
            return -ENOENT;
        memcpy(&out[i], value, sizeof *out);
    }
    return 0;
}

int pst_dataset_split_count(const pst_dataset *data)
{
    return psti_dataset_splits(data->data);
}

const char *pst_dataset_split_name(const pst_dataset *data, int index)
{
    return psti_dataset_split_name(data->data, index);
}

int pst_dataset_split(const pst_dataset *data, const char *name, const int64_t **ids,
                      int64_t *count)
{
    return psti_dataset_split(data->data, name, ids, count);
}

void pst_dataset_revision(const pst_dataset *data, uint8_t out[16])
{
    psti_id128_store(psti_dataset_revision(data->data), out);
}

/* The bytes become the caller's, who frees them with pst_free. */
static int read_member(psti_dataset *data, int64_t id, int field, void **out, size_t *bytes)
{
    psti_extent at;
    int rc = psti_dataset_look(data, id);
    if (rc == 0)
        rc = psti_dataset_extent(data, id, field, &at);
    if (rc < 0)
        return rc;
    if (at.length > SIZE_MAX / 2)
        return PST_ELIMIT;
    uint8_t *buf = psti_malloc(PSTI_MEM_ENGINE, at.length ? at.length : 1);
    if (!buf)
        return -ENOMEM;
    rc = psti_dataset_read_now(data, id, field, at.length, buf);
    if (rc < 0) {
        psti_free(buf);
        return rc;
    }
    *out = buf;
    *bytes = at.length;
    return 0;
}

static int copy_out(const void *value, size_t size, void **out, size_t *bytes)
{
    *out = psti_malloc(PSTI_MEM_ENGINE, size ? size : 1);
    if (!*out)
        return -ENOMEM;
    memcpy(*out, value, size);
    *bytes = size;
    return 0;
}

/* One field of a sample that the caller's function fetches, in this thread. */
static int fetch_field(psti_dataset *data, int64_t id, int field, void **out, size_t *bytes,
                       pst_error *err)
{
    psti_fetch *fetch = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *fetch);
    if (!fetch)
        return psti_fail(err, -ENOMEM, "read", NULL, "out of memory");
    fetch->id = id;
    int rc = psti_fetch_now(data, fetch);
    const psti_part *part = &fetch->sink.part[field];
    if (rc < 0 && err)
        *err = fetch->sink.error;
    else if (rc == 0 && !part->there)
        rc = psti_fail(err, -ENOENT, "read", NULL, "the sample has no such field");
    else if (rc == 0 && (rc = copy_out(part->bytes, part->size, out, bytes)) < 0)
        psti_fail(err, rc, "read", NULL, "out of memory");
    if (rc < 0 && err) {
        err->id = id;
        char room[PSTI_KEY_ROOM];
        size_t len;
        psti_error_key(err, psti_dataset_key_in(data, id, room, &len));
    }
    psti_fetch_clear(fetch);
    psti_free(fetch);
    return rc;
}

int pst_dataset_read(const pst_dataset *data, int64_t id, const char *field, void **out,
                     size_t *bytes, pst_error *err)
{
    if (id < 0 || id >= psti_dataset_count(data->data))
        return psti_fail(err, -ENOENT, "read", NULL, "there is no sample %lld", (long long)id);
    char room[PSTI_KEY_ROOM];
    size_t len;
    const char *key = psti_dataset_key_in(data->data, id, room, &len);
    const int index = find_field(data->data, field);
    const psti_source_field *fields;
    psti_dataset_fields(data->data, &fields);
    if (index < 0)
        return psti_fail(err, PST_EFIELD, "read", key, "the dataset has no field %s", field);
    if (psti_dataset_fetches(data->data))
        return fetch_field(data->data, id, index, out, bytes, err);
    int rc;
    if (fields[index].member) {
        rc = read_member(data->data, id, index, out, bytes);
    } else {
        const void *value;
        size_t size;
        rc = psti_dataset_value(data->data, id, index, &value, &size);
        if (rc == 0)
            rc = copy_out(value, size, out, bytes);
    }
    return rc < 0 ? psti_fail(err, rc, "read", key, "field %s: %s", field, pst_strerror(rc)) : 0;
}

void pst_free(void *memory)
{
    psti_free(memory);
}

static int probe_npy(const void *bytes, size_t size, pst_probe *out, pst_error *err)
{
    psti_field field;
    const int rc = psti_npy_parse(bytes, size, &field, err);
    if (rc < 0)
        return rc;
    out->height = field.rank > 0 ? field.shape[0] : 1;
    out->width = field.rank > 1 ? field.shape[1] : 1;
    out->channels = field.rank > 2 ? (int)field.shape[2] : 1;
    out->bits = (int)psti_dtype_bytes(field.dtype) * 8;
    snprintf(out->detail, sizeof out->detail, "%s, rank %d", psti_dtype_name(field.dtype),
             field.rank);
    return 0;
}

int pst_probe_bytes(const void *bytes, size_t size, pst_probe *out, pst_error *err)
{
    memset(out, 0, sizeof *out);
    const psti_format format = psti_format_sniff(bytes, size);
    snprintf(out->format, sizeof out->format, "%s", psti_format_name(format));
    if (format == PSTI_FORMAT_NPY)
        return probe_npy(bytes, size, out, err);
    psti_decoder *dec = psti_decoder_new();
    if (!dec)
        return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory");
    const bool wave = format == PSTI_FORMAT_WAV || format == PSTI_FORMAT_FLAC;
    const bool volume = format == PSTI_FORMAT_NIFTI || format == PSTI_FORMAT_NPZ;
    const psti_decode_options opts = {.kind = wave     ? PST_AUDIO
                                              : volume ? PST_VOLUME
                                                       : PST_IMAGE,
                                      .color = PSTI_COLOR_KEEP,
                                      .limits = psti_limits_default,
                                      .axes = wave     ? PSTI_AXES_WAVE
                                              : volume ? PSTI_AXES_VOLUME
                                                       : PSTI_AXES_PICTURE};
    psti_picture picture;
    const int rc = psti_decoder_begin(dec, bytes, size, &opts, &picture, err);
    if (rc == 0) {
        out->height = picture.rows;
        out->width = picture.cols;
        out->channels = picture.stored_channels;
        out->bits = picture.bits;
        if (volume)
            snprintf(out->detail, sizeof out->detail, "%.40s, %d planes", picture.detail,
                     (int)picture.depth);
        else
            snprintf(out->detail, sizeof out->detail, "%s", picture.detail);
        psti_decoder_end(dec);
    }
    psti_decoder_free(dec);
    return rc;
}
