/* SPDX-License-Identifier: Apache-2.0
 * The listing of a bucket as a tree of folders, so that what is made of folders need not know where
 * they lie. Keys come in byte order, which is the order of a walk through the tree: a folder that
 * was left never comes again. Runs in the thread that opens the dataset. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"

enum { DEPTH_MAX = 64, FOUND_STEP = 1000 };
/* Samples of a list on a web server whose files are asked for when it is opened. */
enum { SEEN_AT_ONCE = 4096 };

/* A folder while its keys come. */
typedef struct level {
    psti_dir *dir;
    size_t entry_cap;
    psti_strings names;
    size_t path_len;
} level;

typedef struct listing {
    psti_tree *tree;
    const char *url;
    size_t prefix_len;
    const pst_dataset_options *opts;
    level at[DEPTH_MAX + 1]; /* at[0] is the top */
    int depth;
    uint64_t found;
    pst_error *err;
} listing;

static int no_memory(listing *l)
{
    return psti_fail(l->err, -ENOMEM, "list", l->url, "out of memory while listing");
}

/* ---- folders --------------------------------------------------------------------------------- */

static int add_entry(level *v, const char *name, size_t len, uint32_t type, psti_entry **out)
{
    uint64_t at;
    size_t cap = v->entry_cap;
    if (psti_grow(&v->dir->entries, &cap, (size_t)v->dir->count + 1, sizeof *v->dir->entries) ||
        psti_strings_add(&v->names, name, len, &at) || at > UINT32_MAX ||
        v->dir->count == UINT32_MAX)
        return -ENOMEM;
    v->entry_cap = cap;
    v->dir->names = v->names.data;
    v->dir->names_bytes = v->names.len;
    *out = &v->dir->entries[v->dir->count++];
    **out = (psti_entry){.name = (uint32_t)at, .type = type};
    return 0;
}

/* Gives back what doubling took too much. */
static void leave(listing *l)
{
    level *v = &l->at[l->depth--];
    psti_dir *dir = v->dir;
    psti_entry *entries =
        dir->count ? psti_realloc(PSTI_MEM_SOURCE, dir->entries, dir->count, sizeof *entries)
                   : NULL;
    char *names =
        v->names.len ? psti_realloc(PSTI_MEM_SOURCE, v->names.data, v->names.len, 1) : NULL;
    dir->entries = entries ? entries : dir->entries;
    dir->names = names ? names : v->names.data;
    *v = (level){0};
}

static int enter(listing *l, const char *name, size_t len)
{
    level *above = &l->at[l->depth];
    psti_entry *entry;
    if (l->depth == DEPTH_MAX)
        return psti_fail(l->err, PST_ELIMIT, "list", l->url,
                         "folders are nested deeper than %d; flatten them", DEPTH_MAX);
    if (add_entry(above, name, len, PSTI_ENTRY_DIR, &entry))
        return no_memory(l);
    entry->child = psti_dir_new(l->tree, above->dir, above->dir->names + entry->name);
    if (!entry->child) {
        above->dir->count--;
        return no_memory(l);
    }
    entry->child->owns = true;
    l->at[++l->depth] = (level){.dir = entry->child, .path_len = strlen(entry->child->path)};
    return 0;
}

/* Goes to the folder of a key; len: of its path, without the slash. */
static int go_to(listing *l, const char *key, size_t len)
{
    while (l->depth > 0) {
        const level *v = &l->at[l->depth];
        if (v->path_len <= len && memcmp(v->dir->path, key, v->path_len) == 0 &&
            (v->path_len == len || key[v->path_len] == '/'))
            break;
        leave(l);
    }
    size_t at = l->depth ? l->at[l->depth].path_len + 1 : 0;
    while (at < len) {
        const char *slash = memchr(key + at, '/', len - at);
        const size_t part = slash ? (size_t)(slash - key) - at : len - at;
        const int rc = enter(l, key + at, part);
        if (rc)
            return rc;
        at += part + 1;
    }
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int refuse(listing *l, const char *key, size_t len, const char *fault)
{
    char shown[300];
    return psti_fail(l->err, PST_EDATASET, "list", l->url,
                     "the key '%s' %s; rename or remove the object",
                     psti_escape(shown, sizeof shown, key, len), fault);
}

static bool is_hidden(const char *key, size_t len)
{
    if (key[0] == '.')
        return true;
    for (size_t i = 1; i < len; i++)
        if (key[i] == '.' && key[i - 1] == '/')
            return true;
    return false;
}

static uint32_t type_of(const listing *l, const char *name, size_t len)
{
    const psti_format format = psti_format_of_name(name, len);
    if (format)
        return (uint32_t)format;
    if (psti_has_ext(name, len, "tar"))
        return PSTI_ENTRY_TAR;
    if (psti_has_ext(name, len, "trans.txt"))
        return PSTI_ENTRY_TEXT;
    const bool split = l->depth == 1 && strcmp(l->at[1].dir->path, "splits") == 0;
    return split && psti_has_ext(name, len, "txt") ? PSTI_ENTRY_LIST : 0;
}

static int take_file(listing *l, const char *name, size_t len, const psti_object *o)
{
    level *v = &l->at[l->depth];
    const uint32_t type = type_of(l, name, len);
    psti_entry *entry;
    psti_etag etag;
    if (!type) {
        v->dir->ignored++;
        return 0;
    }
    if (psti_etag_keep(o->etag ? o->etag : "", &l->tree->etags, &etag) ||
        add_entry(v, name, len, type, &entry))
        return no_memory(l);
    entry->size = o->size;
    entry->mtime_ns = (int64_t)etag.a;
    entry->inode = etag.b;
    return 0;
}

static int tell(listing *l)
{
    if (++l->found % FOUND_STEP || !l->opts->progress ||
        !l->opts->progress(l->found, l->opts->user))
        return 0;
    return psti_fail(l->err, -ECANCELED, "list", l->url, "listing was stopped by the caller");
}

/* A key that ends in a slash is how a folder is shown that may be empty. */
static int on_object(void *user, const psti_object *o)
{
    listing *l = user;
    if (o->key_len < l->prefix_len)
        return refuse(l, o->key, o->key_len, "is not below what was asked for");
    const char *key = o->key + l->prefix_len;
    size_t len = o->key_len - l->prefix_len;
    if (len == 0) /* the folder itself */
        return 0;
    const bool folder = key[len - 1] == '/' && len > 1;
    len -= folder;
    const char *fault = psti_key_fault(key, len);
    if (fault)
        return refuse(l, key, len, fault);
    if (o->size > INT64_MAX)
        return refuse(l, key, len, "has a size that cannot be");
    if (is_hidden(key, len))
        return 0;
    const char *slash = memrchr(key, '/', len);
    const char *name = slash ? slash + 1 : key;
    const size_t name_len = (size_t)(key + len - name);
    int rc = go_to(l, key, folder ? len : slash ? (size_t)(slash - key) : 0);
    if (!rc && !folder)
        rc = take_file(l, name, name_len, o);
    return rc ? rc : tell(l);
}

static psti_tree *new_tree(const char *url)
{
    psti_tree *tree = psti_tree_new(-1, url);
    if (tree)
        tree->top->owns = true;
    return tree;
}

/* What lies below the folder, "" or one that ends in a slash, of the prefix. */
static int list_into(psti_tree *tree, const psti_far *far, const char *folder,
                     const pst_dataset_options *opts, pst_error *err)
{
    char prefix[PSTI_FAR_KEY + 16];
    listing *l = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *l);
    if (!l)
        return psti_fail(err, -ENOMEM, "list", tree->path, "out of memory while listing");
    *l = (listing){.tree = tree,
                   .url = tree->path,
                   .prefix_len = strlen(far->prefix),
                   .opts = opts,
                   .err = err};
    l->at[0].dir = tree->top;
    snprintf(prefix, sizeof prefix, "%s%s", far->prefix, folder);
    psti_far_watch watch = {opts, &l->found};
    const psti_net_watch before = psti_far_watch_set(&watch);
    const int rc = psti_net_list(far->bucket, prefix, on_object, l, err);
    psti_net_watch_set(before);
    while (l->depth >= 0)
        leave(l);
    psti_free(l);
    return rc;
}

psti_tree *psti_far_tree(const psti_far *far, const pst_dataset_options *opts, const char *url,
                         pst_error *err)
{
    psti_tree *tree = new_tree(url);
    if (!tree)
        psti_fail(err, -ENOMEM, "list", url, "out of memory while listing");
    else if (list_into(tree, far, "", opts, err)) {
        psti_tree_free(tree);
        tree = NULL;
    }
    return tree;
}

psti_tree *psti_far_tree_of_one(const psti_far *far, const pst_dataset_options *opts,
                                const char *url, const psti_object *file, pst_error *err)
{
    psti_tree *tree = new_tree(url);
    level top = {0};
    psti_entry *entry;
    psti_etag kept;
    int rc = tree ? 0 : -ENOMEM;
    if (!rc && far->lists)
        rc = list_into(tree, far, "splits/", opts, err);
    if (!rc) {
        psti_dir *dir = tree->top;
        top = (level){.dir = dir,
                      .entry_cap = dir->count,
                      .names = {dir->names, dir->names_bytes, dir->names_bytes}};
        rc = psti_etag_keep(file->etag, &tree->etags, &kept);
        if (!rc)
            rc = add_entry(&top, file->key, file->key_len, PSTI_ENTRY_TAR, &entry);
        if (!rc) {
            entry->size = file->size;
            entry->mtime_ns = (int64_t)kept.a;
            entry->inode = kept.b;
        }
        if (!rc && dir->count == 2 && strcmp(file->key, "splits/") < 0) {
            const psti_entry splits = dir->entries[0];
            dir->entries[0] = dir->entries[1];
            dir->entries[1] = splits;
        }
    }
    if (!rc)
        return tree;
    if (rc == -ENOMEM)
        psti_fail(err, rc, "list", url, "out of memory while listing");
    psti_tree_free(tree);
    return NULL;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The entry of that name; folders stand where their names with a slash would. */
static const psti_entry *find_in(const psti_dir *dir, const char *name, size_t len, bool folder)
{
    uint32_t low = 0, high = dir->count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const psti_entry *entry = &dir->entries[mid];
        const char *there = psti_entry_name(dir, entry);
        size_t i = 0;
        while (i < len && there[i] && there[i] == name[i])
            i++;
        const int x = there[i] ? (unsigned char)there[i] : entry->type == PSTI_ENTRY_DIR ? '/' : 0;
        const int y = i < len ? (unsigned char)name[i] : folder ? '/' : 0;
        if (x == y && !there[i] && i == len)
            return entry;
        if (x < y)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const psti_entry *psti_far_find(const psti_tree *tree, const char *path)
{
    const psti_dir *dir = tree->top;
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        const psti_entry *entry = find_in(dir, path, (size_t)(slash - path), true);
        if (!entry)
            return NULL;
        dir = entry->child;
    }
    return find_in(dir, path, strlen(path), false);
}

/* ---- files that a list names ----------------------------------------------------------------- */

/* Members in the order of their paths, and how far the listing has come. */
typedef struct matching {
    psti_dataset *data;
    const pst_dataset_options *opts;
    psti_member **member;
    size_t count, next;
    size_t prefix_len;
    uint64_t found;
    pst_error *err;
} matching;

static int by_path(const void *left, const void *right, void *names)
{
    const psti_member *a = *(psti_member *const *)left, *b = *(psti_member *const *)right;
    return strcmp((const char *)names + a->place, (const char *)names + b->place);
}

/* Paths and keys both come in byte order, so each is looked at once. */
static int on_listed(void *user, const psti_object *o)
{
    matching *m = user;
    if (o->key_len < m->prefix_len || memchr(o->key, 0, o->key_len))
        return 0;
    const char *key = o->key + m->prefix_len;
    const size_t len = o->key_len - m->prefix_len;
    if (++m->found % FOUND_STEP == 0 && m->opts->progress &&
        m->opts->progress(m->found, m->opts->user))
        return psti_fail(m->err, -ECANCELED, "list", m->data->path,
                         "listing was stopped by the caller");
    for (; m->next < m->count; m->next++) {
        psti_member *member = m->member[m->next];
        const char *path = psti_text_at(m->data, member->place);
        const int order = strncmp(path, key, len);
        if (order > 0 || (order == 0 && path[len]))
            break;
        if (order < 0)
            continue;
        psti_etag etag;
        if (o->size > INT64_MAX || psti_etag_keep(o->etag ? o->etag : "", &m->data->names, &etag))
            return psti_fail(m->err, -ENOMEM, "list", m->data->path, "out of memory while listing");
        member->length = o->size;
        member->mtime_ns = (int64_t)etag.a;
        member->inode = etag.b;
    }
    return 0;
}

static void note_missing(const psti_dataset *data, psti_missing *out)
{
    for (int64_t id = 0; id < data->count; id++)
        for (int slot = 0; slot < data->members; slot++) {
            const psti_member *m = psti_member_at(data, id, slot);
            if (m->length == PSTI_ABSENT || m->inode != PSTI_ETAG_UNSEEN)
                continue;
            if (!out->count++)
                *out = (psti_missing){.count = 1, .id = id, .slot = slot, .rc = -ENOENT};
        }
}

int psti_far_look_all(psti_dataset *data, const psti_far *far, const pst_dataset_options *opts,
                      psti_missing *out, pst_error *err)
{
    const size_t all = (size_t)data->count * (size_t)data->members;
    matching m = {.data = data, .opts = opts, .prefix_len = strlen(far->prefix), .err = err};
    *out = (psti_missing){0};
    for (size_t i = 0; i < all; i++)
        data->member[i].inode = PSTI_ETAG_UNSEEN;
    if (!far->lists)
        return data->count <= SEEN_AT_ONCE ? psti_far_see_all(data, far, opts, out, err) : 0;
    m.member = psti_calloc(PSTI_MEM_SOURCE, all, sizeof *m.member);
    if (!m.member)
        return psti_fail(err, -ENOMEM, "list", data->path, "out of memory while listing");
    for (size_t i = 0; i < all; i++)
        if (data->member[i].length != PSTI_ABSENT)
            m.member[m.count++] = &data->member[i];
    qsort_r(m.member, m.count, sizeof *m.member, by_path, data->names.data);
    psti_far_watch watch = {opts, &m.found};
    const psti_net_watch before = psti_far_watch_set(&watch);
    const int rc = psti_net_list(far->bucket, far->prefix, on_listed, &m, err);
    psti_net_watch_set(before);
    psti_free(m.member);
    if (!rc)
        note_missing(data, out);
    return rc;
}
