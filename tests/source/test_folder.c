/* SPDX-License-Identifier: Apache-2.0
 * Folders: labels, flat, splits, images beside masks, and everything that must be refused with a
 * clear message. */
#include "fixture.h"

static void class_folders_give_labels(void)
{
    scratch_clear();
    put_text(at("d/dog/b.JPG"), "b");
    put_text(at("d/dog/deep/er/a.png"), "deep");
    put_text(at("d/cat/z.jpeg"), "z");
    put_text(at("d/cat-big/y.webp"), "y");
    put_text(at("d/cat/readme.txt"), "no sample");
    put_text(at("d/cat/.hidden.jpg"), "no sample");
    mkdir(at("d/empty"), 0755);
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 4);
    /* Byte-wise by key: '-' stands before '/'. Labels are by class name, where cat is before
     * cat-big. */
    CHECK(key_is(data, 0, "cat-big/y.webp"));
    CHECK(key_is(data, 1, "cat/z.jpeg"));
    CHECK(key_is(data, 2, "dog/b.JPG"));
    CHECK(key_is(data, 3, "dog/deep/er/a.png"));
    CHECK(int_of(data, 0, "label") == 1);
    CHECK(int_of(data, 1, "label") == 0);
    CHECK(int_of(data, 2, "label") == 2);
    CHECK(int_of(data, 3, "label") == 2);
    CHECK(psti_dataset_classes(data) == 4); /* an empty class folder keeps its number */
    CHECK(strcmp(psti_dataset_class(data, 1), "cat-big") == 0);
    CHECK(strcmp(psti_dataset_class(data, 3), "empty") == 0);
    CHECK(psti_dataset_class(data, 4) == NULL && psti_dataset_class(data, -1) == NULL);
    CHECK(field_info(data, "image")->kind == PST_IMAGE);
    CHECK(strcmp(field_info(data, "image")->format, "mixed") == 0);
    CHECK(field_info(data, "label")->kind == PST_LABEL && !field_info(data, "label")->optional);
    CHECK(member_is(data, 3, "image", "deep"));
    CHECK(psti_dataset_sample_bytes(data, 3) == 4);
    CHECK(psti_dataset_key_max(data) == strlen("dog/deep/er/a.png"));
    CHECK(strcmp(psti_dataset_kind(data), "folder") == 0);
    psti_dataset_unref(data);
}

static void endings_are_found(void)
{
    CHECK(psti_format_of_name("a.b.JPG", 7) == PSTI_FORMAT_JPEG);
    CHECK(psti_format_of_name("a.jpg.npy", 9) == PSTI_FORMAT_NPY);
    CHECK(psti_format_of_name(".png", 4) == PSTI_FORMAT_NONE && !psti_ext_of_name(".png", 4));
    CHECK(psti_format_of_name("png", 3) == PSTI_FORMAT_NONE && !psti_ext_of_name("png", 3));
    const char *name = "a.b.c";
    CHECK(psti_ext_of_name(name, 5) == name + 4);
    for (int i = PSTI_FORMAT_NONE + 1; i < PSTI_FORMATS; i++) {
        const psti_family *family = &psti_families[psti_family_of((psti_format)i)];
        CHECK(*psti_format_by_name((psti_format)i) && family->kind == psti_format_kind(i));
        CHECK(family->first <= (psti_format)i && (psti_format)i <= family->last);
    }
}

/* A file that no decoder reads is left alone in a folder and is bytes in a tar shard. */
static void files_that_no_decoder_reads_are_no_samples(void)
{
    static const char *const endings[] = {"nii.bz2", "gz", "zip", "mp3", "ogg"};
    scratch_clear();
    put_text(at("d/c/a.jpg"), "a");
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        CHECK(psti_format_of_ext(endings[i], strlen(endings[i])) == PSTI_FORMAT_NONE);
        put_text(at("d/c/b.%s", endings[i]), "b");
        put_text(at("e/c/b.%s", endings[i]), "b");
    }
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 1 && key_is(data, 0, "c/a.jpg"));
    psti_dataset_unref(data);
    CHECK(!open_plain(at("e")) && strstr(last_error.message, "none of its 5 files ends in jpg"));
}

/* Files and folders whose names are beginnings of each other: the tree must come out in byte order
 * all the same. */
static void keys_ascend_byte_by_byte(void)
{
    static const char *const names[] = {"a.jpg",     "a/1.jpg",        "a-b/1.jpg", "a-b.jpg",
                                        "a0/1.jpg",  "a0.jpg",         "a/b/2.jpg", "a/b.jpg",
                                        "a/b-c.jpg", "a/b0/1.jpg",     "aa/1.jpg",  "a.b/1.jpg",
                                        "a.b.jpg",   "\xc3\xa9/1.jpg", "Z.jpg",     "a /1.jpg"};
    enum { N = sizeof names / sizeof *names };
    scratch_clear();
    for (int i = 0; i < N; i++)
        put_text(at("d/c/%s", names[i]), "x");
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == N);
    for (int64_t id = 1; id < psti_dataset_count(data); id++)
        CHECKF(strcmp(psti_dataset_key(data, id - 1), psti_dataset_key(data, id)) < 0,
               "%s before %s", psti_dataset_key(data, id - 1), psti_dataset_key(data, id));
    psti_dataset_unref(data);
}

static void flat_folder_has_no_labels(void)
{
    scratch_clear();
    put_text(at("d/b.jpg"), "b");
    put_text(at("d/a.jpg"), "a");
    put_text(at("d/c.npy"), "c");
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 3 && key_is(data, 0, "a.jpg"));
    CHECK(field_number(data, "label") < 0 && psti_dataset_classes(data) == 0);
    CHECK(field_info(data, "npy")->kind == PST_ARRAY && field_info(data, "npy")->optional);
    CHECK(field_info(data, "image")->optional);
    CHECK(strcmp(field_info(data, "image")->format, "jpeg") == 0);
    psti_extent extent;
    CHECK(psti_dataset_extent(data, 2, field_number(data, "image"), &extent) == -ENOENT);
    CHECK(member_is(data, 2, "npy", "c"));
    const int64_t *ids;
    int64_t count;
    CHECK(psti_dataset_split(data, NULL, &ids, &count) == 0 && !ids && count == 3);
    CHECK(psti_dataset_split(data, "", &ids, &count) == 0 && !ids && count == 3);
    CHECK(psti_dataset_split(data, "train", &ids, &count) == -ENOENT);
    psti_dataset_unref(data);
}

static void split_folders_are_splits(void)
{
    scratch_clear();
    put_text(at("d/train/dog/1.jpg"), "1");
    put_text(at("d/train/cat/2.jpg"), "2");
    put_text(at("d/val/eel/3.jpg"), "3");
    put_text(at("d/test/4.jpg"), "4");
    psti_dataset *data = open_plain(at("d"));
    const int64_t *ids = NULL;
    int64_t count = 0;
    CHECK(psti_dataset_count(data) == 4 && psti_dataset_splits(data) == 3);
    CHECK(psti_dataset_split(data, "train", &ids, &count) == 0 && count == 2);
    CHECK(count == 2 && key_is(data, ids[0], "train/cat/2.jpg") &&
          key_is(data, ids[1], "train/dog/1.jpg"));
    CHECK(psti_dataset_split(data, "test", &ids, &count) == 0 && count == 1 &&
          key_is(data, ids[0], "test/4.jpg"));
    CHECK(psti_dataset_classes(data) == 3 && strcmp(psti_dataset_class(data, 2), "eel") == 0);
    CHECK(int_of(data, 3, "label") == 2);         /* val/eel */
    CHECK(int_of(data, 0, "label") == INT64_MIN); /* test is flat: no label */
    CHECK(field_info(data, "label")->optional == 1);
    psti_dataset_unref(data);
}

static void images_pair_with_masks(void)
{
    scratch_clear();
    /* In path order a.jpg comes before a.k.jpg, but a.k.png before a.png: only stems can match
     * them. */
    put_text(at("d/images/a.jpg"), "A");
    put_text(at("d/images/a.k.jpg"), "AK");
    put_text(at("d/images/sub/b.jpg"), "B");
    put_text(at("d/masks/a.png"), "ma");
    put_text(at("d/masks/a.k.png"), "mak");
    put_text(at("d/masks/sub/b.png"), "mb");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 3 && field_number(data, "label") < 0);
    CHECK(key_is(data, 0, "images/a.jpg") && key_is(data, 2, "images/sub/b.jpg"));
    CHECK(member_is(data, 0, "image", "A") && member_is(data, 0, "mask", "ma"));
    CHECK(member_is(data, 1, "image", "AK") && member_is(data, 1, "mask", "mak"));
    CHECK(member_is(data, 2, "image", "B") && member_is(data, 2, "mask", "mb"));
    CHECK(field_info(data, "mask")->kind == PST_MASK &&
          strcmp(field_info(data, "mask")->format, "png") == 0);
    CHECK(psti_dataset_sample_bytes(data, 1) == 5);
    psti_dataset_unref(data);
    put_text(at("d/images/c.jpg"), "C");
    CHECK_REFUSED(at("d"), PST_EDATASET, "images/c");
    put_text(at("d/masks/c.png"), "mc");
    put_text(at("d/masks/d.png"), "md");
    CHECK_REFUSED(at("d"), PST_EDATASET, "every mask");
    put_text(at("d/masks/c.jpg"), "two");
    CHECK_REFUSED(at("d"), PST_EDATASET, "share the stem");
}

static void one_file_is_a_dataset(void)
{
    scratch_clear();
    put_text(at("d/photo.JPEG"), "bytes");
    psti_dataset *data = open_plain(at("d/photo.JPEG"));
    CHECK(psti_dataset_count(data) == 1 && key_is(data, 0, "photo.JPEG"));
    CHECK(strcmp(psti_dataset_kind(data), "file") == 0);
    CHECK(member_is(data, 0, "image", "bytes") && field_number(data, "label") < 0);
    psti_dataset_unref(data);
    put_text(at("d/notes.txt"), "text");
    CHECK_REFUSED(at("d/notes.txt"), PST_EDATASET, "kind of file");
}

static void what_cannot_be_used_is_refused_clearly(void)
{
    scratch_clear();
    mkdir(at("empty"), 0755);
    CHECK_REFUSED(at("missing"), -ENOENT, "no such file");
    CHECK_REFUSED(at("empty"), PST_EDATASET, "empty");
    CHECK_REFUSED("", -EINVAL, "no path");
    put_text(at("texts/a.txt"), "a");
    put_text(at("texts/b/c.txt"), "c");
    CHECK_REFUSED(at("texts"), PST_EDATASET, "2 files");
    put_text(at("bad/a\nb.jpg"), "x");
    CHECK_REFUSED(at("bad"), PST_EDATASET, "a\\x0ab.jpg");
    put_text(at("latin/caf\xe9.jpg"), "x");
    CHECK_REFUSED(at("latin"), PST_EDATASET, "caf\\xe9.jpg");
    put_text(at("badclass/a\tb/c.jpg"), "x");
    CHECK_REFUSED(at("badclass"), PST_EDATASET, "a\\x09b");
    put_text(at("fine/caf\xc3\xa9.jpg"), "x");
    psti_dataset *data = open_plain(at("fine"));
    CHECK(data);
    psti_dataset_unref(data);
}

static void unreadable_is_refused(void)
{
    scratch_clear();
    put_text(at("d/a/x.jpg"), "x");
    put_text(at("d/b/y.jpg"), "y");
    chmod(scratch, 0755);
    chmod(at("d/b/y.jpg"), 0);
    const bool root = geteuid() == 0;
    if (root && seteuid(65534)) { /* root may read everything */
        printf("     skipped: cannot become another user\n");
        return;
    }
    psti_dataset *data = open_plain(at("d"));
    psti_extent extent;
    uint8_t buf[8];
    CHECK(data && psti_dataset_extent(data, 1, 0, &extent) == 0 &&
          psti_read_now(&extent, buf) == -EACCES);
    psti_dataset_unref(data);
    if (root && seteuid(0))
        perror("seteuid");
    chmod(at("d/a"), 0);
    if (root && seteuid(65534))
        perror("seteuid");
    CHECK_REFUSED(at("d"), -EACCES, "permission denied");
    CHECK(strcmp(last_error.key, "a") == 0);
    if (root && seteuid(0))
        perror("seteuid");
    chmod(at("d/a"), 0755);
}

static void check_links(void)
{
    scratch_clear();
    put_text(at("outside/secret.jpg"), "secret");
    put_text(at("d/a/x.jpg"), "x");
    if (symlink("../../outside/secret.jpg", at("d/a/leads-out.jpg")) ||
        symlink("/etc", at("d/a/abs")) || symlink("x.jpg", at("d/a/inside.jpg")) ||
        symlink("../a", at("d/a/loop")) || symlink("..", at("d/a/up")) ||
        symlink("nowhere.jpg", at("d/a/dangling.jpg")))
        perror("symlink");
}

static void links_stay_beneath_the_root(void)
{
    check_links();
    log_lines = 0;
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 2);
    CHECK(key_is(data, 0, "a/inside.jpg") && key_is(data, 1, "a/x.jpg"));
    CHECK(member_is(data, 0, "image", "x"));
    CHECKF(log_lines == 1 && strstr(log_last, "5 symbolic links"), "%d: %s", log_lines, log_last);
    psti_dataset_unref(data);
    /* A link put in the file's place afterwards is not followed out of the root. */
    data = open_plain(at("d"));
    unlink(at("d/a/x.jpg"));
    CHECK(symlink("../../outside/secret.jpg", at("d/a/x.jpg")) == 0);
    psti_extent extent;
    uint8_t buf[64];
    CHECK(psti_dataset_extent(data, 1, 0, &extent) == 0);
    CHECK(psti_read_now(&extent, buf) == PST_ECHANGED);
    psti_dataset_unref(data);
}

static void without_openat2_no_link_is_followed(void)
{
    psti_open_beneath_without_openat2(true);
    check_links();
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 1 && key_is(data, 0, "a/x.jpg") &&
          member_is(data, 0, "image", "x"));
    const int root = open(at("d"), O_PATH | O_DIRECTORY);
    CHECK(psti_open_beneath(root, "a/../a/x.jpg", O_RDONLY, false) == -EINVAL);
    CHECK(psti_open_beneath(root, "a/leads-out.jpg", O_RDONLY, false) == -ELOOP);
    CHECK(psti_open_beneath(root, "a/loop/x.jpg", O_RDONLY, false) < 0);
    close(root);
    psti_open_beneath_without_openat2(false);
    psti_dataset_unref(data);
}

static void keys_are_checked(void)
{
    static const struct {
        const char *key;
        bool fine;
    } table[] = {
        {"a", true},
        {"a/b.jpg", true},
        {"..a/b..", true},
        {"", false},
        {"/a", false},
        {"a//b", false},
        {"a/", false},
        {"./a", false},
        {"a/./b", false},
        {"..", false},
        {"a/../b", false},
        {"a\nb", false},
        {"a\x7f", false},
        {"\xff", false},
        {"\xc0\xaf", false},
        {"\xed\xa0\x80", false},
        {"\xe2\x82\xac", true},
        {"\xf4\x90\x80\x80", false},
        {"\xe2\x82", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        CHECKF(!psti_key_fault(table[i].key, strlen(table[i].key)) == table[i].fine, "row %zu", i);
    char *longest = malloc(PSTI_KEY_MAX + 1);
    memset(longest, 'a', PSTI_KEY_MAX + 1);
    CHECK(!psti_key_fault(longest, PSTI_KEY_MAX) && psti_key_fault(longest, PSTI_KEY_MAX + 1));
    free(longest);
}

static int stop_at_once(uint64_t found, void *user)
{
    (void)found;
    ++*(int *)user;
    return 1;
}

static void progress_can_stop_listing(void)
{
    scratch_clear();
    put_text(at("d/a/x.jpg"), "x");
    int calls = 0;
    const pst_dataset_options opts = {
        .size = sizeof opts, .index_dir = "", .progress = stop_at_once, .user = &calls};
    psti_dataset *data = NULL;
    CHECK(psti_dataset_open(at("d"), &opts, &data, &last_error) == -ECANCELED && calls == 1);
}

static void id_lists_are_splits(void)
{
    scratch_clear();
    put_text(at("d/a/1.jpg"), "1");
    put_text(at("d/a/2.jpg"), "2");
    put_text(at("d/b/3.jpg"), "3");
    put_text(at("d/splits/mine.txt"), "2\r\na/1.jpg\n\n2\n");
    psti_dataset *data = open_plain(at("d"));
    const int64_t *ids = NULL;
    int64_t count = 0;
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_classes(data) == 2); /* splits/ is no class */
    CHECK(psti_dataset_split(data, "mine", &ids, &count) == 0 && count == 2 && ids[0] == 0 &&
          ids[1] == 2);
    psti_dataset_unref(data);
    put_text(at("d/splits/mine.txt"), "0\na/9.jpg\n");
    CHECK_REFUSED(at("d"), PST_EDATASET, "line 2");
    put_text(at("d/splits/mine.txt"), "3\n");
    CHECK_REFUSED(at("d"), PST_EDATASET, "neither an id");
}

static void files_beside_classes_are_left_out(void)
{
    scratch_clear();
    put_text(at("d/a/1.jpg"), "1");
    put_text(at("d/stray.jpg"), "s");
    log_lines = 0;
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 1 && log_lines == 1);
    psti_dataset_unref(data);
}

static void identity_follows_the_file(void)
{
    scratch_clear();
    put_text(at("d/a.jpg"), "1");
    put_text(at("d/b.jpg"), "1");
    psti_dataset *one = open_plain(at("d")), *two = open_plain(at("d"));
    const psti_id128 a = psti_dataset_identity(one, 0), b = psti_dataset_identity(one, 1);
    const psti_id128 again = psti_dataset_identity(two, 0);
    const psti_id128 r1 = psti_dataset_revision(one), r2 = psti_dataset_revision(two);
    CHECK(a.lo != b.lo && a.lo == again.lo && a.hi == again.hi);
    CHECK(r1.lo == r2.lo && r1.hi == r2.hi);
    psti_dataset_unref(two);
    set_time(at("d/a.jpg"), OLD_TIME, 1); /* one nanosecond */
    two = open_plain(at("d"));
    CHECK(psti_dataset_identity(two, 0).lo != a.lo && psti_dataset_identity(two, 1).lo == b.lo);
    CHECK(psti_dataset_revision(two).lo != r1.lo);
    psti_dataset_unref(two);
    psti_dataset_unref(one);
}

static void labels_change_the_revision(void)
{
    scratch_clear();
    put_text(at("d/a/1.jpg"), "1");
    put_text(at("d/c/2.jpg"), "1");
    psti_dataset *one = open_plain(at("d"));
    mkdir(at("d/b"), 0755); /* c is number 2 now */
    psti_dataset *two = open_plain(at("d"));
    CHECK(psti_dataset_identity(one, 1).lo == psti_dataset_identity(two, 1).lo);
    CHECK(psti_dataset_revision(one).lo != psti_dataset_revision(two).lo);
    psti_dataset_unref(one);
    psti_dataset_unref(two);
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(class_folders_give_labels);
    RUN(endings_are_found);
    RUN(files_that_no_decoder_reads_are_no_samples);
    RUN(keys_ascend_byte_by_byte);
    RUN(flat_folder_has_no_labels);
    RUN(split_folders_are_splits);
    RUN(images_pair_with_masks);
    RUN(one_file_is_a_dataset);
    RUN(what_cannot_be_used_is_refused_clearly);
    RUN(unreadable_is_refused);
    RUN(links_stay_beneath_the_root);
    RUN(without_openat2_no_link_is_followed);
    RUN(keys_are_checked);
    RUN(progress_can_stop_listing);
    RUN(id_lists_are_splits);
    RUN(files_beside_classes_are_left_out);
    RUN(identity_follows_the_file);
    RUN(labels_change_the_revision);
    remove_tree(scratch);
    return check_report();
}
