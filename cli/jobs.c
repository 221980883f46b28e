/* SPDX-License-Identifier: Apache-2.0
 * penstock jobs: what a daemon is doing, asked over its control socket. Main thread. */
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "control.h"

typedef struct jobs_values {
    const char *socket;
    bool json;
} jobs_values;

/* ---- showing -------------------------------------------------------------------------------- */

static double real_of(const json_t *job, const char *name)
{
    return json_number_value(json_object_get(job, name));
}

static const char *text_of(const json_t *job, const char *name)
{
    const char *text = json_string_value(json_object_get(job, name));
    return text ? text : "";
}

static void print_job(const json_t *job)
{
    const double waited = real_of(job, "waited_seconds"), age = real_of(job, "seconds");
    const json_t *hits = json_object_get(job, "hits");
    const bool shares = strcmp(text_of(job, "sampling"), "opportunistic") == 0;
    printf("%5.0f %8.0f  %-8s %9.0f %9.1f  %5.1f %%  %-6s %8.0f %8.0f %8.0f %8.0f  %s\n",
           real_of(job, "id"), real_of(job, "pid"), text_of(job, "state"), real_of(job, "samples"),
           real_of(job, "samples_per_second"), age > 0 ? 100 * waited / age : 0,
           shares ? "shared" : "plain", real_of(job, "preparations"), real_of(hits, "encoded"),
           real_of(hits, "decoded"), real_of(hits, "augmented"), text_of(job, "dataset"));
}

static int run_jobs(const void *values)
{
    const jobs_values *v = values;
    json_t *answer = NULL;
    const int exit_code = control_ask(v->socket, "/v1/jobs", &answer);
    if (exit_code != CLI_OK)
        return exit_code;
    const json_t *jobs = json_object_get(answer, "jobs");
    if (v->json) {
        control_print(answer);
    } else if (json_array_size(jobs) == 0) {
        printf("no jobs\n");
    } else {
        printf("  job      pid  state      samples samples/s   waited  work   prepared  encoded  "
               "decoded augmented dataset\n");
        for (size_t i = 0; i < json_array_size(jobs); i++)
            print_job(json_array_get(jobs, i));
    }
    json_decref(answer);
    return CLI_OK;
}

#define AT(field) offsetof(jobs_values, field)
static const arg_option options[] = {
    OPT_TEXT("socket", "DIR", AT(socket), NULL, "of the daemon (default: this user's)"),
    OPT_FLAG("json", AT(json), "everything that is known, as JSON"),
    OPT_END,
};
#undef AT

const command command_jobs = {
    .name = "jobs",
    .summary = "list the jobs of a penstock serve",
    .about = "waited: the share of its time that a job waited for batches. prepared: samples "
             "that were prepared for it; encoded, decoded, augmented: samples that began from that "
             "form, from the cache.",
    .examples = "penstock jobs\npenstock jobs --json",
    .operands = (const arg_operand[]){{NULL, 0, false, NULL}},
    .options = options,
    .values_bytes = sizeof(jobs_values),
    .run = run_jobs,
};
