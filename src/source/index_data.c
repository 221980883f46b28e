/* SPDX-License-Identifier: Apache-2.0
 * A built dataset (tar, manifest) in a remembered listing. One function walks over everything that
 * is stored, for both directions, so that they cannot drift apart; what was read is checked before
 * it is believed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"
#include "source/index.h"

/* A writer, memory that grows, or bytes to read from. */
typedef struct pack {
    psti_index_writer *w;
    psti_strings *memory;
    const uint8_t *p;
    size_t left;
    bool bad;
} pack;

static bool writes(const pack *k)
{
    return k->w || k->memory;
}

static void put_out(pack *k, const void *bytes, size_t len)
{
    if (k->w) {
        psti_index_put(k->w, bytes, len);
        return;
    }
    psti_strings *m = k->memory;
    if (!len || k->bad || psti_grow(&m->data, &m->cap, m->len + len, 1)) {
        k->bad = k->bad || len;
        return;
    }
    memcpy(m->data + m->len, bytes, len);
    m->len += len;
}

static void put(pack *k, void *bytes, size_t len)
{
    if (writes(k)) {
        put_out(k, bytes, len);
    } else if (k->bad || len > k->left) {
        k->bad = true;
    } else {
        memcpy(bytes, k->p, len);
        k->p += len;
        k->left -= len;
    }
}

/* array: address of a pointer, allocated when reading. */
static void put_array(pack *k, void *array, size_t count, size_t size)
{
    void *memory;
    size_t bytes;
    if (writes(k)) {
        memcpy(&memory, array, sizeof memory);
        put_out(k, memory, count * size);
        return;
    }
    if (k->bad || !psti_mul(count, size, &bytes) || bytes > k->left ||
        !(memory = psti_malloc(PSTI_MEM_SOURCE, bytes))) {
        k->bad = true;
        return;
    }
    memcpy(array, &memory, sizeof memory);
    put(k, memory, bytes);
}

static void put_column(pack *k, psti_column *col, int64_t count)
{
    uint64_t heap = col->heap_bytes, gaps = col->present != NULL;
    put(k, &col->type, sizeof col->type);
    put(k, &heap, sizeof heap);
    put(k, &gaps, sizeof gaps);
    if (k->bad || col->type < PSTI_COL_I64 || col->type > PSTI_COL_LAST) {
        k->bad = true;
        return;
    }
    if (gaps)
        put_array(k, &col->present, ((size_t)count + 63) / 64, 8);
    put_array(k, &col->cells, psti_column_cell_bytes(col, count), 1);
    put_array(k, &col->heap, heap, 1);
    col->heap_bytes = heap;
}

static void put_text(pack *k, char **text)
{
    uint64_t len = writes(k) ? strlen(*text) + 1 : 0;
    put(k, &len, sizeof len);
    put_array(k, text, len, 1);
    if (!k->bad && (len == 0 || (*text)[len - 1] != 0))
        k->bad = true;
}

static void put_splits(pack *k, psti_dataset *data)
{
    int32_t splits = data->splits;
    put(k, &splits, sizeof splits);
    if (!writes(k) && !k->bad) {
        data->split =
            splits >= 0 ? psti_calloc(PSTI_MEM_SOURCE, (size_t)splits, sizeof *data->split) : NULL;
        k->bad = !data->split;
    }
    if (k->bad)
        return;
    data->splits = splits;
    for (int i = 0; i < splits; i++) {
        put_text(k, &data->split[i].name);
        put(k, &data->split[i].count, sizeof data->split[i].count);
        put_array(k, &data->split[i].ids, (size_t)data->split[i].count, sizeof *data->split[i].ids);
    }
}

static void put_shards(pack *k, psti_dataset *data)
{
    uint64_t shards = data->shards;
    put(k, &shards, sizeof shards);
    if (k->bad || !shards)
        return;
    put_array(k, &data->shard, shards, sizeof *data->shard);
    data->shards = k->bad ? 0 : shards;
    for (size_t i = 0; !writes(k) && i < data->shards; i++) {
        data->shard[i].fd = -1;
        data->shard[i].tried = false;
    }
}

static void put_fields(pack *k, psti_dataset *data)
{
    int32_t numbers[4] = {data->fields, data->members, data->columns, data->label};
    put(k, numbers, sizeof numbers);
    const bool sane = numbers[0] >= 0 && numbers[0] <= PSTI_FIELDS_MAX && numbers[1] >= 0 &&
                      numbers[1] <= PSTI_FIELDS_MAX && numbers[2] >= 0 &&
                      numbers[2] <= PSTI_FIELDS_MAX && numbers[3] < numbers[0];
    k->bad |= !sane;
    if (k->bad)
        return;
    data->fields = numbers[0];
    data->members = numbers[1];
    data->label = numbers[3];
    put(k, data->field, (size_t)data->fields * sizeof *data->field);
    put(k, data->slot, (size_t)data->fields);
    for (int i = 0; i < numbers[2] && !k->bad; i++) {
        data->columns = i + 1;
        put_column(k, &data->column[i], data->count);
    }
}

static void put_dataset(pack *k, psti_dataset *data)
{
    uint64_t names = data->names.len, count = (uint64_t)data->count,
             classes = (uint64_t)data->classes;
    put(k, &data->made_from, sizeof data->made_from);
    put(k, &names, sizeof names);
    put(k, &count, sizeof count);
    put(k, &classes, sizeof classes);
    if (k->bad || (!writes(k) && (count > k->left || classes > k->left))) {
        k->bad = true;
        return;
    }
    data->count = (int64_t)count;
    data->classes = (int64_t)classes;
    put_array(k, &data->names.data, names, 1);
    data->names.len = data->names.cap = names;
    put_array(k, &data->keys, count, sizeof *data->keys);
    put_array(k, &data->class_at, classes, sizeof *data->class_at);
    put_fields(k, data);
    put_array(k, &data->member, count * (uint64_t)data->members, sizeof *data->member);
    put_shards(k, data);
    put_splits(k, data);
}

void psti_index_save_data(const psti_opening *o, psti_dataset *data)
{
    if (!o->index_path)
        return;
    psti_index_writer w;
    psti_index_begin(&w, o, data->kind);
    pack k = {.w = &w};
    put_text(&k, &data->root_path);
    put_dataset(&k, data);
    psti_index_end(&w);
}

/* ---- checking what was read ------------------------------------------------------------------ */

static bool offsets_ok(const psti_dataset *data, const uint64_t *at, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (at[i] >= data->names.len)
            return false;
    return true;
}

static bool members_ok(const psti_dataset *data, bool far)
{
    const uint64_t limit = data->shard ? data->shards : data->names.len;
    const size_t count = (size_t)data->count * (size_t)data->members;
    for (size_t i = 0; i < count; i++)
        if (data->member[i].length != PSTI_ABSENT && data->member[i].place >= limit)
            return false;
    for (size_t i = 0; i < data->shards; i++)
        if (data->shard[i].path >= data->names.len ||
            (far && data->shard[i].stamp.inode >= PSTI_ETAG_UNSEEN &&
             (data->shard[i].stamp.inode != PSTI_ETAG_TEXT ||
              (uint64_t)data->shard[i].stamp.mtime_ns >= data->names.len)))
            return false;
    return true;
}

static bool column_ok(const psti_column *col, int64_t count)
{
    if (col->type < PSTI_COL_TEXT)
        return true;
    const uint64_t *at = col->cells;
    for (int64_t i = 0; i < count; i++)
        if (at[i] > at[i + 1])
            return false;
    return at[count] <= col->heap_bytes;
}

static bool fields_ok(const psti_dataset *data)
{
    for (int i = 0; i < data->fields; i++) {
        const int limit = data->field[i].member ? data->members : data->columns;
        const pst_field_info *info = &data->field[i].info;
        if (data->slot[i] >= limit || info->rank > PST_MAX_RANK ||
            !memchr(info->name, 0, sizeof info->name) ||
            !memchr(info->format, 0, sizeof info->format))
            return false;
    }
    for (int i = 0; i < data->columns; i++)
        if (!column_ok(&data->column[i], data->count))
            return false;
    return data->label < 0 || (!data->field[data->label].member &&
                               data->column[data->slot[data->label]].type == PSTI_COL_I64);
}

static bool splits_ok(const psti_dataset *data)
{
    for (int i = 0; i < data->splits; i++)
        for (int64_t k = 0; k < data->split[i].count; k++)
            if (data->split[i].ids[k] < 0 || data->split[i].ids[k] >= data->count)
                return false;
    return true;
}

static bool dataset_ok(const psti_dataset *data, bool far)
{
    return data->count > 0 && data->names.len && data->names.data[data->names.len - 1] == 0 &&
           offsets_ok(data, data->keys, (uint64_t)data->count) &&
           offsets_ok(data, data->class_at, (uint64_t)data->classes) && members_ok(data, far) &&
           fields_ok(data) && splits_ok(data);
}

/* The root that was remembered: the one that is open, or one beneath it that a manifest names. */
static int open_root(const psti_opening *o, const char *root_path)
{
    const size_t len = strlen(o->root_path);
    if (strcmp(root_path, o->root_path) == 0)
        return fcntl(o->root, F_DUPFD_CLOEXEC, 0);
    if (strncmp(root_path, o->root_path, len) != 0 || root_path[len] != '/')
        return -1;
    return psti_open_beneath(o->root, root_path + len + 1, O_PATH | O_DIRECTORY, false);
}

psti_dataset *psti_index_load_data(const psti_index *index, const psti_opening *o)
{
    pack k = {.p = index->body + index->at, .left = index->header.body_bytes - index->at};
    char *root_path = NULL;
    put_text(&k, &root_path);
    const bool far = o->far && !k.bad && strcmp(root_path, o->root_path) == 0;
    const int root = k.bad || o->far ? -1 : open_root(o, root_path);
    psti_dataset *data = root < 0 && !far ? NULL
                                          : psti_dataset_new((psti_source_kind)index->header.kind,
                                                             o->real, root_path, root);
    psti_free(root_path);
    if (!data)
        return NULL;
    put_dataset(&k, data);
    if (k.bad || k.left || !dataset_ok(data, far)) {
        psti_dataset_unref(data);
        return NULL;
    }
    psti_dataset_settle(data);
    return data;
}

/* ---- for another process ----------------------------------------------------------------------
 */

/* What stands before the dataset; the same layout on both sides, or nothing is believed. */
typedef struct wire_head {
    uint32_t layout, kind;
    uint64_t revision[2];
    uint64_t etags; /* of pulled files, for their identities alone; UINT64_MAX = none */
    uint8_t far, reserved[7];
} wire_head;

static void put_etags(pack *k, psti_dataset *data, uint64_t count)
{
    if (count == UINT64_MAX)
        return;
    put_array(k, &data->etag, count, sizeof *data->etag);
    for (uint64_t i = 0; !writes(k) && !k->bad && i < count; i++)
        k->bad = data->etag[i].b == PSTI_ETAG_TEXT ? data->etag[i].a >= data->names.len
                                                   : data->etag[i].b >= PSTI_ETAG_UNSEEN;
}

static uint64_t etag_count(const psti_dataset *data)
{
    return data->shard ? data->shards : (uint64_t)data->count * (uint64_t)data->members;
}

/* Etags that came late lie in memory of their own. */
static bool has_late(const psti_dataset *data)
{
    const size_t count = (size_t)data->count * (size_t)data->members;
    for (size_t i = 0; data->far && !data->shard && i < count; i++)
        if (data->member[i].length != PSTI_ABSENT && data->member[i].inode >= PSTI_ETAG_UNSEEN &&
            data->member[i].inode != PSTI_ETAG_TEXT)
            return true;
    return false;
}

int psti_dataset_pack(psti_dataset *data, uint8_t **bytes, size_t *size)
{
    if (data->kind == PSTI_KIND_CUSTOM || data->kind == PSTI_KIND_FILES || has_late(data))
        return -ENOTSUP;
    const psti_id128 revision = psti_dataset_revision(data);
    wire_head head = {.layout = psti_index_layout(),
                      .kind = data->kind,
                      .revision = {revision.lo, revision.hi},
                      .etags = data->etag ? etag_count(data) : UINT64_MAX,
                      .far = data->far != NULL};
    psti_strings memory = {0};
    pack k = {.memory = &memory};
    char *prefix = data->far ? data->far->prefix : (char *)"";
    put(&k, &head, sizeof head);
    put_text(&k, &data->path);
    put_text(&k, &prefix);
    put_dataset(&k, data);
    put_etags(&k, data, head.etags);
    if (k.bad) {
        psti_strings_free(&memory);
        return -ENOMEM;
    }
    *bytes = (uint8_t *)memory.data;
    *size = memory.len;
    return 0;
}

/* The bucket as this process may ask it, which need not be at all. */
static bool place_far(psti_dataset *data, const char *url, const char *prefix, pst_error *err)
{
    psti_bucket *bucket;
    char *rest;
    if (psti_bucket_open(url, &bucket, &rest, err) < 0)
        return false;
    psti_free(rest);
    data->far = psti_far_new(bucket, prefix, strlen(prefix), psti_bucket_lists(bucket));
    psti_bucket_unref(bucket);
    return data->far != NULL;
}

static bool members_far_ok(const psti_dataset *data)
{
    const size_t count = (size_t)data->count * (size_t)data->members;
    for (size_t i = 0; !data->shard && i < count; i++) {
        const psti_member *m = &data->member[i];
        if (m->length != PSTI_ABSENT && m->inode >= PSTI_ETAG_UNSEEN &&
            (m->inode != PSTI_ETAG_TEXT || (uint64_t)m->mtime_ns >= data->names.len))
            return false;
    }
    return true;
}

/* Fills a dataset that is to be let go where this fails. */
static int unpack_into(pack *k, const wire_head *head, const char *url, const char *prefix,
                       const psti_folder *at, psti_dataset *data, pst_error *err)
{
    put_dataset(k, data);
    if (!k->bad)
        put_etags(k, data, head->etags);
    if (k->bad || k->left || !dataset_ok(data, head->far) ||
        (head->etags != UINT64_MAX && head->etags != etag_count(data)) ||
        (head->far && !members_far_ok(data)))
        return psti_fail(err, -EPROTO, "list", at->path, "the engine's listing is none");
    if (head->far && !place_far(data, url, prefix, err))
        return err && err->code ? err->code : -ENOMEM;
    data->set = fcntl(at->set, F_DUPFD_CLOEXEC, 0);
    strncpy(data->set_revision, at->revision, sizeof data->set_revision - 1);
    data->revision = (psti_id128){head->revision[0], head->revision[1]};
    data->revision_known = true;
    psti_dataset_settle(data);
    return data->set < 0 ? psti_fail(err, -EMFILE, "list", at->path, "no descriptor is left") : 0;
}

int psti_dataset_unpack(const uint8_t *bytes, size_t size, const psti_folder *at,
                        psti_dataset **out, pst_error *err)
{
    wire_head head = {0};
    pack k = {.p = bytes, .left = size};
    char *url = NULL, *prefix = NULL, below[PST_REVISION_BYTES + 8], path[2 * PSTI_KEY_MAX];
    put(&k, &head, sizeof head);
    if (!k.bad && (head.layout != psti_index_layout() || head.kind < PSTI_KIND_FOLDER ||
                   head.kind > PSTI_KIND_COCO || head.far > 1))
        k.bad = true;
    put_text(&k, &url);
    if (!k.bad)
        put_text(&k, &prefix);
    psti_dataset *data = NULL;
    int rc = k.bad ? psti_fail(err, -EPROTO, "list", at->path, "the engine's listing is none") : 0;
    if (rc == 0) {
        snprintf(below, sizeof below, "%.32s/data", at->revision);
        snprintf(path, sizeof path, "%s/%s", at->path, below);
        const int root = head.far ? -1 : openat(at->set, below, O_PATH | O_DIRECTORY | O_CLOEXEC);
        data = psti_dataset_new((psti_source_kind)head.kind, head.far ? url : path,
                                head.far ? url : path, root);
        rc = data ? unpack_into(&k, &head, url, prefix, at, data, err)
                  : psti_fail(err, -ENOMEM, "list", at->path, "out of memory");
    }
    psti_free(url);
    psti_free(prefix);
    if (rc < 0)
        psti_dataset_unref(data);
    else
        *out = data;
    return rc;
}

int psti_dataset_folder(const psti_dataset *data, psti_folder *out)
{
    if (data->set < 0)
        return -ENOENT;
    *out = (psti_folder){fcntl(data->set, F_DUPFD_CLOEXEC, 0), data->path, data->set_revision};
    return out->set < 0 ? -errno : 0;
}

bool psti_dataset_is_here(const psti_dataset *data)
{
    return data->set < 0 || data->root >= 0;
}

void psti_dataset_know_field(psti_dataset *data, int field, const pst_field_info *info)
{
    psti_dataset_revision(data);
    data->field[field].info = *info;
}

void psti_dataset_keep_apart(psti_dataset *data, const char *name)
{
    data->apart = psti_hash_bytes(name, strlen(name));
}
