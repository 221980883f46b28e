/* SPDX-License-Identifier: Apache-2.0
 * Messages and memory of the command line. Called from any thread of the command; one message is
 * one write. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "progress.h"

static const char *command_name;

void say_command(const char *name)
{
    command_name = name;
}

static void say_list(const char *format, va_list list, const char *tail)
{
    char text[2048];
    const int length = vsnprintf(text, sizeof text, format, list);
    progress_clear();
    fflush(stdout);
    fprintf(stderr, "penstock: %s%s%s\n", text, length >= (int)sizeof text ? "…" : "", tail);
}

void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(format, list, "");
    va_end(list);
}

int fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(format, list, "");
    va_end(list);
    return CLI_FAIL;
}

int fail_usage(const char *format, ...)
{
    char tail[96] = "\nTry: penstock --help";
    if (command_name != NULL)
        snprintf(tail, sizeof tail, "\nTry: penstock %s --help", command_name);
    va_list list;
    va_start(list, format);
    say_list(format, list, tail);
    va_end(list);
    return CLI_USAGE;
}

int fail_errno(int error, const char *what, const char *path)
{
    const char *hint = "";
    if (error == ENOSPC || error == EDQUOT)
        hint = "; free some space or choose another place";
    else if (error == EACCES || error == EPERM || error == EROFS)
        hint = "; check the permissions or choose another place";
    else if (error == ENOENT)
        hint = "; check the spelling, and that the folder exists";
    return fail("cannot %s %s: %s%s", what, path, strerror(error), hint);
}

int fail_error(const pst_error *err)
{
    char text[1024];
    if (err->code == -ECANCELED)
        return CLI_FAIL;
    pst_error_format(err, text, sizeof text);
    return fail("%s", text);
}

int fail_pipeline(const char *text, const pst_error *err)
{
    const int exit_code = fail_error(err);
    const size_t length = strlen(text);
    if (err->offset < 0 || (uint64_t)err->offset > length || length > 400 || strchr(text, '\n'))
        return exit_code;
    int column = 0; /* characters, not bytes, so that the mark stands under the right one */
    for (int64_t i = 0; i < err->offset; i++)
        column += ((unsigned char)text[i] & 0xC0) != 0x80;
    fprintf(stderr, "    %s\n    %*s^\n", text, column, "");
    return exit_code;
}

static void *or_die(void *memory)
{
    if (memory != NULL)
        return memory;
    fail("out of memory; close other programs or ask for less");
    exit(CLI_FAIL);
}

void *cli_alloc(size_t bytes)
{
    return or_die(calloc(1, bytes ? bytes : 1));
}

void *cli_realloc(void *memory, size_t count, size_t item_bytes)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, item_bytes, &bytes))
        bytes = SIZE_MAX;
    return or_die(realloc(memory, bytes ? bytes : 1));
}

char *cli_strdup(const char *text)
{
    return or_die(strdup(text));
}

char *cli_format(const char *format, ...)
{
    char *text = NULL;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0)
        text = NULL;
    va_end(list);
    return or_die(text);
}
