/* SPDX-License-Identifier: Apache-2.0
 * The JSON writer. Main thread; errors of the stream show when the caller flushes it. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "json.h"

static void put_escaped(FILE *out, unsigned char c)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *at = strchr(plain, c);
    if (c != 0 && at != NULL)
        fprintf(out, "\\%c", letters[at - plain]);
    else
        fprintf(out, "\\u%04x", c);
}

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *s = text; *s != 0;) {
        const int length = text_utf8(s);
        if (length == 0)
            fputs("\\ufffd", out);
        else if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7F)
            put_escaped(out, (unsigned char)*s);
        else
            fwrite(s, 1, (size_t)length, out);
        s += length ? length : 1;
    }
    fputc('"', out);
}

static void begin(json *j, const char *key)
{
    if (j->comma)
        fputs(", ", j->out);
    j->comma = true;
    if (key != NULL) {
        put_text(j->out, key);
        fputs(": ", j->out);
    }
}

void json_object(json *j, const char *key)
{
    begin(j, key);
    fputc('{', j->out);
    j->comma = false;
}

void json_object_end(json *j)
{
    fputc('}', j->out);
    j->comma = true;
}

void json_array(json *j, const char *key)
{
    begin(j, key);
    fputc('[', j->out);
    j->comma = false;
}

void json_array_end(json *j)
{
    fputc(']', j->out);
    j->comma = true;
}

void json_text(json *j, const char *key, const char *value)
{
    begin(j, key);
    if (value == NULL)
        fputs("null", j->out);
    else
        put_text(j->out, value);
}

void json_int(json *j, const char *key, int64_t value)
{
    begin(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_uint(json *j, const char *key, uint64_t value)
{
    begin(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_real(json *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        fprintf(j->out, "%.9g", value);
    else
        fputs("null", j->out);
}

void json_bool(json *j, const char *key, bool value)
{
    begin(j, key);
    fputs(value ? "true" : "false", j->out);
}
