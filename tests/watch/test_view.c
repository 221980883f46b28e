/* SPDX-License-Identifier: Apache-2.0
 * Views without an engine: where times are counted, names, totals, what is now, and text. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/memory.h"
#include "watch/history.h"
#include "watch/metrics.h"

static void times_go_below_their_bound(void)
{
    psti_bars bars = {{0}};
    for (int i = 0; i < PSTI_VIEW_BOUNDS; i++) {
        CHECK(psti_view_bounds_ns[i] == (uint64_t)(psti_view_bounds[i] * 1e9 + 0.5));
        psti_bars_add(&bars, psti_view_bounds_ns[i], 1);
        psti_bars_add(&bars, psti_view_bounds_ns[i] + 1, 10);
    }
    psti_bars_add(&bars, 0, 100);
    psti_bars_add(&bars, UINT64_MAX, 100);
    CHECK(bars.count[0] == 101);
    for (int i = 1; i < PSTI_VIEW_BOUNDS; i++)
        CHECKF(bars.count[i] == 11, "%d: %llu", i, (unsigned long long)bars.count[i]);
    CHECK(bars.count[PSTI_VIEW_BOUNDS] == 110);
}

static void names_are_the_last_part_and_short(void)
{
    char name[PSTI_VIEW_NAME], path[200];
    const struct {
        const char *path, *name;
    } cases[] = {{"/a/photos", "photos"},
                 {"/a/photos//", "photos"},
                 {"s3://bucket/train", "train"},
                 {"photos", "photos"},
                 {"/", "/"},
                 {"", ""},
                 {"/a/b\nc\x01", "b?c?"},
                 {"/a/\xff\xfe", "??"},
                 {"/a/x\xc2\x9b"
                  "31m\xe2\x80\xaey\xe2\x80\xa8",
                  "x??31m???y???"}, /* controls of terminals, and of direction */
                 {"/a/\xc3\xbc", "\xc3\xbc"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        psti_view_name(cases[i].path, name);
        CHECKF(strcmp(name, cases[i].name) == 0, "%s: %s", cases[i].path, name);
    }
    for (int shift = 0; shift < 2; shift++) { /* two bytes a character: none is cut */
        memset(path, 'a', (size_t)shift);
        for (int i = 0; i < 40; i++)
            memcpy(path + shift + 2 * i, "\xc3\xbc", 3);
        psti_view_name(path, name);
        CHECK(strlen(name) == (size_t)(shift ? 63 : 64) && strncmp(name, path, strlen(name)) == 0);
    }
}

static void totals_lose_nothing_when_names_run_out(void)
{
    psti_view *view = psti_view_new();
    const psti_view_sums one = {.samples = 3, .remote_misses = 1};
    psti_view_sums all = {0};
    char name[PSTI_VIEW_NAME];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 300; i++) {
            snprintf(name, sizeof name, "set%d", i);
            const int at = psti_view_place(view->ended, &view->ended_count, name);
            psti_view_end(&view->ended[at], &one);
        }
    CHECK(view->ended_count == PSTI_VIEW_DATASETS + 1);
    for (int i = 0; i < view->ended_count; i++)
        psti_view_add(&all, &view->ended[i].sums);
    CHECK(all.samples == 1800 && all.remote_misses == 600);
    CHECK(view->ended[7].jobs == 2 && !view->ended[PSTI_VIEW_DATASETS].name[0]);
    CHECK(view->ended[PSTI_VIEW_DATASETS].jobs == 2 * (300 - PSTI_VIEW_DATASETS));
    psti_view_free(view);
}

static void reading(psti_history *h, psti_view *view, double at, uint64_t samples, double waited)
{
    view->taken_ns = (uint64_t)(1e9 * (1000 + at));
    view->time = at;
    view->seconds = at;
    view->cpus = 2;
    view->cpu_seconds = at;
    view->job_count = 1;
    view->jobs[0].id = 7;
    view->jobs[0].seconds = at;
    view->jobs[0].sums.samples = samples;
    view->jobs[0].sums.wait_ns = (uint64_t)(1e9 * waited);
    psti_history_now(h, view);
    psti_history_add(h, view);
}

static void now_is_the_last_two_seconds(void)
{
    psti_history *h = psti_history_new();
    psti_view *view = psti_view_new();
    CHECK(psti_view_room(view, 1) == 0);
    reading(h, view, 10, 100, 5); /* nothing to compare with: since it began */
    CHECK(view->jobs[0].rate_now == 10 && view->jobs[0].stall_now == 0.5);
    reading(h, view, 11, 130, 5);
    CHECK(view->jobs[0].rate_now == 30 && view->jobs[0].stall_now == 0);
    reading(h, view, 12, 150, 5.5);
    CHECK(view->jobs[0].rate_now == 25 && view->jobs[0].stall_now == 0.25);
    CHECK(view->cpu_share_now == 0.5 && view->model.measured_now == 25);
    reading(h, view, 62, 650, 5.5); /* after a gap: since the last one before it */
    CHECK(view->jobs[0].rate_now == 10);
    view->jobs[0].waiting_ns = 2000000000; /* a wait that is not over counts */
    reading(h, view, 64, 650, 5.5);
    CHECK(view->jobs[0].rate_now == 0 && view->jobs[0].stall_now == 1);
    for (int i = 0; i < 700; i++)
        reading(h, view, 65 + i, 650, 5.5);
    psti_json j = {0};
    psti_history_json(h, &j);
    int lines = 0;
    for (size_t i = 0; i + 6 < j.text.size; i++)
        lines += memcmp(j.text.data + i, "\"time\"", 6) == 0;
    CHECK(lines == PSTI_HISTORY_MOST && !j.text.failed);
    psti_writ_fini(&j.text);
    psti_view_free(view);
    psti_history_free(h);
}

/* Of a job that goes on elsewhere, or of a clock: less than before is nothing, not very much. */
static void what_falls_is_nothing_now(void)
{
    psti_history *h = psti_history_new();
    psti_view *view = psti_view_new();
    CHECK(psti_view_room(view, 1) == 0);
    view->source[PSTI_VIEW_FILES].bytes = 5000;
    reading(h, view, 10, 100, 5);
    view->source[PSTI_VIEW_FILES].bytes = 10;
    reading(h, view, 12, 20, 1);
    CHECKF(view->jobs[0].rate_now == 0, "%g", view->jobs[0].rate_now);
    CHECK(view->jobs[0].stall_now == 0 && view->model.measured_now == 0);
    CHECKF(view->source[PSTI_VIEW_FILES].bytes_per_second_now == 0, "%g",
           view->source[PSTI_VIEW_FILES].bytes_per_second_now);
    view->cpu_seconds = 1;
    view->taken_ns += 2000000000;
    psti_history_now(h, view);
    CHECKF(view->cpu_share_now == 0, "%g", view->cpu_share_now);
    psti_view_free(view);
    psti_history_free(h);
}

static void check_real(double value, const char *text)
{
    psti_writ t = {0};
    psti_writ_real(&t, value);
    CHECKF(t.size == strlen(text) && memcmp(t.data, text, t.size) == 0, "%.*s", (int)t.size,
           t.data);
    psti_writ_fini(&t);
}

static void check_reals(void)
{
    check_real(0.25, "0.25");
    check_real(-1234.5, "-1234.5");
    check_real(12345.6782, "12345.6782"); /* a day's wait, to less than a millisecond */
    check_real(999.9999, "1000");         /* in step with what follows */
    check_real(1000.0001, "1000.0001");
    check_real(1763300000.25, "1763300000.25");
    check_real(1e300, "1e+300");
    check_real(NAN, "0");
    check_real(INFINITY, "0");
}

/* A locale of German numbers, made for this run where none is installed. */
static bool set_commas(void)
{
    char dir[] = "/tmp/penstock-locale-XXXXXX", command[200];
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8"))
        return true;
    if (!mkdtemp(dir))
        return false;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
             dir);
    setenv("LOCPATH", dir, 1);
    const bool set = system(command) == 0 && setlocale(LC_NUMERIC, "de_DE.UTF-8");
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) == 0 && set;
}

static void numbers_have_points_in_every_locale(void)
{
    psti_view *view = psti_view_new();
    psti_writ text = {0};
    check_reals();
    CHECK(psti_view_room(view, 1) == 0);
    view->job_count = 1;
    view->jobs[0].stage_count = 1;
    view->jobs[0].stage[0].total_ns = 1500000000;
    if (!set_commas()) {
        printf("no locale with commas can be made here\n");
    } else {
        char digits[16];
        snprintf(digits, sizeof digits, "%g", 0.5);
        CHECK(strcmp(digits, "0,5") == 0);
        check_reals();
        psti_metrics(view, &text);
        psti_writ_put(&text, "", 1);
        CHECK(!text.failed && strstr(text.data, "le=\"0.00025\"") && strstr(text.data, " 1.5\n"));
        setlocale(LC_NUMERIC, "C");
    }
    psti_writ_fini(&text);
    psti_view_free(view);
}

static void bounds_of_buckets_are_the_bounds(void)
{
    psti_view *view = psti_view_new();
    psti_writ text = {0};
    int found = 0;
    CHECK(psti_view_room(view, 1) == 0);
    view->job_count = 1;
    view->jobs[0].stage_count = 1;
    psti_metrics(view, &text);
    psti_writ_put(&text, "", 1);
    for (const char *at = text.data; (at = strstr(at, "le=\"")); found++) {
        at += 4;
        CHECK(found == PSTI_VIEW_BOUNDS ? strncmp(at, "+Inf\"", 5) == 0
                                        : strtod(at, NULL) == psti_view_bounds[found]);
    }
    CHECK(found == PSTI_VIEW_BOUNDS + 1);
    psti_writ_fini(&text);
    psti_view_free(view);
}

static void check_string(const char *text, const char *json)
{
    psti_json j = {0};
    psti_json_string(&j, text);
    CHECKF(j.text.size == strlen(json) && memcmp(j.text.data, json, j.text.size) == 0, "%.*s",
           (int)j.text.size, j.text.data);
    psti_writ_fini(&j.text);
}

static void strings_are_json(void)
{
    check_string("a\"b\\c\n\x01\x7f<", "\"a\\\"b\\\\c\\u000a\\u0001\\u007f\\u003c\"");
    check_string("\xc3\xbc\xf0\x9f\x98\x80", "\"\xc3\xbc\xf0\x9f\x98\x80\"");
    /* cut, overlong, a surrogate, beyond the last, a lone tail */
    check_string("\xc3", "\"\xef\xbf\xbd\"");
    check_string("\xe0\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    check_string("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    check_string("\xf4\x90\x80\x80x", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx\"");
    check_string("\x80", "\"\xef\xbf\xbd\"");
    /* what steers a terminal, and what ends a line in a script */
    check_string("\xc2\x9b"
                 "1\xe2\x80\xae\xe2\x81\xa9\xd8\x9c\xe2\x80\xa8",
                 "\"\\u009b1\\u202e\\u2069\\u061c\\u2028\"");
    check_string("\xc2\xa0\xe2\x80\xa6", "\"\xc2\xa0\xe2\x80\xa6\"");
}

static void two_ops_of_one_name_are_two_series(void)
{
    psti_view *view = psti_view_new();
    psti_writ text = {0};
    CHECK(psti_view_room(view, 1) == 0);
    view->job_count = 1;
    view->jobs[0].stage_count = 2;
    for (int i = 0; i < 2; i++)
        memcpy(view->jobs[0].stage[i].name, "resize", 7);
    psti_metrics(view, &text);
    psti_writ_put(&text, "", 1);
    CHECK(!text.failed && strstr(text.data, "stage=\"resize\"") &&
          strstr(text.data, "\"resize_2\""));
    psti_writ_fini(&text);
    psti_view_free(view);
}

int main(void)
{
    RUN(times_go_below_their_bound);
    RUN(names_are_the_last_part_and_short);
    RUN(totals_lose_nothing_when_names_run_out);
    RUN(now_is_the_last_two_seconds);
    RUN(what_falls_is_nothing_now);
    RUN(strings_are_json);
    RUN(numbers_have_points_in_every_locale);
    RUN(bounds_of_buckets_are_the_bounds);
    RUN(two_ops_of_one_name_are_two_series);
    return check_report();
}
