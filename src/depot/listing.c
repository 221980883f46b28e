/* SPDX-License-Identifier: Apache-2.0
 * Objects of a revision: checked as they are listed, hashed to the revision's name, kept as a file
 * of lines that ends with a checksum of itself. Pure but for reading and writing; any thread. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "depot/depot_priv.h"

#define HEAD "# penstock manifest 1\t"
#define TAIL "# end\t"

void listing_fini(listing *l)
{
    psti_free(l->objects);
    psti_free(l->text);
    memset(l, 0, sizeof *l);
}

static bool grow(void **memory, size_t *cap, size_t need, size_t item)
{
    if (need <= *cap)
        return true;
    size_t larger = *cap ? *cap * 2 : 256;
    if (larger < need)
        larger = need;
    void *moved = psti_realloc(PSTI_MEM_DEPOT, *memory, larger, item);
    if (!moved)
        return false;
    *memory = moved;
    *cap = larger;
    return true;
}

static uint64_t keep(listing *l, const char *text, size_t len)
{
    const uint64_t at = l->text_used;
    memcpy(l->text + at, text, len);
    l->text[at + len] = 0;
    l->text_used += len + 1;
    return at;
}

static bool etag_ok(const char *etag)
{
    const size_t len = strlen(etag);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)etag[i] < 0x20 || etag[i] == 0x7f)
            return false;
    return len <= ETAG_MOST;
}

static int key_refused(const char *key, size_t len, const char *why, pst_error *err)
{
    char shown[200];
    return psti_fail(err, PST_EDATASET, "list", psti_escape(shown, sizeof shown, key, len),
                     "a key %s", why);
}

int listing_add(listing *l, const char *key, size_t key_len, uint64_t size, const char *etag,
                pst_error *err)
{
    const char *fault = psti_key_fault(key, key_len);
    if (fault)
        return key_refused(key, key_len, fault, err);
    if (size > INT64_MAX)
        return key_refused(key, key_len, "has a size that is none", err);
    if (!etag_ok(etag))
        return key_refused(key, key_len, "has an etag that is none", err);
    if (l->count > 0 && strcmp(object_key(l, &l->objects[l->count - 1]), key) >= 0)
        return key_refused(key, key_len, "is out of order", err);
    const size_t etag_len = strlen(etag);
    if (!grow((void **)&l->objects, &l->cap, l->count + 1, sizeof *l->objects) ||
        !grow((void **)&l->text, &l->text_cap, l->text_used + key_len + etag_len + 2, 1))
        return psti_fail(err, -ENOMEM, "list", NULL, "out of memory");
    object *o = &l->objects[l->count];
    *o = (object){.size = size, .number = (uint32_t)l->count};
    o->key = keep(l, key, key_len);
    o->etag = keep(l, etag, etag_len);
    if (__builtin_add_overflow(l->bytes, size, &l->bytes))
        return key_refused(key, key_len, "has a size that is none", err);
    o->blocks = l->blocks;
    l->blocks += blocks_of(size);
    l->count++;
    return 0;
}

int object_compare(const listing *a, const object *x, const listing *b, const object *y)
{
    const int keys = strcmp(object_key(a, x), object_key(b, y));
    if (keys != 0)
        return keys;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return strcmp(object_etag(a, x), object_etag(b, y));
}

object *listing_find(const listing *l, const char *key)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int order = strcmp(object_key(l, &l->objects[mid]), key);
        if (order == 0)
            return &l->objects[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* Between `a` and `a/b` other keys may stand (`a-c`), so every key that goes on from the last one
 * that could be a folder is compared with it. */
int listing_check(const listing *l, pst_error *err)
{
    for (size_t i = 0; i < l->count; i++) {
        const char *key = object_key(l, &l->objects[i]);
        const size_t len = strlen(key);
        size_t low = i + 1, high = l->count;
        while (low < high) { /* the first key that is not before `key/` */
            const size_t mid = low + (high - low) / 2;
            const char *other = object_key(l, &l->objects[mid]);
            const int order = strncmp(other, key, len);
            if (order < 0 || (order == 0 && (unsigned char)other[len] < '/'))
                low = mid + 1;
            else
                high = mid;
        }
        const char *next = low < l->count ? object_key(l, &l->objects[low]) : "";
        if (strncmp(next, key, len) == 0 && next[len] == '/')
            return key_refused(key, len, "is an object and a folder at once", err);
    }
    return 0;
}

void listing_revision(const listing *l, char hex[REVISION_HEX + 1])
{
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_text(&h, "penstock revision 1", 19);
    for (size_t i = 0; i < l->count; i++) {
        const object *o = &l->objects[i];
        psti_hash_text(&h, object_key(l, o), strlen(object_key(l, o)));
        psti_hash_u64(&h, o->size);
        psti_hash_text(&h, object_etag(l, o), strlen(object_etag(l, o)));
    }
    psti_id128_hex(psti_hash_final(&h), hex);
}

/* ---- the file ----------------------------------------------------------------------------------
 */

typedef struct writer {
    int fd, failed;
    uint32_t crc;
    size_t used;
    char buf[1 << 16];
} writer;

static void put(writer *w, const char *text, size_t len)
{
    if (w->used + len > sizeof w->buf) {
        const int rc = write_all(w->fd, w->buf, w->used);
        w->failed = w->failed ? w->failed : rc;
        w->used = 0;
    }
    memcpy(w->buf + w->used, text, len);
    w->used += len;
    w->crc = pst_crc32c(w->crc, text, len);
}

static void put_object(writer *w, const listing *l, const object *o)
{
    char line[PSTI_KEY_MAX + ETAG_MOST + 80];
    int len = snprintf(line, sizeof line, "%s\t%" PRIu64 "\t%s\t", object_key(l, o), o->size,
                       object_etag(l, o));
    if (o->known)
        len += snprintf(line + len, sizeof line - (size_t)len, "%08" PRIx32 "\t%" PRIu32 "\n",
                        o->crc, o->took_us);
    else
        len += snprintf(line + len, sizeof line - (size_t)len, "-\t-\n");
    put(w, line, (size_t)len);
}

int listing_write(const listing *l, int dir, const char *name, const char *url, pst_error *err)
{
    char temporary[64], line[1100];
    snprintf(temporary, sizeof temporary, ".%s.new", name);
    writer *w = psti_malloc(PSTI_MEM_DEPOT, sizeof *w);
    if (!w)
        return psti_fail(err, -ENOMEM, "pull", NULL, "out of memory");
    w->failed = 0;
    w->used = 0;
    w->crc = 0;
    w->fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    int rc = w->fd < 0 ? -errno : 0;
    if (rc == 0) {
        put(w, line, (size_t)snprintf(line, sizeof line, HEAD "%.1000s\n", url));
        for (size_t i = 0; i < l->count; i++)
            put_object(w, l, &l->objects[i]);
        put(w, line,
            (size_t)snprintf(line, sizeof line, TAIL "%zu\t%08" PRIx32 "\n", l->count, w->crc));
        rc = w->failed ? w->failed : write_all(w->fd, w->buf, w->used);
        if (rc == 0 && fsync(w->fd) != 0)
            rc = -errno;
        close(w->fd);
    }
    psti_free(w);
    if (rc == 0 && renameat(dir, temporary, dir, name) != 0)
        rc = -errno;
    return rc < 0 ? psti_fail(err, rc, "pull", name, "cannot be written: %s", strerror(-rc)) : 0;
}

static char *next_cell(char **at)
{
    char *cell = *at, *tab = strchr(cell, '\t');
    if (tab)
        *tab = 0;
    *at = tab ? tab + 1 : cell + strlen(cell);
    return cell;
}

static int read_line(listing *l, char *line)
{
    char *key = next_cell(&line), *size = next_cell(&line), *etag = next_cell(&line);
    char *crc = next_cell(&line), *took = next_cell(&line), *end;
    const uint64_t bytes = strtoull(size, &end, 10);
    if (!*size || *end || !*took)
        return PST_ECORRUPT;
    const int rc = listing_add(l, key, strlen(key), bytes, etag, NULL);
    if (rc < 0 || *crc == '-')
        return rc;
    object *o = &l->objects[l->count - 1];
    o->crc = (uint32_t)strtoul(crc, &end, 16);
    const bool fine = *end == 0;
    o->took_us = (uint32_t)strtoul(took, &end, 10);
    o->known = true;
    return fine && *end == 0 ? 0 : PST_ECORRUPT;
}

/* The text is cut into its lines; what it ends with must fit what stands before. */
static int read_text(listing *l, char *text, size_t size, char *url, size_t cap)
{
    const size_t head = strlen(HEAD), tail = strlen(TAIL);
    if (size < head || memcmp(text, HEAD, head) != 0 || text[size - 1] != '\n')
        return PST_ECORRUPT;
    text[size - 1] = 0;
    char *last = strrchr(text, '\n'), *end;
    if (!last || strncmp(last + 1, TAIL, tail) != 0)
        return PST_ECORRUPT;
    const size_t count = strtoull(last + 1 + tail, &end, 10);
    char sum[16];
    snprintf(sum, sizeof sum, "\t%08" PRIx32, pst_crc32c(0, text, (size_t)(last + 1 - text)));
    if (strcmp(end, sum) != 0)
        return PST_ECORRUPT;
    *last = 0;
    char *at = strchr(text, '\n');
    if (at)
        *at = 0;
    if (url)
        snprintf(url, cap, "%s", text + head);
    int rc = 0;
    while (at && rc == 0) {
        char *line = at + 1;
        at = strchr(line, '\n');
        if (at)
            *at = 0;
        rc = read_line(l, line);
    }
    return rc == 0 && l->count != count ? PST_ECORRUPT : rc;
}

int listing_read(listing *l, int dir, const char *name, char *url, size_t cap, pst_error *err)
{
    struct stat st;
    memset(l, 0, sizeof *l);
    const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int code = -errno;
        if (fd >= 0)
            close(fd);
        return psti_fail(err, code, "pull", name, "cannot be read: %s", strerror(-code));
    }
    const size_t size = (size_t)st.st_size;
    char *text = psti_malloc(PSTI_MEM_DEPOT, size + 1);
    int rc = text ? 0 : -ENOMEM;
    for (size_t at = 0; rc == 0 && at < size;) {
        const ssize_t n = pread(fd, text + at, size - at, (off_t)at);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = n == 0 ? PST_ECORRUPT : -errno;
    }
    close(fd);
    if (rc == 0) {
        text[size] = 0;
        rc = read_text(l, text, size, url, cap);
    }
    psti_free(text);
    if (rc == 0)
        return 0;
    listing_fini(l);
    return psti_fail(err, rc, "pull", name, "the list of a revision's objects is damaged");
}

/* ---- what is there ------------------------------------------------------------------------------
 */

static void done_line(char line[DONE_LINE + 1], const object *o)
{
    snprintf(line, DONE_LINE + 1, "%08" PRIx32 " %08" PRIx32 " %08" PRIx32 "\n", o->number, o->crc,
             o->took_us);
}

int done_append(int fd, const object *o)
{
    char line[DONE_LINE + 1];
    done_line(line, o);
    return write_all(fd, line, DONE_LINE);
}

bool done_parse(listing *l, const char *line)
{
    uint32_t number, crc, took_us;
    if (line[8] != ' ' || line[17] != ' ' || line[DONE_LINE - 1] != '\n' ||
        sscanf(line, "%8" SCNx32 " %8" SCNx32 " %8" SCNx32, &number, &crc, &took_us) != 3 ||
        number >= l->count)
        return false;
    object *o = &l->objects[number];
    o->crc = crc;
    o->took_us = took_us;
    o->known = true;
    return true;
}

/* After a cut line the others stand askew: the next end of a line sets them right. */
int done_read(listing *l, int dir)
{
    for (size_t i = 0; i < l->count; i++)
        l->objects[i].known = false;
    const int fd = openat(dir, "done", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    char buf[DONE_LINE * 1024 + 1];
    size_t have = 0;
    ssize_t n = 1;
    while (n > 0 || (n < 0 && errno == EINTR)) {
        n = read(fd, buf + have, sizeof buf - 1 - have);
        have += n > 0 ? (size_t)n : 0;
        size_t at = 0;
        while (have - at >= DONE_LINE) {
            if (done_parse(l, buf + at)) {
                at += DONE_LINE;
                continue;
            }
            const char *end = memchr(buf + at, '\n', have - at);
            at = end ? (size_t)(end + 1 - buf) : have;
        }
        memmove(buf, buf + at, have - at);
        have -= at;
    }
    const int code = n < 0 ? -errno : 0;
    close(fd);
    return code;
}

int done_write(const listing *l, int dir)
{
    const int fd =
        openat(dir, ".done.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return -errno;
    int rc = 0;
    for (size_t i = 0; i < l->count && rc == 0; i++)
        if (l->objects[i].known)
            rc = done_append(fd, &l->objects[i]);
    close(fd);
    return rc == 0 && renameat(dir, ".done.new", dir, "done") != 0 ? -errno : rc;
}
