/* SPDX-License-Identifier: Apache-2.0
 * A dataset from the caller's own list of files: paths and labels copied into columns, nothing
 * looked at. The files are seen when they are first read (member.c). Runs in the thread that makes
 * the dataset. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/source_priv.h"

typedef struct listing {
    const pst_files *spec;
    size_t root_len; /* without slashes at its end; 0 = no root */
    char *here;      /* working directory; libc's malloc, made when first needed */
    psti_dataset *data;
} listing;

static int refuse(pst_error *err, const char *root, const char *what)
{
    return psti_fail(err, -EINVAL, "list", root, "%s", what);
}

static int no_memory(const listing *l, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", l->spec->root, "out of memory while listing");
}

static int check_spec(const pst_files *spec, pst_error *err)
{
    if (spec->size != sizeof *spec)
        return refuse(err, NULL, "a pst_files of another version; call pst_files_init");
    if (spec->count <= 0 || !spec->paths)
        return refuse(err, spec->root, "the list of files is empty");
    if (spec->class_count < 0 || (spec->class_count && !spec->classes))
        return refuse(err, spec->root, "the number of classes does not fit their names");
    return 0;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* What is wrong with a path, as the end of a sentence. It may be absolute and hold `..`: it is the
 * caller's. */
static const char *fault_of(const char *path, size_t len)
{
    if (len == 0)
        return "is empty";
    if (len > PSTI_KEY_MAX)
        return "is longer than 4096 bytes";
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return "holds a control byte";
    return psti_utf8_ok(path, len) ? NULL : "is not UTF-8";
}

/* The part below the root, or NULL. */
static const char *below_root(const listing *l, const char *path)
{
    const char *root = l->spec->root;
    if (!root || strncmp(path, root, l->root_len) != 0 || path[l->root_len] != '/')
        return NULL;
    path += l->root_len;
    while (*path == '/')
        path++;
    return *path ? path : NULL;
}

/* Where a relative path that is not below the root starts from. */
static const char *working_directory(listing *l)
{
    if (!l->here)
        l->here = getcwd(NULL, 0); /* lint: library memory */
    return l->here;
}

/* Bytes of the path as it will be kept, its terminator included; 0 when that cannot be said. */
static size_t kept_bytes(listing *l, const char *path)
{
    const char *below = below_root(l, path);
    if (below || path[0] == '/')
        return strlen(below ? below : path) + 1;
    const char *here = working_directory(l);
    return here ? strlen(here) + 1 + strlen(path) + 1 : 0;
}

/* The pool has room. */
static uint64_t keep(listing *l, const char *path)
{
    psti_strings *pool = &l->data->names;
    const char *below = below_root(l, path);
    const uint64_t at = pool->len;
    if (!below && path[0] != '/') {
        const size_t len = strlen(l->here);
        memcpy(pool->data + pool->len, l->here, len);
        pool->data[pool->len + len] = '/';
        pool->len += len + 1;
    }
    const char *rest = below ? below : path;
    const size_t bytes = strlen(rest) + 1;
    memcpy(pool->data + pool->len, rest, bytes);
    pool->len += bytes;
    return at;
}

static int bad_path(const listing *l, int64_t id, const char *fault, pst_error *err)
{
    const char *path = l->spec->paths[id];
    char shown[300];
    return psti_fail(err, PST_EDATASET, "list", l->spec->root,
                     "path %lld of the list, '%s', %s; leave it out or rename the file",
                     (long long)id, psti_escape(shown, sizeof shown, path, strlen(path)), fault);
}

/* Checks every path and says how many bytes they take; *formats has a bit per format. */
static int measure(listing *l, size_t *bytes, unsigned *formats, pst_error *err)
{
    *bytes = 0;
    *formats = 0;
    for (int64_t id = 0; id < l->spec->count; id++) {
        const char *path = l->spec->paths[id];
        const size_t len = strlen(path);
        const char *fault = fault_of(path, len);
        const size_t kept = fault ? 0 : kept_bytes(l, path);
        if (!kept)
            return bad_path(l, id, fault ? fault : "starts from a directory that is gone", err);
        *bytes += kept;
        *formats |= 1u << psti_format_of_name(path, len);
    }
    return 0;
}

/* "jpeg", …; "mixed" when there are several; "any" when a name does not tell. */
static const char *format_name(unsigned formats)
{
    const unsigned pictures =
        1u << PSTI_FORMAT_JPEG | 1u << PSTI_FORMAT_PNG | 1u << PSTI_FORMAT_WEBP;
    if (formats & ~pictures)
        return "any";
    for (int i = PSTI_FORMAT_JPEG; i <= PSTI_FORMAT_WEBP; i++)
        if (formats == 1u << i)
            return psti_format_by_name((psti_format)i);
    return "mixed";
}

static int add_files(listing *l, pst_error *err)
{
    psti_dataset *data = l->data;
    size_t bytes;
    unsigned formats;
    const int rc = measure(l, &bytes, &formats, err);
    if (rc)
        return rc;
    const pst_field_info info = psti_member_info("image", 5, PST_IMAGE, format_name(formats));
    psti_dataset_add_field(data, &info, true, 0);
    if (psti_dataset_make_room(data, l->spec->count, 1) ||
        psti_strings_reserve(&data->names, bytes))
        return no_memory(l, err);
    for (int64_t id = 0; id < data->count; id++) {
        data->keys[id] = keep(l, l->spec->paths[id]);
        *psti_member_at(data, id, 0) =
            (psti_member){.length = PSTI_UNSEEN, .place = data->keys[id]};
    }
    return 0;
}

/* ---- labels and classes ---------------------------------------------------------------------- */

static int add_labels(listing *l)
{
    psti_dataset *data = l->data;
    if (!l->spec->labels)
        return 0;
    int64_t *labels = psti_calloc(PSTI_MEM_SOURCE, (size_t)data->count, sizeof *labels);
    if (!labels)
        return -ENOMEM;
    memcpy(labels, l->spec->labels, (size_t)data->count * sizeof *labels);
    data->column[data->columns] = psti_column_of_i64(labels, NULL);
    const pst_field_info info = {
        .name = "label", .kind = PST_LABEL, .dtype = PST_I64, .format = "list"};
    data->label = psti_dataset_add_field(data, &info, false, data->columns++);
    return 0;
}

static int add_classes(listing *l)
{
    psti_dataset *data = l->data;
    const int64_t count = l->spec->class_count;
    size_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += strlen(l->spec->classes[i]) + 1;
    data->class_at = psti_calloc(PSTI_MEM_SOURCE, (size_t)count, sizeof *data->class_at);
    if (!data->class_at || psti_strings_reserve(&data->names, bytes))
        return -ENOMEM;
    for (int64_t i = 0; i < count; i++)
        if (psti_strings_add(&data->names, l->spec->classes[i], strlen(l->spec->classes[i]),
                             &data->class_at[i]))
            return -ENOMEM;
    data->classes = count;
    return 0;
}

/* ---- the entrance ---------------------------------------------------------------------------- */

/* The dataset over the root, or over the working directory: absolute paths need neither. */
static int make_dataset(listing *l, pst_error *err)
{
    const char *root = l->spec->root ? l->spec->root : ".";
    const int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return psti_fail(err, -errno, "list", root, "the root cannot be opened: %s",
                         pst_strerror(-errno));
    l->data = psti_dataset_new(PSTI_KIND_FILES, root, root, fd);
    return l->data ? 0 : no_memory(l, err);
}

int psti_dataset_files(const pst_files *spec, psti_dataset **out, pst_error *err)
{
    listing l = {.spec = spec};
    int rc = check_spec(spec, err);
    if (!rc)
        rc = make_dataset(&l, err);
    l.root_len = !rc && spec->root ? strlen(spec->root) : 0;
    while (l.root_len > 0 && spec->root[l.root_len - 1] == '/')
        l.root_len--;
    if (!rc)
        rc = add_files(&l, err);
    if (!rc && (add_labels(&l) || add_classes(&l)))
        rc = no_memory(&l, err);
    if (!rc) {
        psti_dataset_settle(l.data);
        *out = l.data;
        l.data = NULL;
    }
    psti_dataset_unref(l.data);
    free(l.here); /* lint: library memory */
    return rc;
}
