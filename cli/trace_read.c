/* SPDX-License-Identifier: Apache-2.0
 * Reading traces. The writer puts one event on a line, so that is what is read: an object of texts
 * and numbers, with one object of the same inside, "args". Whatever else a file holds is refused
 * with its line; nothing in it decides how much memory is taken. */
#include "trace_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { LINE_BYTES = 16 << 10 };

/* ---- pieces of a line ----------------------------------------------------------------------- */

typedef struct cursor {
    const char *at;
    bool wrong;
} cursor;

static bool take(cursor *c, char wanted)
{
    if (*c->at != wanted) {
        c->wrong = true;
        return false;
    }
    c->at++;
    return true;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* As the writer escapes: \u00XX of ASCII alone. */
static char take_escape(cursor *c)
{
    const char *p = c->at;
    const int high = p[1] == 'u' && p[2] == '0' && p[3] == '0' ? hex_of(p[4]) : -1;
    const int low = high >= 0 ? hex_of(p[5]) : -1;
    if (low < 0 || high > 7) {
        c->wrong = true;
        return '?';
    }
    c->at += 6;
    return (char)(high * 16 + low);
}

/* What does not fit is left out. */
static void take_text(cursor *c, char out[TRACE_WORD])
{
    size_t size = 0;
    out[0] = '\0';
    take(c, '"');
    while (!c->wrong && *c->at != '"') {
        const unsigned char byte = (unsigned char)*c->at;
        if (byte < 0x20) {
            c->wrong = true;
            return;
        }
        const char next = byte == '\\' ? take_escape(c) : *c->at++;
        if (size + 1 < TRACE_WORD)
            out[size++] = next;
    }
    out[size] = '\0';
    take(c, '"');
}

/* Thousandths: microseconds come out as nanoseconds. */
static int64_t take_number(cursor *c)
{
    const bool minus = *c->at == '-';
    int64_t value = 0;
    int digits = 0;
    c->at += minus;
    for (; *c->at >= '0' && *c->at <= '9'; c->at++, digits++)
        value = digits < 15 ? 10 * value + (*c->at - '0') : value;
    c->wrong |= digits == 0 || digits > 15;
    value *= 1000;
    if (*c->at == '.') {
        int64_t unit = 100;
        for (c->at++; *c->at >= '0' && *c->at <= '9'; c->at++, unit /= 10)
            value += unit * (*c->at - '0');
    }
    return minus ? -value : value;
}

/* ---- an event ------------------------------------------------------------------------------- */

typedef struct place {
    const char *key;
    size_t at;
    bool text, thousandths;
} place;

#define TEXT(key, field)                                                                           \
    {                                                                                              \
        key, offsetof(trace_line, field), true, false                                              \
    }
#define NUMBER(key, field)                                                                         \
    {                                                                                              \
        key, offsetof(trace_line, field), false, false                                             \
    }
#define TIME(key, field)                                                                           \
    {                                                                                              \
        key, offsetof(trace_line, field), false, true                                              \
    }
static const place outside[] = {NUMBER("tid", track),  TIME("ts", at_ns),  TIME("dur", span_ns),
                                TEXT("cat", category), TEXT("name", name), {NULL, 0, false, false}};
static const place numbered[] = {TEXT("local", number), {NULL, 0, false, false}};
static const place inside[] = {
    NUMBER("job", job),       NUMBER("id", id),           NUMBER("epoch", epoch),
    NUMBER("step", step),     NUMBER("last", last),       NUMBER("foreseen", foreseen),
    NUMBER("events", events), NUMBER("dropped", dropped), NUMBER("format", format),
    TEXT("from", from),       TEXT("then", then),         TEXT("why", why),
    TEXT("name", label),      {NULL, 0, false, false}};
#undef TEXT
#undef NUMBER
#undef TIME

static void take_value(cursor *c, const char *key, const place *places, trace_line *out)
{
    char word[TRACE_WORD];
    const bool text = *c->at == '"';
    const int64_t number = text ? 0 : take_number(c);
    if (text)
        take_text(c, word);
    while (places->key != NULL && strcmp(places->key, key) != 0)
        places++;
    if (places->key == NULL) /* of no use here */
        return;
    c->wrong |= places->text != text;
    void *at = (char *)out + places->at;
    if (text && places->text)
        memcpy(at, word, TRACE_WORD);
    else if (!places->text)
        *(int64_t *)at = places->thousandths ? number : number / 1000;
}

static void take_object(cursor *c, const place *places, trace_line *out)
{
    take(c, '{');
    for (bool more = !c->wrong; more && !c->wrong;) {
        char key[TRACE_WORD], phase[TRACE_WORD];
        take_text(c, key);
        take(c, ':');
        if (c->wrong)
            return;
        if (places == outside && strcmp(key, "ph") == 0) {
            take_text(c, phase);
            out->phase = phase[0];
        } else if (places == outside && strcmp(key, "args") == 0) {
            take_object(c, inside, out);
        } else if (places == outside && strcmp(key, "id2") == 0) {
            take_object(c, numbered, out);
        } else {
            take_value(c, key, places, out);
        }
        more = *c->at == ',';
        c->at += more;
    }
    take(c, '}');
}

static const trace_line NOTHING = {.track = -1,
                                   .job = -1,
                                   .id = -1,
                                   .epoch = -1,
                                   .step = -1,
                                   .last = -1,
                                   .events = -1,
                                   .dropped = -1,
                                   .format = -1};

/* ---- lines ---------------------------------------------------------------------------------- */

static int not_a_trace(const trace_reader *r)
{
    fail("%s is not a trace that penstock wrote", r->path);
    return -1;
}

/* The next line without its end. 1; 0 at the file's end, be it in the middle of a line; or
 * negative. */
static int take_line(trace_reader *r)
{
    if (fgets(r->text, LINE_BYTES, r->file) == NULL) {
        if (ferror(r->file))
            return fail_errno(errno, "read", r->path), -1;
        return 0;
    }
    r->line++;
    const size_t length = strlen(r->text);
    if (length > 0 && r->text[length - 1] == '\n') {
        r->text[length - 1] = '\0';
        return 1;
    }
    if (r->line == 1)
        return not_a_trace(r);
    if (length + 1 < LINE_BYTES)
        return 0; /* cut off: no bracket was read */
    fail("%s, line %llu is too long for a trace", r->path, (unsigned long long)r->line);
    return -1;
}

int trace_next(trace_reader *r, trace_line *out)
{
    const int rc = take_line(r);
    if (rc <= 0)
        return rc;
    if (!r->closed && strcmp(r->text, "]") == 0) {
        r->closed = true;
        return trace_next(r, out); /* nothing may follow */
    }
    cursor c = {.at = r->text, .wrong = r->closed};
    *out = NOTHING;
    take_object(&c, outside, out);
    c.at += *c.at == ',';
    if (c.wrong || *c.at != '\0' || out->phase == 0 || out->at_ns < 0 || out->span_ns < 0) {
        fail("%s, line %llu is not an event of a trace", r->path, (unsigned long long)r->line);
        return -1;
    }
    return 1;
}

static int begin(trace_reader *r)
{
    trace_line first;
    int rc = take_line(r);
    if (rc == 0 || (rc > 0 && strcmp(r->text, "[") != 0))
        rc = not_a_trace(r);
    if (rc > 0)
        rc = trace_next(r, &first);
    if (rc < 0)
        return CLI_FAIL;
    if (rc == 0 || strcmp(first.name, "penstock_trace") != 0)
        return not_a_trace(r), CLI_FAIL;
    if (first.format != 1)
        return fail("%s was written by a later penstock (format %lld)", r->path,
                    (long long)first.format);
    return CLI_OK;
}

int trace_open(trace_reader *r, const char *path)
{
    *r = (trace_reader){.path = path, .file = fopen(path, "re")};
    if (r->file == NULL)
        return fail_errno(errno, "open", path);
    r->text = cli_alloc(LINE_BYTES);
    return begin(r);
}

int trace_rewind(trace_reader *r)
{
    if (fseek(r->file, 0, SEEK_SET) != 0)
        return fail_errno(errno, "read again", r->path);
    r->line = 0;
    r->closed = false;
    return begin(r);
}

void trace_close(trace_reader *r)
{
    if (r->file != NULL)
        fclose(r->file);
    free(r->text);
    *r = (trace_reader){0};
}
