/* SPDX-License-Identifier: Apache-2.0
 * After a start from a remembered listing: one thread of low priority compares every file with the
 * manifest, behind the training that has already begun. It ends by itself, or when the dataset
 * goes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "source/crew.h"
#include "source/source_priv.h"

typedef struct tally {
    uint64_t changed, gone;
    const char *first_changed, *first_gone;
} tally;

/* One stat call for a plain file that did not change; links and surprises take the careful way. */
static bool looks_same(psti_dataset *data, const psti_member *m)
{
    struct stat st;
    if (fstatat(data->root, psti_text_at(data, m->place), &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(st.st_mode))
        return false;
    const int64_t mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    pthread_mutex_lock(&data->lock);
    const bool same =
        m->length == (uint64_t)st.st_size && m->mtime_ns == mtime_ns && m->inode == st.st_ino;
    pthread_mutex_unlock(&data->lock);
    return same;
}

static void check_member(psti_dataset *data, int64_t id, int slot, tally *sum)
{
    const psti_member *m = psti_member_at(data, id, slot);
    pthread_mutex_lock(&data->lock);
    const bool absent = m->length == PSTI_ABSENT;
    pthread_mutex_unlock(&data->lock);
    if (absent || looks_same(data, m))
        return;
    const int rc = psti_dataset_restamp(data, id, slot);
    const char *key = psti_dataset_key(data, id);
    if (rc > 0 && !sum->changed++)
        sum->first_changed = key;
    if (rc < 0 && !sum->gone++)
        sum->first_gone = key;
}

static void check_shards(psti_dataset *data, tally *sum)
{
    for (size_t i = 0; i < data->shards && !atomic_load(&data->verify.stop); i++) {
        const char *path = psti_text_at(data, data->shard[i].path);
        psti_stamp now;
        const int rc = psti_stamp_beneath(data->root, path, &now);
        if (rc == 0 && psti_stamp_same(&now, &data->shard[i].stamp))
            continue;
        if (!sum->gone++)
            sum->first_gone = path;
    }
}

static void check_files(psti_dataset *data, tally *sum)
{
    for (int64_t id = 0; id < data->count && !atomic_load(&data->verify.stop); id++)
        for (int slot = 0; slot < data->members; slot++)
            check_member(data, id, slot, sum);
}

static void *verify_main(void *arg)
{
    psti_dataset *data = arg;
    tally sum = {0};
    /* Training comes first. Not lower still: the last unref waits for this thread to see its flag.
     */
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    /* Pulled shards are compared when they are read, and replaced when they are mended. */
    if (data->shard && !data->guarded)
        check_shards(data, &sum);
    else if (!data->shard)
        check_files(data, &sum);
    if (sum.changed)
        psti_dataset_say_changed(data, sum.first_changed, sum.changed);
    if (sum.gone)
        psti_log(PSTI_LOG_WARN,
                 "%s: %" PRIu64 " files are no longer what was listed or cannot be found (the "
                 "first is %s); open the dataset again with refresh",
                 data->path, sum.gone, sum.first_gone);
    if (sum.gone && data->index_path)
        unlink(data->index_path);
    return NULL;
}

void psti_dataset_verify(psti_dataset *data)
{
    if (!data->remembered || data->far) /* a bucket is listed at every start */
        return;
    pthread_mutex_lock(&data->lock);
    if (!data->verify.started)
        data->verify.started = psti_thread_start(&data->verify.thread, verify_main, data) == 0;
    pthread_mutex_unlock(&data->lock);
}

void psti_verify_wait(psti_dataset *data)
{
    if (data->verify.started && !data->verify.joined)
        pthread_join(data->verify.thread, NULL);
    data->verify.joined = true;
}

void psti_verify_stop(psti_dataset *data)
{
    if (!data->verify.started || data->pid != getpid())
        return;
    atomic_store(&data->verify.stop, true);
    psti_verify_wait(data);
}
