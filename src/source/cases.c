/* SPDX-License-Identifier: Apache-2.0
 * Volumes beside their masks, in the layouts that people have: a folder for each case
 * (case_00000/imaging.nii.gz and segmentation.nii.gz), arrays side by side (case_00000_x.npy and
 * case_00000_y.npy), or both in one archive (case_00000.npz). The fields are called image and mask.
 * Runs in the thread that opens the dataset. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/folder.h"

typedef enum role { NEITHER, IMAGE, MASK } role;

typedef struct one_case {
    const char *key; /* in the tree; not terminated */
    size_t key_len;
    psti_found image, mask; /* entry NULL: not there */
} one_case;

typedef struct cases {
    one_case *all;
    size_t count, cap;
} cases;

static bool is_volume(const psti_entry *entry)
{
    return entry->type >= PSTI_FORMAT_NPY && entry->type <= PSTI_FORMAT_NPZ;
}

static bool is_one_of(const char *text, size_t len, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == len && memcmp(*words, text, len) == 0)
            return true;
    return false;
}

/* What a file in a folder of its own is, by its stem. */
static role role_in_folder(const psti_dir *dir, const psti_entry *entry)
{
    static const char *const images[] = {"imaging", "image", NULL};
    static const char *const masks[] = {"segmentation", "seg", "label", "mask", NULL};
    const char *name = psti_entry_name(dir, entry);
    const char *ext = psti_ext_of_name(name, strlen(name));
    const size_t stem = ext ? (size_t)(ext - 1 - name) : 0;
    if (!is_volume(entry) || entry->type == PSTI_FORMAT_NPZ)
        return NEITHER;
    return is_one_of(name, stem, images) ? IMAGE : is_one_of(name, stem, masks) ? MASK : NEITHER;
}

/* What an array is that lies beside others: case_x.npy, case_y.npy. *len: of the case's name. */
static role role_beside(const psti_dir *dir, const psti_entry *entry, size_t *len)
{
    const char *name = psti_entry_name(dir, entry);
    const char *ext = psti_ext_of_name(name, strlen(name));
    const size_t stem = ext ? (size_t)(ext - 1 - name) : 0;
    if (entry->type != PSTI_FORMAT_NPY || stem < 3 || name[stem - 2] != '_')
        return NEITHER;
    *len = stem - 2;
    return name[stem - 1] == 'x' ? IMAGE : name[stem - 1] == 'y' ? MASK : NEITHER;
}

static int by_key(const void *left, const void *right)
{
    const one_case *a = left, *b = right;
    const int order = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
    return order ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static one_case *add_case(cases *c, const char *key, size_t len)
{
    if (psti_grow(&c->all, &c->cap, c->count + 1, sizeof *c->all))
        return NULL;
    c->all[c->count] = (one_case){.key = key, .key_len = len};
    return &c->all[c->count++];
}

static void sort_cases(cases *c)
{
    if (c->count)
        qsort(c->all, c->count, sizeof *c->all, by_key);
}

/* ---- a folder for each case ------------------------------------------------------------------ */

/* Whether the folder is a case: one image, at most one mask, and no other sample in or below it. */
static bool is_case(const psti_dir *dir)
{
    int images = 0, masks = 0;
    for (uint32_t i = 0; i < dir->count; i++) {
        const psti_entry *entry = &dir->entries[i];
        const role is = entry->type < PSTI_FORMATS ? role_in_folder(dir, entry) : NEITHER;
        if (entry->type == PSTI_ENTRY_DIR ? psti_folder_samples(entry->child) > 0
                                          : entry->type < PSTI_FORMATS && is == NEITHER)
            return false;
        images += is == IMAGE;
        masks += is == MASK;
    }
    return images == 1 && masks <= 1;
}

static bool are_case_folders(const psti_dir *top)
{
    bool any = false;
    for (uint32_t i = 0; i < top->count; i++) {
        const psti_entry *entry = &top->entries[i];
        if (entry->type < PSTI_FORMATS)
            return false;
        if (entry->type != PSTI_ENTRY_DIR || !psti_folder_samples(entry->child))
            continue;
        if (!is_case(entry->child))
            return false;
        for (uint32_t k = 0; k < entry->child->count && !any; k++)
            any = role_in_folder(entry->child, &entry->child->entries[k]) == MASK;
    }
    return any;
}

static int gather_case_folders(cases *c, const psti_dir *top)
{
    for (uint32_t i = 0; i < top->count; i++) {
        const psti_dir *dir = top->entries[i].child;
        if (top->entries[i].type != PSTI_ENTRY_DIR || !psti_folder_samples(dir))
            continue;
        one_case *mine = add_case(c, dir->path, strlen(dir->path));
        if (!mine)
            return -1;
        for (uint32_t k = 0; k < dir->count; k++) {
            const psti_found found = {.dir = dir, .entry = &dir->entries[k], .label = -1};
            const role is =
                found.entry->type < PSTI_FORMATS ? role_in_folder(dir, found.entry) : NEITHER;
            if (is == IMAGE)
                mine->image = found;
            else if (is == MASK)
                mine->mask = found;
        }
    }
    return 0;
}

/* ---- files side by side ---------------------------------------------------------------------- */

/* Whether all samples are files of this one folder, and each passes. */
static bool all_are(const psti_dir *top, bool (*passes)(const psti_dir *, const psti_entry *))
{
    bool any = false;
    for (uint32_t i = 0; i < top->count; i++) {
        const psti_entry *entry = &top->entries[i];
        if (entry->type == PSTI_ENTRY_DIR ? psti_folder_samples(entry->child) > 0
                                          : entry->type < PSTI_FORMATS && !passes(top, entry))
            return false;
        any |= entry->type < PSTI_FORMATS;
    }
    return any;
}

static bool is_beside(const psti_dir *dir, const psti_entry *entry)
{
    size_t len;
    return role_beside(dir, entry, &len) != NEITHER;
}

static bool is_archive(const psti_dir *dir, const psti_entry *entry)
{
    (void)dir;
    return entry->type == PSTI_FORMAT_NPZ;
}

/* Images and masks each become a case; then the two of one key become one. *alone: how many found
 * no partner, the first of which is *first. */
static int gather_beside(cases *c, const psti_dir *top, size_t *alone, one_case *first)
{
    for (uint32_t i = 0; i < top->count; i++) {
        const psti_entry *entry = &top->entries[i];
        size_t len = 0;
        if (entry->type >= PSTI_FORMATS)
            continue;
        const role is = role_beside(top, entry, &len);
        one_case *mine = add_case(c, psti_entry_name(top, entry), len);
        if (!mine)
            return -1;
        *(is == IMAGE ? &mine->image : &mine->mask) =
            (psti_found){.dir = top, .entry = entry, .label = -1};
    }
    sort_cases(c);
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        const one_case *mine = &c->all[i], *next = mine + 1;
        if (i + 1 == c->count || by_key(mine, next) != 0 ||
            !mine->image.entry == !next->image.entry) { /* a_y.npy and a_y.NPY */
            if ((*alone)++ == 0)
                *first = *mine;
            continue;
        }
        one_case both = *mine;
        both.image = mine->image.entry ? mine->image : next->image;
        both.mask = mine->mask.entry ? mine->mask : next->mask;
        c->all[kept++] = both;
        i++;
    }
    c->count = kept;
    return 0;
}

static int gather_archives(cases *c, const psti_dir *top)
{
    for (uint32_t i = 0; i < top->count; i++) {
        const psti_entry *entry = &top->entries[i];
        if (entry->type >= PSTI_FORMATS)
            continue;
        const char *name = psti_entry_name(top, entry);
        one_case *mine = add_case(c, name, strlen(name));
        if (!mine)
            return -1;
        mine->image = mine->mask = (psti_found){.dir = top, .entry = entry, .label = -1};
    }
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

void psti_folder_volume_fields(psti_building *b, const uint64_t image_formats[PSTI_FORMATS],
                               const uint64_t mask_formats[PSTI_FORMATS], int mask_slot)
{
    pst_field_info image =
        psti_member_info("image", 5, PST_VOLUME,
                         psti_format_common(image_formats, PSTI_FORMAT_NPY, PSTI_FORMAT_NPZ));
    pst_field_info mask = psti_member_info(
        "mask", 4, PST_MASK, psti_format_common(mask_formats, PSTI_FORMAT_NPY, PSTI_FORMAT_NPZ));
    mask.rank = image.rank;
    memcpy(mask.shape, image.shape, sizeof mask.shape);
    psti_dataset_add_field(b->data, &image, true, 0);
    psti_dataset_add_field(b->data, &mask, true, mask_slot);
}

static size_t path_bytes(const psti_found *f)
{
    return f->entry ? strlen(f->dir->path) + strlen(psti_entry_name(f->dir, f->entry)) + 2 : 0;
}

/* shared: image and mask are the same file. */
static int write_cases(psti_building *b, const cases *c, bool shared, pst_error *err)
{
    psti_dataset *data = b->data;
    uint64_t image_formats[PSTI_FORMATS] = {0}, mask_formats[PSTI_FORMATS] = {0};
    size_t bytes = 0;
    for (size_t i = 0; i < c->count; i++) {
        const one_case *mine = &c->all[i];
        bytes += mine->key_len + 1 + path_bytes(&mine->image) + path_bytes(&mine->mask);
        image_formats[mine->image.entry->type]++;
        if (mine->mask.entry)
            mask_formats[mine->mask.entry->type]++;
    }
    psti_folder_volume_fields(b, image_formats, mask_formats, !shared);
    if (psti_dataset_make_room(data, (int64_t)c->count, shared ? 1 : 2) ||
        psti_strings_reserve(&data->names, bytes))
        return psti_folder_no_memory(b, err);
    for (size_t i = 0; i < c->count; i++) {
        const one_case *mine = &c->all[i];
        uint64_t path;
        int rc = psti_folder_write_path(b, &mine->image, &path, err);
        if (rc == 0)
            psti_folder_write_member(psti_member_at(data, (int64_t)i, 0), &mine->image, path);
        if (rc == 0 && !shared && mine->mask.entry) {
            rc = psti_folder_write_path(b, &mine->mask, &path, err);
            if (rc == 0)
                psti_folder_write_member(psti_member_at(data, (int64_t)i, 1), &mine->mask, path);
        }
        if (rc == 0 && psti_strings_add(&data->names, mine->key, mine->key_len, &data->keys[i]))
            rc = psti_folder_no_memory(b, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int fail_alone(const psti_building *b, const one_case *c, size_t alone, pst_error *err)
{
    return psti_fail(err, PST_EDATASET, "list", b->o->path,
                     "%.*s_%c.npy has no %.*s_%c.npy beside it (and %zu more like it); add it or "
                     "remove the file",
                     (int)c->key_len, c->key, c->image.entry ? 'x' : 'y', (int)c->key_len, c->key,
                     c->image.entry ? 'y' : 'x', alone - 1);
}

int psti_folder_build_cases(psti_building *b, pst_error *err)
{
    const psti_dir *top = b->tree->top;
    cases c = {0};
    size_t alone = 0;
    one_case first = {0};
    bool shared = false;
    int rc = 0;
    if (are_case_folders(top))
        rc = gather_case_folders(&c, top);
    else if (all_are(top, is_beside))
        rc = gather_beside(&c, top, &alone, &first);
    else if ((shared = all_are(top, is_archive)))
        rc = gather_archives(&c, top);
    sort_cases(&c);
    if (rc < 0)
        rc = psti_folder_no_memory(b, err);
    else if (c.count && alone) /* without a single pair they are arrays like any others */
        rc = fail_alone(b, &first, alone, err);
    else if (c.count)
        rc = write_cases(b, &c, shared, err);
    psti_free(c.all);
    return rc < 0 ? rc : c.count > 0;
}
