/* SPDX-License-Identifier: Apache-2.0
 * penstock serve: one engine for the jobs of this machine, until it is told to end. Main thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "choose.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"

enum { UIDS_MOST = 64 };

typedef struct serve_values {
    const char *socket, *allow_uid, *forms, *disk, *remote, *dataset, *datasets, *dir, *control,
        *http, *http_token, *http_host, *trace;
    uint64_t memory, cache, client_cap;
    int64_t workers, idle_exit;
} serve_values;

/* "1000,1001" */
static int parse_uids(const char *text, uint32_t uids[UIDS_MOST], int *count)
{
    *count = 0;
    while (text != NULL && *text != '\0') {
        char *end;
        errno = 0;
        const unsigned long uid = strtoul(text, &end, 10);
        if (end == text || errno != 0 || uid >= UINT32_MAX || (*end != '\0' && *end != ',') ||
            *text < '0' || *text > '9')
            return fail_usage("--allow-uid takes user ids like 1000,1001, not '%s'", text);
        if (*count == UIDS_MOST)
            return fail_usage("--allow-uid takes at most %d user ids", UIDS_MOST);
        uids[(*count)++] = (uint32_t)uid;
        text = *end == ',' ? end + 1 : end;
    }
    return CLI_OK;
}

/* What a browser on this machine is given. */
static void print_http(const char *address, int port)
{
    const char *end = strrchr(address, ':');
    char host[256] = "127.0.0.1";
    if (end != NULL)
        snprintf(host, sizeof host, "%.*s", (int)(end - address), address);
    if (strcmp(host, "0.0.0.0") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    else if (strcmp(host, "[::]") == 0)
        snprintf(host, sizeof host, "[::1]");
    printf("to be looked at: port %d of %s, http://%s:%d/\n", port, host, host, port);
}

static int serve(const pst_server_options *opts)
{
    pst_server *server = NULL;
    pst_error err = {0};
    if (pst_server_open(opts, &server, &err) < 0)
        return fail_error(&err);
    printf("serving %s\n", pst_server_dir(server));
    if (opts->http != NULL)
        print_http(opts->http, pst_server_http_port(server));
    fflush(stdout);
    interrupt_server(server);
    const int rc = pst_server_run(server, &err);
    interrupt_server(NULL);
    const int exit_code = rc < 0 ? fail_error(&err) : CLI_OK;
    pst_server_close(server);
    if (exit_code == CLI_OK)
        interrupt_forget();
    return exit_code;
}

static int run_serve(const void *values)
{
    const serve_values *v = values;
    uint32_t uids[UIDS_MOST];
    pst_server_options opts;
    pst_server_options_init(&opts);
    if (v->socket != NULL && v->dir != NULL)
        return fail_usage("--dir and --socket are the same: give one");
    opts.dir = v->dir != NULL ? v->dir : v->socket;
    opts.control = v->control;
    opts.depot = v->datasets;
    opts.http = v->http;
    opts.http_token = v->http_token;
    opts.http_hosts = v->http_host;
    opts.engine.trace = v->trace;
    opts.datasets = v->dataset;
    opts.engine.memory_bytes = v->memory;
    opts.engine.cache_bytes = v->cache;
    opts.engine.disk = v->disk;
    opts.engine.remote = v->remote;
    opts.engine.workers = (int)v->workers;
    opts.idle_exit_s = (int)v->idle_exit;
    opts.client_cap = v->client_cap;
    opts.allow_uids = uids;
    opts.allow_any = v->allow_uid != NULL && strcmp(v->allow_uid, "any") == 0;
    int exit_code = opts.allow_any ? CLI_OK : parse_uids(v->allow_uid, uids, &opts.allow_count);
    if (exit_code == CLI_OK)
        exit_code = choose_forms(v->forms, opts.engine.forms);
    return exit_code == CLI_OK ? serve(&opts) : exit_code;
}

#define AT(field) offsetof(serve_values, field)
static const arg_option options[] = {
    OPT_TEXT(
        "socket", "DIR", AT(socket), NULL,
        "where clients find it (default: penstock in $XDG_RUNTIME_DIR, else in /run/user/UID, else "
        "penstock-UID in the folder for temporary files)"),
    OPT_TEXT("dir", "DIR", AT(dir), NULL, "the same as --socket"),
    OPT_TEXT("control", "DIR", AT(control), NULL,
             "where the control socket and the lock are, apart from what clients see (default: as "
             "--socket)"),
    OPT_BYTES("memory", "BYTES", AT(memory), "0",
              "memory budget; 0 = a quarter of what the process may have, at most 8 GiB"),
    OPT_CACHE(AT(cache), "auto",
              "of it for samples that are kept in memory, in the form that saves most; 0 = none"),
    OPT_TEXT("forms", "E:D:A", AT(forms), NULL,
             "most that encoded, decoded and augmented samples may have of the cache, in percent, "
             "as in 0:60:40 (default: as it pays)"),
    OPT_DISK(AT(disk)),
    OPT_REMOTE(AT(remote)),
    OPT_INT("workers", "N", AT(workers), 0, 1024, "0",
            "worker threads; 0 = the CPU quota, less one when there are more than two"),
    OPT_TEXT("allow-uid", "U[,U...]|any", AT(allow_uid), NULL,
             "other users who may come in; each gets the files that he may read himself"),
    OPT_TEXT("datasets", "DIR", AT(datasets), NULL,
             "where pulled datasets are kept; whoever has the folder DIR/NAME open may read that "
             "dataset (default: as penstock pull, without that right)"),
    OPT_TEXT("dataset", "NAME=URL[,...]", AT(dataset), NULL,
             "datasets in buckets that jobs may ask for by URL, as in "
             "photos=s3://bucket/photos; read with the daemon's credentials"),
    OPT_TEXT("http", "ADDR", AT(http), NULL,
             "show it over HTTP, too: PORT of this machine alone, ADDRESS:PORT or [ADDRESS]:PORT "
             "(default: only on the control socket)"),
    OPT_TEXT("http-token", "FILE", AT(http_token), NULL,
             "its first line is what whoever looks over HTTP must send; needed where others can "
             "reach ADDR"),
    OPT_TEXT("http-host", "NAME[,...]", AT(http_host), NULL,
             "names that browsers may know ADDR by, beside its digits and localhost"),
    OPT_TRACE(AT(trace)),
    OPT_INT("idle-exit", "S", AT(idle_exit), 0, 31536000, "0",
            "end when nobody was connected for S seconds; 0 = never"),
    OPT_BYTES("client-cap", "BYTES", AT(client_cap), "0",
              "what one client may hold beyond its ring; 0 = a sixteenth of the budget, at most "
              "256 MiB"),
    OPT_END,
};
#undef AT

const command command_serve = {
    .name = "serve",
    .summary = "serve one engine to the jobs of this machine",
    .about = "Jobs that are started with the engine unix:DIR (or auto) share its workers, memory "
             "and cache. A job goes on by itself, where it was, when the daemon dies.",
    .examples = "penstock serve --memory 8GiB\n"
                "penstock feed photos/ --pipeline 'decode | resize(224)' --engine auto",
    .operands = (const arg_operand[]){{NULL, 0, false, NULL}},
    .options = options,
    .values_bytes = sizeof(serve_values),
    .run = run_serve,
};
