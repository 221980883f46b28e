/* SPDX-License-Identifier: Apache-2.0
 * A dataset from the caller's own list of files: paths and labels are kept in a short form
 * (listed.h), nothing is looked at. The files are seen when they are first read (member.c). Runs in
 * the thread that makes the dataset. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/listed.h"

typedef struct listing {
    const pst_files *spec;
    size_t root_len; /* without slashes at its end; 0 = no root */
    char *here;      /* working directory; libc's malloc, made when first needed */
    psti_dataset *data;
    int64_t next;              /* number of the entry that comes next */
    unsigned formats;          /* a bit per format */
    char kept[PSTI_PATH_ROOM]; /* the entry's path as it is kept */
    psti_path_cursor *last;    /* of the paths that were added; its own allocation: it is large */
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
    if (!spec->next && (spec->count <= 0 || !spec->paths))
        return refuse(err, spec->root, "the list of files is empty");
    if (spec->class_count < 0 || (spec->class_count && !spec->classes))
        return refuse(err, spec->root, "the number of classes does not fit their names");
    return 0;
}

static bool has_labels(const pst_files *spec)
{
    return spec->next ? spec->next_labels : spec->labels != NULL;
}

static void begin(listing *l, const pst_files *spec)
{
    *l = (listing){.spec = spec, .root_len = spec->root ? strlen(spec->root) : 0};
    while (l->root_len > 0 && spec->root[l->root_len - 1] == '/')
        l->root_len--;
}

/* The next entry as the caller gives it. 1, 0 at the end, or what the caller's function answered.
 */
static int give(listing *l, const char **path, int64_t *label)
{
    const pst_files *spec = l->spec;
    *label = 0;
    if (spec->next)
        return spec->next(spec->user, path, label);
    if (l->next >= spec->count)
        return 0;
    *path = spec->paths[l->next];
    *label = spec->labels ? spec->labels[l->next] : 0;
    return 1;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* What is wrong with a path, as the end of a sentence. It may be absolute and hold `..`: it is the
 * caller's. */
static const char *fault_of(const char *path, size_t len)
{
    if (len == 0)
        return "is empty";
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

static bool append(listing *l, size_t *len, const char *text, size_t bytes)
{
    if (bytes > PSTI_KEY_MAX - *len)
        return false;
    memcpy(l->kept + *len, text, bytes);
    *len += bytes;
    return true;
}

/* Writes the path as it is kept to l->kept. NULL, or what is wrong with it. */
static const char *keep(listing *l, const char *path, size_t *len)
{
    const size_t given = strlen(path);
    const char *fault = fault_of(path, given);
    const char *below = fault ? NULL : below_root(l, path);
    *len = 0;
    if (fault)
        return fault;
    if (!below && path[0] != '/') {
        const char *here = working_directory(l);
        if (!here)
            return "starts from a directory that is gone";
        if (!append(l, len, here, strlen(here)) || !append(l, len, "/", 1))
            return "is longer than 4096 bytes";
    }
    const char *rest = below ? below : path;
    return append(l, len, rest, given - (size_t)(rest - path)) ? NULL : "is longer than 4096 bytes";
}

static int bad_path(const listing *l, const char *path, const char *fault, pst_error *err)
{
    char shown[300];
    return psti_fail(err, PST_EDATASET, "list", l->spec->root,
                     "path %lld of the list, '%s', %s; leave it out or rename the file",
                     (long long)l->next, psti_escape(shown, sizeof shown, path, strlen(path)),
                     fault);
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

static int add_entry(listing *l, const char *path, int64_t label, pst_error *err)
{
    psti_listed *listed = l->data->listed;
    size_t len;
    const char *fault = keep(l, path, &len);
    if (fault)
        return bad_path(l, path, fault, err);
    if (psti_paths_add(&listed->paths, l->last, l->kept, len) ||
        (has_labels(l->spec) && psti_listed_add_label(listed, l->next, label)))
        return no_memory(l, err);
    l->formats |= 1u << psti_format_of_name(l->kept, len);
    l->next++;
    return 0;
}

static int add_entries(listing *l, pst_error *err)
{
    const char *path;
    int64_t label;
    int rc;
    while ((rc = give(l, &path, &label)) > 0)
        if ((rc = add_entry(l, path, label, err)) < 0)
            return rc;
    if (rc < 0)
        return psti_fail(err, rc, "list", l->spec->root, "the list of files was broken off");
    return l->next ? 0 : refuse(err, l->spec->root, "the list of files is empty");
}

static int add_files(listing *l, pst_error *err)
{
    psti_dataset *data = l->data;
    data->listed = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *data->listed);
    l->last = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *l->last);
    if (!data->listed || !l->last)
        return no_memory(l, err);
    const int rc = add_entries(l, err);
    if (rc < 0)
        return rc;
    data->count = l->next;
    data->members = 1;
    if (psti_listed_make_room(data->listed))
        return no_memory(l, err);
    const pst_field_info info = psti_member_info("image", 5, PST_IMAGE, format_name(l->formats));
    psti_dataset_add_field(data, &info, true, 0);
    return 0;
}

/* ---- labels and classes ---------------------------------------------------------------------- */

static int add_labels(listing *l)
{
    psti_dataset *data = l->data;
    if (!has_labels(l->spec))
        return 0;
    const pst_field_info info = {
        .name = "label", .kind = PST_LABEL, .dtype = PST_I64, .format = "list"};
    data->label = psti_dataset_add_field(data, &info, false, 0);
    return psti_listed_settle_labels(data->listed, data->count);
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
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    listing l;
    begin(&l, spec);
    rc = make_dataset(&l, err);
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
    psti_free(l.last);
    free(l.here); /* lint: library memory */
    return rc;
}

/* Whether the entry is the one that the cursor comes to. */
static bool same_entry(listing *l, psti_path_cursor *cursor, const char *path, int64_t label)
{
    const psti_dataset *data = l->data;
    size_t len;
    if (l->next >= data->count || keep(l, path, &len))
        return false;
    psti_path_next(cursor);
    return len == cursor->len && memcmp(l->kept, cursor->text, len) == 0 &&
           (data->label < 0 || *psti_listed_label(data->listed, l->next) == label);
}

int psti_dataset_files_same(const psti_dataset *data, const pst_files *spec, pst_error *err)
{
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    if (!data->listed || has_labels(spec) != (data->label >= 0))
        return 0;
    listing l;
    psti_path_cursor cursor;
    const char *path;
    int64_t label;
    bool same = true;
    begin(&l, spec);
    l.data = (psti_dataset *)data; /* only read */
    psti_path_seek(&cursor, &data->listed->paths, 0);
    while (same && (rc = give(&l, &path, &label)) > 0) {
        same = same_entry(&l, &cursor, path, label);
        l.next++;
    }
    free(l.here); /* lint: library memory */
    if (rc < 0)
        return psti_fail(err, rc, "list", spec->root, "the list of files was broken off");
    return same && l.next == data->count;
}
