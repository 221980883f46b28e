/* SPDX-License-Identifier: Apache-2.0
 * A dataset from the caller's own list: order, labels, where paths may lead, and that no file is
 * looked at before its turn. */
#include "fixture.h"

static pst_files spec_of(const char *const *paths, int64_t count)
{
    return (pst_files){.size = sizeof(pst_files), .count = count, .paths = paths};
}

static psti_dataset *make(const pst_files *spec)
{
    psti_dataset *data = NULL;
    memset(&last_error, 0, sizeof last_error);
    return psti_dataset_files(spec, &data, &last_error) ? NULL : data;
}

/* Sees the sample and compares its bytes. */
static bool reads(psti_dataset *data, int64_t id, const char *text)
{
    return psti_dataset_look(data, id) == 0 && member_is(data, id, "image", text);
}

static void samples_come_as_listed(void)
{
    scratch_clear();
    put_text(at("root/b/2.png"), "two");
    put_text(at("root/a/1.jpg"), "one");
    char second[300], first[300];
    snprintf(second, sizeof second, "%s", at("root/b/2.png"));
    snprintf(first, sizeof first, "%s", at("root/a/1.jpg"));
    const char *paths[] = {second, first, second}, *classes[] = {"ant", "bee"};
    const int64_t labels[] = {1, 0, -7};
    pst_files spec = spec_of(paths, 3);
    spec.labels = labels;
    spec.root = at("root//");
    spec.classes = classes;
    spec.class_count = 2;
    psti_dataset *data = make(&spec);
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 3 && strcmp(psti_dataset_kind(data), "files") == 0);
    CHECK(key_is(data, 0, "b/2.png") && key_is(data, 1, "a/1.jpg") && key_is(data, 2, "b/2.png"));
    CHECK(reads(data, 0, "two") && reads(data, 1, "one") && reads(data, 2, "two"));
    CHECK(int_of(data, 0, "label") == 1 && int_of(data, 2, "label") == -7);
    CHECK(psti_dataset_labels(data) && psti_dataset_labels(data)[2] == -7);
    CHECK(psti_dataset_classes(data) == 2 && strcmp(psti_dataset_class(data, 1), "bee") == 0);
    CHECK(strcmp(field_info(data, "image")->format, "mixed") == 0);
    CHECK(!field_info(data, "image")->optional && !field_info(data, "label")->optional);
    psti_dataset_unref(data);
}

static void nothing_is_looked_at_before_its_turn(void)
{
    scratch_clear();
    mkdir(at("root"), 0755);
    mkdir(at("root/folder.jpg"), 0755);
    char late[300], folder[300];
    snprintf(late, sizeof late, "%s", at("root/late.jpg"));
    snprintf(folder, sizeof folder, "%s", at("root/folder.jpg"));
    const char *paths[] = {late, folder};
    const pst_files spec = spec_of(paths, 2);
    psti_dataset *data = make(&spec);
    CHECKF(data, "%s", last_error.message);
    psti_extent extent;
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == -EAGAIN);
    CHECK(psti_dataset_look(data, 0) == -ENOENT && psti_dataset_look(data, 1) == -EISDIR);
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == -EAGAIN);
    CHECK(psti_dataset_sample_bytes(data, 0) == 0);
    put_text(late, "came");
    const psti_id128 before = psti_dataset_identity(data, 0);
    CHECK(reads(data, 0, "came") && psti_dataset_sample_bytes(data, 0) == 4);
    CHECK(psti_dataset_identity(data, 0).lo != before.lo);
    psti_dataset_unref(data);
}

static void links_lead_anywhere(void)
{
    scratch_clear();
    put_text(at("elsewhere/x.jpg"), "out");
    mkdir(at("root"), 0755);
    char target[300], link_path[300], dots[300];
    snprintf(target, sizeof target, "%s", at("elsewhere/x.jpg"));
    snprintf(link_path, sizeof link_path, "%s", at("root/link.jpg"));
    snprintf(dots, sizeof dots, "%s", at("root/../elsewhere/x.jpg"));
    CHECK(symlink(target, link_path) == 0);
    const char *paths[] = {link_path, dots, target};
    for (int with_root = 0; with_root < 2; with_root++)
        for (int old = 0; old < 2; old++) {
            pst_files spec = spec_of(paths, 3);
            spec.root = with_root ? at("root") : NULL;
            psti_dataset *data = make(&spec);
            psti_open_beneath_without_openat2(old);
            CHECK(data && reads(data, 0, "out") && reads(data, 1, "out") && reads(data, 2, "out"));
            psti_extent extent;
            uint8_t buf[8];
            CHECK(psti_dataset_extent(data, 0, 0, &extent) == 0);
            int rc = psti_read_try(&extent, buf);
            for (int i = 0; i < 5000 && !old && rc == -EAGAIN; i++) {
                CHECK(reads(data, 0, "out")); /* names are changed, or the kernel forgot these */
                rc = psti_read_try(&extent, buf);
            }
            CHECK(old ? rc == -EAGAIN : rc == 0 && memcmp(buf, "out", 3) == 0);
            psti_open_beneath_without_openat2(false);
            psti_dataset_unref(data);
        }
}

static void relative_paths_start_here(void)
{
    scratch_clear();
    put_text(at("here/a.jpg"), "A");
    put_text(at("here/root/b.jpg"), "B");
    char before[4096];
    CHECK(getcwd(before, sizeof before) && chdir(at("here")) == 0);
    const char *paths[] = {"a.jpg", "root/b.jpg"};
    pst_files spec = spec_of(paths, 2);
    spec.root = "root";
    psti_dataset *data = make(&spec);
    CHECK(chdir(before) == 0);
    CHECK(data && key_is(data, 1, "b.jpg") && reads(data, 0, "A") && reads(data, 1, "B"));
    CHECK(strcmp(psti_dataset_key(data, 0), at("here/a.jpg")) == 0);
    psti_dataset_unref(data);
}

static psti_id128 revision_of(const pst_files *spec)
{
    psti_dataset *data = make(spec);
    const psti_id128 revision = psti_dataset_revision(data);
    psti_dataset_unref(data);
    return revision;
}

static void revision_is_that_of_the_list(void)
{
    scratch_clear();
    put_text(at("a.jpg"), "A");
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", at("a.jpg"));
    snprintf(b, sizeof b, "%s", at("b.jpg"));
    const char *ab[] = {a, b}, *ba[] = {b, a};
    int64_t labels[] = {0, 1};
    pst_files spec = spec_of(ab, 2);
    spec.labels = labels;
    const psti_id128 first = revision_of(&spec);
    put_text(a, "longer than before");
    CHECK(revision_of(&spec).lo == first.lo);
    labels[1] = 2;
    CHECK(revision_of(&spec).lo != first.lo);
    labels[1] = 1;
    spec.paths = ba;
    CHECK(revision_of(&spec).lo != first.lo);
    spec.paths = ab;
    spec.count = 1;
    CHECK(revision_of(&spec).lo != first.lo);
}

static void a_file_that_changed_is_noticed(void)
{
    scratch_clear();
    put_text(at("a.jpg"), "A");
    char a[300];
    snprintf(a, sizeof a, "%s", at("a.jpg"));
    const char *paths[] = {a};
    const pst_files spec = spec_of(paths, 1);
    psti_dataset *data = make(&spec);
    CHECK(data && reads(data, 0, "A"));
    psti_extent extent;
    uint8_t buf[32];
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == 0);
    put_text(a, "changed");
    CHECK(psti_read_now(&extent, buf) == PST_ECHANGED);
    CHECK(psti_dataset_renew(data, 0, 0, &last_error) == 0 && reads(data, 0, "changed"));
    psti_dataset_unref(data);
}

/* What identities are asked of is compared by time as well: here only the time differs. */
static void a_version_is_kept_where_identities_count(void)
{
    scratch_clear();
    put_text(at("a.jpg"), "A");
    char a[300];
    snprintf(a, sizeof a, "%s", at("a.jpg"));
    const char *paths[] = {a};
    const pst_files spec = spec_of(paths, 1);
    psti_dataset *data = make(&spec);
    const struct timespec old[2] = {{1000, 0}, {1000, 0}}, later[2] = {{2000, 0}, {2000, 0}};
    psti_extent extent;
    uint8_t buf[32];
    CHECK(data && utimensat(AT_FDCWD, a, old, 0) == 0 && reads(data, 0, "A"));
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == 0 && utimensat(AT_FDCWD, a, later, 0) == 0);
    CHECK(psti_read_now(&extent, buf) == 0);
    CHECK(psti_dataset_keep_versions(data) == 0 && psti_dataset_keep_versions(data) == 0);
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == -EAGAIN);
    CHECK(reads(data, 0, "A") && psti_dataset_extent(data, 0, 0, &extent) == 0);
    const psti_id128 then = psti_dataset_identity(data, 0);
    CHECK(psti_read_now(&extent, buf) == 0 && utimensat(AT_FDCWD, a, old, 0) == 0);
    CHECK(psti_read_now(&extent, buf) == PST_ECHANGED);
    CHECK(psti_dataset_renew(data, 0, 0, &last_error) == 0 && reads(data, 0, "A"));
    CHECK(psti_dataset_identity(data, 0).lo != then.lo);
    psti_dataset_unref(data);
}

/* ---- lists in a short form ------------------------------------------------------------------- */

enum { MANY = 1000 };

typedef struct made_list {
    char path[MANY][400];
    int64_t label[MANY];
    int at, broken; /* broken: the number of an entry that next refuses to give; -1 = none */
} made_list;

/* Neighbours that share much, little and nothing at either end; some long, some alike. */
static made_list *make_list(void)
{
    made_list *list = calloc(1, sizeof *list); /* lint: library memory */
    uint32_t draw = 7;
    for (int i = 0; i < MANY; i++) {
        draw = draw * 1664525u + 1013904223u;
        char fill[300];
        memset(fill, 'a' + (int)(draw >> 28), sizeof fill);
        fill[draw >> 16 & 255] = 0;
        if (i % 7 == 3)
            snprintf(list->path[i], sizeof list->path[i], "/%s/%u.png", fill, draw >> 8);
        else if (i % 11 == 5 && i)
            snprintf(list->path[i], sizeof list->path[i], "%s", list->path[i - 1]);
        else
            snprintf(list->path[i], sizeof list->path[i], "/r/n%04d/n%04d_%u.jpg", i / 50, i / 50,
                     draw >> 20);
        list->label[i] = i / 50 - 3;
    }
    list->broken = -1;
    return list;
}

static int next_of_list(void *user, const char **path, int64_t *label)
{
    made_list *list = user;
    if (list->at == list->broken)
        return -ECANCELED;
    if (list->at == MANY)
        return 0;
    *label = list->label[list->at];
    *path = list->path[list->at++];
    return 1;
}

static pst_files spec_of_list(made_list *list)
{
    pst_files spec;
    memset(&spec, 0, sizeof spec);
    spec.size = sizeof spec;
    spec.next = next_of_list;
    spec.next_labels = 1;
    spec.user = list;
    list->at = 0;
    return spec;
}

static void every_entry_is_found_again(void)
{
    made_list *list = make_list();
    pst_files spec = spec_of_list(list);
    psti_dataset *data = make(&spec);
    CHECKF(data && psti_dataset_count(data) == MANY, "%s", last_error.message);
    size_t longest = 0;
    for (int i = 0; i < MANY; i++) {
        const int id = (int)((unsigned)i * 617u % MANY);
        char room[PSTI_KEY_ROOM];
        size_t len;
        const char *key = psti_dataset_key_in(data, id, room, &len);
        CHECK(strcmp(key, list->path[id]) == 0 && len == strlen(list->path[id]));
        CHECK(key_is(data, id, list->path[id]) && int_of(data, id, "label") == list->label[id]);
        longest = len > longest ? len : longest;
    }
    CHECK(psti_dataset_key_max(data) == longest);
    const char *kept = psti_dataset_key(data, 5);
    CHECK(kept == psti_dataset_key(data, 5));
    CHECK(memcmp(psti_dataset_labels(data), list->label, sizeof list->label) == 0);
    CHECK(int_of(data, 77, "label") == list->label[77]);
    psti_dataset_unref(data);
    list->broken = 500;
    spec = spec_of_list(list);
    CHECK(!make(&spec) && last_error.code == -ECANCELED);
    free(list); /* lint: library memory */
}

static void a_list_is_known_again(void)
{
    made_list *list = make_list();
    pst_files spec = spec_of_list(list);
    psti_dataset *data = make(&spec);
    spec = spec_of_list(list);
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == 1);
    list->label[MANY - 1]++;
    spec = spec_of_list(list);
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == 0);
    list->label[MANY - 1]--;
    list->path[400][3] ^= 1;
    spec = spec_of_list(list);
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == 0);
    list->path[400][3] ^= 1;
    list->broken = 900;
    spec = spec_of_list(list);
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == -ECANCELED);
    const char *paths[MANY + 1];
    for (int i = 0; i < MANY; i++)
        paths[i] = list->path[i];
    paths[MANY] = "/r/one more.jpg";
    spec = spec_of(paths, MANY);
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == 0);
    spec.labels = list->label;
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == 1);
    spec.count--;
    CHECK(psti_dataset_files_same(data, &spec, &last_error) == 0);
    psti_dataset_unref(data);
    free(list); /* lint: library memory */
}

/* As ImageNet's training set lies: what a million of them takes is what users pay for. */
static void a_folder_of_pictures_takes_few_bytes(void)
{
    enum { CLASSES = 100, EACH = 1000 };
    char(*path)[40] = calloc(CLASSES * EACH, sizeof *path);           /* lint: library memory */
    const char **paths = calloc(CLASSES * EACH, sizeof *paths);       /* lint: library memory */
    int64_t *labels = calloc((size_t)CLASSES * EACH, sizeof *labels); /* lint: library memory */
    for (int i = 0; i < CLASSES * EACH; i++) {
        labels[i] = i / EACH;
        snprintf(path[i], sizeof *path, "/n%08d/n%08d_%d.JPEG", i / EACH, i / EACH, 7 * (i % EACH));
        paths[i] = path[i];
    }
    pst_files spec = spec_of(paths, (int64_t)CLASSES * EACH);
    spec.labels = labels;
    psti_dataset *data = make(&spec);
    const double each = (double)psti_dataset_bytes(data) / (CLASSES * EACH);
    CHECKF(each < 14, "%.1f bytes an entry", each);
    psti_dataset_unref(data);
    free(path);   /* lint: library memory */
    free(paths);  /* lint: library memory */
    free(labels); /* lint: library memory */
}

static void refused(const char *path, const char *word)
{
    const char *paths[] = {path};
    const pst_files spec = spec_of(paths, 1);
    CHECKF(!make(&spec) && strstr(last_error.message, word), "'%s' was not in '%s'", word,
           last_error.message);
}

static void bad_lists_are_refused(void)
{
    scratch_clear();
    refused("", "is empty");
    refused("a\nb.jpg", "control");
    refused("a\xff.jpg", "UTF-8");
    const char *paths[] = {"a.jpg"};
    pst_files spec = spec_of(paths, 0);
    CHECK(!make(&spec) && strstr(last_error.message, "empty"));
    spec = spec_of(paths, 1);
    spec.size--;
    CHECK(!make(&spec) && strstr(last_error.message, "version"));
    spec = spec_of(paths, 1);
    spec.root = at("nowhere");
    CHECK(!make(&spec) && last_error.code == -ENOENT);
    const char *odd[] = {"/x/a.jpg", "/x/b.tiff"};
    spec = spec_of(odd, 2);
    psti_dataset *data = make(&spec);
    CHECK(data && strcmp(field_info(data, "image")->format, "any") == 0);
    CHECK(field_number(data, "label") < 0 && !psti_dataset_labels(data));
    psti_dataset_unref(data);
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(samples_come_as_listed);
    RUN(nothing_is_looked_at_before_its_turn);
    RUN(links_lead_anywhere);
    RUN(relative_paths_start_here);
    RUN(revision_is_that_of_the_list);
    RUN(a_file_that_changed_is_noticed);
    RUN(a_version_is_kept_where_identities_count);
    RUN(every_entry_is_found_again);
    RUN(a_list_is_known_again);
    RUN(a_folder_of_pictures_takes_few_bytes);
    RUN(bad_lists_are_refused);
    remove_tree(scratch);
    return check_report();
}
