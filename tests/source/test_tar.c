/* SPDX-License-Identifier: Apache-2.0
 * Tar shards: which members become which fields, long names of every kind, and every way a shard
 * can be bad. */
#include "fixture.h"

static tarball t;

static void start(void)
{
    scratch_clear();
    t.len = 0;
}

static psti_dataset *open_saved(void)
{
    tar_save(&t, at("s.tar"));
    psti_dataset *data = open_plain(at("s.tar"));
    CHECKF(data, "%s", last_error.message);
    return data;
}

#define CHECK_BAD(want, offset_, word)                                                             \
    do {                                                                                           \
        tar_save(&t, at("s.tar"));                                                                 \
        CHECK_REFUSED(at("s.tar"), want, word);                                                    \
        CHECKF(last_error.offset == (int64_t)(offset_), "offset %lld",                             \
               (long long)last_error.offset);                                                      \
        CHECK(strcmp(last_error.key, "s.tar") == 0);                                               \
    } while (0)

static void members_of_a_stem_are_a_sample(void)
{
    start();
    tar_header(&t, "x/", '5', 0);
    tar_file(&t, "./x/1.jpg", "one");
    tar_file(&t, "./x/1.cls", " 7\n");
    tar_file(&t, "./x/1.json",
             "{\"w\": 3, \"score\": 1, \"name\": \"a\", \"ok\": true, \"v\": [1, 2], \"mix\": 1}");
    tar_file(&t, "x/2.JPG", "two");
    tar_file(&t, "x/2.mask.png", "mask");
    tar_file(&t, "x/2.cls", "-1");
    tar_file(&t, "x/2.txt", "text");
    tar_file(&t, "x/2.json",
             "{\"w\": 4, \"score\": 0.5, \"name\": \"b\", \"ok\": false, \"v\": [0.5], \"mix\": "
             "\"s\", \"deep\": {\"a\": 1}}");
    tar_file(&t, "x/2.depth.npy", "npy");
    tar_file(&t, "x/2.flac", "sound");
    tar_end(&t);
    psti_dataset *data = open_saved();
    CHECK(psti_dataset_count(data) == 2 && strcmp(psti_dataset_kind(data), "tar") == 0);
    CHECK(key_is(data, 0, "s.tar/x/1") && key_is(data, 1, "s.tar/x/2"));
    CHECK(member_is(data, 0, "image", "one") && member_is(data, 1, "image", "two"));
    CHECK(member_is(data, 1, "mask", "mask") && field_info(data, "mask")->kind == PST_MASK);
    CHECK(field_info(data, "mask")->optional && !field_info(data, "image")->optional);
    CHECK(member_is(data, 1, "txt", "text") && field_info(data, "txt")->kind == PST_TEXT);
    CHECK(strcmp(field_info(data, "txt")->format, "txt") == 0);
    CHECK(member_is(data, 1, "depth", "npy") && field_info(data, "depth")->kind == PST_ARRAY);
    CHECK(member_is(data, 1, "flac", "sound") && field_info(data, "flac")->kind == PST_AUDIO);
    CHECK(int_of(data, 0, "label") == 7 && int_of(data, 1, "label") == -1);
    CHECK(field_info(data, "label")->kind == PST_LABEL &&
          strcmp(field_info(data, "label")->format, "cls") == 0);
    CHECK(int_of(data, 1, "w") == 4 && field_info(data, "w")->dtype == PST_I64);
    CHECK(real_of(data, 0, "score") == 1.0 && real_of(data, 1, "score") == 0.5);
    CHECK(field_info(data, "score")->dtype == PST_F64 &&
          field_info(data, "score")->kind == PST_META);
    CHECK(text_is(data, 1, "name", "b") && field_info(data, "name")->kind == PST_TEXT);
    CHECK(field_info(data, "ok")->dtype == PST_BOOL);
    CHECK(text_is(data, 0, "mix", "1") && text_is(data, 1, "mix", "\"s\""));
    CHECK(text_is(data, 1, "deep", "{\"a\":1}") && field_info(data, "deep")->optional);
    const void *value;
    size_t bytes;
    CHECK(psti_dataset_value(data, 0, field_number(data, "ok"), &value, &bytes) == 0 && bytes == 1);
    CHECK(*(const uint8_t *)value == 1);
    CHECK(psti_dataset_value(data, 0, field_number(data, "deep"), &value, &bytes) == -ENOENT);
    CHECK(psti_dataset_value(data, 0, field_number(data, "v"), &value, &bytes) == 0 && bytes == 16);
    CHECK(((const double *)value)[1] == 2.0);
    psti_extent extent;
    CHECK(psti_dataset_extent(data, 0, field_number(data, "flac"), &extent) == -ENOENT);
    CHECK(psti_dataset_extent(data, 1, field_number(data, "flac"), &extent) == 0 &&
          extent.shard_fd >= 0);
    CHECK(psti_dataset_renew(data, 0, 0, &last_error) == PST_ECHANGED);
    psti_dataset_unref(data);
}

static void two_images_of_a_sample_have_two_names(void)
{
    start();
    tar_file(&t, "1.png", "p1");
    tar_file(&t, "1.jpg", "j1");
    tar_file(&t, "2.png", "p2");
    tar_file(&t, "2.left.jpg", "l2");
    tar_file(&t, "2.label.png", "m2");
    tar_file(&t, "2.cls", "5");
    tar_file(&t, "2.key.jpg", "k2");
    tar_end(&t);
    psti_dataset *data = open_saved();
    CHECK(member_is(data, 0, "image", "j1") && member_is(data, 0, "png", "p1"));
    CHECK(member_is(data, 1, "image", "p2") && member_is(data, 1, "left", "l2"));
    CHECK(strcmp(field_info(data, "image")->format, "mixed") == 0);
    CHECK(field_info(data, "left")->kind == PST_IMAGE);
    /* label is the number; the mask of that name keeps its extension. key is in every batch. */
    CHECK(int_of(data, 1, "label") == 5 && member_is(data, 1, "label.png", "m2"));
    CHECK(field_info(data, "label.png")->kind == PST_MASK && member_is(data, 1, "key.jpg", "k2"));
    psti_dataset_unref(data);
}

static void json_may_hold_the_label(void)
{
    start();
    tar_file(&t, "1.jpg", "j");
    tar_file(&t, "1.json",
             "{\"label\": 3, \"key\": \"k\", \"a name far too long to be a field at all\": 1}");
    tar_file(&t, "2.jpg", "j");
    tar_file(&t, "2.json", "[1]");
    tar_end(&t);
    log_lines = 0;
    psti_dataset *data = open_saved();
    CHECK(int_of(data, 0, "label") == 3 && field_info(data, "label")->kind == PST_LABEL);
    CHECK(text_is(data, 0, "json.key", "k") && field_number(data, "key") < 0);
    CHECK(log_lines == 1 && strstr(log_last, "1 members or values"));
    CHECK(field_info(data, "json")->dtype == PST_I64);
    psti_dataset_unref(data);
}

static void long_names_of_every_kind(void)
{
    static char name[3000], text[4000];
    start();
    memset(name, 'n', 2000);
    snprintf(name + 2000, 100, "/a.jpg");
    /* GNU: a member L that holds the name. */
    tar_header(&t, "././@LongLink", 'L', strlen(name) + 1);
    tar_data(&t, name, strlen(name) + 1);
    tar_file(&t, "short", "gnu");
    /* pax: a record path, and a size that overrules the header. */
    memset(name, 'p', 2000);
    size_t len = pax_record(text, sizeof text, "path", name);
    len += pax_record(text + len, sizeof text - len, "size", "3");
    tar_header(&t, "pax", 'x', len);
    tar_data(&t, text, len);
    tar_header(&t, "short", '0', 0);
    tar_data(&t, "pax", 3);
    /* pax for all: harmless records are ignored. */
    len = pax_record(text, sizeof text, "comment", "hello");
    tar_header(&t, "g", 'g', len);
    tar_data(&t, text, len);
    /* ustar: the prefix. */
    uint8_t *h = tar_header(&t, "tail/c.jpg", '0', 5);
    memcpy(h + 345, "head", 4);
    tar_seal(h);
    tar_data(&t, "ustar", 5);
    /* A size in base 256. */
    h = tar_header(&t, "d.jpg", '0', 0);
    memset(h + 124, 0, 12);
    h[124] = 0x80;
    h[135] = 4;
    tar_seal(h);
    tar_data(&t, "b256", 4);
    tar_end(&t);
    psti_dataset *data = open_saved();
    CHECK(psti_dataset_count(data) == 4);
    CHECK(member_is(data, 0, "image", "gnu") && strlen(psti_dataset_key(data, 0)) == 6 + 2002);
    CHECK(member_is(data, 1, "image", "pax") && psti_dataset_key(data, 1)[6] == 'p');
    CHECK(member_is(data, 2, "image", "ustar") && key_is(data, 2, "s.tar/head/tail/c"));
    CHECK(member_is(data, 3, "image", "b256") && key_is(data, 3, "s.tar/d"));
    psti_dataset_unref(data);
}

static void shards_in_a_folder_follow_each_other(void)
{
    start();
    tar_file(&t, "1.jpg", "b1");
    tar_end(&t);
    tar_save(&t, at("d/b.tar"));
    t.len = 0;
    tar_file(&t, "1.jpg", "a1");
    tar_file(&t, "2.jpg", "a2");
    tar_end(&t);
    tar_save(&t, at("d/a.tar"));
    put_text(at("d/README"), "x");
    put_text(at("d/splits/half.txt"), "b.tar/1\n0\n");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    const int64_t *ids = NULL;
    int64_t count = 0;
    CHECK(psti_dataset_count(data) == 3 && key_is(data, 0, "a.tar/1") &&
          key_is(data, 2, "b.tar/1"));
    CHECK(member_is(data, 2, "image", "b1") && member_is(data, 1, "image", "a2"));
    CHECK(psti_dataset_split(data, "half", &ids, &count) == 0 && count == 2 && ids[1] == 2);
    const psti_id128 before = psti_dataset_identity(data, 0);
    /* A shard rewritten under an open dataset is noticed by every later read. */
    psti_extent extent;
    uint8_t buf[16];
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == 0 && psti_read_now(&extent, buf) == 0);
    set_time(at("d/a.tar"), OLD_TIME + 5, 0);
    CHECK(psti_dataset_extent(data, 0, 0, &extent) == 0 &&
          psti_read_now(&extent, buf) == PST_ECHANGED);
    psti_dataset_unref(data);
    data = open_plain(at("d"));
    CHECK(data && psti_dataset_identity(data, 0).lo != before.lo);
    psti_dataset_unref(data);
}

static void special_members_are_refused(void)
{
    for (const char *type = "12346SMV"; *type; type++) {
        start();
        tar_file(&t, "1.jpg", "fine");
        tar_header(&t, "2.jpg", *type, 0);
        tar_end(&t);
        CHECK_BAD(PST_EDATASET, 1024, "special members are refused");
    }
}

static void bad_names_are_refused(void)
{
    static const char *const names[] = {"../x.jpg", "/abs.jpg", "a/../b.jpg",
                                        "a\nb.jpg", "a//b.jpg", "\xff.jpg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        start();
        tar_file(&t, names[i], "x");
        tar_end(&t);
        CHECK_BAD(PST_EDATASET, 0, "the member name");
    }
    start();
    tar_file(&t, "noext", "x");
    tar_file(&t, ".hidden.jpg", "x");
    tar_end(&t);
    tar_save(&t, at("s.tar"));
    CHECK_REFUSED(at("s.tar"), PST_EDATASET, "2 members");
}

static void bad_headers_are_refused(void)
{
    start();
    tar_file(&t, "1.jpg", "fine");
    tar_file(&t, "2.jpg", "fine");
    t.bytes[1024 + 3] ^= 1; /* name changed, checksum not */
    CHECK_BAD(PST_ECORRUPT, 1024, "checksum");
    static const char *const sizes[] = {"77777777777", "0000000000x", "-0000000001"};
    for (size_t i = 0; i < 3; i++) {
        start();
        uint8_t *h = tar_header(&t, "1.jpg", '0', 0);
        memcpy(h + 124, sizes[i], 11);
        tar_seal(h);
        tar_end(&t);
        CHECK_BAD(PST_ECORRUPT, 0, "size");
    }
    static const struct {
        uint8_t first, rest;
    } sizes256[] = {{0xff, 0xff},
                    {0xff, 0},
                    {0xc0, 0},
                    {0x80, 0xff}}; /* negative, negative, and beyond 63 bits */
    for (size_t i = 0; i < 4; i++) {
        start();
        uint8_t *h = tar_header(&t, "1.jpg", '0', 0);
        memset(h + 124, sizes256[i].rest, 12);
        h[124] = sizes256[i].first;
        tar_seal(h);
        tar_end(&t);
        CHECK_BAD(PST_ECORRUPT, 0, "size is negative, too large");
    }
}

static void long_name_headers_are_limited(void)
{
    start();
    tar_header(&t, "././@LongLink", 'L', 4098);
    memset(t.bytes + t.len, 'a', 4608);
    t.len += 4608;
    tar_file(&t, "1.jpg", "x");
    CHECK_BAD(PST_ELIMIT, 0, "longer than 4096");
    start();
    tar_header(&t, "x", 'x', 65 * 1024);
    memset(t.bytes + t.len, 'a', 65 * 1024);
    t.len += 65 * 1024;
    tar_file(&t, "1.jpg", "x");
    CHECK_BAD(PST_ELIMIT, 0, "larger than 64 KiB");
    static const char *const records[] = {"99 path=a\n",
                                          "9 path=a.",
                                          "x path=a\n",
                                          "7 path\n",
                                          "0 a=b\n",
                                          "11 size=-1\n",
                                          "13 size=1x2\n",
                                          "27 size=99999999999999999999\n",
                                          "25 GNU.sparse.major=1.00\n"};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        start();
        tar_header(&t, "x", 'x', strlen(records[i]));
        tar_data(&t, records[i], strlen(records[i]));
        tar_file(&t, "1.jpg", "x");
        tar_end(&t);
        tar_save(&t, at("s.tar"));
        psti_dataset *data = open_plain(at("s.tar"));
        CHECKF(!data && last_error.code == PST_EDATASET, "record %zu: %d", i, last_error.code);
        psti_dataset_unref(data);
    }
}

static void repeated_stems_are_refused(void)
{
    start();
    tar_file(&t, "1.jpg", "x");
    tar_file(&t, "2.jpg", "x");
    tar_file(&t, "1.txt", "x");
    tar_end(&t);
    CHECK_BAD(PST_EDATASET, 2560, "duplicate sample key '1'");
    CHECK(strstr(last_error.message, "byte 512"));
    start();
    tar_file(&t, "1.jpg", "x");
    tar_file(&t, "1.JPG", "x");
    CHECK_BAD(PST_EDATASET, 1024, "two members of this name");
}

static void bad_values_are_refused(void)
{
    start();
    tar_file(&t, "1.cls", "cat");
    CHECK_BAD(PST_EDATASET, 512, "whole number");
    start();
    tar_file(&t, "1.json", "{\"a\": }");
    CHECK_BAD(PST_EDATASET, 512, "not valid JSON");
    start();
    tar_file(&t, "1.json", "{\"a\": 1, \"a\": 2}");
    CHECK_BAD(PST_EDATASET, 512, "not valid JSON");
    start();
    tar_header(&t, "1.cls", '0', 600);
    memset(t.bytes + t.len, '1', 1024);
    t.len += 1024;
    CHECK_BAD(PST_ELIMIT, 0, "larger than is sensible");
}

/* A shard may end between members, with or without the closing zero blocks; anywhere else it is
 * damaged. */
static void cuts_are_noticed(void)
{
    char pax[64];
    start();
    tar_file(&t, "1.jpg", "x"); /* 0..1024 */
    const size_t len = pax_record(pax, sizeof pax, "path", "2.jpg");
    tar_header(&t, "x", 'x', len);      /* 1024 */
    tar_data(&t, pax, len);             /* 1536..2048 */
    tar_header(&t, "y", '0', 600);      /* 2048 */
    memset(t.bytes + t.len, 'z', 1024); /* 2560..3584 */
    t.len += 1024;
    tar_end(&t); /* 3584..4608 */
    const size_t whole = t.len;
    for (size_t cut = 0; cut <= whole; cut += 64) {
        put_bytes(at("s.tar"), t.bytes, cut);
        psti_dataset *data = open_plain(at("s.tar"));
        const bool in_zeros = cut >= 3584 && cut % 512 == 0;
        const bool ok = cut == 1024 || in_zeros || cut > 4096;
        CHECKF(!data == !ok, "cut at %zu: %s", cut, last_error.message);
        if (!data && cut > 0)
            CHECKF(last_error.code == PST_ECORRUPT && last_error.offset >= 0, "cut at %zu", cut);
        if (data)
            CHECKF(psti_dataset_count(data) == (cut >= 3584 ? 2 : 1), "cut at %zu", cut);
        psti_dataset_unref(data);
    }
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(members_of_a_stem_are_a_sample);
    RUN(two_images_of_a_sample_have_two_names);
    RUN(json_may_hold_the_label);
    RUN(long_names_of_every_kind);
    RUN(shards_in_a_folder_follow_each_other);
    RUN(special_members_are_refused);
    RUN(bad_names_are_refused);
    RUN(bad_headers_are_refused);
    RUN(long_name_headers_are_limited);
    RUN(repeated_stems_are_refused);
    RUN(bad_values_are_refused);
    RUN(cuts_are_noticed);
    remove_tree(scratch);
    return check_report();
}
