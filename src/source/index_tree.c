/* SPDX-License-Identifier: Apache-2.0
 * The raw tree of a folder in a remembered listing: all directories, all entries, all names.
 * Directories are numbered level by level, so that a child's number is always the next one not yet
 * used: a damaged file cannot make a loop. */
#include <string.h>

#include "core/memory.h"
#include "source/index.h"

typedef struct counts {
    uint64_t dirs, entries, names_bytes;
} counts;

typedef struct dir_record {
    int64_t mtime_ns;
    uint64_t inode, device;
    uint64_t first;    /* entry */
    uint64_t names_at; /* in the names */
    uint64_t names_bytes;
    uint32_t count, ignored, outside, reserved;
} dir_record;
_Static_assert(sizeof(dir_record) == 64, "part of the stored format");
_Static_assert(sizeof(psti_entry) == 32, "part of the stored format");

/* ---- saving ---------------------------------------------------------------------------------- */

/* All directories level by level. NULL when memory is short. */
static psti_dir **flatten(const psti_tree *tree, counts *n)
{
    psti_dir **dirs = NULL;
    size_t cap = 0;
    *n = (counts){0};
    if (psti_grow(&dirs, &cap, 1, sizeof *dirs))
        return NULL;
    dirs[n->dirs++] = tree->top;
    for (uint64_t i = 0; i < n->dirs; i++) {
        const psti_dir *dir = dirs[i];
        n->entries += dir->count;
        n->names_bytes += dir->names_bytes;
        for (uint32_t k = 0; k < dir->count; k++) {
            if (dir->entries[k].type != PSTI_ENTRY_DIR)
                continue;
            if (psti_grow(&dirs, &cap, n->dirs + 1, sizeof *dirs)) {
                psti_free(dirs);
                return NULL;
            }
            dirs[n->dirs++] = dir->entries[k].child;
        }
    }
    return dirs;
}

static void put_records(psti_index_writer *w, psti_dir *const *dirs, const counts *n)
{
    uint64_t entries = 0, names = 0;
    for (uint64_t i = 0; i < n->dirs; i++) {
        const psti_dir *dir = dirs[i];
        const dir_record record = {.mtime_ns = dir->mtime_ns,
                                   .inode = dir->inode,
                                   .device = dir->device,
                                   .first = entries,
                                   .names_at = names,
                                   .names_bytes = dir->names_bytes,
                                   .count = dir->count,
                                   .ignored = dir->ignored,
                                   .outside = dir->outside};
        psti_index_put(w, &record, sizeof record);
        entries += dir->count;
        names += dir->names_bytes;
    }
}

static void put_entries(psti_index_writer *w, psti_dir *const *dirs, const counts *n)
{
    uint64_t next = 1;
    for (uint64_t i = 0; i < n->dirs; i++)
        for (uint32_t k = 0; k < dirs[i]->count; k++) {
            psti_entry entry = dirs[i]->entries[k];
            if (entry.type == PSTI_ENTRY_DIR)
                entry.size = next++;
            psti_index_put(w, &entry, sizeof entry);
        }
}

void psti_index_save_tree(const psti_opening *o, const psti_tree *tree)
{
    counts n;
    psti_dir **dirs = o->index_path ? flatten(tree, &n) : NULL;
    if (!dirs)
        return;
    psti_index_writer w;
    psti_index_begin(&w, o, PSTI_KIND_FOLDER);
    psti_index_put(&w, &n, sizeof n);
    put_records(&w, dirs, &n);
    put_entries(&w, dirs, &n);
    for (uint64_t i = 0; i < n.dirs; i++)
        psti_index_put(&w, dirs[i]->names, dirs[i]->names_bytes);
    psti_index_end(&w);
    psti_free(dirs);
}

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct loading {
    psti_tree *tree;
    counts n;
    const dir_record *records;
    psti_entry *entries;
    char *names;
    psti_dir **dirs; /* by number; NULL until its parent was seen */
    uint64_t next;   /* number of the next child */
} loading;

static bool within(uint64_t at, uint64_t len, uint64_t all)
{
    return at <= all && len <= all - at;
}

/* Finds the parts of the body and checks that they fill it exactly. */
static bool divide(loading *l, psti_index *index)
{
    uint8_t *p = index->body + index->at;
    uint64_t left = index->header.body_bytes - index->at;
    if (left < sizeof l->n)
        return false;
    memcpy(&l->n, p, sizeof l->n);
    p += sizeof l->n;
    left -= sizeof l->n;
    if (!l->n.dirs || l->n.dirs > left / sizeof(dir_record))
        return false;
    left -= l->n.dirs * sizeof(dir_record);
    if (l->n.entries > left / sizeof(psti_entry))
        return false;
    left -= l->n.entries * sizeof(psti_entry);
    if (l->n.names_bytes != left)
        return false;
    l->records = (const dir_record *)(void *)p;
    l->entries = (psti_entry *)(void *)(p + l->n.dirs * sizeof(dir_record));
    l->names = (char *)(l->entries + l->n.entries);
    return true;
}

static bool entry_ok(const psti_dir *dir, const psti_entry *entry)
{
    const bool type = (entry->type > 0 && entry->type < PSTI_FORMATS) ||
                      entry->type == PSTI_ENTRY_DIR || entry->type == PSTI_ENTRY_TAR ||
                      entry->type == PSTI_ENTRY_TEXT;
    return type && entry->name < dir->names_bytes && dir->names[entry->name] &&
           dir->names[entry->name] != '.' && !strchr(dir->names + entry->name, '/');
}

/* Entries count one by one as they are found good, so that a half-loaded tree can be freed. */
static bool load_dir(loading *l, psti_dir *dir, const dir_record *record)
{
    if (!within(record->first, record->count, l->n.entries) ||
        !within(record->names_at, record->names_bytes, l->n.names_bytes))
        return false;
    dir->mtime_ns = record->mtime_ns;
    dir->inode = record->inode;
    dir->device = record->device;
    dir->ignored = record->ignored;
    dir->outside = record->outside;
    dir->entries = l->entries + record->first;
    dir->names = l->names + record->names_at;
    dir->names_bytes = record->names_bytes;
    dir->known = true;
    if (record->count && (!dir->names_bytes || dir->names[dir->names_bytes - 1] != 0))
        return false;
    for (; dir->count < record->count; dir->count++) {
        psti_entry *entry = &dir->entries[dir->count];
        if (!entry_ok(dir, entry))
            return false;
        if (entry->type != PSTI_ENTRY_DIR)
            continue;
        if (entry->size != l->next || l->next >= l->n.dirs)
            return false;
        entry->child = psti_dir_new(l->tree, dir, psti_entry_name(dir, entry));
        if (!entry->child)
            return false;
        l->dirs[l->next++] = entry->child;
    }
    return true;
}

psti_tree *psti_index_load_tree(psti_index *index, const psti_opening *o)
{
    loading l = {.tree = psti_tree_new(o->root, o->path)};
    bool ok = l.tree && divide(&l, index);
    if (ok)
        l.dirs = psti_calloc(PSTI_MEM_SOURCE, l.n.dirs, sizeof *l.dirs);
    ok = ok && l.dirs;
    if (ok) {
        l.dirs[0] = l.tree->top;
        l.next = 1;
    }
    for (uint64_t i = 0; ok && i < l.n.dirs; i++)
        ok = l.dirs[i] && load_dir(&l, l.dirs[i], &l.records[i]);
    psti_free(l.dirs);
    if (!ok) {
        psti_tree_free(l.tree);
        return NULL;
    }
    l.tree->trust_before_ns = index->header.listed_ns - PSTI_INDEX_DOUBT_NS;
    l.tree->loaded = index->body;
    index->body = NULL;
    return l.tree;
}
