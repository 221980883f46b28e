/* SPDX-License-Identifier: Apache-2.0
 * penstock trace: what a trace comes to, as text or JSON. Main thread. */
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "trace_sum.h"

typedef struct trace_values {
    const char *file;
    bool json;
} trace_values;

static double seconds(int64_t ns)
{
    return 1e-9 * (double)ns;
}

static double wall_s(const sums *s)
{
    return seconds(s->to_ns - s->from_ns);
}

/* What waits are a share of: the time of each job, from the first that is told of it to the last.
 */
static double jobs_s(const sums *s)
{
    double all = 0;
    for (int i = 0; i < s->jobs; i++)
        all += seconds(s->job[i].to_ns - s->job[i].from_ns);
    return s->jobs > 1 ? all : wall_s(s);
}

static double staged_s(const sums *s)
{
    double all = 0;
    for (int i = 0; i < s->stages; i++)
        all += seconds(s->stage[i].ns);
    return all;
}

static double part(double of, double whole)
{
    return whole > 0 ? of / whole : 0;
}

/* ---- the longest waits ---------------------------------------------------------------------- */

static void why_text(const sums *s, const sum_wait *w, char *out, size_t cap)
{
    char took[TEXT_SHORT];
    int64_t ns;
    int stage;
    const sum_why why = sums_why(w, &ns, &stage);
    text_seconds(took, seconds(ns));
    if (w->last < 0)
        snprintf(out, cap, "what came last is not in the trace");
    else if (why == WHY_STAGE)
        snprintf(out, cap, "sample %lld, %s: %s", (long long)w->last, s->stage[stage].name, took);
    else if (why == WHY_READ)
        snprintf(out, cap, "sample %lld, read: %s", (long long)w->last, took);
    else if (why == WHY_ASIDE)
        snprintf(out, cap, "sample %lld, put aside: %s", (long long)w->last, took);
    else if (why == WHY_QUEUED)
        snprintf(out, cap, "sample %lld, begun after %s: workers had others", (long long)w->last,
                 took);
    else
        snprintf(out, cap, "sample %lld", (long long)w->last);
}

static void print_waits(const sums *s)
{
    char total[TEXT_SHORT], p50[TEXT_SHORT], p99[TEXT_SHORT];
    printf("\nconsumers waited %s in all (%.1f %% of %s), half of the times at most %s, 99 %% "
           "at most %s\n",
           text_seconds(total, seconds(s->wait_ns)), 100 * part(seconds(s->wait_ns), jobs_s(s)),
           s->jobs > 1 ? "their jobs' time" : "the time",
           text_seconds(p50, sum_hist_s(s->waits, 0.5)),
           text_seconds(p99, sum_hist_s(s->waits, 0.99)));
    if (s->longest_count > 0)
        printf("\n  %-12s %-12s %-20s %s\n", "waited", "at", "for batch", "which waited for");
    for (int i = 0; i < s->longest_count; i++) {
        const sum_wait *w = &s->longest[i];
        char took[TEXT_SHORT], at[TEXT_SHORT], batch[64] = "-", why[256];
        if (w->step >= 0)
            snprintf(batch, sizeof batch, "job %lld, %lld/%lld", (long long)w->job,
                     (long long)w->epoch, (long long)w->step);
        why_text(s, w, why, sizeof why);
        printf("  %-12s %-12s %-20s %s\n", text_seconds(took, seconds(w->span_ns)),
               text_seconds(at, seconds(w->at_ns - s->from_ns)), batch, why);
    }
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_stages(const sums *s)
{
    const double all = staged_s(s);
    printf("\n  %-24s %12s %8s %12s %12s\n", "stage", "time", "share", "p50", "p99");
    for (int i = 0; i < s->stages; i++) {
        const sum_stage *g = &s->stage[i];
        char took[TEXT_SHORT], p50[TEXT_SHORT], p99[TEXT_SHORT];
        printf("  %-24s %12s %6.1f %% %12s %12s\n", g->name, text_seconds(took, seconds(g->ns)),
               100 * part(seconds(g->ns), all), text_seconds(p50, sum_hist_s(&g->took, 0.5)),
               text_seconds(p99, sum_hist_s(&g->took, 0.99)));
    }
}

static void print_workers(const sums *s)
{
    printf("\n  %-24s %12s %8s %12s\n", "worker", "busy", "share", "samples");
    for (int i = 0; i < s->workers; i++) {
        const sum_worker *w = &s->worker[i];
        char busy[TEXT_SHORT];
        printf("  %-24s %12s %6.1f %% %12lld\n", w->name, text_seconds(busy, seconds(w->busy_ns)),
               100 * part(seconds(w->busy_ns), wall_s(s)), (long long)w->samples);
    }
}

static void print_forms(const sums *s)
{
    printf("began from:");
    for (int i = 0; i < SUM_FORMS; i++)
        if (s->from[i] > 0)
            printf(" %s %.1f %%", sum_forms[i], 100 * part((double)s->from[i], (double)s->samples));
    printf("\n");
}

static void print_rest(const sums *s)
{
    char read[TEXT_SHORT], p50[TEXT_SHORT], p99[TEXT_SHORT];
    if (s->reads->count > 0)
        printf("\nreads beside the workers: %llu, %s each, half at most %s, 99 %% at most %s\n",
               (unsigned long long)s->reads->count,
               text_seconds(read, seconds(s->read_ns) / (double)s->reads->count),
               text_seconds(p50, sum_hist_s(s->reads, 0.5)),
               text_seconds(p99, sum_hist_s(s->reads, 0.99)));
    if (s->slow > 0)
        printf("\nslow samples: %lld, of them foreseen %lld; put aside %lld times, held finished "
               "%lld times\n",
               (long long)s->slow, (long long)s->foreseen, (long long)(s->parked + s->put_off),
               (long long)s->held);
    if (s->dropped > 0)
        printf("\n%lld of %lld events were lost: they came too fast. The figures lack them.\n",
               (long long)s->dropped, (long long)(s->dropped + s->events));
    if (s->cut_line > 0)
        printf("\nThe file is cut off in line %llu: what came then is missing.\n",
               (unsigned long long)s->cut_line);
    else if (!s->complete)
        printf("\nThe trace has no end: the process was killed. Its last moments are missing.\n");
}

static void print_sums(const sums *s)
{
    char wall[TEXT_SHORT], samples[TEXT_SHORT], batches[TEXT_SHORT];
    printf("%s, %s samples (%.1f a second), %s batches\n", text_seconds(wall, wall_s(s)),
           text_count(samples, (uint64_t)s->samples), part((double)s->samples, wall_s(s)),
           text_count(batches, (uint64_t)s->batches));
    if (s->bad > 0)
        printf("bad samples: %lld\n", (long long)s->bad);
    print_forms(s);
    print_stages(s);
    print_workers(s);
    print_waits(s);
    print_rest(s);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void json_spread(json *j, const sum_hist *h)
{
    json_real(j, "p50_seconds", sum_hist_s(h, 0.5));
    json_real(j, "p99_seconds", sum_hist_s(h, 0.99));
}

static void json_stages(json *j, const sums *s)
{
    const double all = staged_s(s);
    json_array(j, "stages");
    for (int i = 0; i < s->stages; i++) {
        const sum_stage *g = &s->stage[i];
        json_object(j, NULL);
        json_text(j, "name", g->name);
        json_real(j, "seconds", seconds(g->ns));
        json_real(j, "share", part(seconds(g->ns), all));
        json_uint(j, "visits", g->took.count);
        json_spread(j, &g->took);
        json_object_end(j);
    }
    json_array_end(j);
    json_array(j, "workers");
    for (int i = 0; i < s->workers; i++) {
        json_object(j, NULL);
        json_text(j, "name", s->worker[i].name);
        json_real(j, "busy_seconds", seconds(s->worker[i].busy_ns));
        json_real(j, "busy_share", part(seconds(s->worker[i].busy_ns), wall_s(s)));
        json_int(j, "samples", s->worker[i].samples);
        json_object_end(j);
    }
    json_array_end(j);
}

static void json_wait(json *j, const sums *s, const sum_wait *w)
{
    static const char *const words[] = {"unknown", "stage", "read", "aside", "queued"};
    int64_t ns;
    int stage;
    const sum_why why = sums_why(w, &ns, &stage);
    json_object(j, NULL);
    json_real(j, "seconds", seconds(w->span_ns));
    json_real(j, "at_seconds", seconds(w->at_ns - s->from_ns));
    json_int(j, "job", w->job);
    json_int(j, "epoch", w->epoch);
    json_int(j, "step", w->step);
    json_int(j, "sample", w->last);
    json_text(j, "why", words[why]);
    json_text(j, "stage", stage >= 0 ? s->stage[stage].name : NULL);
    json_real(j, "why_seconds", seconds(ns));
    json_object_end(j);
}

static void json_waits(json *j, const sums *s)
{
    json_object(j, "waits");
    json_uint(j, "count", s->waits->count);
    json_real(j, "seconds", seconds(s->wait_ns));
    json_real(j, "share", part(seconds(s->wait_ns), jobs_s(s)));
    json_spread(j, s->waits);
    json_array(j, "longest");
    for (int i = 0; i < s->longest_count; i++)
        json_wait(j, s, &s->longest[i]);
    json_array_end(j);
    json_object_end(j);
}

static void json_sums(const sums *s)
{
    json j = {.out = stdout};
    json_object(&j, NULL);
    json_real(&j, "seconds", wall_s(s));
    json_int(&j, "samples", s->samples);
    json_int(&j, "bad", s->bad);
    json_int(&j, "batches", s->batches);
    json_int(&j, "dropped_batches", s->dropped_batches);
    json_int(&j, "dropped_events", s->dropped);
    json_bool(&j, "complete", s->complete);
    json_object(&j, "from");
    for (int i = 0; i < SUM_FORMS; i++)
        json_int(&j, sum_forms[i], s->from[i]);
    json_object_end(&j);
    json_stages(&j, s);
    json_waits(&j, s);
    json_object(&j, "slow");
    json_int(&j, "samples", s->slow);
    json_int(&j, "foreseen", s->foreseen);
    json_int(&j, "parked", s->parked);
    json_int(&j, "put_off", s->put_off);
    json_int(&j, "held", s->held);
    json_object_end(&j);
    json_object(&j, "reads");
    json_uint(&j, "count", s->reads->count);
    json_real(&j, "seconds", seconds(s->read_ns));
    json_spread(&j, s->reads);
    json_object_end(&j);
    json_object_end(&j);
    printf("\n");
}

/* ---- the command ---------------------------------------------------------------------------- */

static int run_trace(const void *values)
{
    const trace_values *v = values;
    trace_reader reader;
    sums s = {0};
    int exit_code = trace_open(&reader, v->file);
    if (exit_code == CLI_OK)
        exit_code = sums_read(&reader, &s);
    if (exit_code == CLI_OK && v->json)
        json_sums(&s);
    else if (exit_code == CLI_OK)
        print_sums(&s);
    trace_close(&reader);
    sums_fini(&s);
    return exit_code;
}

#define AT(field) offsetof(trace_values, field)
static const arg_operand operands[] = {
    {"FILE", AT(file), false, "what --trace of feed, bench or serve wrote"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_FLAG("json", AT(json), "one JSON object"),
    OPT_END,
};
#undef AT

const command command_trace = {
    .name = "trace",
    .summary = "what a trace comes to: time per stage, workers, the longest waits and their causes",
    .about = "The trace itself opens in ui.perfetto.dev.",
    .examples = "penstock feed photos --pipeline 'decode | resize(224)' --trace run.json\n"
                "penstock trace run.json",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(trace_values),
    .run = run_trace,
};
