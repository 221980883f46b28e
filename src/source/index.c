/* SPDX-License-Identifier: Apache-2.0
 * The file of a remembered listing: name, envelope, atomic replacement. What stands in the body is
 * the business of index_tree.c and index_data.c. */
#include "source/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

#define MAGIC 0x5844495453500a1aull
enum { VERSION = 2, BUFFER = 256 * 1024 };

uint32_t psti_index_layout(void)
{
    return (uint32_t)(sizeof(psti_entry) | sizeof(psti_member) << 8 |
                      sizeof(psti_source_field) << 16 | PSTI_FIELDS_MAX << 25) ^
           psti_format_endings() * 0x9E3779B1u;
}

/* ---- where ----------------------------------------------------------------------------------- */

static const char *default_dir(char *buf, size_t cap)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(buf, cap, "%s/penstock", cache);
    else if (home && home[0] == '/')
        n = snprintf(buf, cap, "%s/.cache/penstock", home);
    return n > 0 && (size_t)n < cap ? buf : NULL;
}

char *psti_index_path(const pst_dataset_options *opts, const char *real, int *rc)
{
    char place[PSTI_KEY_MAX];
    const char *dir = opts->index_dir ? opts->index_dir : default_dir(place, sizeof place);
    *rc = 0;
    if (!dir || !dir[0])
        return NULL;
    char hex[33];
    psti_id128_hex(psti_hash_bytes(real, strlen(real)), hex);
    const size_t cap = strlen(dir) + sizeof hex + 8;
    char *path = psti_malloc(PSTI_MEM_SOURCE, cap);
    if (path)
        snprintf(path, cap, "%s/%s.idx", dir, hex);
    else
        *rc = -ENOMEM;
    return path;
}

void psti_index_forget(const char *index_path)
{
    if (index_path)
        unlink(index_path);
}

/* Makes the directories above a file, as far as they are missing. */
static void make_dirs(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_all(int fd, void *buf, size_t len)
{
    for (size_t got = 0; got < len;) {
        const ssize_t n = read(fd, (uint8_t *)buf + got, len - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

/* A plain file of our own, so that nobody else can make us believe things. */
static int open_own(const char *path, uint64_t *size)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        close(fd);
        return -1;
    }
    *size = (uint64_t)st.st_size;
    return fd;
}

static bool header_ok(const psti_index_header *h, uint64_t size)
{
    return h->magic == MAGIC && h->version == VERSION && h->layout == psti_index_layout() &&
           size >= sizeof *h && h->body_bytes == size - sizeof *h && h->body_bytes >= 8;
}

static bool crc_ok(const psti_index_header *h, const uint8_t *body)
{
    psti_index_header plain = *h;
    plain.crc = 0;
    const uint32_t crc = pst_crc32c(0, body, h->body_bytes);
    return pst_crc32c(crc, &plain, sizeof plain) == h->crc;
}

/* The body starts with the length and text of the path, padded to 8. */
static bool path_ok(psti_index *index, const char *real)
{
    uint64_t len;
    memcpy(&len, index->body, 8);
    if (len != strlen(real) || (len + 7) / 8 * 8 > index->header.body_bytes - 8)
        return false;
    index->at = 8 + (len + 7) / 8 * 8;
    return memcmp(index->body + 8, real, len) == 0;
}

bool psti_index_load(const char *index_path, const char *real, psti_index *out)
{
    *out = (psti_index){0};
    uint64_t size;
    const int fd = index_path ? open_own(index_path, &size) : -1;
    if (fd < 0)
        return false;
    bool ok = read_all(fd, &out->header, sizeof out->header) && header_ok(&out->header, size);
    if (ok)
        out->body = psti_malloc(PSTI_MEM_SOURCE, out->header.body_bytes);
    ok = ok && out->body && read_all(fd, out->body, out->header.body_bytes) &&
         crc_ok(&out->header, out->body) && path_ok(out, real);
    close(fd);
    if (!ok)
        psti_index_fini(out);
    return ok;
}

void psti_index_fini(psti_index *index)
{
    psti_free(index->body);
    *index = (psti_index){0};
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_out(psti_index_writer *w, const uint8_t *bytes, size_t len)
{
    while (len && !w->rc) {
        const ssize_t n = write(w->fd, bytes, len);
        if (n < 0 && errno != EINTR)
            w->rc = -errno;
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
}

static void flush(psti_index_writer *w)
{
    w->crc = pst_crc32c(w->crc, w->buf, w->used);
    write_out(w, w->buf, w->used);
    w->total += w->used;
    w->used = 0;
}

void psti_index_put(psti_index_writer *w, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    while (len && !w->rc) {
        const size_t n = len < BUFFER - w->used ? len : BUFFER - w->used;
        memcpy(w->buf + w->used, p, n);
        w->used += n;
        p += n;
        len -= n;
        if (w->used == BUFFER)
            flush(w);
    }
}

static void open_temp(psti_index_writer *w, const char *path)
{
    const size_t cap = strlen(path) + 32;
    w->path = psti_strdup(PSTI_MEM_SOURCE, path);
    w->temp = psti_malloc(PSTI_MEM_SOURCE, cap);
    w->buf = psti_malloc(PSTI_MEM_SOURCE, BUFFER);
    if (!w->path || !w->temp || !w->buf) {
        w->rc = -ENOMEM;
        return;
    }
    snprintf(w->temp, cap, "%s.XXXXXX", path);
    make_dirs(w->temp);
    w->fd = mkostemp(w->temp, O_CLOEXEC); /* mode 0600 */
    if (w->fd < 0)
        w->rc = -errno;
}

void psti_index_begin(psti_index_writer *w, const psti_opening *o, psti_source_kind kind)
{
    const uint64_t len = strlen(o->real);
    *w = (psti_index_writer){.fd = -1};
    w->header = (psti_index_header){.magic = MAGIC,
                                    .version = VERSION,
                                    .kind = (uint32_t)kind,
                                    .layout = psti_index_layout(),
                                    .listed_ns = o->now_ns};
    if (!o->index_path)
        w->rc = -ENOENT;
    else
        open_temp(w, o->index_path);
    if (!w->rc)
        write_out(w, (const uint8_t *)&w->header,
                  sizeof w->header); /* its place; written again at the end */
    psti_index_put(w, &len, sizeof len);
    psti_index_put(w, o->real, len);
    psti_index_put(w, "\0\0\0\0\0\0\0", (8 - len % 8) % 8);
}

void psti_index_end(psti_index_writer *w)
{
    if (!w->rc)
        flush(w);
    w->header.body_bytes = w->total;
    w->header.crc = pst_crc32c(w->crc, &w->header, sizeof w->header);
    if (!w->rc && lseek(w->fd, 0, SEEK_SET) < 0)
        w->rc = -errno;
    write_out(w, (const uint8_t *)&w->header, sizeof w->header);
    if (w->fd >= 0)
        close(w->fd);
    if (!w->rc && rename(w->temp, w->path))
        w->rc = -errno;
    if (w->rc && w->fd >= 0)
        unlink(w->temp);
    psti_free(w->path);
    psti_free(w->temp);
    psti_free(w->buf);
}
