/* SPDX-License-Identifier: Apache-2.0
 * Manifests in both notations: types, labels, splits, member files, and messages that name the
 * line. */
#include "fixture.h"

static void make_files(void)
{
    scratch_clear();
    put_text(at("a.jpg"), "A");
    put_text(at("b.png"), "B");
    put_text(at("sub/c.jpg"), "C");
    put_text(at("ma.png"), "MA");
    put_text(at("d.npy"), "D");
}

static void tsv_gives_typed_fields(void)
{
    make_files();
    put_text(at("m.tsv"), "\xef\xbb\xbfkey\tlabel\tsplit\tage\tscore\tnote\tzip:text\tmask\r\n"
                          "sub/c.jpg\t2\ttrain\t7\t1\thello there\t0123\tma.png\r\n"
                          "a.jpg\t0\tval\t-8\t0.5\t\t456\t\r\n"
                          "\r\n"
                          "b.png\t1\ttrain\t9\t2e3\t12\t7\tma.png");
    psti_dataset *data = open_plain(at("m.tsv"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 3 && strcmp(psti_dataset_kind(data), "manifest") == 0);
    CHECK(key_is(data, 0, "sub/c.jpg") && key_is(data, 1, "a.jpg") && key_is(data, 2, "b.png"));
    CHECK(member_is(data, 0, "image", "C") &&
          strcmp(field_info(data, "image")->format, "mixed") == 0);
    CHECK(member_is(data, 2, "mask", "MA") && field_info(data, "mask")->kind == PST_MASK);
    CHECK(field_info(data, "mask")->optional == 1);
    CHECK(int_of(data, 0, "label") == 2 && field_info(data, "label")->kind == PST_LABEL);
    CHECK(psti_dataset_classes(data) == 0);
    CHECK(int_of(data, 1, "age") == -8 && field_info(data, "age")->dtype == PST_I64);
    CHECK(real_of(data, 2, "score") == 2000.0 && real_of(data, 0, "score") == 1.0);
    CHECK(text_is(data, 0, "note", "hello there") && text_is(data, 2, "note", "12"));
    CHECK(field_info(data, "note")->optional == 1);
    CHECK(text_is(data, 0, "zip", "0123"));
    CHECK(field_number(data, "split") < 0);
    const int64_t *ids = NULL;
    int64_t count = 0;
    CHECK(psti_dataset_splits(data) == 2 && strcmp(psti_dataset_split_name(data, 0), "train") == 0);
    CHECK(psti_dataset_split(data, "train", &ids, &count) == 0 && count == 2 && ids[0] == 0 &&
          ids[1] == 2);
    psti_dataset_unref(data);
}

static void json_lines_give_typed_fields(void)
{
    make_files();
    put_text(at("m.jsonl"),
             "# a comment\n"
             "{\"key\": \"a.jpg\", \"label\": \"dog\", \"split\": \"train\", \"n\": 1, \"v\": "
             "[1.5, 2]}\n"
             "\n"
             "{\"key\": \"b.png\", \"label\": \"cat\", \"split\": \"val\", \"n\": 2.5, "
             "\"depth:file\": \"d.npy\"}\n"
             "{\"key\": \"sub/c.jpg\", \"label\": \"dog\", \"n\": null, \"mask\": \"ma.png\"}\n");
    psti_dataset *data = open_plain(at("m.jsonl"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 3 && psti_dataset_classes(data) == 2);
    CHECK(strcmp(psti_dataset_class(data, 0), "cat") == 0 &&
          strcmp(psti_dataset_class(data, 1), "dog") == 0);
    CHECK(int_of(data, 0, "label") == 1 && int_of(data, 1, "label") == 0 &&
          int_of(data, 2, "label") == 1);
    CHECK(real_of(data, 0, "n") == 1.0 && real_of(data, 1, "n") == 2.5 &&
          field_info(data, "n")->optional);
    CHECK(member_is(data, 1, "depth", "D") && field_info(data, "depth")->kind == PST_ARRAY);
    CHECK(member_is(data, 2, "mask", "MA"));
    const int64_t *ids = NULL;
    int64_t count = 0;
    CHECK(psti_dataset_split(data, "val", &ids, &count) == 0 && count == 1 && ids[0] == 1);
    psti_dataset_unref(data);
}

static void empty_texts_are_values(void)
{
    make_files();
    put_text(at("m.jsonl"), "{\"key\": \"a.jpg\", \"t\": \"\", \"v\": []}\n{\"key\": \"b.png\"}\n");
    psti_dataset *data = open_plain(at("m.jsonl"));
    const void *value = NULL;
    size_t bytes = 1;
    CHECK(text_is(data, 0, "t", "") && !text_is(data, 1, "t", ""));
    CHECK(psti_dataset_value(data, 0, field_number(data, "v"), &value, &bytes) == 0 && value &&
          bytes == 0);
    psti_dataset_unref(data);
}

static void root_comment_moves_the_root(void)
{
    make_files();
    put_text(at("m.tsv"), "# root: sub/\n# made by hand\nkey\nc.jpg\n");
    psti_dataset *data = open_plain(at("m.tsv"));
    CHECKF(data && member_is(data, 0, "image", "C"), "%s", last_error.message);
    psti_dataset_unref(data);
    put_text(at("m.tsv"), "# root: ../..\nkey\nc.jpg\n");
    CHECK_REFUSED(at("m.tsv"), PST_EDATASET, "line 1");
    put_text(at("m.tsv"), "# root: none\nkey\nc.jpg\n");
    CHECK_REFUSED(at("m.tsv"), -ENOENT, "root 'none'");
}

static void float_labels_are_numbers(void)
{
    make_files();
    put_text(at("m.tsv"), "key\tlabel\na.jpg\t0.5\nb.png\t2\n");
    psti_dataset *data = open_plain(at("m.tsv"));
    CHECK(real_of(data, 1, "label") == 2.0 && field_info(data, "label")->kind == PST_META);
    psti_dataset_unref(data);
}

static void bad_tsv_is_refused_by_line(void)
{
    static const struct {
        const char *text, *word;
        int code;
    } table[] = {
        {"", "empty", PST_EDATASET},
        {"key\n", "no rows", PST_EDATASET},
        {"name\tlabel\na.jpg\t1\n", "no column 'key'", PST_EDATASET},
        {"key\tlabel\na.jpg\n", "line 2: 1 cells where the header has 2", PST_EDATASET},
        {"key\tlabel\na.jpg\t1\t2\n", "line 2: 3 cells", PST_EDATASET},
        {"key\tlabel\tlabel\na.jpg\t1\t2\n", "twice", PST_EDATASET},
        {"key\tage:number\na.jpg\t1\n", "unknown type", PST_EDATASET},
        {"key\tage:int\na.jpg\t1\nb.png\tx\n", "line 3", PST_EDATASET},
        {"key\tage:float\na.jpg\t1\nb.png\tx\n", "line 3", PST_EDATASET},
        {"key\tid\na.jpg\t1\n", "cannot be a field", PST_EDATASET},
        {"key\tb ad\na.jpg\t1\n", "cannot be a field", PST_EDATASET},
        {"key\timage\na.jpg\t1\n", "two fields are called 'image'", PST_EDATASET},
        {"key\n../a.jpg\n", "'..'", PST_EDATASET},
        {"key\n/etc/a.jpg\n", "absolute", PST_EDATASET},
        {"key\nsub/./c.jpg\n", "'.'", PST_EDATASET},
        {"key\na\x01.jpg\n", "control byte", PST_EDATASET},
        {"key\tmask\na.jpg\t../x.png\n", "line 2", PST_EDATASET},
        {"key\na.txt\n", "does not end in", PST_EDATASET},
        {"key\na.jpg\nb.png\na.jpg\n", "lines 2 and 4", PST_EDATASET},
        {"key\nx.jpg\na.jpg\ny.jpg\n", "line 2: 'x.jpg'", PST_EDATASET},
        {"key\tn\na.jpg\t\xff\n", "not UTF-8", PST_EDATASET},
    };
    make_files();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        put_text(at("m.tsv"), table[i].text);
        CHECK_REFUSED(at("m.tsv"), table[i].code, table[i].word);
    }
    CHECK(strcmp(last_error.stage, "list") == 0);
    put_text(at("m.tsv"), "key\nx.jpg\na.jpg\ny.jpg\n");
    CHECK_REFUSED(at("m.tsv"), PST_EDATASET, "2 files of the manifest");
    put_bytes(at("m.tsv"), "key\tn\na.jpg\tx\0y\n", 16);
    CHECK_REFUSED(at("m.tsv"), PST_EDATASET, "line 2");
}

static void bad_json_is_refused_by_line(void)
{
    static const struct {
        const char *text, *word;
    } table[] = {
        {"", "no rows"},
        {"{\"key\": \"a.jpg\"}\n{\"key\": \"b.png\"\n", "line 2: not valid JSON"},
        {"[1]\n", "line 1: not an object"},
        {"{\"label\": 1}\n", "'key' must be a text"},
        {"{\"key\": 7}\n", "'key' must be a text"},
        {"{\"key\": \"a.jpg\", \"mask\": 1}\n", "'mask' must be a text"},
        {"{\"key\": \"a.jpg\", \"split\": 1}\n", "'split' must be a text"},
        {"{\"key\": \"a.jpg\", \"n:int\": 1}\n", "only ':file'"},
        {"{\"key\": \"a.jpg\", \"valid\": 1}\n", "cannot be a field"},
        {"{\"key\": \"a.jpg\", \"label\": 1}\n{\"key\": \"b.png\", \"label\": \"x\"}\n",
         "several sorts"},
        {"{\"key\": \"a\\nb.jpg\"}\n", "control byte"},
        {"{\"key\": \"a.jpg\", \"key\": \"b.png\"}\n", "not valid JSON"},
    };
    make_files();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        put_text(at("m.jsonl"), table[i].text);
        CHECK_REFUSED(at("m.jsonl"), PST_EDATASET, table[i].word);
    }
}

static void a_link_out_of_the_root_is_refused(void)
{
    make_files();
    put_text(at("in/m.tsv"), "key\nl.jpg\n");
    CHECK(symlink("../a.jpg", at("in/l.jpg")) == 0);
    CHECK_REFUSED(at("in/m.tsv"), PST_EDATASET, "line 2: 'l.jpg'");
}

static void numbers_are_read_the_same_everywhere(void)
{
    int64_t i;
    double f;
    CHECK(psti_text_i64("-9223372036854775808", 20, &i) && i == INT64_MIN);
    CHECK(psti_text_i64("9223372036854775807", 19, &i) && i == INT64_MAX);
    CHECK(!psti_text_i64("9223372036854775808", 19, &i) && !psti_text_i64("-", 1, &i) &&
          !psti_text_i64("", 0, &i));
    CHECK(!psti_text_i64(" 1", 2, &i) && !psti_text_i64("1 ", 2, &i) &&
          !psti_text_i64("1.0", 3, &i));
    CHECK(psti_text_f64("1.5e-3", 6, &f) && f == 1.5e-3);
    CHECK(!psti_text_f64("1,5", 3, &f) && !psti_text_f64("0x10", 4, &f) &&
          !psti_text_f64(" 1", 2, &f));
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(tsv_gives_typed_fields);
    RUN(json_lines_give_typed_fields);
    RUN(empty_texts_are_values);
    RUN(root_comment_moves_the_root);
    RUN(float_labels_are_numbers);
    RUN(bad_tsv_is_refused_by_line);
    RUN(bad_json_is_refused_by_line);
    RUN(a_link_out_of_the_root_is_refused);
    RUN(numbers_are_read_the_same_everywhere);
    remove_tree(scratch);
    return check_report();
}
