/* SPDX-License-Identifier: Apache-2.0
 * The disk tier: what is found, what is kept, who makes way, and what an error of the disk does.
 * One that has no space left is read as before and written to again when it has some; any other
 * error turns the tier off for a while.
 *
 * Who makes way: an entry whose owner nobody uses and that this process has not used itself; else
 * one that was not asked for while everything in use was (psti_disk_horizon). Between entries in
 * use nothing moves: under exactly-once sampling each of them is used once an epoch, and whichever
 * made way would be missed as much as what came for it. */
#include "cache/disk.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cache/disk_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

static const uint64_t RETRY_NS = 60000000000u, PATIENCE_NS = 50000000, PATIENCE_MOST_NS = 250000000;
enum { DRAWS = 32, BAD_READS_MOST = 8 };
static const uint64_t TOLD_NS = 600000000000u; /* without it, before a full disk is told of again */

/* ---- owners and age -------------------------------------------------------------------------- */

static uint16_t tag_of(psti_id128 owner)
{
    return (uint16_t)psti_mix64(owner.lo + psti_mix64(owner.hi));
}

static bool tag_used(const psti_disk *disk, uint16_t tag)
{
    for (int i = 0; i < disk->owners && i < DISK_OWNERS; i++)
        if (disk->owner[i].users > 0 && disk->owner[i].tag == tag)
            return true;
    return disk->owners > DISK_OWNERS;
}

void psti_disk_use(psti_disk *disk, psti_id128 owner, bool used)
{
    const uint16_t tag = tag_of(owner);
    pthread_mutex_lock(&disk->lock);
    const int listed = disk->owners < DISK_OWNERS ? disk->owners : DISK_OWNERS;
    int i = 0, free = -1;
    for (; i < listed && disk->owner[i].tag != tag; i++)
        free = disk->owner[i].users == 0 ? i : free;
    if (i == listed && used) {
        i = free >= 0 ? free : disk->owners;
        if (free < 0 && disk->owners <= DISK_OWNERS)
            disk->owners++;
        if (i < DISK_OWNERS) {
            disk->owner[i].tag = tag;
            disk->owner[i].users = 0;
        }
    }
    if (i < DISK_OWNERS && i < disk->owners)
        disk->owner[i].users += used ? 1 : disk->owner[i].users > 0 ? -1 : 0;
    disk->full = false;
    pthread_mutex_unlock(&disk->lock);
}

void psti_disk_horizon(psti_disk *disk, uint64_t finds)
{
    pthread_mutex_lock(&disk->lock);
    disk->horizon = finds;
    disk->full = false;
    pthread_mutex_unlock(&disk->lock);
}

static void count_find_locked(psti_disk *disk)
{
    disk->finds++;
    if (++disk->period_finds < disk->horizon / DISK_PERIODS || disk->horizon == UINT64_MAX)
        return;
    disk->period_finds = 0;
    disk->period = (disk->period + 1) & 1023;
    disk->full = false;
}

static void touch_locked(const psti_disk *disk, disk_entry *e)
{
    e->stamp = disk->period & 1023;
    e->found = 1;
}

static bool may_go(const psti_disk *disk, const disk_entry *e)
{
    const uint32_t age = (disk->period - (uint32_t)e->stamp) & 1023;
    return e->ready && ((!e->found && !tag_used(disk, (uint16_t)e->tag)) || age > DISK_PERIODS);
}

static bool take_victim_locked(psti_disk *disk, disk_entry *out)
{
    for (int i = 0; i < DRAWS; i++) {
        disk_entry *e = index_draw(&disk->index, &disk->random);
        if (!e || !may_go(disk, e))
            continue;
        *out = *e;
        index_remove(&disk->index, e);
        return true;
    }
    return false;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static bool no_space(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

/* Nothing is written for a while. A disk that goes on being nearly full is told of once in a while,
 * not each time. */
static void crowded_locked(psti_disk *disk, int error)
{
    const uint64_t now = psti_now_ns();
    if (!disk->crowded_ns || now - disk->crowded_ns > TOLD_NS)
        psti_log(PSTI_LOG_WARN,
                 "no room on the disk for more of the disk tier in %s: %s. What is there is used; "
                 "it is tried again every minute",
                 disk->spec.dir, pst_strerror(error));
    disk->stats.errors++;
    disk->crowded = true;
    disk->crowded_ns = now;
    disk->retry_ns = now + disk->spec.retry_ns;
    pthread_cond_broadcast(&disk->room);
}

/* Whether entries are written; the next one finds out whether there is room again. */
static bool writes_locked(psti_disk *disk)
{
    if (disk->crowded && psti_now_ns() >= disk->retry_ns)
        disk->crowded = false;
    return !disk->off && !disk->crowded;
}

static void trouble_locked(psti_disk *disk, int error)
{
    if (no_space(error) && disk->files.dir >= 0) {
        crowded_locked(disk, error);
        return;
    }
    disk->stats.errors++;
    disk->off = true;
    disk->retry_ns = psti_now_ns() + disk->spec.retry_ns;
    if (!disk->told)
        psti_log(PSTI_LOG_WARN,
                 "the disk tier in %s is off: %s. Samples come from where they lie; it is tried "
                 "again every minute",
                 disk->spec.dir, pst_strerror(error));
    disk->told = true;
    pthread_cond_broadcast(&disk->work);
    pthread_cond_broadcast(&disk->room);
}

void psti_disk_failed(psti_disk *disk, const psti_cache_key *key, int status)
{
    const psti_id128 id = disk_id(key);
    const bool damaged = status == PST_ECORRUPT || status == PST_ECHANGED;
    pthread_mutex_lock(&disk->lock);
    disk_entry *e = index_find(&disk->index, id);
    if (e && e->ready) {
        if (damaged && disk->doomed_count < DISK_DOOMED) {
            disk->doomed[disk->doomed_count++] = *e;
            pthread_cond_signal(&disk->work);
        }
        index_remove(&disk->index, e);
    }
    disk->stats.damaged += damaged;
    /* A file that is gone was removed by another process, unless all of them are. */
    if (!damaged && !disk->off && (status != -ENOENT || files_gone(&disk->files))) {
        disk->stats.errors++;
        if (status == -ENOENT || ++disk->bad_reads >= BAD_READS_MOST)
            trouble_locked(disk, status);
    }
    pthread_mutex_unlock(&disk->lock);
}

/* ---- finding --------------------------------------------------------------------------------- */

bool psti_disk_find(psti_disk *disk, const psti_cache_key *key, psti_disk_place *out)
{
    const psti_id128 id = disk_id(key);
    disk_entry found;
    pthread_mutex_lock(&disk->lock);
    count_find_locked(disk);
    disk_entry *e = disk->off ? NULL : index_find(&disk->index, id);
    const bool there = e && e->ready;
    if (there) {
        touch_locked(disk, e);
        found = *e;
    }
    pthread_mutex_unlock(&disk->lock);
    if (!there)
        return false;
    out->dir = disk->files.dir;
    out->size = found.size;
    disk_name(&found, out->name);
    return true;
}

bool psti_disk_has(psti_disk *disk, const psti_cache_key *key)
{
    const psti_id128 id = disk_id(key);
    pthread_mutex_lock(&disk->lock);
    const bool has = !disk->off && index_find(&disk->index, id);
    pthread_mutex_unlock(&disk->lock);
    return has;
}

/* ---- keeping --------------------------------------------------------------------------------- */

bool psti_disk_wants(psti_disk *disk, const psti_cache_key *key, size_t packed)
{
    const psti_id128 id = disk_id(key);
    if (!packed || packed > DISK_ENTRY_MOST || !queue_fits(&disk->queue, packed) ||
        disk_blocks(packed) > disk->spec.bytes)
        return false;
    pthread_mutex_lock(&disk->lock);
    const bool wants = writes_locked(disk) && !disk->full && !index_find(&disk->index, id);
    pthread_mutex_unlock(&disk->lock);
    return wants;
}

/* Room in the queue; waits for it while the writer gets on. */
static disk_item *push_locked(psti_disk *disk, size_t bytes)
{
    const uint64_t since = psti_now_ns();
    disk_item *item;
    while (!(item = queue_push(&disk->queue, bytes)) && !disk->behind && writes_locked(disk) &&
           !disk->stopping) {
        const uint64_t now = psti_now_ns(), done = disk->done;
        const struct timespec until = psti_timespec_ns(now + PATIENCE_NS);
        pthread_cond_timedwait(&disk->room, &disk->lock, &until);
        if (now - since > PATIENCE_MOST_NS ||
            (disk->done == done && psti_now_ns() - now >= PATIENCE_NS))
            disk->behind = true;
    }
    return item;
}

/* The item of a new entry, its bytes not packed yet; NULL: it is not kept. */
static disk_item *begin_locked(psti_disk *disk, psti_id128 id, psti_id128 owner, size_t size)
{
    if (!writes_locked(disk) || disk->full || disk->stopping || index_find(&disk->index, id))
        return NULL;
    disk_item *item = push_locked(disk, size);
    if (!item || !writes_locked(disk) || index_find(&disk->index, id)) {
        disk->stats.dropped += !item;
        if (item)
            item->skip = item->packed = true; /* the lock was let go: somebody was faster */
        return NULL;
    }
    disk_entry *e = index_add(&disk->index, id, size, tag_of(owner));
    if (!e) {
        item->skip = item->packed = true;
        return NULL;
    }
    touch_locked(disk, e);
    item->entry = *e;
    return item;
}

void psti_disk_put(psti_disk *disk, const psti_cache_key *key, psti_id128 owner,
                   const psti_cache_content *content, const uint8_t *bytes)
{
    const size_t size = psti_envelope_size(content);
    const psti_id128 id = disk_id(key);
    if (!size || size > DISK_ENTRY_MOST || !queue_fits(&disk->queue, size) ||
        disk_blocks(size) > disk->spec.bytes)
        return;
    pthread_mutex_lock(&disk->lock);
    disk_item *item = begin_locked(disk, id, owner, size);
    pthread_mutex_unlock(&disk->lock);
    if (!item)
        return;
    psti_envelope_pack(key, content, bytes, queue_bytes(item));
    pthread_mutex_lock(&disk->lock);
    item->packed = true;
    pthread_cond_signal(&disk->work);
    pthread_mutex_unlock(&disk->lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Sets the entry's bytes aside, at the cost of others. 0, 1 when nothing makes way, or -errno. */
static int make_room(psti_disk *disk, uint64_t bytes)
{
    for (;;) {
        disk_entry victim;
        const int rc = files_count(&disk->files, (int64_t)bytes, disk->spec.bytes);
        if (rc <= 0)
            return rc;
        pthread_mutex_lock(&disk->lock);
        const bool there = take_victim_locked(disk, &victim);
        disk->full = !there;
        disk->stats.evicted += there;
        pthread_mutex_unlock(&disk->lock);
        if (!there)
            return 1;
        if (files_remove(&disk->files, &victim))
            files_count(&disk->files, -(int64_t)disk_blocks(victim.size), disk->spec.bytes);
    }
}

/* 0: it is there; 1: there is no room for it; negative: the disk has failed. */
static int keep(psti_disk *disk, disk_item *item)
{
    const uint64_t bytes = disk_blocks(item->entry.size);
    int rc = make_room(disk, bytes);
    if (rc)
        return rc;
    rc = files_write(&disk->files, &item->entry, queue_bytes(item));
    if (rc)
        files_count(&disk->files, -(int64_t)bytes, disk->spec.bytes);
    return rc > 0 ? 0 : rc;
}

static void write_first_locked(psti_disk *disk, disk_item *item)
{
    int rc = 1;
    if (!disk->off && !disk->crowded) {
        pthread_mutex_unlock(&disk->lock);
        rc = keep(disk, item);
        pthread_mutex_lock(&disk->lock);
    }
    disk_entry *e = index_find(&disk->index, item->entry.id);
    if (rc == 0) {
        disk->stats.written++;
        disk->told = false;
        disk->bad_reads = 0;
    } else {
        disk->stats.dropped++;
    }
    if (e && rc == 0)
        e->ready = 1;
    else if (e && !e->ready)
        index_remove(&disk->index, e);
    if (rc < 0)
        trouble_locked(disk, rc);
    queue_pop(&disk->queue);
    disk->done++;
    if (disk->behind && queue_used(&disk->queue) <= disk->queue.bytes / 2)
        disk->behind = false;
    pthread_cond_broadcast(&disk->room);
}

static void remove_doomed_locked(psti_disk *disk)
{
    const disk_entry doomed = disk->doomed[--disk->doomed_count];
    disk->removing = true;
    pthread_mutex_unlock(&disk->lock);
    if (files_remove(&disk->files, &doomed))
        files_count(&disk->files, -(int64_t)disk_blocks(doomed.size), disk->spec.bytes);
    pthread_mutex_lock(&disk->lock);
    disk->removing = false;
    pthread_cond_broadcast(&disk->room);
}

/* Off for a while: looks whether the directory can be used again. */
static void retry_locked(psti_disk *disk)
{
    disk_index fresh = {0};
    bool refused;
    pthread_mutex_unlock(&disk->lock);
    int rc = files_open(&disk->files, &refused, NULL);
    if (!rc)
        rc = files_scan(&disk->files, &fresh);
    pthread_mutex_lock(&disk->lock);
    disk->retry_ns = psti_now_ns() + disk->spec.retry_ns;
    const bool crowded = no_space(rc) && fresh.slots;
    if ((rc && !crowded) ||
        disk->queue.count) { /* what is being packed has its place in the old index */
        index_clear(&fresh);
        return;
    }
    index_clear(&disk->index);
    disk->index = fresh;
    disk->off = disk->full = false;
    disk->crowded = crowded;
    disk->bad_reads = disk->doomed_count = 0;
}

static void *disk_loop(void *arg)
{
    psti_disk *disk = arg;
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        disk_item *item = queue_first(&disk->queue);
        if (disk->doomed_count && !disk->off) /* before it may be written anew */
            remove_doomed_locked(disk);
        else if (item && item->packed)
            write_first_locked(disk, item);
        else if (!item && disk->stopping)
            break;
        else if (disk->off && !disk->stopping && psti_now_ns() >= disk->retry_ns)
            retry_locked(disk);
        else if (disk->off && !disk->stopping) {
            const struct timespec until = psti_timespec_ns(disk->retry_ns);
            pthread_cond_timedwait(&disk->work, &disk->lock, &until);
        } else {
            pthread_cond_wait(&disk->work, &disk->lock);
        }
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

void psti_disk_flush(psti_disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    while (queue_first(&disk->queue) || disk->removing || (disk->doomed_count && !disk->off))
        pthread_cond_wait(&disk->room, &disk->lock);
    pthread_mutex_unlock(&disk->lock);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int bytes_of(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    end += unit != NULL;
    if (unit && (*end == 'i' || *end == 'I'))
        end++;
    if (unit && (*end == 'b' || *end == 'B'))
        end++;
    if (errno || *end || value > UINT64_MAX >> shift)
        return -EINVAL;
    *out = (uint64_t)value << shift;
    return 0;
}

int psti_disk_parse(const char *text, psti_disk_spec *out, pst_error *err)
{
    const char *colon = strrchr(text, ':');
    uint64_t bytes;
    if (!colon || colon == text || bytes_of(colon + 1, &bytes) < 0)
        return psti_fail(err, -EINVAL, "settings", NULL,
                         "the disk tier is given as DIR:BYTES, for example /scratch/penstock:200G");
    if (bytes < PSTI_DISK_LEAST)
        return psti_fail(err, -EINVAL, "settings", NULL,
                         "a disk tier of %llu bytes holds nothing; at least 1 MiB",
                         (unsigned long long)bytes);
    char *dir = psti_strdup(PSTI_MEM_CACHE, text);
    if (!dir)
        return psti_fail(err, -ENOMEM, "settings", NULL, "out of memory");
    dir[colon - text] = 0;
    *out = (psti_disk_spec){.dir = dir, .bytes = bytes};
    return 0;
}

static int start_thread(psti_disk *disk)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&disk->thread, NULL, disk_loop, disk);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    disk->started = rc == 0;
    if (!rc)
        pthread_setname_np(disk->thread, "pst-disk");
    return -rc;
}

/* Everything that needs no disk. */
static psti_disk *make(const psti_disk_spec *spec)
{
    psti_disk *disk = psti_calloc(PSTI_MEM_CACHE, 1, sizeof *disk);
    if (!disk)
        return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&disk->lock, NULL);
    pthread_mutex_init(&disk->files.lock, NULL);
    pthread_cond_init(&disk->work, &attr);
    pthread_cond_init(&disk->room, &attr);
    pthread_condattr_destroy(&attr);
    disk->spec = *spec;
    disk->spec.dir = psti_strdup(PSTI_MEM_CACHE, spec->dir);
    if (!disk->spec.retry_ns)
        disk->spec.retry_ns = RETRY_NS;
    disk->files.path = disk->spec.dir;
    disk->files.dir = disk->files.books = -1;
    disk->horizon = UINT64_MAX;
    disk->random = psti_now_ns();
    if (disk->spec.dir && queue_init(&disk->queue, spec->queue) == 0)
        return disk;
    psti_disk_close(disk);
    return NULL;
}

int psti_disk_open(const psti_disk_spec *spec, psti_disk **out, pst_error *err)
{
    bool refused;
    psti_disk *disk = make(spec);
    if (!disk)
        return psti_fail(err, -ENOMEM, "disk", NULL, "out of memory while opening the disk tier");
    int rc = files_open(&disk->files, &refused, err);
    if (rc && refused) {
        psti_disk_close(disk);
        return rc;
    }
    if (!rc)
        rc = files_scan(&disk->files, &disk->index);
    if (rc) {
        psti_error_clear(err);
        pthread_mutex_lock(&disk->lock);
        trouble_locked(disk, rc);
        pthread_mutex_unlock(&disk->lock);
    }
    rc = start_thread(disk);
    if (rc) {
        psti_disk_close(disk);
        return psti_fail(err, rc, "disk", NULL, "the disk tier's thread cannot be started: %s",
                         pst_strerror(rc));
    }
    *out = disk;
    return 0;
}

void psti_disk_close(psti_disk *disk)
{
    if (!disk)
        return;
    pthread_mutex_lock(&disk->lock);
    disk->stopping = true;
    pthread_cond_broadcast(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    if (disk->started)
        pthread_join(disk->thread, NULL);
    files_close(&disk->files);
    index_clear(&disk->index);
    queue_fini(&disk->queue);
    pthread_cond_destroy(&disk->room);
    pthread_cond_destroy(&disk->work);
    pthread_mutex_destroy(&disk->files.lock);
    pthread_mutex_destroy(&disk->lock);
    psti_free(disk->spec.dir);
    psti_free(disk);
}

void psti_disk_stats_get(psti_disk *disk, psti_disk_stats *out)
{
    pthread_mutex_lock(&disk->lock);
    *out = disk->stats;
    out->entries = disk->index.count;
    out->bytes = disk->index.bytes;
    out->limit = disk->spec.bytes;
    out->off = disk->off;
    out->crowded = disk->crowded;
    pthread_mutex_unlock(&disk->lock);
}
