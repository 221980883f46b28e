/* SPDX-License-Identifier: Apache-2.0
 * penstock datasets and penstock evict: what was pulled, what may stay, and what goes. Main
 * thread. */
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "revision.h"

typedef struct datasets_values {
    const char *dir, *pin, *unpin;
    uint64_t limit;
    double high, low;
    bool json;
} datasets_values;

#define OPT_DIR(at)                                                                                \
    OPT_TEXT(                                                                                      \
        "dir", "DIR", at, NULL,                                                                    \
        "where they are kept (default: $PENSTOCK_DATASETS or $XDG_DATA_HOME/penstock/datasets)")

static const char *state_of(const pst_revision *r)
{
    if (r->pulling)
        return "pulling";
    if (!r->complete)
        return "partial";
    return r->in_use ? "in use" : "complete";
}

void revision_json(json *j, const pst_revision *r)
{
    json_text(j, "name", r->name);
    json_text(j, "revision", r->revision);
    json_text(j, "url", r->url);
    json_text(j, "path", r->path);
    json_text(j, "state", state_of(r));
    json_bool(j, "complete", r->complete);
    json_bool(j, "latest", r->latest);
    json_bool(j, "pinned", r->pinned);
    json_bool(j, "in_use", r->in_use);
    json_uint(j, "objects", r->objects);
    json_uint(j, "objects_done", r->objects_done);
    json_uint(j, "bytes", r->bytes);
    json_uint(j, "bytes_own", r->bytes_own);
    json_real(j, "refetch_seconds", r->refetch_s);
    json_real(j, "uses", r->uses);
    json_int(j, "last_used", r->last_used_s);
}

/* ---- listing ------------------------------------------------------------------------------------
 */

static void print_list(const pst_revision *list, size_t count, const pst_datasets_limits *limits)
{
    char bytes[TEXT_SHORT], objects[TEXT_SHORT], seconds[TEXT_SHORT], most[TEXT_SHORT];
    printf("%-24s %-12s  %-8s %12s %10s %10s %6s  %s\n", "dataset", "revision", "state", "objects",
           "bytes", "refetch", "uses", "");
    for (size_t i = 0; i < count; i++) {
        const pst_revision *r = &list[i];
        printf("%-24s %.12s  %-8s %12s %10s %10s %6.2f  %s%s\n", r->name, r->revision, state_of(r),
               text_count(objects, r->complete ? r->objects : r->objects_done),
               text_bytes(bytes, r->bytes), text_seconds(seconds, r->refetch_s), r->uses,
               r->latest ? "latest " : "", r->pinned ? "pinned" : "");
    }
    printf("%s taken", text_bytes(bytes, limits->used));
    if (limits->capacity > 0)
        printf(" of %s", text_bytes(most, limits->capacity));
    printf("; a pull evicts above %.0f %%, down to %.0f %%\n", 100 * limits->high,
           100 * limits->low);
}

static void print_json(const pst_revision *list, size_t count, const pst_datasets_limits *limits)
{
    json j = {.out = stdout};
    json_object(&j, NULL);
    json_array(&j, "datasets");
    for (size_t i = 0; i < count; i++) {
        json_object(&j, NULL);
        revision_json(&j, &list[i]);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_uint(&j, "used", limits->used);
    json_uint(&j, "capacity", limits->capacity);
    json_real(&j, "high", limits->high);
    json_real(&j, "low", limits->low);
    json_object_end(&j);
    putchar('\n');
}

static int change(const datasets_values *v, pst_error *err)
{
    int rc = 0;
    if (v->pin != NULL)
        rc = pst_datasets_pin(v->dir, v->pin, 1, err);
    if (rc == 0 && v->unpin != NULL)
        rc = pst_datasets_pin(v->dir, v->unpin, 0, err);
    if (rc < 0 || (v->limit == 0 && v->high < 0 && v->low < 0))
        return rc;
    pst_datasets_limits limits = {.high = 0.95, .low = 0.85};
    if (pst_datasets_limit(v->dir, NULL, &limits, NULL) < 0)
        limits = (pst_datasets_limits){.high = 0.95, .low = 0.85}; /* nothing is there yet */
    if (v->limit > 0)
        limits.capacity = v->limit == UINT64_MAX ? 0 : v->limit;
    if (v->high >= 0)
        limits.high = v->high / 100;
    if (v->low >= 0)
        limits.low = v->low / 100;
    return pst_datasets_limit(v->dir, &limits, NULL, err);
}

static int run_datasets(const void *values)
{
    const datasets_values *v = values;
    pst_error err = {0};
    pst_revision *list = NULL;
    size_t count = 0;
    pst_datasets_limits limits = {.high = 0.95, .low = 0.85};
    int rc = change(v, &err);
    if (rc == 0)
        rc = pst_datasets(v->dir, &list, &count, &err);
    if (rc < 0)
        return fail_error(&err);
    if (pst_datasets_limit(v->dir, NULL, &limits, NULL) < 0)
        limits.used = 0; /* no folder yet: nothing is there */
    if (v->json)
        print_json(list, count, &limits);
    else if (count == 0)
        printf("nothing was pulled yet\n");
    else
        print_list(list, count, &limits);
    pst_free(list);
    return CLI_OK;
}

#define AT(field) offsetof(datasets_values, field)
static const arg_option datasets_options[] = {
    OPT_DIR(AT(dir)),
    OPT_FLAG("json", AT(json), "everything that is known, as JSON"),
    OPT_HEADING("What may stay"),
    {.name = "limit",
     .type = ARG_BYTES,
     .meta = "BYTES|none",
     .offset = AT(limit),
     .words = (const char *const[]){"none", NULL},
     .help = "bytes that all of them may take; none: what the file system has"},
    OPT_REAL("high", "PERCENT", AT(high), -1, 100, "-1",
             "a pull that would go above this share of the limit evicts; first 95"),
    OPT_REAL("low", "PERCENT", AT(low), -1, 100, "-1", "down to this share if it can; first 85"),
    OPT_TEXT("pin", "NAME[@REVISION]", AT(pin), NULL, "never evict this one"),
    OPT_TEXT("unpin", "NAME[@REVISION]", AT(unpin), NULL, "let go of it"),
    OPT_END,
};
#undef AT

const command command_datasets = {
    .name = "datasets",
    .summary = "list what was pulled, set its limits",
    .about = "bytes: of all objects; objects that several revisions share lie on the disk once. "
             "refetch: seconds that pulling it again would take, as measured. uses: how often it "
             "was opened, halved every 24 hours.",
    .examples = "penstock datasets\npenstock datasets --limit 500G --high 90 --low 80\n"
                "penstock datasets --pin imagenet",
    .operands = (const arg_operand[]){{NULL, 0, false, NULL}},
    .options = datasets_options,
    .values_bytes = sizeof(datasets_values),
    .run = run_datasets,
};

/* ---- evicting -----------------------------------------------------------------------------------
 */

typedef struct evict_values {
    const char *spec, *dir;
    uint64_t to_fit;
    bool json;
} evict_values;

static int run_evict(const void *values)
{
    const evict_values *v = values;
    char bytes[TEXT_SHORT];
    pst_error err = {0};
    uint64_t freed = 0;
    if ((v->spec == NULL) == (v->to_fit == 0))
        return fail_usage("either NAME[@REVISION] or --to-fit BYTES says what goes");
    const int rc = v->spec != NULL
                       ? pst_datasets_evict(v->dir, v->spec, &freed, &err)
                       : pst_datasets_fit(v->dir, v->to_fit == 1 ? 0 : v->to_fit, &freed, &err);
    if (rc < 0)
        return fail_error(&err);
    if (v->json)
        printf("{\"freed\": %llu}\n", (unsigned long long)freed);
    else
        printf("freed %s\n", text_bytes(bytes, freed));
    return CLI_OK;
}

#define AT(field) offsetof(evict_values, field)
static const arg_operand evict_operands[] = {
    {"NAME[@REVISION]", AT(spec), true, "one revision, or all of that name"},
    {NULL, 0, false, NULL},
};
static const arg_option evict_options[] = {
    OPT_BYTES("to-fit", "BYTES", AT(to_fit), NULL,
              "evict what is worth least until at most so many bytes are taken"),
    OPT_DIR(AT(dir)),
    OPT_FLAG("json", AT(json), "the freed bytes as JSON"),
    OPT_END,
};
#undef AT

const command command_evict = {
    .name = "evict",
    .summary = "remove what was pulled",
    .about = "Never what is pinned, in use or being pulled. With --to-fit uses times the seconds "
             "that fetching it again takes decides; of large datasets only as much goes as is "
             "needed, and a later pull fetches just that.",
    .examples = "penstock evict imagenet\npenstock evict imagenet@1b2c3d4e\n"
                "penstock evict --to-fit 200G",
    .operands = evict_operands,
    .options = evict_options,
    .values_bytes = sizeof(evict_values),
    .run = run_evict,
};
