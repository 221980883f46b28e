/* SPDX-License-Identifier: Apache-2.0
 * A built dataset (tar, manifest) in a remembered listing. One function walks over everything that
 * is stored, for both directions, so that they cannot drift apart; what was read is checked before
 * it is believed. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "source/far.h"
#include "source/index.h"

/* Either a writer or bytes to read from. */
typedef struct pack {
    psti_index_writer *w;
    const uint8_t *p;
    size_t left;
    bool bad;
} pack;

static void put(pack *k, void *bytes, size_t len)
{
    if (k->w) {
        psti_index_put(k->w, bytes, len);
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
    if (k->w) {
        memcpy(&memory, array, sizeof memory);
        psti_index_put(k->w, memory, count * size);
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
    uint64_t len = k->w ? strlen(*text) + 1 : 0;
    put(k, &len, sizeof len);
    put_array(k, text, len, 1);
    if (!k->bad && (len == 0 || (*text)[len - 1] != 0))
        k->bad = true;
}

static void put_splits(pack *k, psti_dataset *data)
{
    int32_t splits = data->splits;
    put(k, &splits, sizeof splits);
    if (!k->w && !k->bad) {
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
    for (size_t i = 0; !k->w && i < data->shards; i++) {
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
    if (k->bad || (!k->w && (count > k->left || classes > k->left))) {
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
