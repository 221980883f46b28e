/* SPDX-License-Identifier: Apache-2.0
 * Recordings with transcripts, as LibriSpeech lies on disk: fields, splits, what is missing, and
 * transcripts that must be refused. */
#include "fixture.h"

static void put_chapter(const char *folder, int speaker, int chapter)
{
    char text[400] = "";
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%d-%d-%04d SAID %d OF %d\n", speaker, chapter, i, i,
                 chapter);
        put_text(at("%s/%d/%d/%d-%d-%04d.flac", folder, speaker, chapter, speaker, chapter, i),
                 "sound");
    }
    put_text(at("%s/%d/%d/%d-%d.trans.txt", folder, speaker, chapter, speaker, chapter), text);
}

static void transcripts_become_texts(void)
{
    scratch_clear();
    put_chapter("d", 19, 198);
    put_chapter("d", 19, 227);
    put_chapter("d", 1034, 5);
    put_text(at("d/19/227/19-227-0009.wav"), "no line speaks of this one");
    put_text(at("d/SPEAKERS.TXT"), "19 | F");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(data, "%s", last_error.message);
    CHECK(psti_dataset_count(data) == 10 && psti_dataset_splits(data) == 0);
    CHECK(key_is(data, 0, "1034/5/1034-5-0000.flac") && key_is(data, 9, "19/227/19-227-0009.wav"));
    CHECK(text_is(data, 0, "text", "SAID 0 OF 5") && text_is(data, 8, "text", "SAID 2 OF 227"));
    CHECK(int_of(data, 0, "speaker") == 1034 && int_of(data, 0, "chapter") == 5);
    CHECK(int_of(data, 9, "speaker") == 19 && int_of(data, 9, "chapter") == 227);
    CHECK(!text_is(data, 9, "text", "") && field_info(data, "text")->optional);
    CHECK(!field_info(data, "speaker")->optional && field_info(data, "text")->kind == PST_TEXT);
    CHECK(field_info(data, "audio")->kind == PST_AUDIO && field_number(data, "label") < 0);
    CHECK(member_is(data, 3, "audio", "sound"));
    psti_dataset_unref(data);
}

static void folders_above_the_speakers_are_splits(void)
{
    scratch_clear();
    put_chapter("d/dev-clean", 19, 198);
    put_chapter("d/dev", 7, 1);
    put_text(at("d/about/read.md"), "a folder without recordings");
    put_chapter("d/dev-other", 19, 227);
    put_chapter("d/train-clean-100", 5, 6);
    psti_dataset *data = open_plain(at("d"));
    static const char *const names[] = {"dev", "dev-clean", "dev-other", "train-clean-100"};
    CHECKF(psti_dataset_count(data) == 12, "%s", last_error.message);
    CHECK(psti_dataset_splits(data) == 4);
    for (size_t i = 0; i < 4; i++) {
        const int64_t *ids = NULL;
        int64_t count = 0;
        CHECK(psti_dataset_split(data, names[i], &ids, &count) == 0 && count == 3);
        for (int64_t k = 0; k < count; k++) {
            const char *key = psti_dataset_key(data, ids[k]);
            CHECKF(strncmp(key, names[i], strlen(names[i])) == 0 && key[strlen(names[i])] == '/',
                   "%s in %s", key, names[i]);
        }
    }
    psti_dataset_unref(data);
}

/* Without transcripts in every folder it is an ordinary folder of classes. */
static void other_folders_stay_what_they_were(void)
{
    scratch_clear();
    put_chapter("d", 19, 198);
    put_text(at("d/yes/a.wav"), "a");
    psti_dataset *data = open_plain(at("d"));
    CHECK(psti_dataset_count(data) == 4 && field_number(data, "text") < 0);
    CHECK(field_number(data, "label") >= 0 && psti_dataset_classes(data) == 2);
    psti_dataset_unref(data);
    put_text(at("e/c/a.jpg"), "a");
    put_text(at("e/c/a.trans.txt"), "a A\n");
    data = open_plain(at("e"));
    CHECK(psti_dataset_count(data) == 1 && field_number(data, "text") < 0);
    psti_dataset_unref(data);
}

static void lines_may_end_in_any_way(void)
{
    scratch_clear();
    put_text(at("d/a.wav"), "a");
    put_text(at("d/b.wav"), "b");
    put_text(at("d/c.wav"), "c");
    put_text(at("d/x.trans.txt"), "c  two spaces\r\n\n\na");
    put_text(at("d/y.trans.txt"), "b \xc3\xa9t\xc3\xa9 ");
    psti_dataset *data = open_plain(at("d"));
    CHECKF(psti_dataset_count(data) == 3, "%s", last_error.message);
    CHECK(text_is(data, 0, "text", "") && text_is(data, 1, "text", "\xc3\xa9t\xc3\xa9 "));
    CHECK(text_is(data, 2, "text", " two spaces"));
    CHECK(field_number(data, "speaker") < 0); /* no name tells one */
    psti_dataset_unref(data);
}

static void bad_transcripts_are_refused(void)
{
    scratch_clear();
    put_text(at("d/1/a.wav"), "a");
    put_text(at("d/1/t.trans.txt"), "a FIRST\na AGAIN\n");
    CHECK_REFUSED(at("d"), PST_EDATASET, "1/t.trans.txt, line 2: this id is there twice");
    put_text(at("d/1/t.trans.txt"), "b B\na \xff\xfe\n");
    CHECK_REFUSED(at("d"), PST_EDATASET, "line 2: this is no UTF-8");
    put_bytes(at("d/1/t.trans.txt"), "a A\0B\n", 6);
    CHECK_REFUSED(at("d"), PST_EDATASET, "line 1: this is no UTF-8");
    put_text(at("d/1/t.trans.txt"), "\n a A\n");
    CHECK_REFUSED(at("d"), PST_EDATASET, "line 2: an id, a space");
    char *line = malloc(70000);
    memset(line, 'x', 69999);
    line[69999] = 0;
    put_text(at("d/1/t.trans.txt"), line);
    CHECK_REFUSED(at("d"), PST_EDATASET, "more than 64 KiB in one line");
    free(line);
    const int fd = open(at("d/1/t.trans.txt"), O_WRONLY);
    CHECK(ftruncate(fd, (16 << 20) + 1) == 0);
    close(fd);
    CHECK_REFUSED(at("d"), PST_ELIMIT, "larger than 16 MiB");
}

/* A remembered listing has the names of transcripts, not what stands in them. */
static void transcripts_are_read_at_every_open(void)
{
    scratch_clear();
    put_chapter("d", 19, 198);
    age_dirs(at("d"));
    psti_dataset *data = open_remembered(at("d"));
    CHECK(text_is(data, 1, "text", "SAID 1 OF 198"));
    psti_dataset_unref(data);
    put_text(at("d/19/198/19-198.trans.txt"), "19-198-0001 OTHERWISE\n");
    age_dirs(at("d"));
    data = open_remembered(at("d"));
    CHECK(data && data->remembered);
    CHECK(text_is(data, 1, "text", "OTHERWISE") && !text_is(data, 0, "text", "SAID 0 OF 198"));
    psti_dataset_unref(data);
    unlink(at("d/19/198/19-198.trans.txt"));
    age_dirs(at("d"));
    data = open_remembered(at("d"));
    CHECK(!data || psti_dataset_count(data) == 3);
    psti_dataset_unref(data);
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    RUN(transcripts_become_texts);
    RUN(folders_above_the_speakers_are_splits);
    RUN(other_folders_stay_what_they_were);
    RUN(lines_may_end_in_any_way);
    RUN(bad_transcripts_are_refused);
    RUN(transcripts_are_read_at_every_open);
    remove_tree(scratch);
    return check_report();
}
