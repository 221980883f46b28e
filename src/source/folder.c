/* SPDX-License-Identifier: Apache-2.0
 * From a listed tree to a dataset: decides what the folders mean (classes, splits, images beside
 * masks, cases, speech with transcripts, or nothing) and writes keys, members and labels in
 * ascending key order. Runs in the thread that opens the dataset. */
#include "source/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

int psti_folder_no_memory(const psti_building *b, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", b->o->path, "out of memory while listing");
}

static bool is_sample(const psti_entry *entry)
{
    return entry->type < PSTI_FORMATS;
}

/* A folder of id lists is no class; see split.c. */
static bool is_class_dir(const psti_dir *dir, const psti_entry *entry)
{
    return entry->type == PSTI_ENTRY_DIR && strcmp(psti_entry_name(dir, entry), "splits") != 0;
}

uint64_t psti_folder_samples(const psti_dir *dir)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < dir->count; i++)
        n += dir->entries[i].type == PSTI_ENTRY_DIR ? psti_folder_samples(dir->entries[i].child)
                                                    : is_sample(&dir->entries[i]);
    return n;
}

static uint64_t count_direct(const psti_dir *dir)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < dir->count; i++)
        n += is_sample(&dir->entries[i]);
    return n;
}

static bool has_class_dirs(const psti_dir *dir)
{
    for (uint32_t i = 0; i < dir->count; i++)
        if (is_class_dir(dir, &dir->entries[i]))
            return true;
    return false;
}

/* ---- what the folders mean ------------------------------------------------------------------- */

static bool is_split_name(const char *name)
{
    static const char *const words[] = {"train", "val", "valid", "validation", "test"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return false;
}

/* Every folder that holds samples is named like a split, and there is one. */
static bool is_split_root(const psti_dir *top)
{
    bool any = false;
    for (uint32_t i = 0; i < top->count; i++) {
        const psti_entry *entry = &top->entries[i];
        if (is_sample(entry))
            return false;
        if (!is_class_dir(top, entry) || !psti_folder_samples(entry->child))
            continue;
        if (!is_split_name(psti_entry_name(top, entry)))
            return false;
        any = true;
    }
    return any;
}

const psti_dir *psti_folder_child(const psti_dir *dir, const char *name)
{
    for (uint32_t i = 0; i < dir->count; i++)
        if (dir->entries[i].type == PSTI_ENTRY_DIR &&
            strcmp(psti_entry_name(dir, &dir->entries[i]), name) == 0)
            return dir->entries[i].child;
    return NULL;
}

const psti_pair_names *psti_folder_pair_root(const psti_dir *top)
{
    static const psti_pair_names all[] = {
        {"images", "masks"}, {"images", "labels"}, {"imagesTr", "labelsTr"}};
    size_t dirs = 0;
    for (uint32_t i = 0; i < top->count; i++) {
        if (is_sample(&top->entries[i]))
            return NULL;
        /* Images without masks, which are nobody's samples, may lie beside. */
        dirs += is_class_dir(top, &top->entries[i]) &&
                strcmp(psti_entry_name(top, &top->entries[i]), "imagesTs") != 0;
    }
    for (size_t i = 0; dirs == 2 && i < sizeof all / sizeof *all; i++) {
        const psti_dir *images = psti_folder_child(top, all[i].images);
        const psti_dir *masks = psti_folder_child(top, all[i].masks);
        /* Labels are often texts, and then no masks. */
        if (images && masks && (i == 0 || psti_folder_samples(masks)))
            return &all[i];
    }
    return NULL;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Adds the names of the class folders in dir; classes are sorted and made unique by sort_classes.
 */
static int add_classes(psti_building *b, const psti_dir *dir)
{
    for (uint32_t i = 0; i < dir->count; i++) {
        if (!is_class_dir(dir, &dir->entries[i]))
            continue;
        if (psti_grow(&b->classes, &b->class_cap, b->class_count + 1, sizeof *b->classes))
            return -ENOMEM;
        b->classes[b->class_count++] = psti_entry_name(dir, &dir->entries[i]);
    }
    return 0;
}

static void sort_classes(psti_building *b)
{
    size_t kept = 0;
    if (b->class_count)
        qsort(b->classes, b->class_count, sizeof *b->classes, by_name);
    for (size_t i = 0; i < b->class_count; i++)
        if (!kept || strcmp(b->classes[kept - 1], b->classes[i]) != 0)
            b->classes[kept++] = b->classes[i];
    b->class_count = kept;
}

static int64_t label_of(const psti_building *b, const char *name)
{
    const char **at = bsearch(&name, b->classes, b->class_count, sizeof *b->classes, by_name);
    return at ? at - b->classes : -1;
}

/* ---- gathering files in key order ------------------------------------------------------------ */

static int gather_file(psti_building *b, const psti_dir *dir, const psti_entry *entry,
                       int64_t label)
{
    if (psti_grow(&b->files, &b->cap, b->count + 1, sizeof *b->files))
        return -ENOMEM;
    b->files[b->count++] = (psti_found){.dir = dir, .entry = entry, .label = label};
    b->path_bytes += strlen(dir->path) + 1 + strlen(psti_entry_name(dir, entry)) + 1;
    b->formats[entry->type]++;
    return 0;
}

int psti_folder_gather(psti_building *b, const psti_dir *dir, int64_t label)
{
    int rc = 0;
    for (uint32_t i = 0; i < dir->count && !rc; i++) {
        const psti_entry *entry = &dir->entries[i];
        if (entry->type == PSTI_ENTRY_DIR)
            rc = psti_folder_gather(b, entry->child, label);
        else if (is_sample(entry))
            rc = gather_file(b, dir, entry, label);
    }
    return rc;
}

/* Class folders, or a flat folder without labels. Files beside class folders belong to no class and
 * are left out. */
static int gather_labelled(psti_building *b, const psti_dir *dir, uint64_t *strays)
{
    if (!has_class_dirs(dir))
        return psti_folder_gather(b, dir, -1);
    *strays += count_direct(dir);
    int rc = 0;
    for (uint32_t i = 0; i < dir->count && !rc; i++)
        if (is_class_dir(dir, &dir->entries[i]))
            rc = psti_folder_gather(b, dir->entries[i].child,
                                    label_of(b, psti_entry_name(dir, &dir->entries[i])));
    return rc;
}

static int gather_splits(psti_building *b, uint64_t *strays)
{
    const psti_dir *top = b->tree->top;
    int rc = 0;
    for (uint32_t i = 0; i < top->count && !rc; i++) {
        const psti_entry *entry = &top->entries[i];
        if (!is_class_dir(top, entry) || !is_split_name(psti_entry_name(top, entry)))
            continue;
        const size_t begin = b->count;
        rc = gather_labelled(b, entry->child, strays);
        b->split[b->splits].name = psti_entry_name(top, entry);
        b->split[b->splits].begin = begin;
        b->split[b->splits++].end = b->count;
    }
    return rc;
}

static int gather_all(psti_building *b)
{
    const psti_dir *top = b->tree->top;
    const bool splits = is_split_root(top);
    uint64_t strays = 0;
    int rc = 0;
    if (!splits)
        rc = add_classes(b, top);
    for (uint32_t i = 0; splits && i < top->count && !rc; i++)
        if (is_class_dir(top, &top->entries[i]) &&
            is_split_name(psti_entry_name(top, &top->entries[i])))
            rc = add_classes(b, top->entries[i].child);
    sort_classes(b);
    if (!rc)
        rc = splits ? gather_splits(b, &strays) : gather_labelled(b, top, &strays);
    if (!rc && strays)
        psti_log(PSTI_LOG_WARN,
                 "%s: %llu files lie beside the class folders, not in one, and are left out",
                 b->o->path, (unsigned long long)strays);
    return rc;
}

/* ---- writing the dataset --------------------------------------------------------------------- */

int psti_folder_bad_name(const psti_building *b, const char *path, const char *fault,
                         pst_error *err)
{
    char shown[300];
    return psti_fail(err, PST_EDATASET, "list", b->o->path,
                     "the file name '%s' %s; rename the file",
                     psti_escape(shown, sizeof shown, path, strlen(path)), fault);
}

int psti_folder_write_path(psti_building *b, const psti_found *f, uint64_t *at, pst_error *err)
{
    psti_strings *pool = &b->data->names;
    const char *name = psti_entry_name(f->dir, f->entry);
    const size_t above = strlen(f->dir->path), len = strlen(name);
    char *to = pool->data + pool->len;
    memcpy(to, f->dir->path, above);
    if (above)
        to[above] = '/';
    const size_t total = above + !!above + len;
    memcpy(to + total - len, name, len + 1);
    const char *fault = psti_key_fault(to, total);
    if (fault)
        return psti_folder_bad_name(b, to, fault, err);
    *at = pool->len;
    pool->len += total + 1;
    return 0;
}

void psti_folder_write_member(psti_member *m, const psti_found *f, uint64_t path)
{
    m->length = f->entry->size;
    m->place = path;
    m->mtime_ns = f->entry->mtime_ns;
    m->inode = f->entry->inode;
}

int psti_folder_write_files(psti_building *b, pst_error *err)
{
    psti_dataset *data = b->data;
    int slot_of[PSTI_FAMILIES];
    const int slots = psti_dataset_add_families(data, b->formats, slot_of);
    if (psti_dataset_make_room(data, (int64_t)b->count, slots) ||
        psti_strings_reserve(&data->names, b->path_bytes))
        return psti_folder_no_memory(b, err);
    for (size_t i = 0; i < b->count; i++) {
        const psti_found *f = &b->files[i];
        const int rc = psti_folder_write_path(b, f, &data->keys[i], err);
        if (rc)
            return rc;
        const int slot = slot_of[psti_family_of((psti_format)f->entry->type)];
        psti_folder_write_member(psti_member_at(data, (int64_t)i, slot), f, data->keys[i]);
    }
    return 0;
}

static int write_classes(psti_building *b)
{
    psti_dataset *data = b->data;
    data->class_at = psti_calloc(PSTI_MEM_SOURCE, b->class_count, sizeof *data->class_at);
    if (!data->class_at)
        return -ENOMEM;
    size_t bytes = 0;
    for (size_t i = 0; i < b->class_count; i++)
        bytes += strlen(b->classes[i]) + 1;
    if (psti_strings_reserve(&data->names, bytes))
        return -ENOMEM;
    for (size_t i = 0; i < b->class_count; i++)
        if (psti_strings_add(&data->names, b->classes[i], strlen(b->classes[i]),
                             &data->class_at[i]))
            return -ENOMEM;
    data->classes = (int64_t)b->class_count;
    return 0;
}

static int write_labels(psti_building *b)
{
    psti_dataset *data = b->data;
    const size_t words = (b->count + 63) / 64;
    int64_t *labels = psti_calloc(PSTI_MEM_SOURCE, b->count, sizeof *labels);
    uint64_t *present = psti_calloc(PSTI_MEM_SOURCE, words, sizeof *present);
    if (!labels || !present) {
        psti_free(labels);
        psti_free(present);
        return -ENOMEM;
    }
    size_t have = 0;
    for (size_t i = 0; i < b->count; i++) {
        labels[i] = b->files[i].label;
        present[i / 64] |= (uint64_t)(labels[i] >= 0) << (i % 64);
        have += labels[i] >= 0;
    }
    if (have == b->count) {
        psti_free(present);
        present = NULL;
    }
    data->column[data->columns] = psti_column_of_i64(labels, present);
    const pst_field_info info = {
        .name = "label", .kind = PST_LABEL, .dtype = PST_I64, .format = "folder"};
    data->label = psti_dataset_add_field(data, &info, false, data->columns++);
    return write_classes(b);
}

static int write_splits(psti_building *b, pst_error *err)
{
    for (int i = 0; i < b->splits; i++) {
        const size_t begin = b->split[i].begin, n = b->split[i].end - begin;
        int64_t *ids = psti_calloc(PSTI_MEM_SOURCE, n, sizeof *ids);
        if (!ids)
            return psti_folder_no_memory(b, err);
        for (size_t k = 0; k < n; k++)
            ids[k] = (int64_t)(begin + k);
        const int rc = psti_dataset_add_split(b->data, b->split[i].name, ids, (int64_t)n, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- the entrance ---------------------------------------------------------------------------- */

static void count_useless(const psti_dir *dir, uint64_t *ignored, uint64_t *outside, uint64_t *tars)
{
    *ignored += dir->ignored;
    *outside += dir->outside;
    for (uint32_t i = 0; i < dir->count; i++) {
        *tars += dir->entries[i].type == PSTI_ENTRY_TAR;
        if (dir->entries[i].type == PSTI_ENTRY_DIR)
            count_useless(dir->entries[i].child, ignored, outside, tars);
    }
}

static int nothing_usable(const psti_building *b, pst_error *err)
{
    uint64_t ignored = 0, outside = 0, tars = 0;
    count_useless(b->tree->top, &ignored, &outside, &tars);
    if (outside)
        return psti_fail(err, PST_EDATASET, "list", b->o->path,
                         "no samples: %llu symbolic links lead out of the folder or nowhere, and "
                         "such links are not followed; "
                         "open the folder that they lead to",
                         (unsigned long long)outside);
    if (tars)
        return psti_fail(err, PST_EDATASET, "list", b->o->path,
                         "no samples, but %llu tar files below it; open a folder that holds "
                         "nothing but tar shards",
                         (unsigned long long)tars);
    if (ignored)
        return psti_fail(
            err, PST_EDATASET, "list", b->o->path,
            "no samples: none of its %llu files ends in jpg, jpeg, png, webp, npy, npz, "
            "nii, nii.gz, wav or flac; check the path",
            (unsigned long long)ignored);
    return psti_fail(err, PST_EDATASET, "list", b->o->path,
                     b->o->far ? "nothing lies there; check bucket and key"
                               : "the folder is empty; check the path");
}

static void warn_outside(const psti_building *b)
{
    uint64_t ignored = 0, outside = 0, tars = 0;
    count_useless(b->tree->top, &ignored, &outside, &tars);
    if (outside)
        psti_log(PSTI_LOG_WARN,
                 "%s: %llu symbolic links lead out of the folder or nowhere and are left out",
                 b->o->path, (unsigned long long)outside);
}

static int build(psti_building *b, pst_error *err)
{
    const psti_pair_names *names = psti_folder_pair_root(b->tree->top);
    if (names)
        return psti_folder_build_pairs(b, names, err);
    int rc = psti_folder_build_cases(b, err);
    if (rc)
        return rc < 0 ? rc : 0;
    if (psti_folder_is_speech(b->tree->top)) {
        rc = psti_folder_build_speech(b, err);
        return rc ? rc : write_splits(b, err);
    }
    if (gather_all(b))
        return psti_folder_no_memory(b, err);
    if (!b->count)
        return 0;
    rc = psti_folder_write_files(b, err);
    if (!rc && b->class_count && write_labels(b))
        rc = psti_folder_no_memory(b, err);
    return rc ? rc : write_splits(b, err);
}

int psti_folder_build(psti_opening *o, psti_tree *tree, psti_dataset **out, pst_error *err)
{
    psti_building b = {.o = o, .tree = tree};
    b.data = psti_dataset_begin(o, PSTI_KIND_FOLDER);
    int rc = b.data ? build(&b, err) : psti_folder_no_memory(&b, err);
    if (!rc && !b.data->count)
        rc = nothing_usable(&b, err);
    if (!rc) {
        warn_outside(&b);
        psti_dataset_settle(b.data);
        *out = b.data;
        b.data = NULL;
    }
    psti_dataset_unref(b.data);
    psti_free(b.files);
    psti_free(b.classes);
    return rc;
}

int psti_single_build(psti_opening *o, const char *name, psti_dataset **out, pst_error *err)
{
    const size_t len = strlen(name);
    const psti_format format = psti_format_of_name(name, len);
    psti_stamp stamp;
    char shown[300];
    const char *fault = psti_key_fault(name, len);
    if (fault)
        return psti_fail(err, PST_EDATASET, "list", o->path,
                         "the file name '%s' %s; rename the file",
                         psti_escape(shown, sizeof shown, name, len), fault);
    int rc = psti_opening_stamp(o, name, &stamp);
    if (rc)
        return psti_fail(err, rc, "list", o->path, "the file cannot be looked at: %s",
                         pst_strerror(rc));
    psti_dataset *data = psti_dataset_begin(o, PSTI_KIND_FILE);
    uint64_t at = 0;
    if (!data || psti_dataset_make_room(data, 1, 1) ||
        psti_strings_add(&data->names, name, len, &at)) {
        psti_dataset_unref(data);
        return psti_fail(err, -ENOMEM, "list", o->path, "out of memory");
    }
    const psti_family *family = &psti_families[psti_family_of(format)];
    const pst_field_info info = psti_member_info(family->field, strlen(family->field), family->kind,
                                                 psti_format_by_name(format));
    psti_dataset_add_field(data, &info, true, 0);
    data->keys[0] = at;
    *psti_member_at(data, 0, 0) = (psti_member){
        .length = stamp.size, .place = at, .mtime_ns = stamp.mtime_ns, .inode = stamp.inode};
    psti_dataset_settle(data);
    *out = data;
    return 0;
}
