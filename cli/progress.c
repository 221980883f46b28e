/* SPDX-License-Identifier: Apache-2.0
 * The progress line. progress_show and progress_step are called by one thread; progress_clear also
 * by others that report a failure.
 *
 * Rate and time left are those of the last seconds: a pull that was stopped for a while, or a bench
 * that went from one worker to eight, is not what it was on the average. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "progress.h"

static const int64_t interval_ns = 100000000;
static bool quiet;
static atomic_int_fast64_t next_ns; /* not before; 0 = at once */
static atomic_bool shown;

/* Where the work was, once a second; the oldest mark is what rates are counted from. */
enum { MARKS = 10 };
static const int64_t mark_ns = 1000000000;
static struct marks {
    char what[64];
    int count;
    struct mark {
        int64_t ns;
        uint64_t done;
        double share;
    } at[MARKS]; /* oldest first */
} marks;

void progress_quiet(void)
{
    quiet = true;
}

bool progress_seen(void)
{
    const char *term = getenv("TERM"); /* one that cannot take a line back is not written to */
    return !quiet && isatty(STDERR_FILENO) && (!term || strcmp(term, "dumb") != 0);
}

static int line_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return 79;
    return size.ws_col - 1;
}

/* Whether the next line is due. */
static bool due(int64_t now)
{
    if (now < atomic_load(&next_ns) || !progress_seen())
        return false;
    atomic_store(&next_ns, now + interval_ns);
    return true;
}

static void put(const char *text)
{
    char plain[1024]; /* names of files may hold anything */
    text_plain(plain, sizeof plain, text);
    fprintf(stderr, "\r\033[K%.*s", (int)text_cut(plain, (size_t)line_width()), plain);
    fflush(stderr);
    atomic_store(&shown, true);
}

void progress_show(const char *format, ...)
{
    if (!due(clock_ns()))
        return;
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    put(text);
}

/* ---- rate and time left ---------------------------------------------------------------------- */

/* The mark to count from: MARKS seconds ago, or where this work began. */
static struct mark mark_from(const progress_at *at, double share, int64_t now)
{
    struct marks *m = &marks;
    const bool other = strncmp(m->what, at->what, sizeof m->what - 1) != 0;
    const struct mark *last = m->count > 0 ? &m->at[m->count - 1] : NULL;
    if (other || !last || share < last->share || (at->rate <= 0 && at->done < last->done)) {
        snprintf(m->what, sizeof m->what, "%s", at->what);
        m->count = 0;
    }
    if (m->count == 0 || now - m->at[m->count - 1].ns >= mark_ns) {
        if (m->count == MARKS)
            memmove(m->at, m->at + 1, sizeof m->at[0] * --m->count);
        m->at[m->count++] = (struct mark){now, at->done, share};
    }
    return m->at[0];
}

static char *count_of(char buf[TEXT_SHORT], const progress_at *at, uint64_t value)
{
    return strcmp(at->things, "B") == 0 ? text_bytes(buf, value) : text_count(buf, value);
}

/* "1,200 of 5,000 photos, 410/s" */
static int put_counts(char *text, size_t cap, const progress_at *at, double rate)
{
    char done[TEXT_SHORT], all[TEXT_SHORT], per_s[TEXT_SHORT];
    const bool bytes = strcmp(at->things, "B") == 0;
    int used = snprintf(text, cap, " %s", count_of(done, at, at->done));
    if (at->all > 0)
        used += snprintf(text + used, cap - (size_t)used, " of %s", count_of(all, at, at->all));
    if (!bytes)
        used += snprintf(text + used, cap - (size_t)used, " %s", at->things);
    if (rate > 0)
        used += snprintf(text + used, cap - (size_t)used, ", %s/s",
                         count_of(per_s, at, (uint64_t)(rate + 0.5)));
    return used;
}

void progress_step(const progress_at *at)
{
    const int64_t now = clock_ns();
    if (!due(now))
        return;
    char text[512], left[TEXT_SHORT];
    const bool known = at->share > 0 || at->all > 0;
    const double share = at->share > 0 ? at->share : at->all ? (double)at->done / at->all : 0;
    const struct mark from = mark_from(at, share, now);
    const double seconds = (double)(now - from.ns) * 1e-9;
    const bool told = seconds >= 0.25; /* before that a rate is a guess */
    const double seen = told ? (double)(at->done - from.done) / seconds : 0;
    int used = snprintf(text, sizeof text, "%.200s:", at->what);
    if (at->things)
        used +=
            put_counts(text + used, sizeof text - (size_t)used, at, at->rate > 0 ? at->rate : seen);
    if (known)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %.0f %%",
                         at->things ? "," : "", 100 * (share < 1 ? share : 1));
    if (known && told && share > from.share && share < 1)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %s left",
                         text_duration(left, (1 - share) * seconds / (share - from.share)));
    if (at->note) /* last: what a narrow terminal cuts off */
        snprintf(text + used, sizeof text - (size_t)used, ", %.100s", at->note);
    put(text);
}

void progress_clear(void)
{
    if (!atomic_exchange(&shown, false))
        return;
    atomic_store(&next_ns, 0);
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
