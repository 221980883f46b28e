/* SPDX-License-Identifier: Apache-2.0
 * penstock ops and penstock settings: what there is to choose from, and what was chosen. */
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "json.h"

enum { PARAMS_BYTES = 4096, OPS_MAX = 256 };

/* ---- ops ------------------------------------------------------------------------------------ */

typedef struct ops_values {
    const char *name;
    bool json;
} ops_values;

/* name, type, range, default, help: one line of a parameter's table, cut up in place. */
typedef struct param_line {
    const char *part[5];
} param_line;

static bool next_param(char **at, param_line *out)
{
    char *line = strsep(at, "\n");
    if (line == NULL || line[0] == '\0')
        return false;
    for (int i = 0; i < 5; i++) {
        char *part = strsep(&line, "\t");
        out->part[i] = part ? part : "";
    }
    return true;
}

static void print_op(const char *name, const char *summary, char *params)
{
    param_line p;
    printf("%s: %s\n", name, summary);
    while (next_param(&params, &p)) {
        printf("    %-14s %-8s %-22s %s", p.part[0], p.part[1], p.part[2], p.part[4]);
        if (strcmp(p.part[3], "required") == 0)
            printf(" (required)");
        else if (p.part[3][0] != '\0')
            printf(" (default %s)", p.part[3]);
        printf("\n");
    }
}

static void json_op(json *j, const char *name, const char *summary, char *params)
{
    static const char *const keys[] = {"name", "type", "range", "default", "help"};
    param_line p;
    json_object(j, NULL);
    json_text(j, "name", name);
    json_text(j, "summary", summary);
    json_array(j, "params");
    while (next_param(&params, &p)) {
        json_object(j, NULL);
        for (int i = 0; i < 5; i++)
            json_text(j, keys[i], p.part[i]);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

static int unknown_op(const char *wanted)
{
    const char *names[OPS_MAX + 1] = {NULL}, *summary = NULL;
    for (int i = 0; i < OPS_MAX && pst_op_help(i, &names[i], &summary, NULL, 0) == 0; i++)
        continue;
    const char *nearest = text_nearest(wanted, names);
    return fail("there is no op '%s'%s%s%s; 'penstock ops' lists them", wanted,
                nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int run_ops(const void *values)
{
    const ops_values *v = values;
    const char *name = NULL, *summary = NULL;
    char *params = cli_alloc(PARAMS_BYTES);
    json j = {.out = stdout};
    int shown = 0;
    if (v->json)
        json_array(&j, NULL);
    for (int i = 0; pst_op_help(i, &name, &summary, params, PARAMS_BYTES) == 0; i++) {
        if (v->name != NULL && strcmp(v->name, name) != 0)
            continue;
        if (v->json) {
            json_op(&j, name, summary, params);
        } else {
            printf(shown ? "\n" : "");
            print_op(name, summary, params);
        }
        shown++;
    }
    if (v->json) {
        json_array_end(&j);
        printf("\n");
    }
    free(params);
    return v->name != NULL && shown == 0 ? unknown_op(v->name) : CLI_OK;
}

static const arg_operand ops_operands[] = {
    {"NAME", offsetof(ops_values, name), true, "only this op"},
    {NULL, 0, false, NULL},
};

static const arg_option ops_options[] = {
    OPT_FLAG("json", offsetof(ops_values, json), "as a JSON array"),
    OPT_END,
};

const command command_ops = {
    .name = "ops",
    .summary = "the words of the pipeline language and their parameters",
    .about = "A pipeline is a line of ops joined by '|': decode | random_resized_crop(224, "
             "scale=(0.2, 1)) | hflip.",
    .examples = "penstock ops\npenstock ops random_resized_crop",
    .operands = ops_operands,
    .options = ops_options,
    .values_bytes = sizeof(ops_values),
    .run = run_ops,
};

/* ---- settings ------------------------------------------------------------------------------- */

typedef struct settings_values {
    int64_t workers, io_depth;
    uint64_t memory, cache;
    const char *disk;
    int io;
    bool json;
} settings_values;

static const char *const io_words[] = {"auto", "uring", "threads", NULL}; /* as pst_io */

static void print_features(void)
{
    const char *name, *detail;
    int built;
    for (int i = 0; (built = pst_feature(i, &name, &detail)) >= 0; i++)
        printf("%-9s %s\n", name, detail);
}

static void json_features(json *j)
{
    const char *name, *detail;
    int built;
    json_object(j, "features");
    for (int i = 0; (built = pst_feature(i, &name, &detail)) >= 0; i++)
        json_text(j, name, built ? detail : NULL);
    json_object_end(j);
}

static void print_settings(const pst_settings *s)
{
    char budget[TEXT_SHORT], have[TEXT_SHORT], cache[TEXT_SHORT], disk[TEXT_SHORT];
    printf("cpus      %d\n", s->cpus);
    printf("may_have  %s\n", text_bytes(have, s->may_have));
    printf("workers   %d\n", s->workers);
    printf("memory    %s\n", text_bytes(budget, s->memory_bytes));
    printf("cache     %s%s\n", s->cache_bytes ? "at most " : "",
           s->cache_bytes ? text_bytes(cache, s->cache_bytes) : "none");
    printf("disk      %s%s\n", s->disk_bytes ? "at most " : "",
           s->disk_bytes ? text_bytes(disk, s->disk_bytes) : "none");
    printf("io        %s\n", io_words[s->io]);
    printf("io_depth  %d\n", s->io_depth);
    printf("kernels   %s\n", s->cpu);
    print_features();
}

static void json_settings(const pst_settings *s)
{
    json j = {.out = stdout};
    json_object(&j, NULL);
    json_int(&j, "cpus", s->cpus);
    json_uint(&j, "may_have", s->may_have);
    json_int(&j, "workers", s->workers);
    json_uint(&j, "memory_bytes", s->memory_bytes);
    json_uint(&j, "cache_bytes", s->cache_bytes);
    json_uint(&j, "disk_bytes", s->disk_bytes);
    json_text(&j, "io", io_words[s->io]);
    json_int(&j, "io_depth", s->io_depth);
    json_text(&j, "kernels", s->cpu);
    json_features(&j);
    json_object_end(&j);
    printf("\n");
}

/* Which way of reading "auto" becomes is known once an engine has tried. */
static int tried_io(void)
{
    pst_engine_options opts;
    pst_engine *engine = NULL;
    pst_settings found = {.io = PST_IO_AUTO};
    pst_engine_options_init(&opts);
    opts.workers = 1;
    opts.memory_bytes = 16 << 20;
    if (pst_engine_new(&opts, &engine, NULL) == 0)
        pst_engine_settings(engine, &found);
    pst_engine_free(engine);
    return found.io >= PST_IO_AUTO && found.io <= PST_IO_THREADS ? found.io : PST_IO_AUTO;
}

static int run_settings(const void *values)
{
    const settings_values *v = values;
    pst_engine_options opts;
    pst_settings found = {0};
    pst_error err = {0};
    pst_engine_options_init(&opts);
    opts.workers = (int)v->workers;
    opts.memory_bytes = v->memory;
    opts.cache_bytes = v->cache;
    opts.disk = v->disk;
    opts.io_depth = (int)v->io_depth;
    opts.io = v->io;
    if (pst_settings_resolve(&opts, &found, &err) < 0)
        return fail_error(&err);
    if (found.io != PST_IO_URING && found.io != PST_IO_THREADS)
        found.io = tried_io();
    if (v->json)
        json_settings(&found);
    else
        print_settings(&found);
    return CLI_OK;
}

#define AT(field) offsetof(settings_values, field)
static const arg_option settings_options[] = {
    OPT_INT("workers", "N", AT(workers), 0, 1024, "0", "as given to feed"),
    OPT_BYTES("memory", "BYTES", AT(memory), "0", "as given to feed"),
    OPT_CACHE(AT(cache), "0", "as given to feed"),
    OPT_TEXT("disk", "DIR:BYTES", AT(disk), NULL, "as given to feed"),
    OPT_WORD("io", "auto|uring|threads", AT(io), io_words, "auto", "as given to feed"),
    OPT_INT("io-depth", "N", AT(io_depth), 0, 1024, "0", "as given to feed"),
    OPT_FLAG("json", AT(json), "as one JSON object"),
    OPT_END,
};
#undef AT

const command command_settings = {
    .name = "settings",
    .summary = "what the defaults and given settings become on this machine",
    .about = "cpus: the CPU quota, by affinity and cgroup. may_have: the memory that this process "
             "may have, by RAM and cgroup. "
             "kernels: the instruction set that pixel loops use; PENSTOCK_CPU=c, avx2 or avx512 "
             "pins it. jpeg, png, webp, gzip, deflate, flac, fft, uring: the libraries that this "
             "build uses.",
    .examples = "penstock settings\npenstock settings --workers 8 --memory 2GiB --json",
    .options = settings_options,
    .values_bytes = sizeof(settings_values),
    .run = run_settings,
};
