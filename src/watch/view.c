/* SPDX-License-Identifier: Apache-2.0
 * Views: their memory, and sums over jobs. Pure functions; any thread. */
#include "watch/view.h"

#include <errno.h>
#include <string.h>

#include "core/keys.h"
#include "core/memory.h"
#include "watch/text.h"

const double psti_view_bounds[PSTI_VIEW_BOUNDS] = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10};
const uint64_t psti_view_bounds_ns[PSTI_VIEW_BOUNDS] = {
    100000,   250000,    500000,    1000000,   2500000,    5000000,    10000000,   25000000,
    50000000, 100000000, 250000000, 500000000, 1000000000, 2500000000, 10000000000};
const char *const psti_view_form_names[PSTI_VIEW_FORMS] = {"encoded", "decoded", "augmented"};
const char *const psti_view_source_names[PSTI_VIEW_SOURCES] = {"files", "tar", "s3", "http"};

psti_view *psti_view_new(void)
{
    psti_view *view = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *view);
    if (!view)
        return NULL;
    view->ended = psti_calloc(PSTI_MEM_ENGINE, PSTI_VIEW_DATASETS + 1, sizeof *view->ended);
    view->bad = psti_calloc(PSTI_MEM_ENGINE, PSTI_VIEW_BAD, sizeof *view->bad);
    if (view->ended && view->bad)
        return view;
    psti_view_free(view);
    return NULL;
}

void psti_view_free(psti_view *view)
{
    if (!view)
        return;
    psti_free(view->jobs);
    psti_free(view->ended);
    psti_free(view->bad);
    psti_free(view);
}

int psti_view_room(psti_view *view, int jobs)
{
    view->job_count = 0;
    if (jobs <= view->job_room)
        return 0;
    psti_free(view->jobs);
    view->job_room = 0;
    view->jobs = psti_calloc(PSTI_MEM_ENGINE, (size_t)jobs, sizeof *view->jobs);
    if (!view->jobs)
        return -ENOMEM;
    view->job_room = jobs;
    return 0;
}

void psti_view_add(psti_view_sums *to, const psti_view_sums *from)
{
    /* All of it are counters of one type. */
    uint64_t *sum = (uint64_t *)to;
    const uint64_t *one = (const uint64_t *)from;
    for (size_t i = 0; i < sizeof *to / sizeof *sum; i++)
        sum[i] += one[i];
}

int psti_view_place(psti_view_ended *list, int *count, const char *name)
{
    int at = 0;
    while (at < *count && strcmp(list[at].name, name) != 0)
        at++;
    if (at == *count && *count >= PSTI_VIEW_DATASETS) {
        name = "";
        for (at = 0; at < *count && list[at].name[0]; at++)
            ;
    }
    if (at == *count) {
        memset(&list[at], 0, sizeof list[at]);
        strncpy(list[at].name, name, sizeof list[at].name - 1);
        (*count)++;
    }
    return at;
}

void psti_view_end(psti_view_ended *to, const psti_view_sums *sums)
{
    to->jobs++;
    psti_view_add(&to->sums, sums);
}

void psti_view_name(const char *path, char name[PSTI_VIEW_NAME])
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end > 1 ? end : 0; /* "/" is a name, too */
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    size_t len = end - begin;
    if (len >= PSTI_VIEW_NAME) {
        len = PSTI_VIEW_NAME - 1;
        while (len > 0 && ((unsigned char)path[begin + len] & 0xc0) == 0x80)
            len--;
    }
    memset(name, 0, PSTI_VIEW_NAME);
    memcpy(name, path + begin, len);
    /* Totals are kept by it: what would be shown alike must be alike. */
    for (size_t at = 0, one; at < len; at += one ? one : 1) {
        one = psti_utf8_length(name + at, len - at);
        if (one == 0 || psti_utf8_hidden(name + at, one))
            memset(name + at, '?', one ? one : 1);
    }
}
