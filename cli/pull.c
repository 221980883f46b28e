/* SPDX-License-Identifier: Apache-2.0
 * penstock pull: brings a dataset from a bucket to a local disk. Main thread. */
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "json.h"
#include "progress.h"
#include "revision.h"

typedef struct pull_values {
    const char *name, *url, *to, *revision;
    int64_t connections;
    bool pin, check, opaque_etags, quiet, json;
} pull_values;

typedef struct watcher {
    pst_pull_progress last;
} watcher;

static int watch(const pst_pull_progress *now, void *user)
{
    watcher *w = user;
    char what[32], objects[96], done[TEXT_SHORT], all[TEXT_SHORT];
    w->last = *now;
    snprintf(what, sizeof what, "pulling %.8s", now->revision);
    snprintf(objects, sizeof objects, "%s/%s objects", text_count(done, now->objects_done),
             text_count(all, now->objects));
    progress_step(&(progress_at){
        .what = what, .things = "B", .note = objects, .done = now->bytes_done, .all = now->bytes});
    return interrupt_signal() != 0;
}

static void print_pulled(const pst_revision *r, const pst_pull_progress *p)
{
    char bytes[TEXT_SHORT], objects[TEXT_SHORT], fetched[TEXT_SHORT], linked[TEXT_SHORT];
    char seconds[TEXT_SHORT];
    printf("%s@%s\n", r->name, r->revision);
    printf("%s objects, %s; fetched %s, linked %s, in %s\n", text_count(objects, r->objects),
           text_bytes(bytes, r->bytes), text_bytes(fetched, p->bytes_fetched),
           text_bytes(linked, p->bytes_linked), text_seconds(seconds, p->seconds));
    if (p->objects_bad > 0)
        printf("%s objects were gone or damaged and were fetched again\n",
               text_count(objects, p->objects_bad));
    printf("%s\n", r->path);
}

static void print_json(const pst_revision *r, const pst_pull_progress *p)
{
    json j = {.out = stdout};
    json_object(&j, NULL);
    revision_json(&j, r);
    json_uint(&j, "bytes_fetched", p->bytes_fetched);
    json_uint(&j, "bytes_linked", p->bytes_linked);
    json_uint(&j, "objects_bad", p->objects_bad);
    json_real(&j, "seconds", p->seconds);
    json_object_end(&j);
    putchar('\n');
}

static int run_pull(const void *values)
{
    const pull_values *v = values;
    watcher w = {0};
    pst_error err = {0};
    pst_pull_options opts;
    pst_revision *r = cli_alloc(sizeof *r);
    if (v->quiet)
        progress_quiet();
    pst_pull_options_init(&opts);
    opts.dir = v->to;
    opts.revision = v->revision;
    opts.pin = v->pin;
    opts.check = v->check;
    opts.opaque_etags = v->opaque_etags;
    opts.connections = (int)v->connections;
    opts.progress = watch;
    opts.user = &w;
    const int rc = pst_pull(v->name, v->url, &opts, r, &err);
    progress_clear();
    int exit_code = CLI_OK;
    if (rc < 0)
        exit_code = fail_error(&err);
    else if (v->json)
        print_json(r, &w.last);
    else if (!v->quiet)
        print_pulled(r, &w.last);
    free(r);
    return exit_code;
}

#define AT(field) offsetof(pull_values, field)
static const arg_operand operands[] = {
    {"NAME", AT(name), false, "what it is called here"},
    {"URL", AT(url), true,
     "s3://BUCKET/PREFIX, one object of http(s)://, or a folder (default: as the last time)"},
    {NULL, 0, false, NULL},
};
static const arg_option options[] = {
    OPT_TEXT("to", "DIR", AT(to), NULL,
             "where datasets are kept (default: $PENSTOCK_DATASETS or "
             "$XDG_DATA_HOME/penstock/datasets)"),
    OPT_TEXT("revision", "latest|HASH", AT(revision), "latest",
             "what the bucket holds now, or a revision that is here; 8 digits are enough"),
    OPT_FLAG("pin", AT(pin), "never evict it"),
    OPT_FLAG("check", AT(check),
             "compare the bytes of files that are here already with their checksums"),
    OPT_FLAG("opaque-etags", AT(opaque_etags),
             "etags are no MD5 of the content, as in buckets that encrypt with keys of their own"),
    OPT_INT("connections", "N", AT(connections), 1, 256, "16", "objects fetched at a time"),
    OPT_FLAG("quiet", AT(quiet), "no progress, no summary"),
    OPT_FLAG("json", AT(json), "the summary as JSON"),
    OPT_END,
};
#undef AT

const command command_pull = {
    .name = "pull",
    .summary = "bring a dataset from a bucket to a local disk",
    .about = "Every object is verified; the revision is shown when all of it is there. A pull that "
             "was stopped goes on where it was, objects that another revision has are linked, and "
             "a revision that is here is looked over: what is missing or damaged is fetched again. "
             "Room is made before anything is fetched, by evicting what is worth least (penstock "
             "evict). Credentials come from the environment and AWS's files, never from here. "
             "The dataset is then read as penstock://NAME.",
    .examples = "penstock pull imagenet s3://data/imagenet/train\n"
                "penstock pull imagenet --check\n"
                "penstock feed penstock://imagenet --pipeline 'decode | resize(256)'",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(pull_values),
    .run = run_pull,
};
