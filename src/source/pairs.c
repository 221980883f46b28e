/* SPDX-License-Identifier: Apache-2.0
 * Images beside masks: files of equal stem below images/ and masks/ are one sample; so are volumes,
 * where the masks may lie in labels/ too. Runs in the thread that opens the dataset. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/folder.h"

/* Of the first channel of a volume that has each in a file of its own. */
static const char first_channel[] = "_0000";

/* The path below images/ or masks/ without its extension, and the number of a volume's channel;
 * its length is returned. Written into buf. */
static size_t stem_of(const psti_found *f, size_t skip, bool image, char *buf, size_t cap)
{
    const char *below = f->dir->path + (strlen(f->dir->path) > skip ? skip + 1 : skip);
    const char *name = psti_entry_name(f->dir, f->entry);
    const char *ext = psti_ext_of_name(name, strlen(name));
    const size_t above = strlen(below), tail = strlen(first_channel);
    size_t stem = (size_t)(ext - 1 - name);
    if (image && f->entry->type == PSTI_FORMAT_NIFTI && stem > tail &&
        memcmp(name + stem - tail, first_channel, tail) == 0)
        stem -= tail;
    if (above + stem + 2 > cap)
        return 0;
    memcpy(buf, below, above);
    if (above)
        buf[above] = '/';
    memcpy(buf + above + !!above, name, stem);
    buf[above + !!above + stem] = 0;
    return above + !!above + stem;
}

typedef struct stems {
    psti_strings pool;
    uint64_t *at;
    psti_keymap map;
} stems;

static void stems_fini(stems *s)
{
    psti_keymap_fini(&s->map);
    psti_free(s->at);
    psti_strings_free(&s->pool);
}

/* A map from stem to place among the files of one of the two folders. */
static int stems_init(stems *s, const psti_building *b, const psti_found *files, size_t count,
                      const char *folder, bool images, pst_error *err)
{
    char stem[PSTI_KEY_MAX + 1];
    *s = (stems){0};
    s->at = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *s->at);
    if (!s->at || psti_keymap_init(&s->map, count, &s->pool, s->at))
        return psti_folder_no_memory(b, err);
    for (size_t i = 0; i < count; i++) {
        const size_t len = stem_of(&files[i], strlen(folder), images, stem, sizeof stem);
        if (!len)
            return psti_folder_bad_name(b, psti_entry_name(files[i].dir, files[i].entry),
                                        "is too long", err);
        if (psti_strings_add(&s->pool, stem, len, &s->at[i]))
            return psti_folder_no_memory(b, err);
        if (psti_keymap_put(&s->map, i) >= 0)
            return psti_fail(
                err, PST_EDATASET, "list", b->o->path,
                "two files in '%s' share the stem '%s', so it is not clear which belongs to which; "
                "remove one",
                folder, stem);
    }
    return 0;
}

/* Writes image and mask of every sample. masks: the tail of b->files. */
static int write_pairs(psti_building *b, size_t images, const stems *image_stems,
                       const stems *mask_stems, const psti_pair_names *names, pst_error *err)
{
    psti_dataset *data = b->data;
    const psti_found *masks = b->files + images;
    for (size_t i = 0; i < images; i++) {
        const char *stem = image_stems->pool.data + image_stems->at[i];
        const int64_t m = psti_keymap_find(&mask_stems->map, stem, strlen(stem));
        uint64_t path;
        if (m < 0)
            return psti_fail(
                err, PST_EDATASET, "list", b->o->path,
                "%s/%s… has no mask of the same stem below %s/; add it or remove the image",
                names->images, stem, names->masks);
        int rc = psti_folder_write_path(b, &b->files[i], &data->keys[i], err);
        if (!rc)
            rc = psti_folder_write_path(b, &masks[m], &path, err);
        if (rc)
            return rc;
        psti_folder_write_member(psti_member_at(data, (int64_t)i, 0), &b->files[i], data->keys[i]);
        psti_folder_write_member(psti_member_at(data, (int64_t)i, 1), &masks[m], path);
    }
    return 0;
}

static uint64_t count_in(const uint64_t formats[PSTI_FORMATS], int from, int to)
{
    uint64_t n = 0;
    for (int i = from; i <= to; i++)
        n += formats[i];
    return n;
}

static int add_pair_fields(psti_building *b, const uint64_t image_formats[PSTI_FORMATS],
                           const psti_pair_names *names, pst_error *err)
{
    uint64_t mask_formats[PSTI_FORMATS];
    for (int i = 0; i < PSTI_FORMATS; i++)
        mask_formats[i] = b->formats[i] - image_formats[i];
    const uint64_t volumes = count_in(b->formats, PSTI_FORMAT_NPY, PSTI_FORMAT_NPZ);
    if (volumes == b->count) {
        psti_folder_volume_fields(b, image_formats, mask_formats, 1);
        return 0;
    }
    if (volumes || count_in(b->formats, PSTI_FORMAT_NPZ + 1, PSTI_FORMATS - 1))
        return psti_fail(err, PST_EDATASET, "list", b->o->path,
                         "%s/ and %s/ hold pictures and other files; a dataset has pictures and "
                         "their masks or volumes and their masks: open them by themselves",
                         names->images, names->masks);
    const char *image = psti_format_common(image_formats, PSTI_FORMAT_JPEG, PSTI_FORMAT_WEBP);
    const char *mask = psti_format_common(mask_formats, PSTI_FORMAT_JPEG, PSTI_FORMAT_WEBP);
    const pst_field_info first = psti_member_info("image", 5, PST_IMAGE, image);
    const pst_field_info second = psti_member_info("mask", 4, PST_MASK, mask);
    psti_dataset_add_field(b->data, &first, true, 0);
    psti_dataset_add_field(b->data, &second, true, 1);
    return 0;
}

int psti_folder_build_pairs(psti_building *b, const psti_pair_names *names, pst_error *err)
{
    stems of_images = {0}, of_masks = {0};
    uint64_t image_formats[PSTI_FORMATS];
    if (psti_folder_gather(b, psti_folder_child(b->tree->top, names->images), -1))
        return psti_folder_no_memory(b, err);
    const size_t images = b->count;
    memcpy(image_formats, b->formats, sizeof image_formats);
    if (psti_folder_gather(b, psti_folder_child(b->tree->top, names->masks), -1))
        return psti_folder_no_memory(b, err);
    if (!images || b->count == images)
        return 0; /* the caller says that nothing usable is there */
    int rc = stems_init(&of_images, b, b->files, images, names->images, true, err);
    if (!rc)
        rc = stems_init(&of_masks, b, b->files + images, b->count - images, names->masks, false,
                        err);
    if (!rc && b->count - images > images)
        rc = psti_fail(
            err, PST_EDATASET, "list", b->o->path,
            "there are %zu masks for %zu images; every mask needs an image of the same stem",
            b->count - images, images);
    if (!rc && (psti_dataset_make_room(b->data, (int64_t)images, 2) ||
                psti_strings_reserve(&b->data->names, b->path_bytes)))
        rc = psti_folder_no_memory(b, err);
    if (!rc)
        rc = add_pair_fields(b, image_formats, names, err);
    if (!rc)
        rc = write_pairs(b, images, &of_images, &of_masks, names, err);
    stems_fini(&of_images);
    stems_fini(&of_masks);
    return rc;
}
