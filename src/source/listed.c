/* SPDX-License-Identifier: Apache-2.0
 * See listed.h. Called by dataset.c and member.c from any thread. */
#include "source/listed.h"

#include <errno.h>
#include <string.h>

#include "core/memory.h"

int psti_listed_make_room(psti_listed *listed)
{
    const size_t count = (size_t)listed->paths.count;
    psti_paths_trim(&listed->paths);
    listed->length = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *listed->length);
    return listed->length ? 0 : -ENOMEM;
}

void psti_listed_free(psti_listed *listed, int64_t count)
{
    if (!listed)
        return;
    for (int64_t i = 0; listed->shown && i < count; i++)
        psti_free(listed->shown[i]);
    psti_free(listed->shown);
    psti_free(listed->run);
    psti_free(listed->labels);
    psti_free(listed->version);
    psti_free(listed->length);
    psti_paths_fini(&listed->paths);
    psti_free(listed);
}

/* Keys that were shown are left out: a few. */
uint64_t psti_listed_bytes(const psti_listed *listed, int64_t count)
{
    const size_t each = sizeof *listed->length + (listed->version ? sizeof *listed->version : 0) +
                        (listed->labels ? sizeof *listed->labels : 0);
    return sizeof *listed + psti_paths_bytes(&listed->paths) +
           listed->run_cap * sizeof *listed->run + (uint64_t)count * each;
}

/* ---- labels ---------------------------------------------------------------------------------- */

int psti_listed_add_label(psti_listed *listed, int64_t id, int64_t label)
{
    if (listed->runs && listed->run[listed->runs - 1].label == label)
        return 0;
    if (psti_grow(&listed->run, &listed->run_cap, listed->runs + 1, sizeof *listed->run))
        return -ENOMEM;
    listed->run[listed->runs++] = (psti_run){id, label};
    return 0;
}

/* NULL when memory is short. */
static int64_t *write_out(const psti_listed *listed, int64_t count)
{
    int64_t *labels = psti_malloc(PSTI_MEM_SOURCE, (size_t)count * sizeof *labels);
    size_t run = 0;
    for (int64_t id = 0; labels && id < count; id++) {
        if (run + 1 < listed->runs && listed->run[run + 1].first == id)
            run++;
        labels[id] = listed->run[run].label;
    }
    return labels;
}

int psti_listed_settle_labels(psti_listed *listed, int64_t count)
{
    if (listed->runs < (size_t)count / 4) {
        psti_run *fit =
            psti_realloc(PSTI_MEM_SOURCE, listed->run, listed->runs, sizeof *listed->run);
        listed->run_cap = fit ? listed->runs : listed->run_cap;
        listed->run = fit ? fit : listed->run;
        return 0;
    }
    listed->labels = write_out(listed, count);
    if (!listed->labels)
        return -ENOMEM;
    psti_free(listed->run);
    listed->run = NULL;
    listed->runs = listed->run_cap = 0;
    return 0;
}

const int64_t *psti_listed_label(const psti_listed *listed, int64_t id)
{
    const int64_t *labels = listed->labels;
    if (labels)
        return &labels[id];
    size_t low = 0, high = listed->runs; /* run[low] begins at id or before, run[high] after it */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (listed->run[middle].first <= id)
            low = middle;
        else
            high = middle;
    }
    return &listed->run[low].label;
}

const int64_t *psti_listed_labels_locked(psti_dataset *data)
{
    psti_listed *listed = data->listed;
    if (!listed->labels && listed->runs)
        listed->labels = write_out(listed, data->count);
    return listed->labels;
}

/* ---- files ----------------------------------------------------------------------------------- */

uint64_t psti_stamp_version(const psti_stamp *stamp)
{
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_u64(&h, (uint64_t)stamp->mtime_ns);
    psti_hash_u64(&h, stamp->inode);
    psti_hash_u64(&h, stamp->size);
    const uint64_t version = psti_hash_final(&h).lo;
    return version ? version : 1;
}

bool psti_listed_seen_locked(const psti_dataset *data, int64_t id)
{
    const psti_listed *l = data->listed;
    return l->length[id] && (!l->version || l->version[id]);
}

uint64_t psti_listed_length_locked(const psti_dataset *data, int64_t id)
{
    const uint32_t kept = data->listed->length[id];
    return kept ? kept - 1 : 0;
}

const char *psti_listed_show_locked(psti_dataset *data, int64_t id)
{
    psti_listed *l = data->listed;
    if (!l->shown)
        l->shown = psti_calloc(PSTI_MEM_SOURCE, (size_t)data->count, sizeof *l->shown);
    if (l->shown && !l->shown[id]) {
        char room[PSTI_PATH_ROOM];
        psti_paths_get(&l->paths, id, room);
        l->shown[id] = psti_strdup(PSTI_MEM_SOURCE, room);
    }
    return l->shown ? l->shown[id] : NULL;
}

psti_id128 psti_listed_identity_locked(const psti_dataset *data, int64_t id)
{
    char key[PSTI_PATH_ROOM];
    const size_t len = psti_paths_get(&data->listed->paths, id, key);
    const char *kind = psti_kind_name(data->kind);
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_text(&h, kind, strlen(kind));
    psti_hash_text(&h, key, len);
    psti_hash_u64(&h, psti_listed_length_locked(data, id));
    psti_hash_u64(&h, data->listed->version ? data->listed->version[id] : 0);
    return psti_hash_final(&h);
}

int psti_listed_extent_locked(const psti_dataset *data, int64_t id, psti_extent *out)
{
    const psti_listed *l = data->listed;
    if (!psti_listed_seen_locked(data, id))
        return -EAGAIN;
    const uint64_t length = psti_listed_length_locked(data, id);
    *out = (psti_extent){.root = data->root,
                         .list = &l->paths,
                         .number = id,
                         .shard_fd = -1,
                         .length = length,
                         .file_size = length,
                         .version = l->version ? l->version[id] : 0};
    return 0;
}

int psti_listed_stamp(const psti_dataset *data, int64_t id, psti_stamp *out)
{
    char path[PSTI_PATH_ROOM];
    psti_paths_get(&data->listed->paths, id, path);
    return psti_stamp_anywhere(data->root, path, out);
}

int psti_listed_take_locked(psti_dataset *data, int64_t id, const psti_stamp *now)
{
    psti_listed *l = data->listed;
    if (now->size >= UINT32_MAX)
        return -EFBIG;
    const uint64_t version = l->version ? psti_stamp_version(now) : 0;
    const bool same = psti_listed_seen_locked(data, id) && l->length[id] == now->size + 1 &&
                      (!l->version || l->version[id] == version);
    l->length[id] = (uint32_t)now->size + 1;
    if (l->version)
        l->version[id] = version;
    return !same;
}
