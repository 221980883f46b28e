/* SPDX-License-Identifier: Apache-2.0
 * Walks a shard from header to header and groups members into samples, WebDataset's way: the name
 * up to the first dot of its last part is the stem, the rest the extension, and members that follow
 * each other with the same stem are one sample. Only headers and the small cls and json members are
 * read; nothing is ever extracted. Crew threads. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"
#include "source/reader_priv.h"
#include "source/tar.h"
#include "source/tar_header.h"

/* Where a header stands is known only when the one before it was read, so each skipped member costs
 * a round trip, in which a connection brings about FAR_SKIP bytes: less is read over, in windows
 * that grow, more is skipped. */
enum {
    WINDOW = 4096,
    MENDS_MOST = 3,
    FAR_LEAST = 64 << 10,
    FAR_SKIP = 1 << 20,
    FAR_MOST = 4 << 20
};
enum { CLS_MAX = 64, JSON_MAX = 16 << 20, MEMBERS_MAX = 256 };

typedef struct walk {
    psti_tar_scan *scan;
    int fd;
    psti_extent shard; /* of a pulled one, whose blocks are compared */
    uint64_t end;      /* size of the shard */
    uint64_t at;       /* where the next header stands */
    uint8_t *window;
    uint64_t window_at;
    size_t window_len;
    size_t ahead; /* bytes that are read at once */
    psti_tar_header header;
    psti_tar_pax next, all; /* pax records for the next member, and for all that follow */
    bool has_long_name;
    char long_name[PSTI_KEY_MAX + 1];
    size_t long_name_len;
    uint64_t entry_at; /* first header of the member, for messages */
    bool in_entry;     /* a name or pax header came and its member has not yet */
    pst_error *err;
} walk;

static int bad(const walk *w, uint64_t at, int code, const char *what)
{
    return psti_fail_at(w->err, code, "list", w->scan->path, (int64_t)at, "%s", what);
}

static int no_memory(const walk *w)
{
    return psti_fail(w->err, -ENOMEM, "list", w->scan->path, "out of memory while listing");
}

/* Fills the window from there on. What follows soon is read over: then more is asked for. */
static int far_window(walk *w, uint64_t at, size_t least)
{
    const uint64_t left = w->end - at, gap = at - (w->window_at + w->window_len);
    const bool near = at >= w->window_at + w->window_len && gap < FAR_SKIP;
    w->ahead = !near ? FAR_LEAST : w->ahead < FAR_MOST ? 2 * w->ahead : FAR_MOST;
    const size_t want = least > w->ahead ? least : left < w->ahead ? (size_t)left : w->ahead;
    w->window_len = 0;
    if (want > FAR_MOST)
        return -E2BIG;
    const int rc = psti_far_read_at(w->scan->far, w->scan->path, w->scan->etag, w->end, at,
                                    w->window, want, w->err);
    if (rc)
        return rc;
    w->window_at = at;
    w->window_len = want;
    return 0;
}

static int far_read(walk *w, uint64_t at, void *buf, size_t len)
{
    if (len > w->end || at > w->end - len)
        return bad(w, at, PST_ECORRUPT, "the shard is cut off inside a member");
    if (len > FAR_MOST)
        return psti_far_read_at(w->scan->far, w->scan->path, w->scan->etag, w->end, at, buf, len,
                                w->err);
    if (at < w->window_at || at + len > w->window_at + w->window_len) {
        const int rc = far_window(w, at, len);
        if (rc)
            return rc;
    }
    memcpy(buf, w->window + (at - w->window_at), len);
    return 0;
}

static int open_fd(walk *w)
{
    psti_tar_scan *scan = w->scan;
    w->fd = psti_open_beneath(scan->root, scan->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, false);
    if (w->fd < 0)
        return psti_fail(w->err, w->fd, "list", scan->path, "the shard cannot be opened: %s",
                         pst_strerror(w->fd));
    const int rc = psti_stamp_fd(w->fd, &scan->stamp);
    if (rc || !S_ISREG(scan->stamp.mode))
        return psti_fail(w->err, rc ? rc : PST_EDATASET, "list", scan->path,
                         "the shard is not a plain file");
    posix_fadvise(w->fd, 0, 0,
                  POSIX_FADV_RANDOM); /* headers only: reading ahead would read the data */
    return 0;
}

/* Of a pulled shard: what is damaged is fetched again, and read from the new file. */
static int mend(walk *w, uint64_t at, size_t len)
{
    const psti_tar_scan *scan = w->scan;
    int rc = scan->guard->mend(scan->guard_user, scan->path, at, len, w->err);
    if (rc < 0)
        return rc;
    if (rc > 0)
        psti_log(PSTI_LOG_WARN, "%s was gone or damaged and was fetched again", scan->path);
    close(w->fd);
    rc = open_fd(w);
    if (rc == 0 && scan->stamp.size != w->end)
        rc = bad(w, at, PST_ECHANGED, "the shard changed while it was listed; try again");
    return rc;
}

static int read_guarded(walk *w, uint64_t at, void *buf, size_t len)
{
    for (int i = 0;; i++) {
        psti_frame f;
        psti_frame_set(&f, &w->shard, at, len, buf);
        int rc = psti_read_frame(&w->shard, w->fd, &f, false);
        if (rc == 0)
            return 0;
        if ((rc != PST_ECHANGED && rc != -EIO) || i == MENDS_MOST)
            return psti_fail_at(w->err, rc, "list", w->scan->path, (int64_t)at,
                                "the shard cannot be read: %s", pst_strerror(rc));
        rc = mend(w, at, len);
        if (rc < 0)
            return rc;
    }
}

static int read_at(walk *w, uint64_t at, void *buf, size_t len)
{
    if (w->scan->far)
        return far_read(w, at, buf, len);
    if (w->shard.guard)
        return read_guarded(w, at, buf, len);
    for (size_t got = 0; got < len;) {
        const ssize_t n = pread(w->fd, (uint8_t *)buf + got, len - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return psti_fail_at(w->err, -errno, "list", w->scan->path, (int64_t)at,
                                "the shard cannot be read: %s", pst_strerror(-errno));
        if (n == 0)
            return bad(w, at, PST_ECHANGED,
                       "the shard became shorter while it was listed; try again");
        got += (size_t)n;
    }
    return 0;
}

/* What is read at once from there on; of a pulled shard to the end of the block that is compared.
 */
static size_t window_from(const walk *w, uint64_t at)
{
    const psti_guard *guard = w->shard.guard;
    return guard ? guard->block_bytes - (size_t)(at % guard->block_bytes) : WINDOW;
}

/* The block at w->at: small members lie close together, so one read often serves several headers.
 */
static int read_block(walk *w, const uint8_t **block)
{
    if (w->at < w->window_at || w->at + PSTI_TAR_BLOCK > w->window_at + w->window_len) {
        const uint64_t left = w->end - w->at;
        const size_t most = window_from(w, w->at);
        const size_t want = left < most ? (size_t)left : most;
        if (!w->scan->far)
            w->window_len = 0;
        const int rc = w->scan->far ? far_window(w, w->at, PSTI_TAR_BLOCK)
                                    : read_at(w, w->at, w->window, want);
        if (rc)
            return rc;
        if (!w->scan->far) {
            w->window_at = w->at;
            w->window_len = want;
        }
    }
    *block = w->window + (w->at - w->window_at);
    return 0;
}

/* ---- names and samples ------------------------------------------------------------------------
 */

/* The name as a key: without the leading ./ that tar writes for `tar c .` */
static int check_name(walk *w, const char **name, size_t *len)
{
    while (*len > 2 && (*name)[0] == '.' && (*name)[1] == '/') {
        *name += 2;
        *len -= 2;
    }
    const char *fault = psti_key_fault(*name, *len);
    char shown[300];
    if (fault)
        return psti_fail_at(w->err, PST_EDATASET, "list", w->scan->path, (int64_t)w->entry_at,
                            "the member name '%s' %s; write the shard anew without it",
                            psti_escape(shown, sizeof shown, *name, *len), fault);
    return 0;
}

static int start_sample(psti_tar_scan *scan, const char *stem, size_t len)
{
    if (psti_grow(&scan->samples, &scan->sample_cap, scan->sample_count + 1,
                  sizeof *scan->samples) ||
        psti_grow(&scan->stems, &scan->stem_cap, scan->sample_count + 1, sizeof *scan->stems) ||
        psti_strings_add(&scan->names, stem, len, &scan->stems[scan->sample_count]))
        return -ENOMEM;
    scan->samples[scan->sample_count++] = (psti_tar_sample){.first = scan->member_count};
    return 0;
}

static bool same_sample(const psti_tar_scan *scan, const char *stem, size_t len)
{
    if (!scan->sample_count)
        return false;
    const char *last = scan->names.data + scan->stems[scan->sample_count - 1];
    return strncmp(last, stem, len) == 0 && last[len] == 0;
}

static bool repeats_ext(const psti_tar_scan *scan, const psti_tar_sample *sample, const char *ext)
{
    for (uint32_t i = 0; i < sample->members; i++)
        if (strcmp(scan->names.data + scan->members[sample->first + i].ext, ext) == 0)
            return true;
    return false;
}

/* Contents that become values are read now. */
static int read_text(walk *w, psti_tar_member *m, uint64_t limit)
{
    if (m->length > limit)
        return bad(w, w->entry_at, PST_ELIMIT, "a cls or json member is larger than is sensible");
    char *text = psti_malloc(PSTI_MEM_SOURCE, m->length);
    if (!text)
        return no_memory(w);
    const bool near =
        m->offset >= w->window_at && m->offset + m->length <= w->window_at + w->window_len;
    int rc = 0;
    if (near)
        memcpy(text, w->window + (m->offset - w->window_at), m->length);
    else
        rc = read_at(w, m->offset, text, m->length);
    if (!rc && psti_strings_add(&w->scan->names, text, m->length, &m->text))
        rc = no_memory(w);
    psti_free(text);
    return rc;
}

static int add_member(walk *w, const char *ext, uint64_t offset, uint64_t length)
{
    psti_tar_scan *scan = w->scan;
    psti_tar_sample *sample = &scan->samples[scan->sample_count - 1];
    psti_tar_member m = {.offset = offset, .length = length, .text = PSTI_TAR_NO_TEXT};
    if (repeats_ext(scan, sample, ext))
        return bad(w, w->entry_at, PST_EDATASET,
                   "the sample has two members of this name; write the shard anew");
    if (sample->members == MEMBERS_MAX)
        return bad(w, w->entry_at, PST_ELIMIT,
                   "the sample has more than 256 members; names are cut at the first dot of their "
                   "last part, so dots in the "
                   "middle make samples run together");
    int rc = 0;
    if (strcmp(ext, "cls") == 0)
        rc = read_text(w, &m, CLS_MAX);
    else if (strcmp(ext, "json") == 0)
        rc = read_text(w, &m, JSON_MAX);
    if (rc)
        return rc;
    if (psti_strings_add(&scan->names, ext, strlen(ext), &m.ext) ||
        psti_grow(&scan->members, &scan->member_cap, scan->member_count + 1, sizeof *scan->members))
        return no_memory(w);
    scan->members[scan->member_count++] = m;
    sample->members++;
    return 0;
}

/* A regular file of the shard: which sample it belongs to. */
static int take_file(walk *w, const char *name, size_t len, uint64_t offset, uint64_t length)
{
    int rc = check_name(w, &name, &len);
    if (rc)
        return rc;
    const char *slash = memrchr(name, '/', len);
    const char *base = slash ? slash + 1 : name;
    const char *dot = memchr(base, '.', (size_t)(name + len - base));
    if (!dot || dot == base || dot + 1 == name + len) { /* no extension, or hidden */
        w->scan->ignored++;
        return 0;
    }
    char ext[PSTI_KEY_MAX + 1];
    const size_t stem_len = (size_t)(dot - name), ext_len = len - stem_len - 1;
    for (size_t i = 0; i < ext_len; i++)
        ext[i] = dot[1 + i] >= 'A' && dot[1 + i] <= 'Z' ? (char)(dot[1 + i] + 32) : dot[1 + i];
    ext[ext_len] = 0;
    if (!same_sample(w->scan, name, stem_len) && start_sample(w->scan, name, stem_len))
        return no_memory(w);
    return add_member(w, ext, offset, length);
}

/* ---- walking ----------------------------------------------------------------------------------
 */

/* The bytes of a GNU long name. */
static int take_long_name(walk *w, uint64_t offset, uint64_t length)
{
    if (length == 0 || length > PSTI_KEY_MAX + 1)
        return bad(w, w->at, PST_ELIMIT, "a long name is longer than 4096 bytes");
    char name[PSTI_KEY_MAX + 1];
    const int rc = read_at(w, offset, name, length);
    if (rc)
        return rc;
    w->long_name_len = strnlen(name, length);
    if (w->long_name_len > PSTI_KEY_MAX)
        return bad(w, w->at, PST_ELIMIT, "a long name is longer than 4096 bytes");
    memcpy(w->long_name, name, w->long_name_len);
    w->long_name[w->long_name_len] = 0;
    w->has_long_name = true;
    return 0;
}

static int take_pax(walk *w, uint64_t offset, uint64_t length, psti_tar_pax *into)
{
    if (length > PSTI_TAR_PAX_MAX)
        return bad(w, w->at, PST_ELIMIT, "a pax header is larger than 64 KiB");
    char *bytes = psti_malloc(PSTI_MEM_SOURCE, length);
    if (!bytes)
        return no_memory(w);
    int rc = read_at(w, offset, bytes, length);
    if (!rc) {
        const char *fault = psti_tar_pax_parse(bytes, length, into);
        rc = fault ? bad(w, w->at, PST_EDATASET, fault) : 0;
    }
    psti_free(bytes);
    return rc;
}

static bool is_plain(const walk *w)
{
    const char type = w->header.type;
    return type == '0' || type == 0 || type == '7';
}

/* The member that the pending name and pax headers were for. */
static int take_entry(walk *w, uint64_t offset, uint64_t length)
{
    const char *name = w->next.has_path   ? w->next.path
                       : w->has_long_name ? w->long_name
                       : w->all.has_path  ? w->all.path
                                          : w->header.name;
    const size_t len = w->next.has_path   ? w->next.path_len
                       : w->has_long_name ? w->long_name_len
                       : w->all.has_path  ? w->all.path_len
                                          : w->header.name_len;
    int rc = 0;
    if (is_plain(w) &&
        !(len && name[len - 1] == '/')) /* v7 writes directories as files with a slash behind */
        rc = take_file(w, name, len, offset, length);
    else if (!is_plain(w) && w->header.type != '5')
        rc = bad(w, w->entry_at, PST_EDATASET,
                 "links, devices and other special members are refused; write the shard anew with "
                 "plain files only");
    w->next.has_path = w->next.has_size = w->has_long_name = w->in_entry = false;
    return rc;
}

/* Size of what follows the header. Directories have none, whatever the header says. */
static uint64_t data_length(const walk *w)
{
    const char type = w->header.type;
    if (type == 'L' || type == 'K' || type == 'x' || type == 'g')
        return w->header.size;
    if (type == '5')
        return 0;
    return w->next.has_size ? w->next.size : w->all.has_size ? w->all.size : w->header.size;
}

static int take_header(walk *w, uint64_t offset, uint64_t length)
{
    switch (w->header.type) {
    case 'L':
        return take_long_name(w, offset, length);
    case 'x':
        return take_pax(w, offset, length, &w->next);
    case 'g':
        return take_pax(w, offset, length, &w->all);
    case 'K': /* belongs to a link, which is refused when it comes */
        return 0;
    default:
        return take_entry(w, offset, length);
    }
}

/* One header and what it describes. 1 at the end of the archive. */
static int step(walk *w)
{
    const uint8_t *block;
    if (w->at == w->end)
        return w->in_entry ? bad(w, w->entry_at, PST_ECORRUPT, "the shard ends before the member")
                           : 1;
    if (w->end - w->at < PSTI_TAR_BLOCK)
        return bad(w, w->at, PST_ECORRUPT, "the shard is cut off inside a header");
    int rc = read_block(w, &block);
    if (rc)
        return rc;
    if (psti_tar_block_is_zero(block))
        return w->in_entry ? bad(w, w->entry_at, PST_ECORRUPT, "the shard ends before the member")
                           : 1;
    if (!w->in_entry)
        w->entry_at = w->at;
    w->in_entry = true;
    const char *fault = psti_tar_header_parse(block, &w->header);
    if (fault)
        return bad(w, w->at, PST_ECORRUPT, fault);
    const uint64_t offset = w->at + PSTI_TAR_BLOCK, length = data_length(w);
    const uint64_t padded = (length + PSTI_TAR_BLOCK - 1) / PSTI_TAR_BLOCK * PSTI_TAR_BLOCK;
    if (length > w->end - offset || padded > w->end - offset)
        return bad(w, w->at, PST_ECORRUPT,
                   "the shard is cut off inside a member, or the member's size is wrong");
    rc = take_header(w, offset, length);
    if (w->header.type == 'g' && w->entry_at == w->at)
        w->in_entry = false; /* stands for itself */
    w->at = offset + padded;
    return rc;
}

static int check_stems(walk *w)
{
    psti_tar_scan *scan = w->scan;
    psti_keymap map;
    int rc =
        psti_keymap_init(&map, scan->sample_count, &scan->names, scan->stems) ? no_memory(w) : 0;
    for (size_t i = 0; i < scan->sample_count && !rc; i++) {
        const int64_t before = psti_keymap_put(&map, i);
        if (before < 0)
            continue;
        rc = psti_fail_at(w->err, PST_EDATASET, "list", scan->path,
                          (int64_t)scan->members[scan->samples[i].first].offset,
                          "duplicate sample key '%s': its first members lie at byte %llu; members "
                          "of a sample must "
                          "follow each other",
                          scan->names.data + scan->stems[i],
                          (unsigned long long)scan->members[scan->samples[before].first].offset);
    }
    psti_keymap_fini(&map);
    return rc;
}

static int open_shard(walk *w)
{
    psti_tar_scan *scan = w->scan;
    w->ahead = scan->far ? FAR_LEAST : WINDOW;
    const size_t room = scan->far ? FAR_MOST : scan->guard ? PSTI_GUARD_BLOCK : WINDOW;
    w->window = psti_malloc(PSTI_MEM_SOURCE, room);
    if (!w->window)
        return no_memory(w);
    if (scan->far) {
        w->end = scan->stamp.size;
        return 0;
    }
    const int rc = open_fd(w);
    if (rc < 0)
        return rc;
    w->end = scan->stamp.size;
    if (scan->guard && scan->guard->first &&
        scan->guard->first(scan->guard_user, scan->path, w->end, &w->shard.first_block) == 0) {
        w->shard.guard = scan->guard;
        w->shard.guard_user = scan->guard_user;
        w->shard.file_size = w->end;
    }
    return 0;
}

int psti_tar_scan_run(psti_tar_scan *scan, pst_error *err)
{
    walk *w = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *w);
    if (!w)
        return psti_fail(err, -ENOMEM, "list", scan->path, "out of memory while listing");
    w->scan = scan;
    w->err = err;
    w->fd = -1;
    int rc = open_shard(w);
    while (!rc)
        rc = step(w);
    if (rc > 0)
        rc = check_stems(w);
    if (w->fd >= 0)
        close(w->fd);
    psti_free(w->window);
    psti_free(w);
    return rc;
}

void psti_tar_scan_fini(psti_tar_scan *scan)
{
    psti_free(scan->samples);
    psti_free(scan->stems);
    psti_free(scan->members);
    psti_strings_free(&scan->names);
}
