/* SPDX-License-Identifier: Apache-2.0
 * What can change while a dataset is in use: where members lie, what their files look like, and
 * what follows from it (identity, revision). Called from any thread; everything here takes the
 * dataset's lock. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/custom.h"
#include "source/far.h"
#include "source/listed.h"
#include "source/reader_priv.h"
#include "source/source_priv.h"

/* Shards kept open; the rest are opened for each read, like files. */
enum { SHARDS_OPEN_MAX = 512 };

/* The lock is no part of what const promises. */
static void lock_data(const psti_dataset *data)
{
    pthread_mutex_lock((pthread_mutex_t *)&data->lock);
}

static void unlock_data(const psti_dataset *data)
{
    pthread_mutex_unlock((pthread_mutex_t *)&data->lock);
}

static bool valid_id(const psti_dataset *data, int64_t id)
{
    return id >= 0 && id < data->count;
}

static uint64_t sample_bytes_locked(const psti_dataset *data, int64_t id)
{
    uint64_t total = 0;
    if (data->listed)
        return psti_listed_length_locked(data, id);
    for (int slot = 0; slot < data->members; slot++) {
        const psti_member *m = psti_member_at(data, id, slot);
        total += m->length == PSTI_ABSENT ? 0 : m->length;
    }
    return total;
}

uint64_t psti_dataset_sample_bytes(const psti_dataset *data, int64_t id)
{
    if (!valid_id(data, id))
        return 0;
    lock_data(data);
    const uint64_t total = sample_bytes_locked(data, id);
    unlock_data(data);
    return total;
}

/* Drawn once in a process: what has no version is another sample in the next one, so that nothing
 * that lasts longer, such as a disk tier, takes it for what it was. */
static uint64_t this_process(void)
{
    static _Atomic uint64_t drawn;
    uint64_t mine = atomic_load(&drawn), none = 0;
    if (mine)
        return mine;
    if (getrandom(&mine, sizeof mine, 0) != (ssize_t)sizeof mine)
        mine = psti_now_ns();
    mine |= 1;
    return atomic_compare_exchange_strong(&drawn, &none, mine) ? mine : none;
}

static void hash_etag(psti_hash *h, const psti_dataset *data, psti_etag etag, bool for_keys)
{
    char room[PSTI_ETAG_ROOM];
    const char *text = psti_etag_show(&data->names, etag, room);
    psti_hash_text(h, text, strlen(text));
    if (data->far && (!*text || !data->far->lists)) {
        const char *where = psti_bucket_name(data->far->bucket);
        psti_hash_text(h, where, strlen(where));
        psti_hash_text(h, data->far->prefix, strlen(data->far->prefix));
    }
    if (for_keys && data->far && !*text)
        psti_hash_u64(h, this_process());
}

static psti_etag etag_of(const psti_dataset *data, const psti_member *m, const psti_stamp *shard)
{
    if (data->etag)
        return data->etag[shard ? m->place : (size_t)(m - data->member)];
    return shard ? (psti_etag){(uint64_t)shard->mtime_ns, shard->inode}
                 : (psti_etag){(uint64_t)m->mtime_ns, m->inode};
}

/* Part of stored formats: never changes. Kind, key, bytes of all members; then for each member that
 * is there its field and version: time, inode and size of a file, or the same of the shard and the
 * place in it. Of an object in a bucket, and of its copy on disk, the etag stands for time and
 * inode: wherever the bucket is, and whatever the dataset is made of, the same object under the
 * same key is the same sample; a web server's etag need not tell contents apart, so there the place
 * counts too. for_keys: what is kept under it may outlast the process. */
static psti_id128 identity_locked(const psti_dataset *data, int64_t id, bool for_keys)
{
    const bool by_etag = data->far || data->etag;
    if (data->custom && !by_etag)
        return psti_custom_identity(data, id);
    if (data->listed && !by_etag)
        return psti_listed_identity_locked(data, id);
    psti_hash h;
    psti_hash_init(&h);
    const char *kind = by_etag ? "s3" : psti_kind_name(data->kind);
    const char *key = psti_text_at(data, data->keys[id]);
    psti_hash_text(&h, kind, strlen(kind));
    psti_hash_text(&h, key, strlen(key));
    psti_hash_u64(&h, sample_bytes_locked(data, id));
    if (for_keys && (data->apart.lo || data->apart.hi)) {
        psti_hash_u64(&h, data->apart.lo);
        psti_hash_u64(&h, data->apart.hi);
    }
    for (int i = 0; i < data->fields; i++) {
        if (!data->field[i].member)
            continue;
        const psti_member *m = psti_member_at(data, id, data->slot[i]);
        if (m->length == PSTI_ABSENT)
            continue;
        const psti_stamp *shard = data->shard ? &data->shard[m->place].stamp : NULL;
        psti_hash_text(&h, data->field[i].info.name, strlen(data->field[i].info.name));
        if (by_etag) {
            hash_etag(&h, data, etag_of(data, m, shard), for_keys);
        } else {
            psti_hash_u64(&h, (uint64_t)(shard ? shard->mtime_ns : m->mtime_ns));
            psti_hash_u64(&h, shard ? shard->inode : m->inode);
        }
        psti_hash_u64(&h, shard ? shard->size : m->length);
        psti_hash_u64(&h, shard ? m->offset : 0);
        psti_hash_u64(&h, m->length);
    }
    return psti_hash_final(&h);
}

psti_id128 psti_dataset_identity(const psti_dataset *data, int64_t id)
{
    if (!valid_id(data, id))
        return (psti_id128){0, 0};
    lock_data(data);
    const psti_id128 identity = identity_locked(data, id, true);
    unlock_data(data);
    return identity;
}

static void hash_schema(psti_hash *h, const psti_dataset *data)
{
    psti_hash_u64(h, (uint64_t)data->fields);
    for (int i = 0; i < data->fields; i++) {
        const pst_field_info *info = &data->field[i].info;
        psti_hash_text(h, info->name, strlen(info->name));
        psti_hash_u64(h, info->kind);
        psti_hash_u64(h, info->dtype);
        psti_hash_u64(h, info->rank);
    }
}

/* What stands for a sample in the revision: of a list of files the path alone, since its files are
 * not looked at. cursor: before that path. */
static void hash_sample(psti_hash *h, const psti_dataset *data, int64_t id,
                        psti_path_cursor *cursor)
{
    if (data->listed) {
        psti_path_next(cursor);
        psti_hash_text(h, cursor->text, cursor->len);
        return;
    }
    const psti_id128 identity = identity_locked(data, id, false);
    psti_hash_u64(h, identity.lo);
    psti_hash_u64(h, identity.hi);
}

static psti_id128 revision_locked(const psti_dataset *data)
{
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_u64(&h, (uint64_t)data->count);
    hash_schema(&h, data);
    psti_path_cursor cursor;
    if (data->listed)
        psti_path_seek(&cursor, &data->listed->paths, 0);
    for (int64_t id = 0; id < data->count; id++) {
        const void *label;
        size_t bytes;
        hash_sample(&h, data, id, &cursor);
        if (data->label >= 0 && psti_dataset_value(data, id, data->label, &label, &bytes) == 0)
            psti_hash_u64(&h, *(const uint64_t *)label);
    }
    /* Objects are what such a dataset is about; a corrected box makes it another one. */
    for (int i = 0; data->kind == PSTI_KIND_COCO && i < data->columns; i++)
        psti_hash_text(&h, (const char *)data->column[i].heap, data->column[i].heap_bytes);
    return psti_hash_final(&h);
}

psti_id128 psti_dataset_revision(psti_dataset *data)
{
    lock_data(data);
    if (!data->revision_known) {
        data->revision = revision_locked(data);
        data->revision_known = true;
    }
    const psti_id128 revision = data->revision;
    unlock_data(data);
    return revision;
}

/* The shard's fd, or -1: then the reader opens it by path and reports what is wrong. */
static int shard_fd_locked(psti_dataset *data, psti_shard *shard)
{
    if (shard->fd >= 0 || shard->tried || data->shards_open >= SHARDS_OPEN_MAX)
        return shard->fd;
    shard->tried = true;
    const int fd =
        psti_open_beneath(data->root, psti_text_at(data, shard->path), PSTI_OPEN_FLAGS, false);
    psti_stamp now;
    if (fd >= 0 && psti_stamp_fd(fd, &now) == 0 && psti_stamp_same(&now, &shard->stamp)) {
        fcntl(fd, F_SETFL, 0); /* reads of it may wait */
        shard->fd = fd;
        data->shards_open++;
    } else if (fd >= 0) {
        close(fd);
    }
    return shard->fd;
}

static void set_guard(const psti_dataset *data, uint64_t first_block, psti_extent *out)
{
    out->guard = data->guard;
    out->guard_user = data->guard_user;
    out->first_block = first_block;
}

static int far_extent_locked(const psti_dataset *data, const psti_member *m, psti_extent *out)
{
    const psti_shard *shard = data->shard ? &data->shard[m->place] : NULL;
    const psti_etag etag = shard ? (psti_etag){(uint64_t)shard->stamp.mtime_ns, shard->stamp.inode}
                                 : (psti_etag){(uint64_t)m->mtime_ns, m->inode};
    if (etag.b == PSTI_ETAG_UNSEEN)
        return -EAGAIN;
    const bool digits = etag.b < PSTI_ETAG_UNSEEN;
    *out = (psti_extent){.root = -1,
                         .path = psti_text_at(data, shard ? shard->path : m->place),
                         .shard_fd = -1,
                         .bucket = data->far->bucket,
                         .prefix = data->far->prefix,
                         .etag = digits ? NULL : psti_etag_show(&data->names, etag, NULL),
                         .offset = shard ? m->offset : 0,
                         .length = m->length,
                         .file_size = shard ? shard->stamp.size : m->length,
                         .mtime_ns = (int64_t)etag.a,
                         .inode = etag.b};
    return 0;
}

/* The copy of an object on a local disk, where there is one. */
static void take_near(const psti_dataset *data, psti_extent *at)
{
    char room[PSTI_ETAG_ROOM];
    uint64_t first;
    if (!data->near || !at->bucket || !at->length || atomic_load(&data->near_off) ||
        strlen(at->prefix) != data->far->top)
        return;
    if (!at->etag)
        psti_etag_render((uint64_t)at->mtime_ns, at->inode, room);
    const int root = data->near->find(data->near_user, at->path, at->file_size,
                                      at->etag ? at->etag : room, &first);
    if (root < 0)
        return;
    *at = (psti_extent){.root = root,
                        .path = at->path,
                        .shard_fd = -1,
                        .offset = at->offset,
                        .length = at->length,
                        .file_size = at->file_size,
                        .loose = true,
                        .guard = &data->near->guard,
                        .guard_user = data->near_user,
                        .first_block = first};
}

int psti_dataset_extent(const psti_dataset *data, int64_t id, int field, psti_extent *out)
{
    if (!valid_id(data, id) || field < 0 || field >= data->fields || !data->field[field].member)
        return -EINVAL;
    if (data->custom)
        return -ENOTSUP; /* it has no place: psti_fetch_submit */
    int rc = 0;
    lock_data(data);
    const psti_member *m = data->listed ? NULL : psti_member_at(data, id, data->slot[field]);
    if (!m) {
        rc = psti_listed_extent_locked(data, id, out);
    } else if (m->length == PSTI_ABSENT) {
        rc = -ENOENT;
    } else if (data->far) {
        rc = far_extent_locked(data, m, out);
    } else if (data->shard) {
        psti_shard *shard = &data->shard[m->place];
        *out = (psti_extent){.root = data->root,
                             .path = psti_text_at(data, shard->path),
                             .shard_fd = shard_fd_locked((psti_dataset *)data, shard),
                             .offset = m->offset,
                             .length = m->length,
                             .file_size = shard->stamp.size,
                             .mtime_ns = shard->stamp.mtime_ns,
                             .inode = shard->stamp.inode};
        if (data->guarded && shard->first_block != UINT64_MAX)
            set_guard(data, shard->first_block, out);
    } else {
        *out = (psti_extent){.root = data->root,
                             .path = psti_text_at(data, m->place),
                             .shard_fd = -1,
                             .length = m->length,
                             .file_size = m->length,
                             .mtime_ns = m->mtime_ns,
                             .inode = m->inode};
        if (data->first_block && data->first_block[m - data->member] != UINT64_MAX)
            set_guard(data, data->first_block[m - data->member], out);
    }
    unlock_data(data);
    if (rc == 0)
        take_near(data, out);
    return rc;
}

/* ---- files that changed ---------------------------------------------------------------------- */

static bool take_stamp(const psti_dataset *data, psti_member *m, const psti_stamp *now)
{
    lock_data(data);
    const bool same =
        m->length == now->size && m->mtime_ns == now->mtime_ns && m->inode == now->inode;
    m->length = now->size;
    m->mtime_ns = now->mtime_ns;
    m->inode = now->inode;
    unlock_data(data);
    return !same;
}

static int take_listed(psti_dataset *data, int64_t id)
{
    psti_stamp now;
    int rc = psti_listed_stamp(data, id, &now);
    if (rc < 0)
        return rc;
    if (!S_ISREG(now.mode))
        return S_ISDIR(now.mode) ? -EISDIR : -EINVAL;
    lock_data(data);
    rc = psti_listed_take_locked(data, id, &now);
    unlock_data(data);
    return rc;
}

int psti_dataset_restamp(psti_dataset *data, int64_t id, int slot)
{
    if (data->listed)
        return take_listed(data, id);
    psti_member *m = psti_member_at(data, id, slot);
    psti_stamp now;
    const int rc = psti_stamp_beneath(data->root, psti_text_at(data, m->place), &now);
    if (rc)
        return rc;
    return S_ISREG(now.mode) ? take_stamp(data, m, &now) : PST_ECHANGED;
}

int psti_dataset_restamp_shard(psti_dataset *data, const psti_member *m)
{
    psti_shard *shard = &data->shard[m->place];
    psti_stamp now;
    const int fd =
        psti_open_beneath(data->root, psti_text_at(data, shard->path), PSTI_OPEN_FLAGS, false);
    if (fd < 0)
        return fd;
    int rc = psti_stamp_fd(fd, &now);
    fcntl(fd, F_SETFL, 0); /* reads of it may wait */
    lock_data(data);
    if (rc == 0 && (!S_ISREG(now.mode) || now.size != shard->stamp.size))
        rc = PST_ECHANGED;
    if (rc == 0) {
        rc = !psti_stamp_same(&now, &shard->stamp);
        if (rc > 0 && shard->fd >= 0) /* the number stays: others may be about to read from it */
            dup3(fd, shard->fd, O_CLOEXEC);
        shard->tried = false;
        shard->stamp = now;
    }
    unlock_data(data);
    close(fd);
    return rc;
}

int psti_dataset_look(psti_dataset *data, int64_t id)
{
    if (!valid_id(data, id))
        return -EINVAL;
    if (data->far)
        return psti_far_see(data, data->far, id);
    if (!data->listed)
        return 0;
    lock_data(data);
    const bool seen = psti_listed_seen_locked(data, id);
    unlock_data(data);
    const int rc = seen ? 0 : take_listed(data, id);
    return rc < 0 ? rc : 0;
}

int psti_dataset_keep_versions(psti_dataset *data)
{
    psti_listed *listed = data->listed;
    if (!listed)
        return 0;
    lock_data(data);
    if (!listed->version)
        listed->version =
            psti_calloc(PSTI_MEM_SOURCE, (size_t)data->count, sizeof *listed->version);
    const int rc = listed->version ? 0 : -ENOMEM;
    unlock_data(data);
    return rc;
}

int psti_dataset_take_etags(psti_dataset *data,
                            int (*find)(void *user, const char *path, uint64_t size,
                                        const char **etag),
                            void *user)
{
    const size_t count = data->shard ? data->shards : (size_t)data->count * (size_t)data->members;
    if (data->far || data->listed || data->custom)
        return -ENOTSUP;
    psti_etag *etags = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *etags);
    int rc = etags ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && rc == 0; i++) {
        const psti_member *m = &data->member[i];
        const char *text = NULL;
        if (!data->shard && m->length == PSTI_ABSENT)
            continue;
        rc = find(user, psti_text_at(data, data->shard ? data->shard[i].path : m->place),
                  data->shard ? data->shard[i].stamp.size : m->length, &text);
        if (rc == 0)
            rc = psti_etag_keep(text, &data->names, &etags[i]);
    }
    if (rc) {
        psti_free(etags);
        return rc;
    }
    data->etag = etags;
    data->revision_known = false;
    return 0;
}

void psti_dataset_say_changed(psti_dataset *data, const char *key, uint64_t how_many)
{
    if (atomic_exchange(&data->said_changed, true))
        return;
    /* What was remembered is wrong: the next start lists again. */
    if (data->index_path)
        unlink(data->index_path);
    if (how_many > 1)
        psti_log(PSTI_LOG_WARN,
                 "%s: %" PRIu64 " files changed since they were listed (the first is %s); they are "
                 "served as they are now",
                 data->path, how_many, key);
    else
        psti_log(PSTI_LOG_WARN,
                 "%s: %s changed since it was listed; it is served as it is now, and so are others "
                 "that changed",
                 data->path, key);
}

int psti_dataset_renew(psti_dataset *data, int64_t id, int field, pst_error *err)
{
    if (!valid_id(data, id) || field < 0 || field >= data->fields || !data->field[field].member)
        return psti_fail(err, -EINVAL, "read", data->path, "no such sample or field");
    char room[PSTI_KEY_ROOM];
    size_t len;
    const char *key = psti_dataset_key_in(data, id, room, &len);
    if (data->far)
        return psti_fail(err, PST_ECHANGED, "read", key,
                         "the object was replaced since it was listed; open the dataset again");
    if (data->shard)
        return psti_fail(err, PST_ECHANGED, "read", key,
                         "the tar shard changed since it was listed; open the dataset again");
    lock_data(data);
    const bool absent =
        !data->listed && psti_member_at(data, id, data->slot[field])->length == PSTI_ABSENT;
    unlock_data(data);
    if (absent)
        return psti_fail(err, -ENOENT, "read", key, "the sample has no such field");
    const int rc = psti_dataset_restamp(data, id, data->slot[field]);
    if (rc == -ENOENT)
        return psti_fail(
            err, rc, "read", key,
            "the file was removed since it was listed; put it back or list again (refresh)");
    if (rc < 0)
        return psti_fail(err, rc, "read", key, "the file cannot be read any more: %s",
                         pst_strerror(rc));
    psti_dataset_say_changed(data, key, 1);
    return 0;
}
