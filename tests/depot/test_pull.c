/* SPDX-License-Identifier: Apache-2.0
 * Pulling from a folder that stands for a bucket: revisions, links, resuming, looking over. */
#include "place.h"

#include <errno.h>

static pst_error err;

static void three_files(const place *p)
{
    put_file(at(p, "bucket/a/1.bin"), 1000, 1);
    put_file(at(p, "bucket/a/2.bin"), 3 << 20, 2);
    put_file(at(p, "bucket/b.bin"), 0, 3);
}

static void a_pull_copies_everything(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    three_files(&p);
    CHECKF(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0, "%s", err.message);
    CHECK(r.complete && r.latest && !r.pinned && r.objects == 3 && r.bytes == 1000 + (3 << 20));
    CHECK(same_files(at(&p, "bucket/a/1.bin"), at(&p, "depot/set/%s/data/a/1.bin", r.revision)));
    CHECK(same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    CHECK(exists(at(&p, "depot/set/latest/data/b.bin")));
    CHECK(exists(at(&p, "depot/set/latest/.complete")));
    CHECK(!exists(at(&p, "depot/set/latest/listing")) && !exists(at(&p, "depot/set/latest/parts")));
    place_fini(&p);
}

static void the_same_bucket_is_the_same_revision(void)
{
    place p;
    pst_revision r, again;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    const ino_t before = inode_of(at(&p, "depot/set/latest/data/a/2.bin"));
    CHECK(pull_now(&p, "set", NULL, &again, NULL, &err) == 0); /* the URL is remembered */
    CHECK(strcmp(r.revision, again.revision) == 0);
    CHECK(inode_of(at(&p, "depot/set/latest/data/a/2.bin")) == before);
    place_fini(&p);
}

static void what_did_not_change_is_linked(void)
{
    place p;
    pst_revision r, next;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    put_file(at(&p, "bucket/a/1.bin"), 1001, 9);
    CHECK(pull_now(&p, "set", p.bucket, &next, NULL, &err) == 0);
    CHECK(strcmp(r.revision, next.revision) != 0 && next.latest);
    CHECK(inode_of(at(&p, "depot/set/%s/data/a/2.bin", r.revision)) ==
          inode_of(at(&p, "depot/set/%s/data/a/2.bin", next.revision)));
    CHECK(inode_of(at(&p, "depot/set/%s/data/a/1.bin", r.revision)) !=
          inode_of(at(&p, "depot/set/%s/data/a/1.bin", next.revision)));
    pst_datasets_limits limits;
    CHECK(pst_datasets_limit(p.depot, NULL, &limits, &err) == 0);
    CHECK(limits.used == 1000 + 1001 + (3 << 20)); /* shared files once */
    place_fini(&p);
}

static void a_revision_by_its_hash(void)
{
    place p;
    pst_revision r, next, found;
    pst_pull_options o;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    put_file(at(&p, "bucket/c.bin"), 5, 5);
    CHECK(pull_now(&p, "set", p.bucket, &next, NULL, &err) == 0);
    pst_pull_options_init(&o);
    char digits[9];
    snprintf(digits, sizeof digits, "%.8s", r.revision);
    o.revision = digits;
    CHECK(pull_now(&p, "set", p.bucket, &found, &o, &err) == 0);
    CHECK(strcmp(found.revision, r.revision) == 0 && found.latest);
    o.revision = "0123456789abcdef";
    CHECK(pull_now(&p, "set", p.bucket, &found, &o, &err) == PST_ECHANGED);
    CHECK(strstr(err.message, next.revision) != NULL);
    o.revision = "../../x";
    CHECK(pull_now(&p, "set", p.bucket, &found, &o, &err) == -EINVAL);
    place_fini(&p);
}

static int stop_at(const pst_pull_progress *now, void *user)
{
    return now->bytes_done >= *(const uint64_t *)user;
}

/* Stops in the middle, then a byte of what came is made another one: were it fetched again, it
 * would be right. */
static void a_stopped_pull_goes_on(void)
{
    place p;
    pst_revision r;
    pst_pull_options o;
    uint64_t limit = 0;
    place_init(&p);
    three_files(&p);
    pst_pull_options_init(&o);
    o.progress = stop_at;
    o.user = &limit;
    CHECK(pull_now(&p, "set", p.bucket, &r, &o, &err) == -ECANCELED);
    CHECK(!exists(at(&p, "depot/set/latest")));
    pst_revision *list;
    size_t count;
    CHECK(pst_datasets(p.depot, &list, &count, &err) == 0 && count == 1 && !list[0].complete);
    char part[PATH_MAX], hidden[40];
    snprintf(hidden, sizeof hidden, ".%s", list[0].revision);
    psti_free(list);
    CHECK(pst_datasets_find(p.depot, "set", &r, &err) == -ENOENT);
    /* Half of object 1 as an earlier process would have left it. */
    snprintf(part, sizeof part, "%s", at(&p, "depot/set/%s/parts/1", hidden));
    put_file(part, 1 << 20, 2);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    CHECK(same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    CHECK(!exists(at(&p, "depot/set/%s", hidden)));
    place_fini(&p);
}

static void parts_are_gone_on_with(void)
{
    place p;
    pst_revision r;
    pst_pull_options o;
    uint64_t limit = 0;
    place_init(&p);
    three_files(&p);
    pst_pull_options_init(&o);
    o.progress = stop_at;
    o.user = &limit;
    CHECK(pull_now(&p, "set", p.bucket, &r, &o, &err) == -ECANCELED);
    pst_revision *list;
    size_t count;
    CHECK(pst_datasets(p.depot, &list, &count, &err) == 0 && count == 1);
    put_file(at(&p, "depot/set/.%s/parts/1", list[0].revision), 1 << 20, 77); /* other bytes */
    psti_free(list);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    /* They are still there: the rest alone was fetched. A folder's etag is no MD5 that tells. */
    CHECK(!same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    place_fini(&p);
}

static void a_missing_file_is_found_and_fetched(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    unlink(at(&p, "depot/set/latest/data/a/2.bin"));
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    CHECK(same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    place_fini(&p);
}

static int keep_last(const pst_pull_progress *now, void *user)
{
    *(pst_pull_progress *)user = *now;
    return 0;
}

static void a_flipped_bit_is_found_and_fetched(void)
{
    place p;
    pst_revision r;
    pst_pull_options o;
    pst_pull_progress last;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    flip(at(&p, "depot/set/latest/data/a/2.bin"), 2 << 20);
    pst_pull_options_init(&o);
    o.check = 1;
    o.progress = keep_last;
    o.user = &last;
    CHECK(pull_now(&p, "set", p.bucket, &r, &o, &err) == 0);
    CHECK(last.objects_bad == 1 && last.bytes_fetched == 3 << 20);
    CHECK(same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    CHECK(pull_now(&p, "set", p.bucket, &r, &o, &err) == 0 && last.objects_bad == 0);
    place_fini(&p);
}

static void one_file_is_mended(void)
{
    place p;
    pst_revision r;
    psti_depot_keeper *k;
    const char *etag;
    uint32_t crc;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    CHECK(psti_depot_keeper_open(r.path, &k, &err) == 0 && !psti_depot_keeper_far(k));
    CHECK(psti_depot_keeper_etag(k, "a/1.bin", 1000, &etag) == 0 && etag[0] == '"');
    CHECK(psti_depot_keeper_etag(k, "a/1.bin", 1001, &etag) == -ENOENT);
    CHECK(psti_depot_keeper_sum(k, "a/2.bin", 3 << 20, &crc) == 0 && crc != 0);
    CHECK(psti_depot_keeper_sum(k, "a", 3 << 20, &crc) == -ENOENT);
    psti_depot_keeper_rest(k);
    const ino_t before = inode_of(at(&p, "depot/set/latest/data/a/2.bin"));
    CHECK(psti_depot_keeper_mend(k, "a/2.bin", 0, UINT64_MAX, &err) == 0); /* nothing was wrong */
    CHECK(inode_of(at(&p, "depot/set/latest/data/a/2.bin")) == before);
    flip(at(&p, "depot/set/latest/data/a/2.bin"), 77);
    CHECKF(psti_depot_keeper_mend(k, "a/2.bin", 0, UINT64_MAX, &err) == 1, "%s", err.message);
    CHECK(same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    unlink(at(&p, "depot/set/latest/data/a/1.bin"));
    CHECK(psti_depot_keeper_mend(k, "a/1.bin", 0, UINT64_MAX, &err) == 1);
    CHECK(same_files(at(&p, "bucket/a/1.bin"), at(&p, "depot/set/latest/data/a/1.bin")));
    CHECK(psti_depot_keeper_mend(k, "../manifest", 0, UINT64_MAX, &err) == -ENOENT);
    CHECK(chmod(at(&p, "depot/set/latest/manifest"), 0666) == 0); /* others may write it */
    psti_depot_keeper *others;
    CHECK(psti_depot_keeper_open(r.path, &others, &err) == -EPERM);
    CHECK(chmod(at(&p, "depot/set/latest/manifest"), 0644) == 0);
    struct stat st; /* other bytes in the bucket that look the same from outside */
    CHECK(stat(at(&p, "bucket/a/2.bin"), &st) == 0);
    flip(at(&p, "bucket/a/2.bin"), 5);
    CHECK(utimensat(AT_FDCWD, at(&p, "bucket/a/2.bin"), (struct timespec[]){st.st_atim, st.st_mtim},
                    0) == 0);
    unlink(at(&p, "depot/set/latest/data/a/2.bin"));
    CHECK(psti_depot_keeper_mend(k, "a/2.bin", 0, UINT64_MAX, &err) == PST_ECORRUPT);
    CHECK(!exists(at(&p, "depot/set/latest/data/a/2.bin")));
    unlink(at(&p, "depot/set/latest/data/a/1.bin"));
    put_file(at(&p, "bucket/a/1.bin"), 1000, 8); /* it is another one there by now */
    CHECK(psti_depot_keeper_mend(k, "a/1.bin", 0, UINT64_MAX, &err) == PST_ECHANGED);
    CHECK(!exists(at(&p, "depot/set/latest/data/a/1.bin")));
    psti_depot_keeper_close(k);
    place_fini(&p);
}

static void a_damaged_manifest_is_not_believed(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    three_files(&p);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    flip(at(&p, "depot/set/latest/manifest"), 60);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    CHECK(r.complete &&
          same_files(at(&p, "bucket/a/2.bin"), at(&p, "depot/set/latest/data/a/2.bin")));
    place_fini(&p);
}

static void a_bucket_that_changes_meanwhile_is_listed_again(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    three_files(&p);
    /* The object in the listing is another one by the time it is fetched. */
    bucket *b;
    listing l = {0};
    CHECK(bucket_open(p.bucket, &b, &err) == 0 && b->ops->list(b, &l, &err) == 0 && l.count == 3);
    put_file(at(&p, "bucket/a/1.bin"), 1000, 4);
    CHECK(b->ops->get(b, &l, &l.objects[0], (stretch){0, l.objects[0].size}, NULL, NULL, &err) ==
          PST_ECHANGED);
    listing_fini(&l);
    bucket_close(b);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    place_fini(&p);
}

static void bad_names_and_keys_are_refused(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    three_files(&p);
    const char *names[] = {"", "..", ".hidden", "a/b", "a b", "x@y", "latest\n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECKF(pull_now(&p, names[i], p.bucket, &r, NULL, &err) == -EINVAL, "%s", names[i]);
    listing l = {0};
    const char *keys[] = {"../x", "/x", "a//b", "a/./b", "x\ny", "\xff", ""};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CHECK(listing_add(&l, keys[i], strlen(keys[i]), 1, "\"e\"", &err) == PST_EDATASET);
    CHECK(listing_add(&l, "b", 1, 1, "\"e\"", &err) == 0);
    CHECK(listing_add(&l, "a", 1, 1, "\"e\"", &err) == PST_EDATASET);  /* order */
    CHECK(listing_add(&l, "b", 1, 1, "\"e\"", &err) == PST_EDATASET);  /* twice */
    CHECK(listing_add(&l, "c", 1, 1, "\"\t\"", &err) == PST_EDATASET); /* etag */
    CHECK(listing_add(&l, "b!", 2, 1, "\"e\"", &err) == 0);
    CHECK(listing_check(&l, &err) == 0);
    CHECK(listing_add(&l, "b/c", 3, 1, "\"e\"", &err) == 0);
    CHECK(listing_check(&l, &err) == PST_EDATASET); /* b is a file and a folder */
    listing_fini(&l);
    CHECK(pull_now(&p, "set", at(&p, "nowhere"), &r, NULL, &err) == -ENOENT);
    CHECK(pull_now(&p, "set", "ftp://x/y", &r, NULL, &err) == -EINVAL);
    place_fini(&p);
}

static void a_listing_survives_its_file(void)
{
    place p;
    listing l = {0}, back;
    char url[100], one[33], two[33];
    place_init(&p);
    CHECK(listing_add(&l, "a", 1, 7, "\"e-1\"", &err) == 0);
    CHECK(listing_add(&l, "b/\xc3\xa4", 4, UINT32_MAX + 5ull, "", &err) == 0);
    l.objects[1].known = true;
    l.objects[1].crc = 0xdeadbeef;
    l.objects[1].took_us = 12;
    const int dir = open(p.root, O_RDONLY | O_DIRECTORY);
    CHECK(listing_write(&l, dir, "m", "s3://x/y", &err) == 0);
    CHECK(listing_read(&back, dir, "m", url, sizeof url, &err) == 0);
    CHECK(back.count == 2 && strcmp(url, "s3://x/y") == 0 && back.bytes == l.bytes);
    CHECK(!back.objects[0].known && back.objects[1].known && back.objects[1].crc == 0xdeadbeef);
    listing_revision(&l, one);
    listing_revision(&back, two);
    CHECK(strcmp(one, two) == 0);
    listing_fini(&back);
    struct stat st;
    CHECK(fstatat(dir, "m", &st, 0) == 0);
    for (off_t i = 0; i < st.st_size; i++) { /* every bit counts */
        flip(at(&p, "m"), i);
        CHECKF(listing_read(&back, dir, "m", NULL, 0, &err) == PST_ECORRUPT, "byte %d", (int)i);
        flip(at(&p, "m"), i);
    }
    CHECK(truncate(at(&p, "m"), st.st_size - 1) == 0);
    CHECK(listing_read(&back, dir, "m", NULL, 0, &err) == PST_ECORRUPT);
    close(dir);
    listing_fini(&l);
    place_fini(&p);
}

static void notes_that_were_cut_short_count_for_nothing(void)
{
    place p;
    listing l = {0};
    place_init(&p);
    for (char key[2] = "a"; key[0] < 'f'; key[0]++)
        CHECK(listing_add(&l, key, 1, 7, "\"e\"", &err) == 0);
    FILE *f = fopen(at(&p, "done"), "w");
    fprintf(f, "00000001 00000010 00000100\n00000002 000\n00000003 00000011 00000101\n"
               "99999999 00000011 00000101\n00000004 0000");
    fclose(f);
    const int dir = open(p.root, O_RDONLY | O_DIRECTORY);
    CHECK(done_read(&l, dir) == 0);
    CHECK(!l.objects[0].known && l.objects[1].known && !l.objects[2].known && l.objects[3].known &&
          !l.objects[4].known);
    CHECK(l.objects[3].crc == 0x11 && l.objects[3].took_us == 0x101);
    close(dir);
    listing_fini(&l);
    place_fini(&p);
}

int main(void)
{
    RUN(a_pull_copies_everything);
    RUN(the_same_bucket_is_the_same_revision);
    RUN(what_did_not_change_is_linked);
    RUN(a_revision_by_its_hash);
    RUN(a_stopped_pull_goes_on);
    RUN(parts_are_gone_on_with);
    RUN(a_missing_file_is_found_and_fetched);
    RUN(a_flipped_bit_is_found_and_fetched);
    RUN(one_file_is_mended);
    RUN(a_damaged_manifest_is_not_believed);
    RUN(a_bucket_that_changes_meanwhile_is_listed_again);
    RUN(bad_names_and_keys_are_refused);
    RUN(a_listing_survives_its_file);
    RUN(notes_that_were_cut_short_count_for_nothing);
    return check_report();
}
