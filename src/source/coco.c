/* SPDX-License-Identifier: Apache-2.0
 * From COCO annotation files to a dataset: pictures in the order of their ids, file after file, and
 * for each the boxes, labels, areas, crowd marks and shapes of its objects in the order of the
 * annotations. Nothing is left out or moved here: that is the pipeline's, which knows the picture.
 * Runs in the thread that opens the dataset. */
#include "source/coco.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"

enum { FILES_MAX = 64, LABEL_MAX = 65535, PROBES = 16, NAME_MAX_BYTES = 256 };
#define FOLDER "annotations/"
#define PREFIX "instances_"

/* An annotation file: where it lies, what its split is called, which rows are its own. */
typedef struct notes {
    char path[NAME_MAX_BYTES + sizeof FOLDER];
    char name[NAME_MAX_BYTES];
    char pictures[2 * NAME_MAX_BYTES]; /* the folder of its pictures, with a slash; "" = the root */
    int64_t begin, end;                /* images */
} notes;

typedef struct making {
    psti_opening *o;
    psti_coco_rows rows;
    notes *files;
    size_t count;
    int64_t *first;  /* where each image's objects begin in order; one more than images */
    uint64_t *order; /* numbers of objects, image by image */
    uint64_t strays; /* objects of images that there are not */
    psti_dataset *data;
} making;

static int no_memory(const making *m, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", m->o->path, "out of memory while listing");
}

/* ---- which files ----------------------------------------------------------------------------- */

static bool has_folder(int root, const char *path)
{
    psti_stamp stamp;
    return psti_stamp_beneath(root, path, &stamp) == 0 && S_ISDIR(stamp.mode);
}

/* instances_train2017.json is the split train2017. */
static bool set_notes(notes *n, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (strlen(path) >= sizeof n->path || strlen(base) >= sizeof n->name)
        return false;
    snprintf(n->path, sizeof n->path, "%s", path);
    const size_t skip = strncmp(base, PREFIX, strlen(PREFIX)) == 0 ? strlen(PREFIX) : 0;
    const size_t len = strlen(base + skip) - strlen(".json");
    memcpy(n->name, base + skip, len);
    n->name[len] = 0;
    return len > 0;
}

static int by_path(const void *left, const void *right)
{
    return strcmp(((const notes *)left)->path, ((const notes *)right)->path);
}

/* The files annotations/instances_NAME.json that have a folder NAME or images beside them, in the
 * order of their names. Their number, or -errno. */
static int find_notes(int root, notes files[FILES_MAX])
{
    const int fd = psti_open_beneath(root, "annotations", O_RDONLY | O_DIRECTORY, false);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        const int rc = fd < 0 ? fd : -errno;
        if (fd >= 0)
            close(fd);
        return rc;
    }
    const bool shared = has_folder(root, "images");
    int count = 0;
    for (const struct dirent *d; (d = readdir(dir)) && count <= FILES_MAX;) {
        char path[NAME_MAX_BYTES + sizeof FOLDER];
        if (strncmp(d->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            !psti_has_ext(d->d_name, strlen(d->d_name), "json"))
            continue;
        snprintf(path, sizeof path, FOLDER "%s", d->d_name);
        notes file;
        if (!set_notes(&file, path) || !(shared || has_folder(root, file.name)))
            continue;
        if (count < FILES_MAX)
            files[count] = file;
        count++;
    }
    closedir(dir);
    if (count > FILES_MAX)
        return -E2BIG;
    qsort(files, (size_t)count, sizeof *files, by_path);
    return count;
}

int psti_coco_is_root(int root)
{
    notes *files = psti_calloc(PSTI_MEM_SOURCE, FILES_MAX, sizeof *files);
    if (!files)
        return -ENOMEM;
    const int count = find_notes(root, files);
    psti_free(files);
    return count > 0 || count == -E2BIG;
}

static int take_files(making *m, const char *name, pst_error *err)
{
    m->files = psti_calloc(PSTI_MEM_SOURCE, FILES_MAX, sizeof *m->files);
    if (!m->files)
        return no_memory(m, err);
    if (name && !set_notes(&m->files[0], name))
        return psti_fail(err, PST_EDATASET, "list", m->o->path,
                         "the name of the file is too long or too short; rename it");
    const int count = name ? 1 : find_notes(m->o->root, m->files);
    if (count == -E2BIG)
        return psti_fail(err, PST_EDATASET, "list", m->o->path,
                         "'annotations' holds more than %d files of objects; open one of them",
                         FILES_MAX);
    if (count <= 0)
        return psti_fail(err, count < 0 ? count : PST_EDATASET, "list", m->o->path,
                         "the folder 'annotations' cannot be read: %s",
                         pst_strerror(count < 0 ? count : PST_EDATASET));
    m->count = (size_t)count;
    return 0;
}

/* One file: as it is. Several: a stamp that differs when any of them does. */
int psti_coco_stamp(int root, const char *name, psti_stamp *out)
{
    if (name)
        return psti_stamp_beneath(root, name, out);
    notes *files = psti_calloc(PSTI_MEM_SOURCE, FILES_MAX, sizeof *files);
    const int count = files ? find_notes(root, files) : -ENOMEM;
    int rc = count < 0 && count != -E2BIG ? count : 0; /* too many: building says so */
    psti_hash h;
    psti_hash_init(&h);
    *out = (psti_stamp){.mode = S_IFREG};
    for (int i = 0; i < count && !rc; i++) {
        psti_stamp one;
        rc = psti_stamp_beneath(root, files[i].path, &one);
        if (rc)
            break;
        psti_hash_text(&h, files[i].path, strlen(files[i].path));
        psti_hash_u64(&h, one.size);
        psti_hash_u64(&h, (uint64_t)one.mtime_ns);
        psti_hash_u64(&h, one.inode);
        out->size += one.size;
        if (one.mtime_ns > out->mtime_ns)
            out->mtime_ns = one.mtime_ns;
    }
    out->inode = psti_hash_final(&h).lo;
    psti_free(files);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Where the pictures are: the first folder that holds one of the first that are listed. */
static int find_pictures(making *m, notes *n, pst_error *err)
{
    char tried[3][2 * NAME_MAX_BYTES];
    snprintf(tried[0], sizeof tried[0], "%s/", n->name);
    snprintf(tried[1], sizeof tried[1], "images/%s/", n->name);
    snprintf(tried[2], sizeof tried[2], "images/");
    for (int i = 0; i < 4; i++) {
        const char *folder = i < 3 ? tried[i] : "";
        for (int64_t k = n->begin; k < n->end && k < n->begin + PROBES; k++) {
            char path[PSTI_KEY_MAX];
            psti_stamp stamp;
            const int len = snprintf(path, sizeof path, "%s%s", folder,
                                     m->rows.names.data + m->rows.images[k].name);
            if (len > 0 && (size_t)len < sizeof path &&
                psti_stamp_beneath(m->o->root, path, &stamp) == 0) {
                memcpy(n->pictures, folder, strlen(folder) + 1);
                return 0;
            }
        }
    }
    return psti_fail(err, PST_EDATASET, "list", m->o->path,
                     "the pictures of %s are not found: '%.200s' is in none of %s, %s, images/ and "
                     "the folder above them",
                     n->path, m->rows.names.data + m->rows.images[n->begin].name, tried[0],
                     tried[1]);
}

static int by_image(const void *left, const void *right)
{
    const int64_t a = ((const psti_coco_image *)left)->id, b = ((const psti_coco_image *)right)->id;
    return (a > b) - (a < b);
}

/* Images in the order of their ids; objects by the row of their image. */
static int join_rows(making *m, const notes *n, size_t first_object, pst_error *err)
{
    psti_coco_rows *rows = &m->rows;
    psti_coco_image *images = rows->images + n->begin;
    const size_t count = (size_t)(n->end - n->begin);
    qsort(images, count, sizeof *images, by_image);
    for (size_t i = 1; i < count; i++)
        if (images[i].id == images[i - 1].id)
            return psti_fail(err, PST_EDATASET, "list", m->o->path,
                             "%s: two images have the id %lld", n->path, (long long)images[i].id);
    for (size_t i = first_object; i < rows->object_count; i++) {
        const psti_coco_image like = {.id = rows->objects[i].image};
        const psti_coco_image *found = bsearch(&like, images, count, sizeof *images, by_image);
        rows->objects[i].image = found ? found - rows->images : -1;
        m->strays += !found;
    }
    return 0;
}

static int by_category(const void *left, const void *right)
{
    const int64_t a = ((const psti_coco_category *)left)->id,
                  b = ((const psti_coco_category *)right)->id;
    return (a > b) - (a < b);
}

/* Categories in the order of their ids, each once; every label is one of them. Files without any
 * have numbers for labels. */
static int join_categories(making *m, const notes *n, size_t first_object, bool any, pst_error *err)
{
    psti_coco_rows *rows = &m->rows;
    psti_coco_category *all = rows->categories;
    size_t kept = 0;
    if (rows->category_count)
        qsort(all, rows->category_count, sizeof *all, by_category);
    for (size_t i = 0; i < rows->category_count; i++) {
        const bool again = kept && all[kept - 1].id == all[i].id;
        if (again &&
            strcmp(rows->names.data + all[kept - 1].name, rows->names.data + all[i].name) != 0)
            return psti_fail(err, PST_EDATASET, "list", m->o->path,
                             "%s: the category %lld has two names, '%.80s' and '%.80s'", n->path,
                             (long long)all[i].id, rows->names.data + all[kept - 1].name,
                             rows->names.data + all[i].name);
        if (!again)
            all[kept++] = all[i];
    }
    rows->category_count = kept;
    for (size_t i = first_object; any && i < rows->object_count; i++) {
        const psti_coco_category like = {.id = rows->objects[i].label};
        if (!bsearch(&like, all, kept, sizeof *all, by_category))
            return psti_fail(err, PST_EDATASET, "list", m->o->path,
                             "%s: annotation %lld is of category %lld, which there is not", n->path,
                             (long long)rows->objects[i].id, (long long)rows->objects[i].label);
    }
    return 0;
}

static int read_notes(making *m, notes *n, pst_error *err)
{
    psti_coco_rows *rows = &m->rows;
    const int fd = psti_open_beneath(m->o->root, n->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, false);
    psti_stamp stamp;
    int rc = fd < 0 ? fd : psti_stamp_fd(fd, &stamp);
    if (!rc && !S_ISREG(stamp.mode))
        rc = -EINVAL;
    if (rc) {
        if (fd >= 0)
            close(fd);
        return psti_fail(err, rc, "list", m->o->path, "%s cannot be opened: %s", n->path,
                         pst_strerror(rc));
    }
    const size_t objects = rows->object_count, categories = rows->category_count;
    n->begin = (int64_t)rows->image_count;
    rc = psti_coco_read(rows, fd, n->path, m->o->opts, err);
    close(fd);
    n->end = (int64_t)rows->image_count;
    if (!rc && n->begin == n->end)
        rc = psti_fail(err, PST_EDATASET, "list", m->o->path, "%s lists no images", n->path);
    if (!rc)
        rc = join_rows(m, n, objects, err);
    if (!rc)
        rc = join_categories(m, n, objects, rows->category_count > categories, err);
    return rc ? rc : find_pictures(m, n, err);
}

/* Objects image by image, each image's in the order of the file. */
static int order_objects(making *m, pst_error *err)
{
    const psti_coco_rows *rows = &m->rows;
    m->first = psti_calloc(PSTI_MEM_SOURCE, rows->image_count + 1, sizeof *m->first);
    m->order = psti_calloc(PSTI_MEM_SOURCE, rows->object_count, sizeof *m->order);
    if (!m->first || !m->order)
        return no_memory(m, err);
    for (size_t i = 0; i < rows->object_count; i++)
        if (rows->objects[i].image >= 0)
            m->first[rows->objects[i].image + 1]++;
    for (size_t i = 0; i < rows->image_count; i++)
        m->first[i + 1] += m->first[i];
    for (size_t i = rows->object_count; i-- > 0;) /* from behind: the ends become beginnings */
        if (rows->objects[i].image >= 0)
            m->order[--m->first[rows->objects[i].image + 1]] = i;
    /* Each entry is now the beginning of the image before it. */
    memmove(m->first, m->first + 1, rows->image_count * sizeof *m->first);
    m->first[rows->image_count] = (int64_t)(rows->object_count - m->strays);
    if (m->strays)
        psti_log(PSTI_LOG_WARN,
                 "%s: %llu annotations are of images that are not listed and are left out",
                 m->o->path, (unsigned long long)m->strays);
    return 0;
}

/* ---- the dataset ----------------------------------------------------------------------------- */

static int write_keys(making *m, const notes *n, uint64_t formats[PSTI_FORMATS], pst_error *err)
{
    psti_dataset *data = m->data;
    for (int64_t id = n->begin; id < n->end; id++) {
        const char *name = m->rows.names.data + m->rows.images[id].name;
        const size_t above = strlen(n->pictures), len = strlen(name);
        char key[sizeof n->pictures + PSTI_KEY_MAX + 1], shown[300];
        const char *fault = len > PSTI_KEY_MAX ? "is too long" : NULL;
        if (!fault) {
            memcpy(key, n->pictures, above);
            memcpy(key + above, name, len + 1);
            fault = psti_key_fault(key, above + len);
        }
        if (fault)
            return psti_fail(err, PST_EDATASET, "list", m->o->path,
                             "%s: image %lld: the file_name '%s' %s", n->path,
                             (long long)m->rows.images[id].id,
                             psti_escape(shown, sizeof shown, name, len), fault);
        if (psti_strings_add(&data->names, key, above + len, &data->keys[id]))
            return no_memory(m, err);
        formats[psti_format_of_name(key, above + len)]++;
        psti_member *member = psti_member_at(data, id, 0);
        member->length = 0;
        member->place = data->keys[id];
    }
    return 0;
}

static int check_keys(const making *m, pst_error *err)
{
    const psti_dataset *data = m->data;
    psti_keymap map;
    int rc = psti_keymap_init(&map, (size_t)data->count, &data->names, data->keys)
                 ? no_memory(m, err)
                 : 0;
    for (int64_t id = 0; id < data->count && !rc; id++) {
        const int64_t before = psti_keymap_put(&map, (uint64_t)id);
        if (before >= 0)
            rc = psti_fail(err, PST_EDATASET, "list", m->o->path,
                           "the images %lld and %lld are both '%.200s'; open one annotation file "
                           "at a time, or correct it",
                           (long long)m->rows.images[before].id, (long long)m->rows.images[id].id,
                           psti_text_at(data, data->keys[id]));
    }
    psti_keymap_fini(&map);
    return rc;
}

static int write_images(making *m, pst_error *err)
{
    uint64_t formats[PSTI_FORMATS] = {0};
    psti_missing missing;
    if (psti_dataset_make_room(m->data, (int64_t)m->rows.image_count, 1))
        return no_memory(m, err);
    int rc = 0;
    for (size_t i = 0; i < m->count && !rc; i++)
        rc = write_keys(m, &m->files[i], formats, err);
    if (!rc)
        rc = check_keys(m, err);
    if (rc)
        return rc;
    const char *format = formats[PSTI_FORMAT_NONE]
                             ? NULL
                             : psti_format_common(formats, PSTI_FORMAT_NONE + 1, PSTI_FORMATS - 1);
    const pst_field_info info =
        psti_member_info("image", strlen("image"), PST_IMAGE, format ? format : "any");
    psti_dataset_add_field(m->data, &info, true, 0);
    rc = psti_dataset_look_all(m->data, m->o->opts, &missing, err);
    if (rc || !missing.count)
        return rc;
    return psti_fail(err, PST_EDATASET, "list", m->o->path,
                     "the picture '%.200s' of image %lld cannot be used: %s; %llu are like this",
                     psti_text_at(m->data, m->data->keys[missing.id]),
                     (long long)m->rows.images[missing.id].id, pst_strerror(missing.rc),
                     (unsigned long long)missing.count);
}

/* Names by category id, so that gaps have none; ids that are no small numbers have no names. */
static int write_classes(making *m, pst_error *err)
{
    psti_dataset *data = m->data;
    const psti_coco_rows *rows = &m->rows;
    const size_t count = rows->category_count;
    if (!count || rows->categories[0].id < 0 || rows->categories[count - 1].id > LABEL_MAX)
        return 0;
    const int64_t classes = rows->categories[count - 1].id + 1;
    uint64_t none;
    data->class_at = psti_calloc(PSTI_MEM_SOURCE, (size_t)classes, sizeof *data->class_at);
    if (!data->class_at || psti_strings_add(&data->names, "", 0, &none))
        return no_memory(m, err);
    for (int64_t i = 0; i < classes; i++)
        data->class_at[i] = none;
    for (size_t i = 0; i < count; i++) {
        const char *name = rows->names.data + rows->categories[i].name;
        if (psti_strings_add(&data->names, name, strlen(name),
                             &data->class_at[rows->categories[i].id]))
            return no_memory(m, err);
    }
    data->classes = classes;
    return 0;
}

/* All images of a file, and those that have an object worth the name, as torchvision trains on. */
static int write_split(making *m, const notes *n, bool all, pst_error *err)
{
    int64_t *ids = psti_calloc(PSTI_MEM_SOURCE, (size_t)(n->end - n->begin), sizeof *ids),
            count = 0;
    if (!ids)
        return no_memory(m, err);
    for (int64_t id = n->begin; id < n->end; id++) {
        bool wanted = all;
        for (int64_t i = m->first[id]; i < m->first[id + 1] && !wanted; i++)
            wanted = m->rows.objects[m->order[i]].sized;
        if (wanted)
            ids[count++] = id;
    }
    char name[NAME_MAX_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", n->name, all ? "" : "/annotated");
    return psti_dataset_add_split(m->data, name, ids, count, err);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* What a column of objects holds: `bytes` of each, from `offset` of its row; 0: its shape. */
typedef struct per_object {
    const char *name, *format;
    uint8_t kind, dtype, rank;
    uint32_t type;
    size_t offset, bytes;
} per_object;

#define FROM(member) offsetof(psti_coco_object, member), sizeof((psti_coco_object *)0)->member
static const per_object object_fields[] = {
    {"boxes", "xyxy", PST_BOXES, PST_F32, 2, PSTI_COL_F32S, FROM(box)},
    {"labels", "json", PST_ARRAY, PST_I64, 1, PSTI_COL_I64S, FROM(label)},
    {"area", "json", PST_ARRAY, PST_F32, 1, PSTI_COL_F32S, FROM(area)},
    {"iscrowd", "json", PST_ARRAY, PST_U8, 1, PSTI_COL_BYTES, FROM(crowd)},
    {"masks", "outlines", PST_BYTES, PST_U8, 1, PSTI_COL_BYTES, 0, 0},
    {"annotation_id", "json", PST_ARRAY, PST_I64, 1, PSTI_COL_I64S, FROM(id)},
};
enum { OBJECT_FIELDS = sizeof object_fields / sizeof *object_fields };

static size_t object_bytes(const making *m, const per_object *f, const psti_coco_object *object,
                           uint8_t *dst)
{
    static const uint8_t no_shape; /* as core/outline.h has it */
    const uint8_t *from = (const uint8_t *)object + f->offset;
    size_t bytes = f->bytes;
    if (!f->bytes) {
        from = object->shape_bytes ? m->rows.shapes + object->shape : &no_shape;
        bytes = object->shape_bytes ? object->shape_bytes : 1;
    }
    if (dst)
        memcpy(dst, from, bytes);
    return bytes;
}

static int write_objects(making *m, const per_object *f, pst_error *err)
{
    psti_dataset *data = m->data;
    psti_column *column = &data->column[data->columns++];
    const int64_t *first = m->first;
    *column = (psti_column){.type = f->type};
    for (int64_t i = 0; i < first[data->count]; i++)
        column->heap_bytes += object_bytes(m, f, &m->rows.objects[m->order[i]], NULL);
    column->cells = psti_calloc(PSTI_MEM_SOURCE, (size_t)data->count + 1, sizeof(uint64_t));
    column->heap = psti_malloc(PSTI_MEM_SOURCE, column->heap_bytes);
    if (!column->cells || !column->heap)
        return no_memory(m, err);
    uint64_t *at = column->cells;
    for (int64_t id = 0; id < data->count; id++) {
        at[id + 1] = at[id];
        for (int64_t i = first[id]; i < first[id + 1]; i++)
            at[id + 1] +=
                object_bytes(m, f, &m->rows.objects[m->order[i]], column->heap + at[id + 1]);
    }
    pst_field_info info = {.kind = f->kind, .dtype = f->dtype, .rank = f->rank, .shape = {-1, 4}};
    snprintf(info.name, sizeof info.name, "%s", f->name);
    snprintf(info.format, sizeof info.format, "%s", f->format);
    info.shape[1] = f->rank > 1 ? 4 : 0;
    data->field[psti_dataset_add_field(data, &info, false, data->columns - 1)].per_object = true;
    return 0;
}

/* A number of each image; where it is not said (0) the sample has none, if that may be. */
static int write_numbers(making *m, const char *name, size_t offset, bool optional, pst_error *err)
{
    psti_dataset *data = m->data;
    const size_t count = (size_t)data->count;
    int64_t *numbers = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *numbers);
    uint64_t *present = psti_calloc(PSTI_MEM_SOURCE, (count + 63) / 64, sizeof *present);
    size_t have = 0;
    for (size_t i = 0; numbers && present && i < count; i++) {
        memcpy(&numbers[i], (const uint8_t *)&m->rows.images[i] + offset, sizeof *numbers);
        const bool there = !optional || numbers[i];
        present[i / 64] |= (uint64_t)there << (i % 64);
        have += there;
    }
    if (!numbers || !present || have == count) {
        psti_free(present);
        present = NULL;
    }
    if (!numbers || (!present && have != count)) {
        psti_free(numbers);
        return no_memory(m, err);
    }
    data->column[data->columns] = psti_column_of_i64(numbers, present);
    pst_field_info info = {.kind = PST_META, .dtype = PST_I64, .format = "json"};
    snprintf(info.name, sizeof info.name, "%s", name);
    psti_dataset_add_field(data, &info, false, data->columns++);
    return 0;
}

static int write_values(making *m, pst_error *err)
{
    int rc = 0;
    for (int i = 0; i < OBJECT_FIELDS && !rc; i++)
        rc = write_objects(m, &object_fields[i], err);
    if (!rc)
        rc = write_numbers(m, "image_id", offsetof(psti_coco_image, id), false, err);
    if (!rc)
        rc = write_numbers(m, "width", offsetof(psti_coco_image, width), true, err);
    return rc ? rc : write_numbers(m, "height", offsetof(psti_coco_image, height), true, err);
}

/* ---- the entrance ---------------------------------------------------------------------------- */

static int make_dataset(making *m, const psti_stamp *stamp, pst_error *err)
{
    psti_opening *o = m->o;
    m->data = psti_dataset_new(PSTI_KIND_COCO, o->real, o->root_path, o->root);
    o->root = -1;
    if (!m->data)
        return no_memory(m, err);
    m->data->made_from = *stamp;
    int rc = write_images(m, err);
    if (!rc)
        rc = write_classes(m, err);
    if (!rc)
        rc = write_values(m, err);
    for (size_t i = 0; i < m->count && !rc; i++) {
        rc = write_split(m, &m->files[i], true, err);
        if (!rc)
            rc = write_split(m, &m->files[i], false, err);
    }
    return rc;
}

static int make(making *m, const char *name, pst_error *err)
{
    psti_stamp stamp; /* before reading: a change meanwhile makes the remembered listing stale */
    int rc = psti_coco_stamp(m->o->root, name, &stamp);
    if (rc)
        return psti_fail(err, rc, "list", m->o->path, "the annotations cannot be looked at: %s",
                         pst_strerror(rc));
    rc = take_files(m, name, err);
    for (size_t i = 0; i < m->count && !rc; i++)
        rc = read_notes(m, &m->files[i], err);
    if (!rc)
        rc = order_objects(m, err);
    return rc ? rc : make_dataset(m, &stamp, err);
}

int psti_coco_build(psti_opening *o, const char *name, psti_dataset **out, pst_error *err)
{
    making m = {.o = o};
    const int rc = make(&m, name, err);
    if (!rc) {
        psti_dataset_settle(m.data);
        *out = m.data;
        m.data = NULL;
    }
    psti_dataset_unref(m.data);
    psti_coco_rows_fini(&m.rows);
    psti_free(m.files);
    psti_free(m.first);
    psti_free(m.order);
    return rc;
}
