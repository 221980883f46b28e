/* SPDX-License-Identifier: Apache-2.0
 * COCO annotation files: what is made of them, in which order, what is remembered, what is refused,
 * and how much memory a long one takes. */
#include <math.h>

#include "core/memory.h"
#include "core/outline.h"
#include "fixture.h"

#define CATEGORIES                                                                                 \
    "\"categories\": [{\"id\": 3, \"name\": \"cat\"}, {\"id\": 1, \"name\": \"dog\"}]"
#define ONE_IMAGE                                                                                  \
    "\"images\": [{\"id\": 7, \"file_name\": \"a.jpg\", \"width\": 20, \"height\": 10}]"

/* Three images, ids not in file order; annotations before images. */
static const char three[] =
    "{\"info\": {\"year\": 2026, \"x\": [1, [2]]}, \"annotations\": [\n"
    "{\"id\": 100, \"image_id\": 9, \"category_id\": 3, \"bbox\": [1.5, 2, 3, 4.25], \"area\": 6.5,"
    " \"iscrowd\": 0, \"segmentation\": [[1, 2, 4.5, 2, 4.5, 6.25], [0, 0, 1, 0]]},\n"
    "{\"id\": 101, \"image_id\": 5, \"category_id\": 1, \"bbox\": [0, 0, 20, 10], \"area\": 200,"
    " \"iscrowd\": 1, \"segmentation\": {\"counts\": [3, 2, 195], \"size\": [10, 20]}},\n"
    "{\"segmentation\": [[0.125, 0, 1, 0, 1, 1]], \"bbox\": [2, 2, 1, 5], \"category_id\": 3, "
    "\"image_id\": 9, \"id\": 99}\n"
    "], \"licenses\": [], \"images\": [\n"
    "{\"id\": 9, \"file_name\": \"c.jpg\", \"width\": 20, \"height\": 10, \"coco_url\": "
    "\"http://x\"},\n"
    "{\"id\": 5, \"file_name\": \"b.jpg\", \"width\": 20, \"height\": 10},\n"
    "{\"id\": 7, \"file_name\": \"a.jpg\"}], " CATEGORIES "}";

static void put_pictures(const char *folder)
{
    char path[6000];
    snprintf(path, sizeof path, "%s", folder);
    for (const char *name = "abc"; *name; name++)
        put_bytes(at("%s%c.jpg", path, *name), name, 1);
}

static const char *put_three(void)
{
    scratch_clear();
    put_pictures("coco/val/");
    put_text(at("coco/annotations/instances_val.json"), three);
    age_dirs(scratch);
    return at("coco/annotations/instances_val.json");
}

static const float *floats_of(const psti_dataset *data, int64_t id, const char *name, size_t count)
{
    static const float none[64];
    const void *value;
    size_t bytes;
    const int rc = psti_dataset_value(data, id, field_number(data, name), &value, &bytes);
    CHECKF(rc == 0 && bytes == count * sizeof(float), "%s: %d, %zu bytes", name, rc, bytes);
    return rc == 0 && bytes == count * sizeof(float) ? value : none;
}

static const int64_t *ints_of(const psti_dataset *data, int64_t id, const char *name, size_t count)
{
    static const int64_t none[64];
    const void *value;
    size_t bytes;
    const int rc = psti_dataset_value(data, id, field_number(data, name), &value, &bytes);
    CHECKF(rc == 0 && bytes == count * 8, "%s: %d, %zu bytes", name, rc, bytes);
    return rc == 0 && bytes == count * 8 ? value : none;
}

static void check_three(const psti_dataset *data)
{
    CHECK(psti_dataset_count(data) == 3 && strcmp(psti_dataset_kind(data), "coco") == 0);
    CHECK(key_is(data, 0, "val/b.jpg") && key_is(data, 1, "val/a.jpg") &&
          key_is(data, 2, "val/c.jpg"));
    CHECK(member_is(data, 2, "image", "c"));
    CHECK(int_of(data, 2, "image_id") == 9 && int_of(data, 2, "width") == 20);
    CHECK(int_of(data, 1, "width") == INT64_MIN && field_info(data, "width")->optional);
    const float *boxes = floats_of(data, 2, "boxes", 8);
    static const float want[8] = {1.5f, 2, 4.5f, 6.25f, 2, 2, 3, 7};
    CHECK(memcmp(boxes, want, sizeof want) == 0);
    CHECK(ints_of(data, 2, "labels", 2)[0] == 3 && ints_of(data, 0, "labels", 1)[0] == 1);
    CHECK(ints_of(data, 2, "annotation_id", 2)[0] == 100);
    CHECK(ints_of(data, 2, "annotation_id", 2)[1] == 99);
    CHECK(floats_of(data, 2, "area", 2)[0] == 6.5f && floats_of(data, 2, "area", 2)[1] == 5);
    const void *crowd;
    size_t bytes;
    CHECK(psti_dataset_value(data, 0, field_number(data, "iscrowd"), &crowd, &bytes) == 0 &&
          bytes == 1 && *(const uint8_t *)crowd == 1);
    CHECK(psti_dataset_value(data, 1, field_number(data, "boxes"), &crowd, &bytes) == 0 &&
          bytes == 0);
}

static void fields_classes_and_order(void)
{
    psti_dataset *data = open_plain(put_three());
    CHECKF(data, "%s", last_error.message);
    if (!data)
        return;
    check_three(data);
    const pst_field_info *info = field_info(data, "boxes");
    CHECK(info->kind == PST_BOXES && info->dtype == PST_F32 && info->rank == 2 &&
          info->shape[0] == -1 && info->shape[1] == 4 && !info->optional);
    CHECK(field_info(data, "image")->kind == PST_IMAGE);
    CHECK(strcmp(field_info(data, "image")->format, "jpeg") == 0);
    CHECK(data->field[field_number(data, "labels")].per_object);
    CHECK(!data->field[field_number(data, "image_id")].per_object);
    CHECK(psti_dataset_classes(data) == 4);
    CHECK(strcmp(psti_dataset_class(data, 1), "dog") == 0);
    CHECK(strcmp(psti_dataset_class(data, 3), "cat") == 0);
    CHECK(strcmp(psti_dataset_class(data, 2), "") == 0);
    psti_dataset_unref(data);
}

static void shapes_are_kept(void)
{
    psti_dataset *data = open_plain(put_three());
    const void *value;
    size_t bytes;
    psti_outline o;
    uint64_t n;
    double x, y;
    CHECK(psti_dataset_value(data, 2, field_number(data, "masks"), &value, &bytes) == 0);
    const uint8_t *p = value, *end = p + bytes;
    CHECK(psti_outline_next(&p, end, &o) && o.form == PSTI_OUTLINE_HUNDREDTHS && o.parts == 1);
    CHECK(psti_outline_polygon(&o, &n) && n == 3);
    CHECK(psti_outline_point(&o, &x, &y) && x == 1 && y == 2);
    CHECK(psti_outline_point(&o, &x, &y) && x == 4.5 && y == 2);
    CHECK(psti_outline_point(&o, &x, &y) && x == 4.5 && y == 6.25);
    CHECK(!psti_outline_point(&o, &x, &y) && !psti_outline_polygon(&o, &n));
    CHECK(psti_outline_next(&p, end, &o) && o.form == PSTI_OUTLINE_REALS);
    CHECK(psti_outline_polygon(&o, &n) && n == 3 && psti_outline_point(&o, &x, &y) && x == 0.125);
    CHECK(p == end);
    CHECK(psti_dataset_value(data, 0, field_number(data, "masks"), &value, &bytes) == 0);
    p = value;
    CHECK(psti_outline_next(&p, p + bytes, &o) && o.form == PSTI_OUTLINE_RUNS && o.rows == 10 &&
          o.cols == 20 && o.parts == 3);
    CHECK(psti_outline_run(&o, &n) && n == 3 && psti_outline_run(&o, &n) && n == 2);
    CHECK(psti_outline_run(&o, &n) && n == 195 && !psti_outline_run(&o, &n));
    psti_dataset_unref(data);
}

static void splits_are_files_and_what_is_annotated(void)
{
    psti_dataset *data = open_plain(put_three());
    const int64_t *ids;
    int64_t count;
    CHECK(psti_dataset_splits(data) == 2);
    CHECK(psti_dataset_split(data, "val", &ids, &count) == 0 && count == 3);
    /* Image 7 has nothing; a box of width 1 alone would not do. */
    CHECK(psti_dataset_split(data, "val/annotated", &ids, &count) == 0 && count == 2);
    CHECK(ids[0] == 0 && ids[1] == 2);
    psti_dataset_unref(data);
}

static void put_two_files(void)
{
    scratch_clear();
    put_pictures("two/train/");
    put_bytes(at("two/val/a.jpg"), "v", 1);
    put_text(at("two/annotations/instances_train.json"), three);
    put_text(at("two/annotations/instances_val.json"), "{" ONE_IMAGE ", " CATEGORIES "}");
    put_text(at("two/annotations/instances_test.json"), "{this one has no pictures");
    put_text(at("two/annotations/captions_val.json"), "{nor is this one read");
    age_dirs(scratch);
}

static void a_folder_holds_several_files(void)
{
    put_two_files();
    psti_dataset *data = open_plain(at("two"));
    CHECKF(data, "%s", last_error.message);
    if (!data)
        return;
    const int64_t *ids;
    int64_t count;
    CHECK(psti_dataset_count(data) == 4 && psti_dataset_splits(data) == 4);
    CHECK(key_is(data, 0, "train/b.jpg") && key_is(data, 3, "val/a.jpg"));
    CHECK(psti_dataset_split(data, "val", &ids, &count) == 0 && count == 1 && ids[0] == 3);
    CHECK(psti_dataset_split(data, "val/annotated", &ids, &count) == 0 && count == 0);
    CHECK(member_is(data, 3, "image", "v"));
    psti_dataset_unref(data);
}

static void pictures_may_lie_in_several_places(void)
{
    static const char *const folders[] = {"p/images/val/", "p/images/", "p/val/", "p/"};
    for (int i = 0; i < 4; i++) {
        scratch_clear();
        put_pictures(folders[i]);
        put_text(at("p/annotations/instances_val.json"), three);
        psti_dataset *data = open_plain(at("p/annotations/instances_val.json"));
        CHECKF(data && psti_dataset_count(data) == 3, "%s: %s", folders[i], last_error.message);
        psti_dataset_unref(data);
    }
    scratch_clear();
    put_pictures("q/");
    put_text(at("q/_annotations.coco.json"), three);
    psti_dataset *data = open_plain(at("q/_annotations.coco.json"));
    CHECKF(data && key_is(data, 0, "b.jpg"), "%s", last_error.message);
    psti_dataset_unref(data);
    scratch_clear();
    put_text(at("r/x.json"), three);
    CHECK_REFUSED(at("r/x.json"), PST_EDATASET, "are not found");
}

/* A folder whose annotations belong to no pictures is what it was before. */
static void other_folders_stay_what_they_are(void)
{
    scratch_clear();
    put_text(at("f/cats/1.jpg"), "1");
    put_text(at("f/annotations/instances_val.json"), three);
    psti_dataset *data = open_plain(at("f"));
    CHECK(data && strcmp(psti_dataset_kind(data), "folder") == 0);
    psti_dataset_unref(data);
}

static psti_id128 revision_of(const char *path)
{
    psti_dataset *data = open_plain(path);
    const psti_id128 revision = data ? psti_dataset_revision(data) : (psti_id128){0, 0};
    psti_dataset_unref(data);
    return revision;
}

static void listings_are_remembered_until_a_file_changes(void)
{
    for (int folder = 0; folder < 2; folder++) {
        put_three();
        const char *path = folder ? at("coco") : at("coco/annotations/instances_val.json");
        psti_dataset *data = open_remembered(path);
        CHECK(data && !data->remembered);
        psti_dataset_unref(data);
        data = open_remembered(path);
        CHECK(data && data->remembered);
        check_three(data);
        CHECK(data->field[field_number(data, "boxes")].per_object);
        psti_dataset_verify(data);
        psti_verify_wait(data);
        psti_dataset_unref(data);
        const psti_id128 before = revision_of(path);
        char *other = strdup(three);
        memcpy(strstr(other, "1.5, 2, 3"), "1.5, 3, 3", 9);
        put_text(at("coco/annotations/instances_val.json"), other);
        free(other);
        set_time(at("coco/annotations/instances_val.json"), OLD_TIME + 5, 0);
        data = open_remembered(path);
        CHECK(data && !data->remembered && floats_of(data, 2, "boxes", 8)[1] == 3);
        psti_dataset_unref(data);
        const psti_id128 after = revision_of(path);
        CHECK(before.lo != after.lo);
    }
}

static void a_place_is_opened_again(void)
{
    psti_dataset *data = open_plain(put_three()), *again = NULL;
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = ""};
    psti_place place;
    CHECK(psti_dataset_place(data, &place) == 0);
    CHECK(strcmp(place.name, "annotations/instances_val.json") == 0);
    const psti_place there = {.root = place.root, .path = at("coco"), .name = place.name};
    CHECK(psti_dataset_open_at(&there, &opts, &again, &last_error) == 0);
    check_three(again);
    const psti_place out = {.root = place.root, .path = at("coco"), .name = "../x.json"};
    CHECK(psti_dataset_open_at(&out, &opts, &again, &last_error) == -EINVAL);
    close(place.root);
    psti_dataset_unref(again);
    psti_dataset_unref(data);
}

/* ---- what is refused --------------------------------------------------------------------------
 */

static const char *put_object(const char *object)
{
    char text[4096];
    scratch_clear();
    put_pictures("o/");
    snprintf(text, sizeof text, "{" ONE_IMAGE ", " CATEGORIES ",\n\"annotations\": [\n%s]}",
             object);
    put_text(at("o/o.json"), text);
    return at("o/o.json");
}

#define HEAD "{\"id\": 17, \"image_id\": 7, \"category_id\": 1, "

static void bad_annotations_are_told_by_number_and_line(void)
{
    static const struct {
        const char *object, *word;
    } bad[] = {
        {"{\"image_id\": 7, \"category_id\": 1, \"bbox\": [0,0,1,1]}", "annotation: it has no id"},
        {HEAD "\"area\": 1}", "line 3: annotation 17: it has no bbox"},
        {"{\"id\": 17, \"category_id\": 1, \"bbox\": [0,0,1,1]}", "no image_id"},
        {"{\"id\": 17, \"image_id\": 7, \"bbox\": [0,0,1,1]}", "no category_id"},
        {HEAD "\"bbox\": [0,0,1]}", "annotation 17: bbox is not four numbers"},
        {HEAD "\"bbox\": [0,0,1,1,1]}", "bbox is not four numbers"},
        {HEAD "\"bbox\": [0,0,\"1\",1]}", "bbox is not four numbers"},
        {HEAD "\"bbox\": 4}", "bbox is not four numbers"},
        {HEAD "\"bbox\": [0,0,1,1], \"iscrowd\": 2}", "iscrowd is neither 0 nor 1"},
        {HEAD "\"bbox\": [0,0,1,1], \"area\": \"x\"}", "area is not a number"},
        {"{\"id\": 1.5, \"bbox\": [0,0,1,1]}", "id is not a whole number"},
        {"{\"id\": 1e300, \"bbox\": [0,0,1,1]}", "id is not a whole number"},
        {"{\"id\": NaN, \"bbox\": [0,0,1,1]}", "id is not a whole number"},
        {"{\"id\": 17, \"image_id\": \"7\"}", "image_id is not a number"},
        {"{\"id\": 17, \"image_id\": 7, \"category_id\": 2, \"bbox\": [0,0,1,1]}",
         "annotation 17 is of category 2, which there is not"},
        {"4", "something that is not an object"},
        {HEAD "\"bbox\": [0,0,1,1], \"segmentation\": [1,2,3,4,5,6]}", "not a list of polygons"},
        {HEAD "\"bbox\": [0,0,1,1], \"segmentation\": [[1,2,3,4,5]]}", "not pairs of numbers"},
        {HEAD "\"bbox\": [0,0,1,1], \"segmentation\": \"x\"}", "neither polygons nor runs"},
        {HEAD "\"segmentation\": {\"counts\": [1]}}", "no size"},
        {HEAD "\"segmentation\": {\"size\": [1, 1]}}", "no counts"},
        {HEAD "\"segmentation\": {\"size\": [1], \"counts\": [1]}}", "not [height, width]"},
        {HEAD "\"segmentation\": {\"size\": [-1, 1], \"counts\": [1]}}", "not [height, width]"},
        {HEAD "\"segmentation\": {\"size\": [2, 2], \"counts\": [1, 2]}}", "cover 3 of the 4"},
        {HEAD "\"segmentation\": {\"size\": [2, 2], \"counts\": [1, 9223372036854775807, 4]}}",
         "cover more than"},
        {HEAD "\"segmentation\": {\"size\": [2, 2], \"counts\": [1, -1, 4]}}", "neither whole"},
        {HEAD "\"segmentation\": {\"size\": [2, 2], \"counts\": \"~\"}}", "damaged"},
        {HEAD "\"segmentation\": {\"size\": [2, 2], \"counts\": \"PPPPPPPPPPP0\"}}", "damaged"},
        {HEAD "\"segmentation\": {\"size\": [2, 2], \"counts\": \"O\"}}", "shorter than nothing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_REFUSED(put_object(bad[i].object), PST_EDATASET, bad[i].word);
}

static void odd_annotations_are_taken_as_they_are(void)
{
    psti_dataset *data = open_plain(put_object(
        HEAD "\"bbox\": [NaN, -5, 1e999, 3], \"segmentation\": null, \"iscrowd\": false},"
             "{\"id\": 2.0, \"image_id\": 7.0, \"category_id\": 3, \"bbox\": [0,0,0,0], "
             "\"segmentation\": [], \"keypoints\": [1, 2, 2]},"
             "{\"id\": 3, \"image_id\": 8, \"category_id\": 3, \"bbox\": [0,0,5,5]}"));
    CHECKF(data, "%s", last_error.message);
    if (!data)
        return;
    const float *boxes = floats_of(data, 0, "boxes", 8); /* image 8 is not listed */
    CHECK(isnan(boxes[0]) && boxes[1] == -5 && isnan(boxes[2]) && boxes[3] == -2);
    CHECK(ints_of(data, 0, "annotation_id", 2)[1] == 2);
    CHECK(strstr(log_last, "1 annotations are of images that are not listed"));
    psti_dataset_unref(data);
}

/* Text that pycocotools made of {"size": [4, 3], "counts": [2, 3, 1, 4, 2]}: 2 3 1, then 4-3, 2-1.
 */
static void packed_runs_are_read(void)
{
    psti_dataset *data = open_plain(
        put_object(HEAD "\"bbox\": [0,0,3,4], \"segmentation\": {\"size\": [4, 3], \"counts\": "
                        "\"23111\"}}"));
    CHECKF(data, "%s", last_error.message);
    const void *value;
    size_t bytes;
    psti_outline o;
    uint64_t n, got[5] = {0};
    CHECK(psti_dataset_value(data, 0, field_number(data, "masks"), &value, &bytes) == 0);
    const uint8_t *p = value;
    CHECK(psti_outline_next(&p, p + bytes, &o) && o.parts == 5);
    for (int i = 0; psti_outline_run(&o, &n) && i < 5; i++)
        got[i] = n;
    CHECK(got[0] == 2 && got[1] == 3 && got[2] == 1 && got[3] == 4 && got[4] == 2);
    psti_dataset_unref(data);
}

static void bad_files_are_refused(void)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"", "cut off"},
        {"[]", "no JSON object"},
        {"{" ONE_IMAGE ", \"annotations\": [{\"id\": 1,", "cut off"},
        {"{}", "no 'images'"},
        {"{\"images\": []}", "lists no images"},
        {"{\"images\": {}}", "'images' is not a list"},
        {"{" ONE_IMAGE ", " ONE_IMAGE "}", "'images' is there twice"},
        {"{" ONE_IMAGE "} x", "the end"},
        {"{\"images\": [{\"id\": 1}]}", "image 1: it has no file_name"},
        {"{\"images\": [{\"file_name\": \"a.jpg\"}]}", "image: it has no id"},
        {"{\"images\": [{\"id\": 1, \"file_name\": 5}]}", "file_name is not a text"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\", \"width\": 0}]}", "the width 0"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\", \"height\": 1e12}]}", "the height"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}, {\"id\": 1, \"file_name\": "
         "\"b.jpg\"}]}",
         "two images have the id 1"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}, {\"id\": 2, \"file_name\": "
         "\"a.jpg\"}]}",
         "are both 'a.jpg'"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}, {\"id\": 2, \"file_name\": "
         "\"gone.jpg\"}]}",
         "'gone.jpg' of image 2 cannot be used"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\"}, {\"id\": 2, \"file_name\": "
         "\"../a.jpg\"}]}",
         "image 2: the file_name"},
        {"{" ONE_IMAGE ", \"categories\": [{\"id\": 1, \"name\": \"x\"}, {\"id\": 1, \"name\": "
         "\"y\"}]}",
         "the category 1 has two names"},
        {"{" ONE_IMAGE ", \"categories\": [{\"id\": 1}]}", "category 1: it has no name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scratch_clear();
        put_pictures("b/");
        put_text(at("b/b.json"), bad[i].text);
        CHECK_REFUSED(at("b/b.json"), PST_EDATASET, bad[i].word);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { IMAGES = 100, OBJECTS = 100000, POINTS = 12 };

static void put_long_file(void)
{
    scratch_clear();
    FILE *f = NULL;
    for (int i = 0; i < IMAGES; i++)
        put_bytes(at("m/%d.jpg", i), "x", 1);
    f = fopen(at("m/m.json"), "w");
    fprintf(f, "{\"images\": [");
    for (int i = 0; i < IMAGES; i++)
        fprintf(f, "%s{\"id\": %d, \"file_name\": \"%d.jpg\", \"width\": 640, \"height\": 480}",
                i ? ", " : "", i, i);
    fprintf(f, "], \"annotations\": [");
    for (int i = 0; i < OBJECTS; i++) {
        fprintf(f, "%s{\"segmentation\": [[", i ? ", " : "");
        for (int k = 0; k < POINTS; k++)
            fprintf(f, "%s%d.%02d, %d.%02d", k ? ", " : "", (i + 3 * k) % 600, i % 100,
                    (i / 7 + k) % 470, k);
        fprintf(f,
                "]], \"area\": %d.25, \"iscrowd\": 0, \"image_id\": %d, \"bbox\": [%d, 10.5, 30, "
                "20], \"category_id\": %d, \"id\": %d}",
                i, i % IMAGES, i % 500, 1 + i % 80, i);
    }
    fprintf(f, "]}");
    fclose(f);
}

static uint64_t most_bytes;

static int watch_memory(uint64_t done, void *user)
{
    psti_mem_stats now;
    (void)done;
    (void)user;
    psti_mem_stats_get(PSTI_MEM_SOURCE, &now);
    if (now.live_bytes > most_bytes)
        most_bytes = now.live_bytes;
    return 0;
}

/* The tree of this file would take 100 MB and more. */
static void a_long_file_takes_little_memory(void)
{
    put_long_file();
    psti_mem_stats before, after;
    psti_mem_stats_get(PSTI_MEM_SOURCE, &before);
    const pst_dataset_options opts = {
        .size = sizeof opts, .index_dir = "", .threads = 2, .progress = watch_memory};
    psti_dataset *data = NULL;
    psti_dataset_open(at("m/m.json"), &opts, &data, &last_error);
    CHECKF(most_bytes > 1000000 && most_bytes < 40000000, "%llu bytes at most",
           (unsigned long long)most_bytes);
    CHECKF(data, "%s", last_error.message);
    if (!data)
        return;
    psti_mem_stats_get(PSTI_MEM_SOURCE, &after);
    const uint64_t kept = after.live_bytes - before.live_bytes;
    const uint64_t each = 16 + 8 + 4 + 1 + 8; /* box, label, area, crowd, id */
    CHECKF(kept < OBJECTS * (each + 4 + 2 * 2 * POINTS + 8) + 200000, "%llu bytes are kept",
           (unsigned long long)kept);
    CHECK(psti_dataset_bytes(data) <= kept + 4096 && psti_dataset_bytes(data) > OBJECTS * each);
    CHECK(ints_of(data, 5, "labels", OBJECTS / IMAGES)[1] == 1 + 105 % 80);
    CHECK(ints_of(data, 5, "annotation_id", OBJECTS / IMAGES)[1] == 105);
    psti_dataset_unref(data);
    psti_mem_stats_get(PSTI_MEM_SOURCE, &after);
    CHECK(after.live_bytes == before.live_bytes);
}

static int say_stop(uint64_t done, void *user)
{
    (void)done;
    (void)user;
    return 1;
}

static void reading_can_be_stopped(void)
{
    put_long_file();
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = "", .progress = say_stop};
    psti_dataset *data = NULL;
    CHECK(psti_dataset_open(at("m/m.json"), &opts, &data, &last_error) == -ECANCELED);
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(fields_classes_and_order);
    RUN(shapes_are_kept);
    RUN(splits_are_files_and_what_is_annotated);
    RUN(a_folder_holds_several_files);
    RUN(pictures_may_lie_in_several_places);
    RUN(other_folders_stay_what_they_are);
    RUN(listings_are_remembered_until_a_file_changes);
    RUN(a_place_is_opened_again);
    RUN(bad_annotations_are_told_by_number_and_line);
    RUN(odd_annotations_are_taken_as_they_are);
    RUN(packed_runs_are_read);
    RUN(bad_files_are_refused);
    RUN(a_long_file_takes_little_memory);
    RUN(reading_can_be_stopped);
    remove_tree(scratch);
    return check_report();
}
