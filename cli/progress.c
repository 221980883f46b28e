/* SPDX-License-Identifier: Apache-2.0
 * The progress line. progress_show is called by one thread; progress_clear also by others that
 * report a failure. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "progress.h"

static const int64_t interval_ns = 100000000;
static bool quiet;
static atomic_int_fast64_t next_ns; /* not before; 0 = at once */
static atomic_bool shown;

void progress_quiet(void)
{
    quiet = true;
}

bool progress_seen(void)
{
    return !quiet && isatty(STDERR_FILENO);
}

static int line_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return 79;
    return size.ws_col - 1;
}

void progress_show(const char *format, ...)
{
    const int64_t now = clock_ns();
    if (now < atomic_load(&next_ns) || !progress_seen())
        return;
    atomic_store(&next_ns, now + interval_ns);
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "\r\033[K%.*s", line_width(), text);
    fflush(stderr);
    atomic_store(&shown, true);
}

void progress_clear(void)
{
    if (!atomic_exchange(&shown, false))
        return;
    atomic_store(&next_ns, 0);
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
