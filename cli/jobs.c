/* SPDX-License-Identifier: Apache-2.0
 * penstock jobs: what a daemon is doing, asked over its control socket. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "args.h"
#include "cli.h"
#include "commands.h"

enum { ANSWER_MOST = 16 << 20, PATIENCE_S = 10 };

typedef struct jobs_values {
    const char *socket;
    bool json;
} jobs_values;

/* ---- asking --------------------------------------------------------------------------------- */

/* Through the open directory: a socket's own path may only be short. */
static int connect_to(const char *dir)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const struct timeval patience = {PATIENCE_S, 0};
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/control.sock", fd);
    const int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int rc =
        sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof to) != 0 ? -errno : sock;
    close(fd);
    if (rc < 0 && sock >= 0)
        close(sock);
    if (rc >= 0)
        setsockopt(rc, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return rc;
}

/* Everything until the other side closes; NULL when it fails. */
static char *read_all(int sock)
{
    size_t used = 0, cap = 64 << 10;
    char *text = cli_alloc(cap);
    for (;;) {
        const ssize_t n = recv(sock, text + used, cap - used - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || used + (size_t)n > ANSWER_MOST) {
            free(text);
            return NULL;
        }
        if (n == 0)
            break;
        used += (size_t)n;
        if (cap - used < 4096) {
            char *larger = cli_alloc(2 * cap);
            memcpy(larger, text, used);
            free(text);
            text = larger;
            cap *= 2;
        }
    }
    text[used] = '\0';
    return text;
}

static int ask(const char *dir, const char *url, json_t **out)
{
    char request[128];
    const int sock = connect_to(dir);
    if (sock < 0)
        return fail("nobody serves %s (%s); start it with: penstock serve", dir, strerror(-sock));
    const int len =
        snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: penstock\r\n\r\n", url);
    char *text = send(sock, request, (size_t)len, MSG_NOSIGNAL) == len ? read_all(sock) : NULL;
    close(sock);
    const char *body = text ? strstr(text, "\r\n\r\n") : NULL;
    const bool fine =
        body && (strncmp(text, "HTTP/1.0 200", 12) == 0 || strncmp(text, "HTTP/1.1 200", 12) == 0);
    *out = fine ? json_loads(body + 4, 0, NULL) : NULL;
    free(text);
    return *out ? CLI_OK : fail("%s does not answer; is it a penstock serve of this user?", dir);
}

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
    const double hits = real_of(job, "cache_hits"), all = hits + real_of(job, "cache_misses");
    printf("%5.0f %8.0f  %-8s %10.0f %9.1f  %5.1f %%  %5.1f %%  %s\n", real_of(job, "id"),
           real_of(job, "pid"), text_of(job, "state"), real_of(job, "samples"),
           real_of(job, "samples_per_second"), age > 0 ? 100 * waited / age : 0,
           all > 0 ? 100 * hits / all : 0, text_of(job, "dataset"));
}

static int run_jobs(const void *values)
{
    const jobs_values *v = values;
    char dir[PATH_MAX];
    json_t *answer = NULL;
    if (pst_server_find(v->socket, dir, sizeof dir) < 0)
        return fail_usage("the directory's name is too long");
    const int exit_code = ask(dir, "/v1/jobs", &answer);
    if (exit_code != CLI_OK)
        return exit_code;
    const json_t *jobs = json_object_get(answer, "jobs");
    if (v->json) {
        char *text = json_dumps(answer, JSON_COMPACT | JSON_SORT_KEYS);
        printf("%s\n", text ? text : "{}");
        free(text);
    } else if (json_array_size(jobs) == 0) {
        printf("no jobs\n");
    } else {
        printf("  job      pid  state       samples samples/s  waited     hits  dataset\n");
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
    .about = "waited: the share of its time that a job waited for batches. hits: samples that "
             "began from a form that the cache had.",
    .examples = "penstock jobs\npenstock jobs --json",
    .operands = (const arg_operand[]){{NULL, 0, false, NULL}},
    .options = options,
    .values_bytes = sizeof(jobs_values),
    .run = run_jobs,
};
