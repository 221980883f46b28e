/* SPDX-License-Identifier: Apache-2.0
 * Where far datasets lie, what their objects' versions are, and reading them while the caller
 * waits. Called by threads that open datasets, and by workers that look at a sample first. */
#include "source/far.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/crew.h"

psti_far *psti_far_new(psti_bucket *bucket, const char *prefix, size_t len, bool lists)
{
    psti_far *far = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *far);
    char *text = psti_malloc(PSTI_MEM_SOURCE, len + 1);
    if (!far || !text) {
        psti_free(far);
        psti_free(text);
        return NULL;
    }
    memcpy(text, prefix, len);
    text[len] = 0;
    *far =
        (psti_far){.bucket = psti_bucket_ref(bucket), .prefix = text, .top = len, .lists = lists};
    return far;
}

void psti_far_free(psti_far *far)
{
    if (!far)
        return;
    psti_bucket_unref(far->bucket);
    psti_free(far->prefix);
    psti_free(far);
}

int psti_far_enter(psti_far *far, const char *folder)
{
    const size_t size = strlen(far->prefix) + strlen(folder) + 2;
    char *prefix = psti_malloc(PSTI_MEM_SOURCE, size);
    if (!prefix)
        return -ENOMEM;
    snprintf(prefix, size, "%s%s/", far->prefix, folder);
    psti_free(far->prefix);
    far->prefix = prefix;
    return 0;
}

static bool wants_stop(void *user)
{
    const psti_far_watch *w = user;
    return w->opts->progress && w->opts->progress(w->found ? *w->found : 0, w->opts->user);
}

psti_net_watch psti_far_watch_set(psti_far_watch *watch)
{
    return psti_net_watch_set((psti_net_watch){wants_stop, watch});
}

/* ---- etags ----------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool psti_etag_pack(const char *text, psti_etag *out)
{
    uint64_t word[2] = {0, 0};
    if (strlen(text) != 34 || text[0] != '"' || text[33] != '"')
        return false;
    for (int i = 0; i < 32; i++) {
        const int digit = digit_of(text[1 + i]);
        if (digit < 0)
            return false;
        word[i / 16] = word[i / 16] << 4 | (uint64_t)digit;
    }
    *out = (psti_etag){word[0], word[1]};
    return word[1] < PSTI_ETAG_UNSEEN;
}

int psti_etag_keep(const char *text, psti_strings *names, psti_etag *out)
{
    if (psti_etag_pack(text, out))
        return 0;
    out->b = PSTI_ETAG_TEXT;
    return psti_strings_add(names, text, strlen(text), &out->a);
}

const char *psti_etag_show(const psti_strings *names, psti_etag etag, char room[PSTI_ETAG_ROOM])
{
    if (etag.b == PSTI_ETAG_TEXT)
        return names->data + etag.a;
    if (etag.b == PSTI_ETAG_LATE)
        return ((const psti_late_etag *)(uintptr_t)etag.a)->text;
    if (etag.b == PSTI_ETAG_UNSEEN)
        return "";
    psti_etag_render(etag.a, etag.b, room);
    return room;
}

void psti_etag_render(uint64_t a, uint64_t b, char room[PSTI_ETAG_ROOM])
{
    static const char digits[] = "0123456789abcdef";
    room[0] = room[33] = '"';
    for (int i = 0; i < 32; i++)
        room[1 + i] = digits[(i < 16 ? a : b) >> (60 - 4 * (i % 16)) & 15];
    room[34] = 0;
}

/* ---- reading while the caller waits ---------------------------------------------------------- */

/* Prefix and path as one. False: longer than any key. */
static bool key_of(const psti_far *far, const char *path, char key[PSTI_FAR_KEY])
{
    const int len = snprintf(key, PSTI_FAR_KEY, "%s%s", far->prefix, path);
    return len > 0 && len < PSTI_FAR_KEY;
}

int psti_far_read_at(const psti_far *far, const char *path, const char *etag, uint64_t size,
                     uint64_t offset, void *buf, size_t len, pst_error *err)
{
    char key[PSTI_FAR_KEY];
    const int all = snprintf(key, sizeof key, "%.*s%s", (int)far->top, far->prefix, path);
    if (all >= (int)sizeof key)
        return psti_fail(err, -ENAMETOOLONG, "list", path, "the key is too long");
    psti_get get = {.bucket = far->bucket,
                    .key = key,
                    .etag = etag && *etag ? etag : NULL,
                    .size = size,
                    .offset = offset,
                    .length = len,
                    .buf = buf,
                    .err = err};
    return psti_net_now(&get);
}

int psti_far_read(const psti_opening *o, const char *path, uint64_t most, char **text, size_t *len,
                  pst_error *err)
{
    const psti_entry *entry = psti_far_find(o->tree, path);
    *text = NULL;
    *len = 0;
    if (!entry)
        return psti_fail(err, -ENOENT, "list", path, "there is no such object");
    if (entry->size > most)
        return psti_fail(err, -EFBIG, "list", path, "the object of %llu bytes is too large to read",
                         (unsigned long long)entry->size);
    char room[PSTI_ETAG_ROOM];
    const psti_etag etag = {(uint64_t)entry->mtime_ns, entry->inode};
    char *bytes = psti_malloc(PSTI_MEM_SOURCE, entry->size + 1);
    if (!bytes)
        return psti_fail(err, -ENOMEM, "list", path, "out of memory while listing");
    const int rc = psti_far_read_at(o->far, path, psti_etag_show(o->etags, etag, room), entry->size,
                                    0, bytes, entry->size, err);
    if (rc < 0) {
        psti_free(bytes);
        return rc;
    }
    bytes[entry->size] = 0;
    *text = bytes;
    *len = entry->size;
    return 0;
}

/* ---- members that nobody asked for before ---------------------------------------------------- */

static int take_locked(psti_dataset *data, psti_member *m, uint64_t size, const char *text)
{
    psti_etag etag;
    if (!psti_etag_pack(text, &etag)) {
        psti_late_etag *late = psti_malloc(PSTI_MEM_SOURCE, sizeof *late + strlen(text) + 1);
        if (!late)
            return -ENOMEM;
        memcpy(late->text, text, strlen(text) + 1);
        late->next = data->late;
        data->late = late;
        etag = (psti_etag){(uint64_t)(uintptr_t)late, PSTI_ETAG_LATE};
    }
    m->length = size;
    m->mtime_ns = (int64_t)etag.a;
    m->inode = etag.b;
    return 0;
}

static int see(psti_dataset *data, const psti_far *far, psti_member *m)
{
    char key[PSTI_FAR_KEY], text[PSTI_ETAG_ROOM] = "";
    uint64_t size = 0;
    if (!key_of(far, psti_text_at(data, m->place), key))
        return -ENAMETOOLONG;
    pst_error err;
    psti_error_clear(&err);
    int rc = psti_net_head(far->bucket, key, &size, text, &err);
    if (rc == 0 && size > INT64_MAX) /* the server does not say */
        rc = PST_EDATASET;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&data->lock);
    if (m->inode == PSTI_ETAG_UNSEEN)
        rc = take_locked(data, m, size, text);
    pthread_mutex_unlock(&data->lock);
    return rc;
}

int psti_far_see(psti_dataset *data, const psti_far *far, int64_t id)
{
    int rc = 0;
    for (int slot = 0; slot < data->members && rc == 0; slot++) {
        psti_member *m = psti_member_at(data, id, slot);
        pthread_mutex_lock(&data->lock);
        const bool unseen = m->length != PSTI_ABSENT && m->inode == PSTI_ETAG_UNSEEN;
        pthread_mutex_unlock(&data->lock);
        if (unseen)
            rc = see(data, far, m);
    }
    return rc;
}

/* ---- all of a short list --------------------------------------------------------------------- */

/* Some of the samples, for one thread. */
typedef struct stretch {
    psti_work work;
    psti_dataset *data;
    const psti_far *far;
    int64_t begin, end;
    psti_missing missing;
} stretch;

static int see_stretch(psti_work *work, psti_crew *crew, pst_error *err)
{
    stretch *s = (stretch *)((char *)work - offsetof(stretch, work));
    (void)err;
    for (int64_t id = s->begin; id < s->end; id++) {
        const int rc = psti_far_see(s->data, s->far, id);
        if (rc < 0 && !s->missing.count++) {
            s->missing.id = id;
            s->missing.rc = rc;
        }
    }
    atomic_fetch_add(&crew->found, (uint64_t)(s->end - s->begin));
    return 0;
}

int psti_far_see_all(psti_dataset *data, const psti_far *far, const pst_dataset_options *opts,
                     psti_missing *out, pst_error *err)
{
    enum { AT_ONCE = 16 };
    const size_t count = (size_t)((data->count + AT_ONCE - 1) / AT_ONCE);
    stretch *all = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *all);
    if (!all)
        return psti_fail(err, -ENOMEM, "list", data->path, "out of memory while listing");
    psti_crew crew;
    psti_crew_init(&crew, opts->threads > 0 ? opts->threads : AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        const int64_t begin = (int64_t)i * AT_ONCE, end = begin + AT_ONCE;
        all[i] = (stretch){
            .data = data, .far = far, .begin = begin, .end = end < data->count ? end : data->count};
        all[i].work.run = see_stretch;
        psti_crew_push(&crew, &all[i].work);
    }
    const int rc = psti_crew_run(&crew, opts, err);
    psti_crew_fini(&crew);
    for (size_t i = 0; i < count && !rc; i++) {
        const uint64_t before = out->count;
        if (!before)
            *out = all[i].missing;
        out->count = before + all[i].missing.count;
    }
    psti_free(all);
    return rc;
}
