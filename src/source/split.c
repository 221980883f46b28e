/* SPDX-License-Identifier: Apache-2.0
 * Splits from id lists: splits/NAME.txt beside the data, one id or key a line. Read anew at every
 * start, because an edited list changes no directory. Runs in the thread that opens the dataset. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"
#include "source/manifest.h"
#include "source/source_priv.h"

#define LIST_MAX (1ull << 30)
enum { LISTS_MAX = 256 };

typedef struct lists {
    psti_dataset *data;
    int dir;               /* splits/ */
    const psti_opening *o; /* of a bucket; NULL: dir */
    psti_strings names;
    uint64_t at[LISTS_MAX]; /* file names, in names */
    size_t count;
    psti_keymap map; /* keys of the dataset, made when the first key comes */
    bool mapped;
} lists;

static int no_memory(const lists *l, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", l->data->path, "out of memory while reading splits");
}

static int by_name(const void *left, const void *right, void *names)
{
    return strcmp((const char *)names + *(const uint64_t *)left,
                  (const char *)names + *(const uint64_t *)right);
}

static int find_lists(lists *l, pst_error *err)
{
    const int fd = openat(l->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        const int rc = -errno;
        if (fd >= 0)
            close(fd);
        return psti_fail(err, rc, "list", l->data->path, "the folder 'splits' cannot be read: %s",
                         pst_strerror(rc));
    }
    int rc = 0;
    for (const struct dirent *d; !rc && (d = readdir(dir));) {
        const size_t len = strlen(d->d_name);
        if (d->d_name[0] == '.' || !psti_has_ext(d->d_name, len, "txt"))
            continue;
        if (l->count == LISTS_MAX)
            rc =
                psti_fail(err, PST_ELIMIT, "list", l->data->path, "more than %d splits", LISTS_MAX);
        else if (psti_strings_add(&l->names, d->d_name, len, &l->at[l->count++]))
            rc = no_memory(l, err);
    }
    closedir(dir);
    if (!rc && l->count)
        qsort_r(l->at, l->count, sizeof *l->at, by_name, l->names.data);
    return rc;
}

static int64_t id_of_line(lists *l, const char *line, size_t len)
{
    int64_t id;
    if (psti_text_i64(line, len, &id))
        return id >= 0 && id < l->data->count ? id : -1;
    return psti_keymap_find(&l->map, line, len);
}

static int need_map(lists *l)
{
    if (l->mapped)
        return 0;
    const size_t count = (size_t)l->data->count;
    if (psti_keymap_init(&l->map, count, &l->data->names, l->data->keys))
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        psti_keymap_put(&l->map, i);
    l->mapped = true;
    return 0;
}

static int read_list(lists *l, const char *name, char **text, size_t *len, pst_error *err)
{
    char path[PSTI_KEY_MAX + 16];
    if (l->o) {
        snprintf(path, sizeof path, "splits/%s", name);
        return psti_far_read(l->o, path, LIST_MAX, text, len, err);
    }
    psti_stamp stamp;
    const int fd = psti_open_beneath(l->dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, false);
    int rc = fd < 0 ? fd : psti_stamp_fd(fd, &stamp);
    if (!rc && (!S_ISREG(stamp.mode) || stamp.size > LIST_MAX))
        rc = -EFBIG;
    *len = 0;
    *text = rc ? NULL : psti_malloc(PSTI_MEM_SOURCE, stamp.size);
    if (!rc && !*text)
        rc = -ENOMEM;
    while (!rc && *len < stamp.size) {
        const ssize_t n = read(fd, *text + *len, stamp.size - *len);
        if (n > 0)
            *len += (size_t)n;
        else if (n == 0)
            break;
        else if (errno != EINTR)
            rc = -errno;
    }
    if (fd >= 0)
        close(fd);
    return rc ? psti_fail(err, rc, "list", l->data->path, "splits/%.200s cannot be read: %s", name,
                          pst_strerror(rc))
              : 0;
}

static int by_id(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t sort_unique(int64_t *ids, int64_t count)
{
    int64_t kept = 0;
    qsort(ids, (size_t)count, sizeof *ids, by_id);
    for (int64_t i = 0; i < count; i++)
        if (!kept || ids[kept - 1] != ids[i])
            ids[kept++] = ids[i];
    return kept;
}

/* The ids that the lines name; *ids is the caller's, also on failure. */
static int parse_list(lists *l, const char *name, const char *text, size_t len, int64_t **ids,
                      int64_t *count, pst_error *err)
{
    const char *line;
    size_t n, cap = 0, used = 0;
    for (uint64_t number = 1; psti_next_line(&text, &len, &line, &n); number++) {
        if (n == 0)
            continue;
        const int64_t id = id_of_line(l, line, n);
        char shown[200];
        if (id < 0)
            return psti_fail(
                err, PST_EDATASET, "list", l->data->path,
                "splits/%.100s, line %llu: '%s' is neither an id nor a key of the dataset", name,
                (unsigned long long)number, psti_escape(shown, sizeof shown, line, n));
        if (psti_grow(ids, &cap, used + 1, sizeof **ids))
            return no_memory(l, err);
        (*ids)[used++] = id;
    }
    *count = used ? sort_unique(*ids, (int64_t)used) : 0;
    return 0;
}

static int load_list(lists *l, const char *name, pst_error *err)
{
    char *text = NULL;
    size_t len;
    int64_t *ids = NULL, count = 0;
    int rc = read_list(l, name, &text, &len, err);
    if (!rc && need_map(l))
        rc = no_memory(l, err);
    if (!rc)
        rc = parse_list(l, name, text, len, &ids, &count, err);
    psti_free(text);
    if (rc) {
        psti_free(ids);
        return rc;
    }
    char split[256];
    const size_t stem = strlen(name) - 4;
    memcpy(split, name, stem);
    split[stem] = 0;
    return psti_dataset_add_split(l->data, split, ids, count, err);
}

static int load_all(lists *l, pst_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < l->count && !rc; i++)
        rc = load_list(l, l->names.data + l->at[i], err);
    if (l->mapped)
        psti_keymap_fini(&l->map);
    psti_strings_free(&l->names);
    return rc;
}

int psti_splits_load_far(psti_dataset *data, const psti_opening *o, pst_error *err)
{
    lists l = {.data = data, .dir = -1, .o = o};
    const psti_dir *top = o->tree->top, *dir = NULL;
    for (uint32_t i = 0; i < top->count; i++)
        if (top->entries[i].type == PSTI_ENTRY_DIR &&
            strcmp(psti_entry_name(top, &top->entries[i]), "splits") == 0)
            dir = top->entries[i].child;
    int rc = 0;
    for (uint32_t i = 0; dir && i < dir->count && !rc; i++) {
        if (dir->entries[i].type != PSTI_ENTRY_LIST)
            continue;
        const char *name = psti_entry_name(dir, &dir->entries[i]);
        if (l.count == LISTS_MAX || strlen(name) > 250)
            rc = psti_fail(err, PST_ELIMIT, "list", data->path,
                           "more than %d splits, or one with a long name", LISTS_MAX);
        else if (psti_strings_add(&l.names, name, strlen(name), &l.at[l.count++]))
            rc = no_memory(&l, err);
    }
    if (rc)
        l.count = 0;
    const int loaded = load_all(&l, err);
    return rc ? rc : loaded;
}

int psti_splits_load(psti_dataset *data, int above, pst_error *err)
{
    lists l = {.data = data};
    l.dir = psti_open_beneath(above, "splits", O_PATH | O_DIRECTORY, false);
    if (l.dir < 0)
        return 0;
    const int rc = find_lists(&l, err);
    if (rc)
        l.count = 0;
    const int loaded = load_all(&l, err);
    close(l.dir);
    return rc ? rc : loaded;
}
