/* SPDX-License-Identifier: Apache-2.0
 * Views without an engine: where times are counted, names, totals, what is now, and text. */
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
            psti_view_end(view->ended, &view->ended_count, name, &one);
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
    RUN(strings_are_json);
    RUN(two_ops_of_one_name_are_two_series);
    return check_report();
}
