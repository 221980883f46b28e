/* SPDX-License-Identifier: Apache-2.0
 * Opening a dataset: what the path is, whether a remembered listing still holds, and which builder
 * makes it. Runs in the calling thread; builders use a crew. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"
#include "source/index.h"
#include "source/source_priv.h"
#include "source/tree.h"

typedef struct place {
    char *real;       /* of the path itself; libc's malloc */
    char *root_path;  /* its directory, or itself */
    const char *name; /* of the file in it; NULL for a folder */
} place;

static int fail_open(pst_error *err, int rc, const char *path)
{
    if (rc == -ENOENT)
        return psti_fail(err, rc, "list", path, "there is no such file or folder; check the path");
    if (rc == -EACCES)
        return psti_fail(err, rc, "list", path,
                         "permission denied; make it readable for this user");
    return psti_fail(err, rc, "list", path, "cannot be opened: %s", pst_strerror(rc));
}

/* ---- folders and tar shards -------------------------------------------------------------------
 */

/* Tar files and nothing else that could be a sample. */
bool psti_is_tar_folder(const psti_dir *top)
{
    bool tars = false;
    for (uint32_t i = 0; i < top->count; i++) {
        const uint32_t type = top->entries[i].type;
        if (type == PSTI_ENTRY_TAR)
            tars = true;
        else if (type == PSTI_ENTRY_TEXT || type == PSTI_ENTRY_LIST)
            continue;
        else if (type != PSTI_ENTRY_DIR ||
                 strcmp(psti_entry_name(top, &top->entries[i]), "splits") != 0)
            return false;
    }
    return tars;
}

int psti_build_tar_folder(psti_opening *o, const psti_dir *top, psti_dataset **out, pst_error *err)
{
    const char **shards = psti_calloc(PSTI_MEM_SOURCE, top->count, sizeof *shards);
    if (!shards)
        return psti_fail(err, -ENOMEM, "list", o->path, "out of memory");
    size_t count = 0;
    for (uint32_t i = 0; i < top->count; i++)
        if (top->entries[i].type == PSTI_ENTRY_TAR)
            shards[count++] = psti_entry_name(top, &top->entries[i]);
    const int rc = psti_tar_build(o, shards, count, out, err);
    psti_free(shards);
    if (rc)
        return rc;
    (*out)->made_from = (psti_stamp){.mtime_ns = top->mtime_ns, .inode = top->inode};
    psti_index_save_data(o, *out);
    return 0;
}

int psti_opening_stamp(const psti_opening *o, const char *path, psti_stamp *out)
{
    if (!o->far)
        return psti_stamp_beneath(o->root, path, out);
    const psti_entry *entry = psti_far_find(o->tree, path);
    if (!entry)
        return -ENOENT;
    *out = (psti_stamp){
        .size = entry->size, .mtime_ns = entry->mtime_ns, .inode = entry->inode, .mode = S_IFREG};
    return 0;
}

static int build_coco(psti_opening *o, const char *name, psti_dataset **out, pst_error *err)
{
    const int rc = psti_coco_build(o, name, out, err);
    if (!rc)
        psti_index_save_data(o, *out);
    return rc;
}

static int build_folder(psti_opening *o, psti_tree *tree, psti_dataset **out, pst_error *err)
{
    int rc = psti_tree_top(tree, err);
    if (!rc && psti_is_tar_folder(tree->top))
        return psti_build_tar_folder(o, tree->top, out, err);
    const int coco = rc ? 0 : psti_coco_is_root(o->root);
    if (coco)
        return coco < 0 ? psti_fail(err, coco, "list", o->path, "out of memory")
                        : build_coco(o, NULL, out, err);
    if (!rc)
        rc = psti_tree_rest(tree, o->opts, err);
    if (!rc)
        rc = psti_folder_build(o, tree, out, err);
    if (rc)
        return rc;
    (*out)->remembered = atomic_load(&tree->reused) > 0;
    if (atomic_load(&tree->relisted) > 0)
        psti_index_save_tree(o, tree);
    return 0;
}

static int open_folder(psti_opening *o, psti_index *index, psti_dataset **out, pst_error *err)
{
    psti_tree *tree = NULL;
    if (index->body && index->header.kind == PSTI_KIND_FOLDER)
        tree = psti_index_load_tree(index, o);
    if (!tree)
        tree = psti_tree_new(o->root, o->path);
    if (!tree)
        return psti_fail(err, -ENOMEM, "list", o->path, "out of memory");
    const int rc = build_folder(o, tree, out, err);
    psti_tree_free(tree);
    return rc;
}

/* ---- remembered tar shards and manifests ------------------------------------------------------
 */

static bool is_trusted(const psti_stamp *then, const psti_stamp *now, int64_t listed_ns)
{
    return psti_stamp_same(then, now) && now->mtime_ns < listed_ns - PSTI_INDEX_DOUBT_NS;
}

static bool shards_same(const psti_dataset *data, int64_t listed_ns)
{
    psti_stamp now;
    for (size_t i = 0; i < data->shards; i++)
        if (psti_stamp_beneath(data->root, psti_text_at(data, data->shard[i].path), &now) ||
            !is_trusted(&data->shard[i].stamp, &now, listed_ns))
            return false;
    return true;
}

/* What the dataset was made from is still what it was. */
static bool still_holds(const psti_dataset *data, const psti_opening *o, const place *p,
                        int64_t listed_ns)
{
    psti_stamp now;
    if (data->kind == PSTI_KIND_COCO)
        return psti_coco_stamp(o->root, p->name, &now) == 0 &&
               is_trusted(&data->made_from, &now, listed_ns);
    if (data->kind == PSTI_KIND_MANIFEST)
        return p->name && psti_stamp_beneath(o->root, p->name, &now) == 0 &&
               is_trusted(&data->made_from, &now, listed_ns);
    if (data->kind != PSTI_KIND_TAR || !shards_same(data, listed_ns))
        return false;
    if (p->name)
        return true;
    return psti_stamp_fd(o->root, &now) == 0 && now.inode == data->made_from.inode &&
           now.mtime_ns == data->made_from.mtime_ns &&
           now.mtime_ns < listed_ns - PSTI_INDEX_DOUBT_NS;
}

static psti_dataset *recall(const psti_index *index, psti_opening *o, const place *p)
{
    if (!index->body || index->header.kind == PSTI_KIND_FOLDER)
        return NULL;
    psti_dataset *data = psti_index_load_data(index, o);
    if (data && !still_holds(data, o, p, index->header.listed_ns)) {
        psti_dataset_unref(data);
        return NULL;
    }
    if (data)
        data->remembered = true;
    return data;
}

/* ---- by what the path is ----------------------------------------------------------------------
 */

bool psti_is_manifest_name(const char *name)
{
    const size_t len = strlen(name);
    return psti_has_ext(name, len, "tsv") || psti_has_ext(name, len, "jsonl") ||
           psti_has_ext(name, len, "ndjson");
}

static int build_file(psti_opening *o, const char *name, psti_dataset **out, pst_error *err)
{
    const size_t len = strlen(name);
    int rc;
    if (psti_format_of_name(name, len))
        return psti_single_build(o, name, out, err);
    if (psti_has_ext(name, len, "json"))
        return build_coco(o, name, out, err);
    if (psti_has_ext(name, len, "tar"))
        rc = psti_tar_build(o, &name, 1, out, err);
    else if (psti_is_manifest_name(name))
        rc = psti_manifest_build(o, name, out, err);
    else
        return psti_fail(err, PST_EDATASET, "list", o->path,
                         "this kind of file is not read here; give a folder, a .tar, a .tsv or "
                         ".jsonl manifest, a COCO .json, or one "
                         "jpg, jpeg, png, webp, npy, npz, nii, nii.gz, wav or flac file");
    if (!rc)
        psti_index_save_data(o, *out);
    return rc;
}

static int build_any(psti_opening *o, const place *p, psti_dataset **out, pst_error *err)
{
    psti_index index = {0};
    if (!o->opts->refresh)
        psti_index_load(o->index_path, o->real, &index);
    *out = recall(&index, o, p);
    int rc = 0;
    if (!*out)
        rc = p->name ? build_file(o, p->name, out, err) : open_folder(o, &index, out, err);
    psti_index_fini(&index);
    return rc;
}

/* Finishing touches that every kind gets. */
int psti_open_complete(psti_opening *o, int above, psti_dataset *data, pst_error *err)
{
    data->index_path = o->index_path;
    o->index_path = NULL;
    if (data->kind == PSTI_KIND_FILE)
        return 0;
    const int rc = o->far ? psti_splits_load_far(data, o, err) : psti_splits_load(data, above, err);
    if (rc)
        return rc;
    if (o->opts->progress && o->opts->progress((uint64_t)data->count, o->opts->user))
        return psti_fail(err, -ECANCELED, "list", o->path, "listing was stopped by the caller");
    return 0;
}

static void leave_file(place *p)
{
    char *slash = strrchr(p->root_path, '/');
    p->name = p->real + (slash - p->root_path) + 1;
    slash[slash == p->root_path] = 0; /* the root directory keeps its slash */
    /* The pictures of annotations/NAME.json lie beside that folder, not in it. */
    slash = strrchr(p->root_path, '/');
    if (slash && slash > p->root_path && strcmp(slash, "/annotations") == 0 &&
        psti_has_ext(p->name, strlen(p->name), "json")) {
        *slash = 0;
        p->name = p->real + (slash - p->root_path) + 1;
    }
}

static int find_place(const char *path, place *p, pst_error *err)
{
    struct stat st;
    p->real = realpath(path, NULL);
    if (!p->real || stat(p->real, &st))
        return fail_open(err, -errno, path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return psti_fail(err, PST_EDATASET, "list", path, "neither a file nor a folder");
    p->root_path = psti_strdup(PSTI_MEM_SOURCE, p->real);
    if (!p->root_path)
        return psti_fail(err, -ENOMEM, "list", path, "out of memory");
    if (S_ISREG(st.st_mode))
        leave_file(p);
    return 0;
}

/* The caller's options, as far as its version of the struct goes. */
static pst_dataset_options known_options(const pst_dataset_options *given)
{
    pst_dataset_options opts = {.size = sizeof opts};
    if (given && given->size)
        memcpy(&opts, given, given->size < sizeof opts ? given->size : sizeof opts);
    return opts;
}

static int64_t wall_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The root is open and becomes the dataset's, or is closed. */
static int open_place(psti_opening *o, const place *p, psti_dataset **out, pst_error *err)
{
    psti_dataset *data = NULL;
    int rc = 0;
    o->real = p->real;
    o->root_path = p->root_path;
    const int above = fcntl(o->root, F_DUPFD_CLOEXEC, 0); /* a manifest may name another root */
    if (above < 0)
        rc = fail_open(err, -errno, o->path);
    else
        o->index_path = psti_index_path(o->opts, p->real, &rc);
    if (!rc)
        rc = build_any(o, p, &data, err);
    else if (above >= 0)
        psti_fail(err, rc, "list", o->path, "out of memory");
    if (!rc)
        rc = psti_open_complete(o, above, data, err);
    if (rc)
        psti_dataset_unref(data);
    else
        *out = data;
    if (o->root >= 0)
        close(o->root);
    if (above >= 0)
        close(above);
    psti_free(o->index_path);
    return rc;
}

static int open_path(const char *path, psti_opening o, psti_dataset **out, pst_error *err)
{
    place p = {0};
    if (!path || !*path)
        return psti_fail(err, -EINVAL, "list", NULL, "no path was given");
    if (psti_is_bucket_url(path))
        return psti_far_open(&o, out, err);
    int rc = find_place(path, &p, err);
    if (!rc) {
        o.root = open(p.root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        rc = o.root < 0 ? fail_open(err, -errno, path) : open_place(&o, &p, out, err);
    }
    psti_free(p.root_path);
    free(p.real); /* lint: library memory */
    return rc;
}

static int open_at(const psti_place *at, psti_opening o, psti_dataset **out, pst_error *err)
{
    const bool file = at->name && *at->name;
    if (file && ((strchr(at->name, '/') && !psti_has_ext(at->name, strlen(at->name), "json")) ||
                 psti_key_fault(at->name, strlen(at->name))))
        return psti_fail(err, -EINVAL, "list", at->path, "the name of the file is not one");
    char *real = NULL;
    if (asprintf(&real, "%s%s%s", at->path, file ? "/" : "", file ? at->name : "") < 0)
        return psti_fail(err, -ENOMEM, "list", at->path, "out of memory");
    o.path = real;
    place p = {.real = real, .root_path = (char *)at->path, .name = file ? at->name : NULL};
    o.root = fcntl(at->root, F_DUPFD_CLOEXEC, 0);
    const int rc = o.root < 0 ? fail_open(err, -errno, at->path) : open_place(&o, &p, out, err);
    free(real); /* lint: library memory */
    return rc;
}

int psti_dataset_open_guarded(const char *path, const psti_place *at,
                              const pst_dataset_options *given, const psti_guard *guard, void *user,
                              psti_dataset **out, pst_error *err)
{
    const pst_dataset_options opts = known_options(given);
    const psti_opening o = {
        .path = path, .opts = &opts, .now_ns = wall_clock_ns(), .guard = guard, .guard_user = user};
    return at ? open_at(at, o, out, err) : open_path(path, o, out, err);
}

int psti_dataset_open(const char *path, const pst_dataset_options *given, psti_dataset **out,
                      pst_error *err)
{
    return psti_dataset_open_guarded(path, NULL, given, NULL, NULL, out, err);
}

int psti_dataset_open_at(const psti_place *at, const pst_dataset_options *given, psti_dataset **out,
                         pst_error *err)
{
    return psti_dataset_open_guarded(at->path, at, given, NULL, NULL, out, err);
}

int psti_dataset_place(const psti_dataset *data, psti_place *out)
{
    if (data->kind == PSTI_KIND_CUSTOM || data->kind == PSTI_KIND_FILES || data->far)
        return -ENOTSUP;
    struct stat st;
    if (stat(data->path, &st) == 0 && S_ISDIR(st.st_mode)) {
        *out = (psti_place){fcntl(data->root, F_DUPFD_CLOEXEC, 0), data->path, NULL};
        return out->root < 0 ? -errno : 0;
    }
    if (data->kind == PSTI_KIND_COCO) { /* the file may lie in a folder of the root */
        const char *name = data->path + strlen(data->root_path);
        *out =
            (psti_place){fcntl(data->root, F_DUPFD_CLOEXEC, 0), data->path, name + (*name == '/')};
        return out->root < 0 ? -errno : 0;
    }
    /* The directory of a file need not be the root: a manifest may name another one. */
    char dir[2 * PSTI_KEY_MAX];
    const char *slash = strrchr(data->path, '/');
    if (!slash || (size_t)(slash - data->path) + 2 > sizeof dir)
        return -ENOTSUP;
    snprintf(dir, sizeof dir, "%.*s/", (int)(slash - data->path), data->path);
    *out = (psti_place){open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), data->path, slash + 1};
    return out->root < 0 ? -errno : 0;
}
