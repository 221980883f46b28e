/* SPDX-License-Identifier: Apache-2.0
 * Remembered listings: trusted while the directories stand as they were, never otherwise, never
 * when damaged; and the comparison behind the first batch. */
#include <time.h>

#include "fixture.h"
#include "source/index.h"

static void make_folder(void)
{
    scratch_clear();
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 5; i++)
            put_text(at("d/class%d/deep/%d.jpg", c, i), "bytes");
    put_text(at("d/class0/more.jpg"), "more");
    age_dirs(at("d"));
}

static const char *index_file(void)
{
    static char path[600];
    DIR *dir = opendir(at("index"));
    path[0] = 0;
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strstr(d->d_name, ".idx"))
            snprintf(path, sizeof path, "%s/index/%s", scratch, d->d_name);
    if (dir)
        closedir(dir);
    return path;
}

static int count_files(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));)
        n += d->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

/* Opens, says whether anything was taken from the remembered listing, and compares count and
 * revision. */
static bool opens_remembered(const char *path, int64_t count, psti_id128 *revision)
{
    psti_dataset *data = open_remembered(path);
    CHECKF(data, "%s", last_error.message);
    if (!data)
        return false;
    CHECKF(psti_dataset_count(data) == count, "%lld samples", (long long)psti_dataset_count(data));
    if (revision->lo == 0)
        *revision = psti_dataset_revision(data);
    CHECK(psti_dataset_revision(data).lo == revision->lo);
    const bool remembered = data->remembered;
    psti_dataset_unref(data);
    return remembered;
}

static void a_folder_is_remembered(void)
{
    psti_id128 revision = {0, 0};
    make_folder();
    CHECK(!opens_remembered(at("d"), 21, &revision));
    struct stat st;
    CHECK(stat(index_file(), &st) == 0 && (st.st_mode & 0777) == 0600 &&
          count_files(at("index")) == 1);
    CHECK(opens_remembered(at("d"), 21, &revision));
    /* Nothing was read again: a file that came without the directory's time changing is not seen.
     */
    put_text(at("d/class1/deep/new.jpg"), "new");
    age_dirs(at("d"));
    CHECK(opens_remembered(at("d"), 21, &revision));
    CHECK(count_files(at("index")) == 1);
}

static void a_changed_directory_is_read_again(void)
{
    psti_id128 revision = {0, 0}, other = {0, 0};
    make_folder();
    CHECK(!opens_remembered(at("d"), 21, &revision));
    put_text(at("d/class1/deep/new.jpg"), "new");
    set_time(at("d/class1/deep"), OLD_TIME + 9, 0);
    CHECK(opens_remembered(at("d"), 22, &other) &&
          other.lo != revision.lo); /* the others are trusted */
    /* A directory that came, one that went, and one that took another's place. */
    put_text(at("d/class9/x.jpg"), "x");
    remove_tree(at("d/class0"));
    put_text(at("away/deep/y.jpg"), "y");
    age_dirs(at("away"));
    remove_tree(at("d/class2"));
    CHECK(rename(at("away"), at("d/class2")) == 0);
    set_time(at("d/class9"), OLD_TIME, 0);
    set_time(at("d"), OLD_TIME + 10, 0);
    psti_id128 third = {0, 0};
    CHECK(opens_remembered(at("d"), 13, &third));
    psti_dataset *plain = open_plain(at("d"));
    CHECK(psti_dataset_revision(plain).lo == third.lo);
    psti_dataset_unref(plain);
    CHECK(opens_remembered(at("d"), 13, &third));
}

static void refresh_lists_again(void)
{
    psti_id128 revision = {0, 0};
    make_folder();
    opens_remembered(at("d"), 21, &revision);
    put_text(at("d/class1/deep/new.jpg"), "new");
    age_dirs(at("d"));
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = at("index"), .refresh = 1};
    psti_dataset *data = NULL;
    CHECK(psti_dataset_open(at("d"), &opts, &data, NULL) == 0 && psti_dataset_count(data) == 22);
    psti_dataset_unref(data);
}

/* A directory as young as the listing may have changed once more in the same tick. */
static void young_directories_are_doubted(void)
{
    psti_id128 revision = {0, 0};
    make_folder();
    const time_t now = time(NULL);
    set_time(at("d/class1/deep"), now, 0);
    CHECK(!opens_remembered(at("d"), 21, &revision));
    put_text(at("d/class1/deep/new.jpg"), "new");
    set_time(at("d/class1/deep"), now, 0); /* as if it was the same tick */
    revision.lo = 0;
    CHECK(opens_remembered(at("d"), 22, &revision));
}

static void flip_byte(const char *path, off_t offset)
{
    uint8_t byte = 0;
    const int fd = open(path, O_RDWR);
    CHECK(pread(fd, &byte, 1, offset) == 1);
    byte ^= 0x55;
    CHECK(pwrite(fd, &byte, 1, offset) == 1);
    close(fd);
}

static void damage_everywhere(const char *where, int64_t count)
{
    psti_id128 revision = {0, 0};
    char path[400];
    snprintf(path, sizeof path, "%s", where);
    CHECK(!opens_remembered(path, count, &revision));
    CHECK(opens_remembered(path, count, &revision));
    struct stat st;
    CHECK(stat(index_file(), &st) == 0);
    for (off_t offset = 0; offset < st.st_size; offset += 64) {
        flip_byte(index_file(), offset);
        CHECKF(!opens_remembered(path, count, &revision), "byte %lld went unnoticed",
               (long long)offset);
    }
    for (off_t size = 0; size < st.st_size; size += 64) {
        CHECK(truncate(index_file(), size) == 0);
        CHECKF(!opens_remembered(path, count, &revision), "cut at %lld went unnoticed",
               (long long)size);
    }
    CHECK(opens_remembered(path, count, &revision)); /* and it was made whole again */
}

static void a_damaged_folder_listing_is_not_used(void)
{
    make_folder();
    damage_everywhere(at("d"), 21);
}

static tarball t;

static void make_tars(void)
{
    scratch_clear();
    for (int s = 0; s < 2; s++) {
        t.len = 0;
        for (int i = 0; i < 3; i++) {
            char name[32], json[64];
            snprintf(name, sizeof name, "%d.jpg", i);
            tar_file(&t, name, "image");
            snprintf(name, sizeof name, "%d.cls", i);
            tar_file(&t, name, "4");
            snprintf(name, sizeof name, "%d.json", i);
            snprintf(json, sizeof json, "{\"text\": \"t%d\", \"f\": %d.5, \"v\": [%d]%s}", i, i, i,
                     i == 1 ? ", \"b\": true" : "");
            tar_file(&t, name, json);
        }
        tar_end(&t);
        tar_save(&t, at("d/%d.tar", s));
    }
    age_dirs(at("d"));
}

static void a_damaged_tar_listing_is_not_used(void)
{
    make_tars();
    damage_everywhere(at("d"), 6);
}

static void tar_shards_are_remembered(void)
{
    psti_id128 revision = {0, 0};
    make_tars();
    CHECK(!opens_remembered(at("d"), 6, &revision));
    psti_dataset *data = open_remembered(at("d"));
    CHECK(data && data->remembered);
    CHECK(text_is(data, 4, "text", "t1") && real_of(data, 5, "f") == 2.5 &&
          int_of(data, 0, "label") == 4);
    CHECK(member_is(data, 5, "image", "image") && field_info(data, "b")->optional);
    CHECK(psti_dataset_key_max(data) == 7);
    psti_dataset_unref(data);
    set_time(at("d/0.tar"), OLD_TIME + 1, 0); /* a shard changed */
    revision.lo = 0;
    CHECK(!opens_remembered(at("d"), 6, &revision));
    CHECK(opens_remembered(at("d"), 6, &revision));
    t.len = 0; /* a shard came */
    tar_file(&t, "1.jpg", "image");
    tar_end(&t);
    tar_save(&t, at("d/2.tar"));
    set_time(at("d"), OLD_TIME + 2, 0);
    revision.lo = 0;
    CHECK(!opens_remembered(at("d"), 7, &revision));
    revision.lo = 0;
    CHECK(!opens_remembered(at("d/2.tar"), 1, &revision)); /* one shard alone is another dataset */
    CHECK(opens_remembered(at("d/2.tar"), 1, &revision));
}

static void manifests_are_remembered(void)
{
    psti_id128 revision = {0, 0};
    scratch_clear();
    put_text(at("img/a.jpg"), "A");
    put_text(at("img/b.jpg"), "B");
    put_text(at("m.tsv"), "# root: img\nkey\tlabel\tsplit\nb.jpg\tdog\tval\na.jpg\tcat\ttrain\n");
    CHECK(!opens_remembered(at("m.tsv"), 2, &revision));
    psti_dataset *data = open_remembered(at("m.tsv"));
    const int64_t *ids = NULL;
    int64_t count = 0;
    CHECK(data && data->remembered && member_is(data, 0, "image", "B"));
    CHECK(strcmp(psti_dataset_class(data, 1), "dog") == 0 && int_of(data, 0, "label") == 1);
    CHECK(psti_dataset_split(data, "train", &ids, &count) == 0 && count == 1 && ids[0] == 1);
    psti_dataset_unref(data);
    put_text(at("m.tsv"), "# root: img\nkey\nb.jpg\n");
    revision.lo = 0;
    CHECK(!opens_remembered(at("m.tsv"), 1, &revision));
}

static void a_damaged_manifest_listing_is_not_used(void)
{
    scratch_clear();
    put_text(at("a.jpg"), "A");
    put_text(at("b.jpg"), "B");
    put_text(at("m.tsv"), "key\tlabel\tsplit\tf\nb.jpg\tdog\tval\t0.5\na.jpg\tcat\ttrain\t\n");
    damage_everywhere(at("m.tsv"), 2);
}

static void no_place_to_remember_is_fine(void)
{
    make_folder();
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = "/proc/nothing/here"};
    psti_dataset *data = NULL;
    CHECK(psti_dataset_open(at("d"), &opts, &data, NULL) == 0 && psti_dataset_count(data) == 21);
    psti_dataset_unref(data);
}

static void the_cache_directory_is_the_default(void)
{
    make_folder();
    setenv("XDG_CACHE_HOME", at("cache"), 1);
    psti_dataset *data = NULL;
    CHECK(psti_dataset_open(at("d"), NULL, &data, NULL) == 0);
    psti_dataset_unref(data);
    CHECK(count_files(at("cache/penstock")) == 1);
    data = NULL;
    CHECK(psti_dataset_open(at("d"), NULL, &data, NULL) == 0 && data->remembered);
    psti_dataset_unref(data);
}

/* ---- behind the first batch ------------------------------------------------------------------ */

static void verify_renews_what_changed(void)
{
    make_folder();
    psti_id128 revision = {0, 0};
    opens_remembered(at("d"), 21, &revision);
    put_text(at("d/class1/deep/0.jpg"), "changed in place");
    put_text(at("d/class1/deep/1.jpg"), "this one, too");
    age_dirs(at("d"));
    psti_dataset *data = open_remembered(at("d"));
    CHECK(data && data->remembered && psti_dataset_sample_bytes(data, 6) == 5);
    const psti_id128 before = psti_dataset_identity(data, 6);
    log_lines = 0;
    psti_dataset_verify(data);
    psti_dataset_verify(data);
    psti_verify_wait(data);
    CHECKF(log_lines == 1 && strstr(log_last, "2 files changed"), "%d: %s", log_lines, log_last);
    CHECK(member_is(data, 6, "image", "changed in place") &&
          psti_dataset_identity(data, 6).lo != before.lo);
    CHECK(psti_dataset_renew(data, 7, 0, NULL) == 0 && log_lines == 1); /* said once */
    psti_dataset_unref(data);
    CHECK(index_file()[0] == 0); /* what was wrong is forgotten */
}

static void verify_tells_what_vanished(void)
{
    make_folder();
    psti_id128 revision = {0, 0};
    opens_remembered(at("d"), 21, &revision);
    unlink(at("d/class1/deep/0.jpg"));
    age_dirs(at("d"));
    psti_dataset *data = open_remembered(at("d"));
    log_lines = 0;
    psti_dataset_verify(data);
    psti_verify_wait(data);
    CHECKF(log_lines == 1 && strstr(log_last, "1 files are no longer"), "%d: %s", log_lines,
           log_last);
    pst_error err;
    CHECK(psti_dataset_renew(data, 6, 0, &err) == -ENOENT && strstr(err.message, "removed"));
    psti_dataset_unref(data);
}

static void verify_is_silent_when_nothing_changed(void)
{
    make_folder();
    CHECK(symlink("0.jpg", at("d/class1/deep/link.jpg")) == 0);
    age_dirs(at("d"));
    psti_id128 revision = {0, 0};
    opens_remembered(at("d"), 22, &revision);
    log_lines = 0;
    psti_dataset *data = open_remembered(at("d"));
    psti_dataset_verify(data);
    psti_dataset_unref(data); /* while it runs */
    data = open_remembered(at("d"));
    psti_dataset_verify(data);
    psti_verify_wait(data);
    CHECK(log_lines == 0);
    psti_dataset_unref(data);
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(a_folder_is_remembered);
    RUN(a_changed_directory_is_read_again);
    RUN(refresh_lists_again);
    RUN(young_directories_are_doubted);
    RUN(a_damaged_folder_listing_is_not_used);
    RUN(a_damaged_tar_listing_is_not_used);
    RUN(tar_shards_are_remembered);
    RUN(manifests_are_remembered);
    RUN(a_damaged_manifest_listing_is_not_used);
    RUN(no_place_to_remember_is_fine);
    RUN(the_cache_directory_is_the_default);
    RUN(verify_renews_what_changed);
    RUN(verify_tells_what_vanished);
    RUN(verify_is_silent_when_nothing_changed);
    remove_tree(scratch);
    return check_report();
}
