/* SPDX-License-Identifier: Apache-2.0
 * Files whose bytes somebody knows: of a dataset that was pulled from a bucket. A whole file is
 * compared with its checksum by whoever reads it, a part (a member of a shard, a piece of an array)
 * with those of its blocks by the reader, and a file that is gone or damaged is brought again. Set
 * while the dataset is opened; asked by workers. */
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/pool.h"
#include "source/source_priv.h"

/* Of a file whose checksum is not known, and of one in four billion others. */
enum { UNKNOWN = 0 };
enum { MENDS_MOST = 3 };

bool psti_is_listing_file(const char *path)
{
    static const char *const exts[] = {"json", "jsonl", "ndjson", "tsv", "txt"};
    for (size_t i = 0; i < sizeof exts / sizeof *exts; i++)
        if (psti_has_ext(path, strlen(path), exts[i]))
            return true;
    return false;
}

static void guard_shards(psti_dataset *data)
{
    uint32_t crc;
    for (size_t i = 0; i < data->shards; i++) {
        psti_shard *s = &data->shard[i];
        const char *path = psti_text_at(data, s->path);
        data->guard->sum(data->guard_user, path, s->stamp.size, &crc); /* it is there */
        if (data->guard->first(data->guard_user, path, s->stamp.size, &s->first_block) < 0)
            s->first_block = UINT64_MAX;
        else
            data->guarded = true;
    }
}

/* Arrays alone are ever read in parts. */
static bool has_arrays(const psti_dataset *data)
{
    for (int i = 0; i < data->fields; i++)
        if (data->field[i].member && strcmp(data->field[i].info.format, "npy") == 0)
            return true;
    return false;
}

static int guard_files(psti_dataset *data)
{
    const size_t count = (size_t)data->count * (size_t)data->members;
    uint32_t crc;
    data->sums = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *data->sums);
    if (has_arrays(data))
        data->first_block = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *data->first_block);
    if (!data->sums || (has_arrays(data) && !data->first_block))
        return -ENOMEM;
    data->guarded = true;
    for (size_t i = 0; i < count; i++) {
        const psti_member *m = &data->member[i];
        if (data->first_block)
            data->first_block[i] = UINT64_MAX;
        if (m->length == PSTI_ABSENT)
            continue;
        const char *path = psti_text_at(data, m->place);
        if (data->guard->sum(data->guard_user, path, m->length, &crc) == 0)
            data->sums[i] = crc;
        if (data->first_block &&
            data->guard->first(data->guard_user, path, m->length, &data->first_block[i]) < 0)
            data->first_block[i] = UINT64_MAX;
    }
    return 0;
}

int psti_dataset_guard(psti_dataset *data, const psti_guard *guard, void *user)
{
    data->guard = guard;
    data->guard_user = user;
    if (data->far || data->listed || data->custom || !guard->sum)
        return 0;
    if (data->shard)
        guard_shards(data);
    return data->shard || !data->count || !data->members ? 0 : guard_files(data);
}

void psti_dataset_set_near(psti_dataset *data, const psti_near *near, void *user)
{
    data->near = near;
    data->near_user = user;
}

void psti_dataset_leave_near(psti_dataset *data)
{
    if (data->near && !atomic_exchange(&data->near_off, true))
        psti_log(PSTI_LOG_WARN,
                 "%s: copies on the local disk are gone or damaged: the bucket is read instead",
                 data->path);
}

void psti_guard_free(psti_dataset *data)
{
    if (data->near)
        data->near->guard.free(data->near_user);
    psti_free(data->sums);
    psti_free(data->first_block);
    if (data->guard)
        data->guard->free(data->guard_user);
}

bool psti_dataset_is_guarded(const psti_dataset *data)
{
    return data->guarded;
}

bool psti_dataset_check(const psti_dataset *data, int64_t id, int field, const uint8_t *bytes,
                        uint64_t size)
{
    if (!data->sums)
        return true;
    const psti_member *m = psti_member_at(data, id, data->slot[field]);
    const uint32_t sum = data->sums[m - data->member];
    return sum == UNKNOWN || pst_crc32c(0, bytes, size) == sum;
}

int psti_dataset_mend(psti_dataset *data, int64_t id, int field, pst_error *err)
{
    const psti_member *m = psti_member_at(data, id, data->slot[field]);
    const char *path = psti_text_at(data, data->shard ? data->shard[m->place].path : m->place);
    /* Of an array all of it: which part was read is not told. */
    const uint64_t offset = data->shard ? m->offset : 0;
    int rc = data->guard->mend(data->guard_user, path, offset, data->shard ? m->length : UINT64_MAX,
                               err);
    if (rc < 0)
        return rc;
    if (rc > 0)
        psti_log(PSTI_LOG_WARN, "%s: %s was gone or damaged and was fetched again", data->path,
                 path);
    rc = data->shard ? psti_dataset_restamp_shard(data, m)
                     : psti_dataset_restamp(data, id, data->slot[field]);
    return rc < 0 ? psti_fail(err, rc, "read", path, "the file was fetched again and is gone again")
                  : 0;
}

/* Once; 0, or PST_ECHANGED when it is not what was pulled. */
static int read_once(const psti_dataset *data, int64_t id, int field, uint64_t length, uint8_t *buf)
{
    psti_extent at;
    int rc = psti_dataset_extent(data, id, field, &at);
    if (rc < 0)
        return rc;
    if (length > at.length)
        return PST_ECHANGED;
    at.length = length;
    rc = psti_read_now(&at, buf);
    const bool whole = at.offset == 0 && at.length == at.file_size;
    if (rc == 0 && data->guarded && whole && !at.guard &&
        !psti_dataset_check(data, id, field, buf, length))
        rc = PST_ECHANGED;
    return rc;
}

int psti_dataset_read_now(const psti_dataset *data, int64_t id, int field, uint64_t length,
                          uint8_t *buf)
{
    int rc = read_once(data, id, field, length, buf);
    for (int i = 0; i < MENDS_MOST && data->guarded; i++) {
        if (rc != PST_ECHANGED && rc != -ENOENT && rc != -EIO)
            break;
        /* what it is stays the same, which is what const promises */
        const int mended = psti_dataset_mend((psti_dataset *)data, id, field, NULL);
        rc = mended < 0 ? mended : read_once(data, id, field, length, buf);
    }
    return rc;
}
