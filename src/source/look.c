/* SPDX-License-Identifier: Apache-2.0
 * Looking at every file of a dataset that was made of a list: a crew takes stretches of samples, so
 * that a slow disk answers several questions at once. Called by the thread that opens the dataset.
 */
#include <errno.h>
#include <stddef.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/crew.h"
#include "source/source_priv.h"

enum { CHUNK_ROWS = 1024 };

/* A stretch of samples whose files one crew thread looks at. */
typedef struct chunk {
    psti_work work;
    psti_dataset *data;
    int64_t begin, end;
    psti_missing missing;
} chunk;

static int look_at(const psti_dataset *data, psti_member *m)
{
    psti_stamp stamp;
    const int rc = psti_stamp_beneath(data->root, psti_text_at(data, m->place), &stamp);
    if (rc)
        return rc;
    if (!S_ISREG(stamp.mode))
        return S_ISDIR(stamp.mode) ? -EISDIR : -EINVAL;
    m->length = stamp.size;
    m->mtime_ns = stamp.mtime_ns;
    m->inode = stamp.inode;
    return 0;
}

static int run_chunk(psti_work *work, psti_crew *crew, pst_error *err)
{
    chunk *c = (chunk *)((char *)work - offsetof(chunk, work));
    (void)err;
    for (int64_t id = c->begin; id < c->end; id++)
        for (int slot = 0; slot < c->data->members; slot++) {
            psti_member *m = psti_member_at(c->data, id, slot);
            const int rc = m->length == PSTI_ABSENT ? 0 : look_at(c->data, m);
            if (rc && !c->missing.count++) {
                c->missing.id = id;
                c->missing.slot = slot;
                c->missing.rc = rc;
            }
        }
    atomic_fetch_add(&crew->found, (uint64_t)(c->end - c->begin));
    return 0;
}

int psti_dataset_look_all(psti_dataset *data, const pst_dataset_options *opts, psti_missing *out,
                          pst_error *err)
{
    const size_t count = (size_t)((data->count + CHUNK_ROWS - 1) / CHUNK_ROWS);
    chunk *chunks = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *chunks);
    *out = (psti_missing){0};
    if (!chunks)
        return psti_fail(err, -ENOMEM, "list", data->path, "out of memory while listing");
    psti_crew crew;
    psti_crew_init(&crew, opts->threads);
    for (size_t i = 0; i < count; i++) {
        const int64_t begin = (int64_t)i * CHUNK_ROWS, end = begin + CHUNK_ROWS;
        chunks[i] =
            (chunk){.data = data, .begin = begin, .end = end < data->count ? end : data->count};
        chunks[i].work.run = run_chunk;
        psti_crew_push(&crew, &chunks[i].work);
    }
    const int rc = psti_crew_run(&crew, opts, err);
    psti_crew_fini(&crew);
    for (size_t i = 0; i < count && !rc; i++) {
        const uint64_t before = out->count;
        if (!before)
            *out = chunks[i].missing;
        out->count = before + chunks[i].missing.count;
    }
    psti_free(chunks);
    return rc;
}
