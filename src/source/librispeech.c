/* SPDX-License-Identifier: Apache-2.0
 * Speech with transcripts, as LibriSpeech lies on disk: folders of recordings, each with a file
 * NAME.trans.txt whose lines are an id and what is said in the recording of that name. Folders
 * above are splits where their names are no numbers. Transcripts are read at every open: they are
 * small, and a remembered listing would have to be compared with them anyway. Runs in the thread
 * that opens the dataset. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"
#include "source/folder.h"
#include "source/manifest.h"

enum { LINE_MAX_BYTES = 64 << 10, FILE_MAX_BYTES = 16 << 20 };

/* One line of a transcript. */
typedef struct said {
    const char *id, *text;
    size_t id_len, text_len;
    uint64_t line;
} said;

/* The transcripts of one folder. */
typedef struct folder_said {
    psti_strings bytes; /* of all its files */
    said *lines;
    size_t count, cap;
} folder_said;

typedef struct speech {
    psti_building *b;
    psti_stages values;
    psti_stage *text, *speaker, *chapter;
    folder_said said;
} speech;

/* ---- which folders --------------------------------------------------------------------------- */

static bool is_recording(const psti_entry *entry)
{
    return entry->type == PSTI_FORMAT_WAV || entry->type == PSTI_FORMAT_FLAC;
}

/* Counts folders of recordings with transcripts; false when a folder has samples of another kind,
 * or recordings and no transcripts. */
static bool looks_like_speech(const psti_dir *dir, uint64_t *folders)
{
    bool recordings = false, texts = false;
    for (uint32_t i = 0; i < dir->count; i++) {
        const psti_entry *entry = &dir->entries[i];
        recordings |= is_recording(entry);
        texts |= entry->type == PSTI_ENTRY_TEXT;
        if (entry->type < PSTI_FORMATS && !is_recording(entry))
            return false;
        if (entry->type == PSTI_ENTRY_DIR && !looks_like_speech(entry->child, folders))
            return false;
    }
    *folders += recordings;
    return !recordings || texts;
}

bool psti_folder_is_speech(const psti_dir *top)
{
    uint64_t folders = 0;
    return looks_like_speech(top, &folders) && folders > 0;
}

static bool is_number(const char *text, size_t len)
{
    int64_t value;
    return psti_text_i64(text, len, &value);
}

/* ---- transcripts ----------------------------------------------------------------------------- */

static int bad_text(const speech *s, const char *path, uint64_t line, const char *what,
                    pst_error *err)
{
    return psti_fail(err, PST_EDATASET, "list", s->b->o->path, "%.200s, line %llu: %s", path,
                     (unsigned long long)line, what);
}

static int read_all(int fd, psti_strings *to, size_t size)
{
    size_t got = 0;
    while (got < size) {
        const ssize_t n = read(fd, to->data + to->len + got, size - got);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return PST_ECHANGED;
        got += n > 0 ? (size_t)n : 0;
    }
    to->len += size;
    return 0;
}

/* Appends a file's bytes, and a line's end where the file has none. Nothing points into them yet.
 */
static int read_far_text(speech *s, const char *path, pst_error *err)
{
    psti_strings *to = &s->said.bytes;
    char *text;
    size_t len;
    int rc = psti_far_read(s->b->o, path, FILE_MAX_BYTES, &text, &len, err);
    if (rc)
        return rc;
    if (psti_strings_reserve(to, len + 1))
        rc = psti_folder_no_memory(s->b, err);
    else
        memcpy(to->data + to->len, text, len);
    psti_free(text);
    if (rc)
        return rc;
    to->len += len;
    to->data[to->len++] = '\n';
    return 0;
}

static int read_text(speech *s, const char *path, pst_error *err)
{
    if (s->b->o->far)
        return read_far_text(s, path, err);
    psti_strings *to = &s->said.bytes;
    psti_stamp stamp;
    const int fd =
        psti_open_beneath(s->b->tree->root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, false);
    int rc = fd < 0 ? fd : psti_stamp_fd(fd, &stamp);
    if (!rc && stamp.size > FILE_MAX_BYTES)
        rc = psti_fail(err, PST_ELIMIT, "list", s->b->o->path,
                       "%.200s is larger than 16 MiB, too large for transcripts", path);
    else if (!rc && psti_strings_reserve(to, stamp.size + 1))
        rc = psti_folder_no_memory(s->b, err);
    else if (rc || (rc = read_all(fd, to, stamp.size)))
        psti_fail(err, rc, "list", s->b->o->path, "%.200s cannot be read: %s", path,
                  pst_strerror(rc));
    if (!rc)
        to->data[to->len++] = '\n';
    if (fd >= 0)
        close(fd);
    return rc;
}

static int take_line(speech *s, const char *path, uint64_t number, const char *line, size_t len,
                     pst_error *err)
{
    const char *space = memchr(line, ' ', len);
    const size_t id = space ? (size_t)(space - line) : len, text = space ? id + 1 : len;
    if (len > LINE_MAX_BYTES)
        return bad_text(s, path, number, "more than 64 KiB in one line", err);
    if (!id)
        return bad_text(s, path, number, "an id, a space and what is said are expected", err);
    if (!psti_utf8_ok(line, len) || memchr(line, 0, len))
        return bad_text(s, path, number, "this is no UTF-8 text", err);
    if (psti_grow(&s->said.lines, &s->said.cap, s->said.count + 1, sizeof *s->said.lines))
        return psti_folder_no_memory(s->b, err);
    s->said.lines[s->said.count++] = (said){line, line + text, id, len - text, number};
    return 0;
}

static int compare_ids(const void *left, const void *right)
{
    const said *a = left, *b = right;
    const size_t n = a->id_len < b->id_len ? a->id_len : b->id_len;
    const int order = memcmp(a->id, b->id, n);
    return order ? order : (a->id_len > b->id_len) - (a->id_len < b->id_len);
}

static int read_lines(speech *s, const char *path, const char *text, size_t left, pst_error *err)
{
    const char *line;
    size_t len;
    int rc = 0;
    for (uint64_t number = 1; !rc && psti_next_line(&text, &left, &line, &len); number++)
        rc = len ? take_line(s, path, number, line, len, err) : 0;
    return rc;
}

/* The transcripts of one folder, sorted by id. */
static int read_folder(speech *s, const psti_dir *dir, pst_error *err)
{
    char path[PSTI_KEY_MAX + 300];
    int rc = 0;
    s->said.bytes.len = s->said.count = 0;
    for (uint32_t i = 0; i < dir->count && !rc; i++) {
        if (dir->entries[i].type != PSTI_ENTRY_TEXT)
            continue;
        snprintf(path, sizeof path, "%s%s%s", dir->path, dir->path[0] ? "/" : "",
                 psti_entry_name(dir, &dir->entries[i]));
        rc = read_text(s, path, err);
    }
    if (!rc)
        rc = read_lines(s, path, s->said.bytes.data, s->said.bytes.len, err);
    if (rc || !s->said.count)
        return rc;
    qsort(s->said.lines, s->said.count, sizeof *s->said.lines, compare_ids);
    for (size_t i = 1; i < s->said.count && !rc; i++)
        if (compare_ids(&s->said.lines[i - 1], &s->said.lines[i]) == 0)
            rc = bad_text(s, path, s->said.lines[i].line, "this id is there twice", err);
    return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* SPEAKER-CHAPTER-NUMBER: whole numbers, or the file is not named like that. */
static int take_name(speech *s, int64_t row, const char *stem, size_t len)
{
    const char *first = memchr(stem, '-', len);
    const char *second = first ? memchr(first + 1, '-', len - (size_t)(first + 1 - stem)) : NULL;
    int64_t speaker, chapter;
    if (!second || !psti_text_i64(stem, (size_t)(first - stem), &speaker) ||
        !psti_text_i64(first + 1, (size_t)(second - first - 1), &chapter))
        return 0;
    const int rc = psti_stage_int(s->speaker, row, speaker);
    return rc ? rc : psti_stage_int(s->chapter, row, chapter);
}

static int take_recording(speech *s, int64_t row)
{
    const psti_found *f = &s->b->files[row];
    const char *name = psti_entry_name(f->dir, f->entry);
    said key = {.id = name, .id_len = (size_t)(strrchr(name, '.') - name)};
    const said *found = s->said.count ? bsearch(&key, s->said.lines, s->said.count,
                                                sizeof *s->said.lines, compare_ids)
                                      : NULL;
    int rc = found ? psti_stage_text(&s->values, s->text, row, found->text, found->text_len) : 0;
    return rc ? rc : take_name(s, row, name, key.id_len);
}

/* Files come folder by folder, as they were gathered. */
static int take_all(speech *s, pst_error *err)
{
    const psti_dir *dir = NULL;
    int rc = 0;
    for (size_t i = 0; i < s->b->count && !rc; i++) {
        if (s->b->files[i].dir != dir)
            rc = read_folder(s, dir = s->b->files[i].dir, err);
        if (!rc && take_recording(s, (int64_t)i))
            rc = psti_folder_no_memory(s->b, err);
    }
    return rc;
}

static int add_values(speech *s, const psti_stage *stage)
{
    psti_dataset *data = s->b->data;
    psti_column *column = &data->column[data->columns];
    if (!stage->count)
        return 0;
    if (psti_stage_finish(&s->values, stage, data->count, column))
        return -ENOMEM;
    pst_field_info info = {.format = "trans"};
    memcpy(info.name, stage->name, sizeof info.name);
    psti_column_describe(column, &info);
    psti_dataset_add_field(data, &info, false, data->columns++);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Folders at the top that are no speaker's are splits, if there are not too many. */
static void gather_splits(psti_building *b, const psti_dir *top)
{
    size_t at = 0;
    int count = 0;
    const int most = (int)(sizeof b->split / sizeof *b->split);
    for (uint32_t i = 0; i < top->count; i++) {
        const char *name = psti_entry_name(top, &top->entries[i]);
        if (top->entries[i].type != PSTI_ENTRY_DIR || is_number(name, strlen(name)))
            continue;
        const size_t len = strlen(name);
        size_t begin = at; /* a folder without recordings must not use up the others' */
        while (begin < b->count &&
               (strncmp(b->files[begin].dir->path, name, len) != 0 ||
                (b->files[begin].dir->path[len] != '/' && b->files[begin].dir->path[len])))
            begin++;
        if (begin == b->count)
            continue;
        at = begin;
        while (at < b->count && strncmp(b->files[at].dir->path, name, len) == 0 &&
               (b->files[at].dir->path[len] == '/' || !b->files[at].dir->path[len]))
            at++;
        if (at == begin)
            continue;
        if (count == most)
            return;
        b->split[count].name = name;
        b->split[count].begin = begin;
        b->split[count++].end = at;
    }
    b->splits = count;
}

static int build(speech *s, pst_error *err)
{
    psti_building *b = s->b;
    s->text = psti_stage_find(&s->values, "text", 4);
    s->speaker = psti_stage_find(&s->values, "speaker", 7);
    s->chapter = psti_stage_find(&s->values, "chapter", 7);
    if (psti_folder_gather(b, b->tree->top, -1))
        return psti_folder_no_memory(b, err);
    gather_splits(b, b->tree->top);
    int rc = psti_folder_write_files(b, err);
    if (!rc)
        rc = take_all(s, err);
    if (!rc && (add_values(s, s->text) || add_values(s, s->speaker) || add_values(s, s->chapter)))
        rc = psti_folder_no_memory(b, err);
    return rc;
}

int psti_folder_build_speech(psti_building *b, pst_error *err)
{
    speech *s = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *s);
    if (!s)
        return psti_folder_no_memory(b, err);
    s->b = b;
    const int rc = build(s, err);
    psti_stages_fini(&s->values);
    psti_strings_free(&s->said.bytes);
    psti_free(s->said.lines);
    psti_free(s);
    return rc;
}
