/* SPDX-License-Identifier: Apache-2.0
 * The dataset object: building blocks for the readers of each kind, reference count, and what
 * others ask of it. Accessors are called from any thread; see the struct's comment for what needs
 * the lock. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/custom.h"
#include "source/far.h"
#include "source/listed.h"
#include "source/source_priv.h"

const char *psti_kind_name(psti_source_kind kind)
{
    static const char *const names[] = {
        [PSTI_KIND_FOLDER] = "folder",     [PSTI_KIND_TAR] = "tar",
        [PSTI_KIND_MANIFEST] = "manifest", [PSTI_KIND_FILE] = "file",
        [PSTI_KIND_CUSTOM] = "custom",     [PSTI_KIND_FILES] = "files",
        [PSTI_KIND_COCO] = "coco"};
    return names[kind];
}

psti_dataset *psti_dataset_new(psti_source_kind kind, const char *path, const char *root_path,
                               int root)
{
    psti_dataset *data = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *data);
    if (!data) {
        if (root >= 0)
            close(root);
        return NULL;
    }
    atomic_init(&data->refs, 1);
    data->pid = getpid();
    data->kind = kind;
    data->root = root;
    data->set = -1;
    data->label = -1;
    pthread_mutex_init(&data->lock, NULL);
    psti_fork_guard_add(&data->forks, &data->lock, NULL, NULL);
    data->path = psti_strdup(PSTI_MEM_SOURCE, path);
    data->root_path = psti_strdup(PSTI_MEM_SOURCE, root_path);
    if (!data->path || !data->root_path) {
        psti_dataset_unref(data);
        return NULL;
    }
    return data;
}

psti_dataset *psti_dataset_begin(psti_opening *o, psti_source_kind kind)
{
    psti_dataset *data = psti_dataset_new(kind, o->real, o->root_path, o->root);
    o->root = -1;
    if (data && o->tree) { /* places of etags stay what they are */
        data->names = o->tree->etags;
        o->tree->etags = (psti_strings){0};
        o->etags = &data->names;
    }
    return data;
}

psti_dataset *psti_dataset_ref(psti_dataset *data)
{
    atomic_fetch_add_explicit(&data->refs, 1, memory_order_relaxed);
    return data;
}

static void free_shards(psti_dataset *data)
{
    for (size_t i = 0; data->shard && i < data->shards; i++)
        if (data->shard[i].fd >= 0)
            close(data->shard[i].fd);
    psti_free(data->shard);
}

void psti_dataset_unref(psti_dataset *data)
{
    if (!data || atomic_fetch_sub_explicit(&data->refs, 1, memory_order_acq_rel) != 1)
        return;
    psti_verify_stop(data);
    psti_custom_close(data->custom);
    psti_fork_guard_remove(&data->forks);
    psti_listed_free(data->listed, data->count);
    free_shards(data);
    psti_far_free(data->far);
    while (data->late) {
        psti_late_etag *late = data->late;
        data->late = late->next;
        psti_free(late);
    }
    psti_free(data->etag);
    psti_guard_free(data);
    for (int i = 0; i < data->splits; i++) {
        psti_free(data->split[i].name);
        psti_free(data->split[i].ids);
    }
    for (int i = 0; i < data->columns; i++)
        psti_column_fini(&data->column[i]);
    psti_free(data->split);
    psti_free(data->class_at);
    psti_free(data->member);
    psti_free(data->keys);
    psti_strings_free(&data->names);
    psti_free(data->index_path);
    psti_free(data->root_path);
    psti_free(data->path);
    if (data->root >= 0)
        close(data->root);
    if (data->set >= 0)
        close(data->set);
    pthread_mutex_destroy(&data->lock);
    psti_free(data);
}

/* ---- building -------------------------------------------------------------------------------- */

int psti_dataset_find_field(const psti_dataset *data, const char *name, size_t len)
{
    for (int i = 0; i < data->fields; i++) {
        const char *there = data->field[i].info.name;
        if (strncmp(there, name, len) == 0 && there[len] == 0)
            return i;
    }
    return -1;
}

int psti_dataset_add_field(psti_dataset *data, const pst_field_info *info, bool member, int slot)
{
    if (data->fields == PSTI_FIELDS_MAX)
        return PST_ELIMIT;
    data->field[data->fields] = (psti_source_field){.info = *info, .member = member};
    data->slot[data->fields] = (uint8_t)slot;
    return data->fields++;
}

int psti_dataset_make_room(psti_dataset *data, int64_t count, int members)
{
    size_t all;
    if (!psti_mul((size_t)count, (size_t)members, &all))
        return -ENOMEM;
    data->keys = psti_calloc(PSTI_MEM_SOURCE, (size_t)count, sizeof *data->keys);
    data->member = psti_calloc(PSTI_MEM_SOURCE, all, sizeof *data->member);
    if (!data->keys || !data->member)
        return -ENOMEM;
    for (size_t i = 0; i < all; i++)
        data->member[i].length = PSTI_ABSENT;
    data->count = count;
    data->members = members;
    return 0;
}

int psti_dataset_add_split(psti_dataset *data, const char *name, int64_t *ids, int64_t count,
                           pst_error *err)
{
    int rc = 0;
    for (int i = 0; i < data->splits; i++)
        if (strcmp(data->split[i].name, name) == 0)
            rc = psti_fail(err, PST_EDATASET, "list", data->path,
                           "the split '%s' is defined twice; rename or remove one", name);
    psti_split *grown = NULL;
    char *copy = NULL;
    if (!rc) {
        grown = psti_realloc(PSTI_MEM_SOURCE, data->split, (size_t)data->splits + 1, sizeof *grown);
        if (grown)
            data->split = grown;
        copy = grown ? psti_strdup(PSTI_MEM_SOURCE, name) : NULL;
        if (!copy)
            rc = psti_fail(err, -ENOMEM, "list", data->path, "out of memory");
    }
    if (rc) {
        psti_free(ids);
        return rc;
    }
    data->split[data->splits++] = (psti_split){.name = copy, .ids = ids, .count = count};
    return 0;
}

static bool someone_lacks(const psti_dataset *data, int field)
{
    const int slot = data->slot[field];
    if (data->listed)
        return false;
    if (!data->field[field].member)
        return data->column[slot].present != NULL;
    for (int64_t id = 0; id < data->count; id++)
        if (psti_member_at(data, id, slot)->length == PSTI_ABSENT)
            return true;
    return false;
}

void psti_dataset_settle(psti_dataset *data)
{
    data->key_max = 0;
    for (int64_t id = 0; !data->listed && id < data->count; id++) {
        const size_t len = strlen(psti_text_at(data, data->keys[id]));
        if (len > data->key_max)
            data->key_max = len;
    }
    if (data->listed)
        data->key_max = data->listed->paths.longest;
    for (int i = 0; i < data->fields; i++)
        data->field[i].info.optional = someone_lacks(data, i);
}

pst_field_info psti_member_info(const char *name, size_t len, pst_kind kind, const char *format)
{
    pst_field_info info = {.kind = (uint8_t)kind};
    memcpy(info.name, name, len < sizeof info.name ? len : sizeof info.name - 1);
    memcpy(info.format, format, strnlen(format, sizeof info.format - 1));
    if (kind == PST_VOLUME || kind == PST_AUDIO) {
        info.dtype = PST_F32;
        info.rank = kind == PST_VOLUME ? 4 : 1;
    } else if (kind != PST_ARRAY) {
        info.dtype = PST_U8;
        info.rank = kind == PST_IMAGE || kind == PST_MASK ? 3 : 1;
    }
    if (kind == PST_MASK && (strcmp(format, "nifti") == 0 || strcmp(format, "npz") == 0))
        info.rank = 4; /* of a volume */
    for (int i = 0; i < info.rank; i++)
        info.shape[i] = -1;
    return info;
}

pst_kind psti_format_kind(psti_format format)
{
    return psti_families[psti_family_of(format)].kind;
}

const psti_family psti_families[PSTI_FAMILIES] = {
    {"image", PST_IMAGE, PSTI_FORMAT_JPEG, PSTI_FORMAT_WEBP},
    {"npy", PST_ARRAY, PSTI_FORMAT_NPY, PSTI_FORMAT_NPY},
    {"volume", PST_VOLUME, PSTI_FORMAT_NIFTI, PSTI_FORMAT_NPZ},
    {"audio", PST_AUDIO, PSTI_FORMAT_WAV, PSTI_FORMAT_FLAC},
};

int psti_family_of(psti_format format)
{
    int i = PSTI_FAMILIES - 1;
    while (i > 0 && format < psti_families[i].first)
        i--;
    return i;
}

const char *psti_format_common(const uint64_t formats[PSTI_FORMATS], int from, int to)
{
    const char *name = NULL;
    for (int i = from; i <= to; i++)
        if (formats[i])
            name = name ? "mixed" : psti_format_by_name((psti_format)i);
    return name;
}

int psti_dataset_add_families(psti_dataset *data, const uint64_t formats[PSTI_FORMATS],
                              int slot[PSTI_FAMILIES])
{
    int slots = 0;
    for (int i = 0; i < PSTI_FAMILIES; i++) {
        const psti_family *family = &psti_families[i];
        const char *format = psti_format_common(formats, family->first, family->last);
        slot[i] = 0;
        if (!format)
            continue;
        const pst_field_info info =
            psti_member_info(family->field, strlen(family->field), family->kind, format);
        slot[i] = slots++;
        psti_dataset_add_field(data, &info, true, slot[i]);
    }
    return slots;
}

bool psti_is_mask_name(const char *name, size_t len)
{
    static const char *const words[] = {"mask", "seg", "target", "label"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == len && memcmp(words[i], name, len) == 0)
            return true;
    return false;
}

/* ---- asking ---------------------------------------------------------------------------------- */

int64_t psti_dataset_count(const psti_dataset *data)
{
    return data->count;
}

bool psti_dataset_is_far(const psti_dataset *data)
{
    return data->far != NULL;
}

const char *psti_dataset_path(const psti_dataset *data)
{
    return data->path;
}

const char *psti_dataset_url(const psti_dataset *data)
{
    return data->far ? data->path : NULL;
}

const char *psti_dataset_kind(const psti_dataset *data)
{
    return psti_kind_name(data->kind);
}

const char *psti_dataset_key(const psti_dataset *data, int64_t id)
{
    if (id < 0 || id >= data->count)
        return NULL;
    if (!data->listed)
        return psti_text_at(data, data->keys[id]);
    psti_dataset *mine = (psti_dataset *)data; /* what it keeps of this is no part of const */
    pthread_mutex_lock(&mine->lock);
    const char *key = psti_listed_show_locked(mine, id);
    pthread_mutex_unlock(&mine->lock);
    return key;
}

_Static_assert((int)PSTI_KEY_ROOM == (int)PSTI_PATH_ROOM, "both are the room of a key");

const char *psti_dataset_key_in(const psti_dataset *data, int64_t id, char *room, size_t *len)
{
    if (data->listed) {
        *len = psti_paths_get(&data->listed->paths, id, room);
        return room;
    }
    const char *key = psti_text_at(data, data->keys[id]);
    *len = strlen(key);
    return key;
}

size_t psti_dataset_key_max(const psti_dataset *data)
{
    return data->key_max;
}

int psti_dataset_fields(const psti_dataset *data, const psti_source_field **out)
{
    *out = data->field;
    return data->fields;
}

int64_t psti_dataset_classes(const psti_dataset *data)
{
    return data->classes;
}

const char *psti_dataset_class(const psti_dataset *data, int64_t label)
{
    return label >= 0 && label < data->classes ? psti_text_at(data, data->class_at[label]) : NULL;
}

const int64_t *psti_dataset_labels(psti_dataset *data)
{
    if (data->label < 0 || data->custom)
        return NULL;
    if (data->listed) {
        pthread_mutex_lock(&data->lock);
        const int64_t *labels = psti_listed_labels_locked(data);
        pthread_mutex_unlock(&data->lock);
        return labels;
    }
    const psti_column *column = &data->column[data->slot[data->label]];
    return column->type == PSTI_COL_I64 && !column->present ? column->cells : NULL;
}

int psti_dataset_splits(const psti_dataset *data)
{
    return data->splits;
}

const char *psti_dataset_split_name(const psti_dataset *data, int index)
{
    return index >= 0 && index < data->splits ? data->split[index].name : NULL;
}

int psti_dataset_split(const psti_dataset *data, const char *name, const int64_t **ids,
                       int64_t *count)
{
    if (!name || !*name) {
        *ids = NULL;
        *count = data->count;
        return 0;
    }
    for (int i = 0; i < data->splits; i++)
        if (strcmp(data->split[i].name, name) == 0) {
            *ids = data->split[i].ids;
            *count = data->split[i].count;
            return 0;
        }
    return -ENOENT;
}

uint64_t psti_dataset_bytes(const psti_dataset *data)
{
    uint64_t total = sizeof *data + data->names.cap;
    if (data->listed)
        total += psti_listed_bytes(data->listed, data->count);
    else
        total += (uint64_t)data->count *
                 (sizeof *data->keys + (uint64_t)data->members * sizeof *data->member);
    total += data->shards * sizeof *data->shard + (uint64_t)data->classes * sizeof *data->class_at;
    for (int i = 0; i < data->columns; i++)
        total += psti_column_bytes(&data->column[i], data->count);
    for (int i = 0; i < data->splits; i++)
        total += (uint64_t)data->split[i].count * sizeof(int64_t);
    if (data->custom)
        total += psti_custom_bytes(data->custom, data->fields);
    return total;
}

int psti_dataset_value(const psti_dataset *data, int64_t id, int field, const void **value,
                       size_t *bytes)
{
    if (id < 0 || id >= data->count || field < 0 || field >= data->fields ||
        data->field[field].member)
        return -EINVAL;
    if (data->custom)
        return psti_custom_value(data->custom, id, field, value, bytes);
    if (data->listed) {
        *value = psti_listed_label(data->listed, id);
        *bytes = sizeof(int64_t);
        return 0;
    }
    return psti_column_get(&data->column[data->slot[field]], id, value, bytes);
}
