/* SPDX-License-Identifier: Apache-2.0
 * Files whose bytes somebody knows: of a dataset that was pulled from a bucket. What a read brought
 * is compared with their checksums, and a file that is gone or damaged is brought again. Set while
 * the dataset is opened; asked by workers. */
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/source_priv.h"

/* Of a file whose checksum is not known, and of one in four billion others. */
enum { UNKNOWN = 0 };

int psti_dataset_guard(psti_dataset *data, const psti_guard *guard, void *user, void *book)
{
    const size_t count = (size_t)data->count * (size_t)data->members;
    data->guard = guard;
    data->guard_user = user;
    if (data->far || data->listed || data->custom || !guard->sum)
        return 0;
    uint32_t crc;
    for (size_t i = 0; data->shard && i < data->shards; i++) /* known to be there, no more */
        guard->sum(book, psti_text_at(data, data->shard[i].path), data->shard[i].stamp.size, &crc);
    if (data->shard || !count)
        return 0;
    data->sums = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *data->sums);
    if (!data->sums)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const psti_member *m = &data->member[i];
        if (m->length != PSTI_ABSENT &&
            guard->sum(book, psti_text_at(data, m->place), m->length, &crc) == 0)
            data->sums[i] = crc;
    }
    return 0;
}

void psti_guard_free(psti_dataset *data)
{
    psti_free(data->sums);
    if (data->guard)
        data->guard->free(data->guard_user);
}

bool psti_dataset_is_guarded(const psti_dataset *data)
{
    return data->sums != NULL;
}

bool psti_dataset_check(const psti_dataset *data, int64_t id, int field, const uint8_t *bytes,
                        uint64_t size)
{
    const psti_member *m = psti_member_at(data, id, data->slot[field]);
    const uint32_t sum = data->sums[m - data->member];
    return sum == UNKNOWN || pst_crc32c(0, bytes, size) == sum;
}

int psti_dataset_mend(psti_dataset *data, int64_t id, int field, pst_error *err)
{
    const psti_member *m = psti_member_at(data, id, data->slot[field]);
    const char *path = psti_text_at(data, m->place);
    int rc = data->guard->mend(data->guard_user, path, err);
    if (rc < 0)
        return rc;
    rc = psti_dataset_restamp(data, id, data->slot[field]);
    if (rc < 0)
        return psti_fail(err, rc, "read", path, "the file was fetched again and is gone again");
    psti_log(PSTI_LOG_WARN, "%s: %s was gone or damaged and was fetched again", data->path, path);
    return 0;
}
