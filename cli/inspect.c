/* SPDX-License-Identifier: Apache-2.0
 * penstock inspect: what a dataset holds, for people and for programs. Main thread; the samples are
 * looked at by survey.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "json.h"
#include "open.h"
#include "survey.h"

enum { BAD_SHOWN = 20, CLASSES_SHOWN = 8, BAR = 40 };

typedef struct inspect_values {
    const char *data, *index_dir;
    int64_t probe;
    bool json, deep;
} inspect_values;

typedef struct findings {
    const char *path;
    const pst_dataset *data;
    survey survey;
    bool deep; /* every sample was decoded */
    int64_t classes;
    int64_t least_class, most_class; /* samples of the smallest and largest class */
    int64_t unlabelled;
    char pipeline[PIPELINE_BYTES];
} findings;

/* ---- findings ------------------------------------------------------------------------------- */

static void count_classes(findings *f)
{
    const int64_t classes = label_count(f->data), count = pst_dataset_count(f->data);
    f->classes = classes;
    if (classes < 1)
        return;
    int64_t *sizes = cli_alloc((size_t)classes * sizeof *sizes);
    for (int64_t id = 0; id < count; id++) {
        pst_sample_info info = {.label = -1};
        pst_dataset_sample(f->data, id, &info);
        if (info.label >= 0 && info.label < classes)
            sizes[info.label]++;
        else
            f->unlabelled++;
    }
    f->least_class = f->most_class = sizes[0];
    for (int64_t i = 1; i < classes; i++) {
        f->least_class = sizes[i] < f->least_class ? sizes[i] : f->least_class;
        f->most_class = sizes[i] > f->most_class ? sizes[i] : f->most_class;
    }
    free(sizes);
}

/* For what is no picture: a crop that a network takes, features of speech. */
static const char *suggest_other(const findings *f)
{
    char field[PST_NAME_BYTES];
    const bool masks = find_field(f->data, PST_MASK, field) != NULL;
    if (find_field(f->data, PST_VOLUME, field) != NULL)
        return masks ? "decode | pad_min(128) | balanced_crop(128) | random_flip"
                     : "decode | pad_min(128) | center_crop3(128)";
    return find_field(f->data, PST_AUDIO, field) != NULL ? "decode | log_mel | feature_norm"
                                                         : "decode";
}

/* A start that fits the sizes: the usual training crop where the pictures allow it, shifted crops
 * where they are small. */
static void suggest(findings *f)
{
    char field[PST_NAME_BYTES], resize[64] = "";
    const numbers *w = &f->survey.width, *h = &f->survey.height;
    const double width = numbers_at(w, 0.5), height = numbers_at(h, 0.5);
    const int side = (int)(width < height ? width : height);
    const bool alike = numbers_at(w, 0) == side && numbers_at(w, 1) == side &&
                       numbers_at(h, 0) == side && numbers_at(h, 1) == side;
    if (!alike)
        snprintf(resize, sizeof resize, "resize((%d, %d)) | ", side, side);
    if (find_field(f->data, PST_IMAGE, field) == NULL)
        snprintf(f->pipeline, sizeof f->pipeline, "%s", suggest_other(f));
    else if (side == 0 || side >= 128)
        snprintf(f->pipeline, sizeof f->pipeline,
                 "decode | random_resized_crop(224) | hflip | normalize(imagenet)");
    else
        snprintf(f->pipeline, sizeof f->pipeline,
                 "decode | %srandom_crop(%d, padding=%d) | hflip | normalize(imagenet)", resize,
                 side, side / 8);
    if (pst_pipeline_check(f->pipeline, NULL, 0, NULL, NULL) < 0)
        snprintf(f->pipeline, sizeof f->pipeline, "decode");
}

/* ---- for people ----------------------------------------------------------------------------- */

static void print_shape(const pst_field_info *info)
{
    if (info->rank == 0)
        return;
    printf(" (");
    for (int i = 0; i < info->rank; i++) {
        if (info->shape[i] < 0)
            printf(i ? ", ?" : "?");
        else
            printf(i ? ", %" PRId64 : "%" PRId64, info->shape[i]);
    }
    printf(")");
}

static void print_fields(const findings *f)
{
    const int count = pst_dataset_field_count(f->data);
    for (int i = 0; i < count; i++) {
        pst_field_info info = {0};
        if (pst_dataset_field(f->data, i, &info) != 0)
            continue;
        printf("  %-12s %-10s %s %s", i == 0 ? "fields" : "", info.name, kind_name(info.kind),
               dtype_name(info.dtype));
        print_shape(&info);
        printf("%s%s%s\n", info.format[0] ? ", stored as " : "", info.format,
               info.optional ? ", some samples lack it" : "");
    }
}

static void print_words(const char *title, const word_counts *w)
{
    char count[TEXT_SHORT];
    if (w->used == 0)
        return;
    printf("  %-12s ", title);
    for (int i = 0; i < w->used; i++)
        printf("%s%s %s", i ? ", " : "", text_count(count, (uint64_t)w->count[i]), w->word[i]);
    printf("\n");
}

static void print_classes(const findings *f)
{
    const int64_t names = pst_dataset_class_count(f->data);
    if (f->classes < 1)
        return;
    const bool of_samples = f->most_class > 0; /* else of objects in them */
    printf("  %-12s %" PRId64, "classes", f->classes);
    if (of_samples)
        printf(" with %" PRId64 " to %" PRId64 " samples", f->least_class, f->most_class);
    for (int64_t i = 0; i < names && i < CLASSES_SHOWN; i++)
        printf("%s %s", i ? "," : ":", pst_dataset_class(f->data, i));
    printf("%s\n", names > CLASSES_SHOWN ? ", …" : "");
    if (f->unlabelled > 0 && of_samples)
        printf("  %-12s %" PRId64 " samples without a label\n", "", f->unlabelled);
}

static int64_t split_size(const findings *f, const char *name)
{
    const int64_t *ids = NULL;
    int64_t count = 0;
    if (pst_dataset_split(f->data, name, &ids, &count) < 0)
        return 0;
    return ids == NULL ? pst_dataset_count(f->data) : count;
}

static void print_splits(const findings *f)
{
    const int splits = pst_dataset_split_count(f->data);
    for (int i = 0; i < splits; i++) {
        const char *name = pst_dataset_split_name(f->data, i);
        printf("  %-12s %s: %" PRId64 " samples\n", i == 0 ? "splits" : "", name,
               split_size(f, name));
    }
}

/* unit: what the numbers are shown in, 1 or 1024. */
static void print_histogram(const char *title, const numbers *n, const char *name, double unit)
{
    static const char bar[] = "########################################";
    if (n->count == 0)
        return;
    const bins b = bins_of(n, unit);
    int64_t most = 1;
    for (int i = 0; i < b.used; i++)
        most = b.count[i] > most ? b.count[i] : most;
    printf("\n  %s: %.0f to %.0f%s, median %.0f\n", title, n->values[0] / unit,
           n->values[n->count - 1] / unit, name, numbers_at(n, 0.5) / unit);
    for (int i = 0; i < b.used; i++) {
        char count[TEXT_SHORT];
        const int length = (int)(b.count[i] * BAR / most);
        printf("  %10.0f… %10s%s%.*s\n", (b.from + i * b.width) / unit,
               text_count(count, (uint64_t)b.count[i]), length ? " " : "", length, bar);
    }
}

static void print_bad(const findings *f)
{
    char text[1024];
    const survey *s = &f->survey;
    printf("\n  unreadable   %" PRId64 " of %" PRId64 " samples looked at%s\n", s->bad_count,
           s->probed, f->deep ? ", all decoded" : ", headers only (--deep decodes them)");
    for (int64_t i = 0; i < s->bad_kept && i < BAD_SHOWN; i++) {
        pst_error_format(&s->bad[i], text, sizeof text);
        printf("    id %" PRId64 ": %s\n", s->bad[i].id, text);
    }
    if (s->bad_count > BAD_SHOWN)
        printf("    … and %" PRId64 " more (--json lists them)\n", s->bad_count - BAD_SHOWN);
}

static void print_findings(const findings *f)
{
    char count[TEXT_SHORT], bytes[TEXT_SHORT], hex[33];
    uint8_t revision[16] = {0};
    pst_dataset_revision(f->data, revision);
    text_hex(revision, sizeof revision, hex);
    printf("%s: %s, %s samples, %s\n", f->path, pst_dataset_kind(f->data),
           text_count(count, (uint64_t)pst_dataset_count(f->data)),
           text_bytes(bytes, f->survey.bytes));
    printf("  %-12s %s\n", "revision", hex);
    print_fields(f);
    print_words("formats", &f->survey.formats);
    print_words("details", &f->survey.details);
    print_classes(f);
    print_splits(f);
    print_histogram("width", &f->survey.width, "", 1);
    print_histogram("height", &f->survey.height, "", 1);
    print_histogram("sample size", &f->survey.size, " KiB", 1024);
    print_bad(f);
    printf("\n  suggested_pipeline   %s\n", f->pipeline);
}

/* ---- for programs --------------------------------------------------------------------------- */

static void json_fields(json *j, const findings *f)
{
    json_array(j, "fields");
    for (int i = 0; i < pst_dataset_field_count(f->data); i++) {
        pst_field_info info = {0};
        if (pst_dataset_field(f->data, i, &info) != 0)
            continue;
        json_object(j, NULL);
        json_text(j, "name", info.name);
        json_text(j, "kind", kind_name(info.kind));
        json_text(j, "dtype", dtype_name(info.dtype));
        json_array(j, "shape");
        for (int d = 0; d < info.rank; d++)
            json_int(j, NULL, info.shape[d]);
        json_array_end(j);
        json_text(j, "format", info.format);
        json_bool(j, "optional", info.optional != 0);
        json_object_end(j);
    }
    json_array_end(j);
}

static void json_words(json *j, const char *key, const word_counts *w)
{
    json_object(j, key);
    for (int i = 0; i < w->used; i++)
        json_int(j, w->word[i], w->count[i]);
    json_object_end(j);
}

static void json_classes(json *j, const findings *f)
{
    const int64_t names = pst_dataset_class_count(f->data);
    json_object(j, "classes");
    json_int(j, "count", f->classes);
    json_int(j, "min", f->least_class);
    json_int(j, "max", f->most_class);
    json_int(j, "unlabelled", f->unlabelled);
    json_array(j, "names");
    for (int64_t i = 0; i < names; i++)
        json_text(j, NULL, pst_dataset_class(f->data, i));
    json_array_end(j);
    json_object_end(j);
}

static void json_splits(json *j, const findings *f)
{
    json_object(j, "splits");
    for (int i = 0; i < pst_dataset_split_count(f->data); i++) {
        const char *name = pst_dataset_split_name(f->data, i);
        json_int(j, name, split_size(f, name));
    }
    json_object_end(j);
}

static void json_numbers(json *j, const char *key, const numbers *n, double unit)
{
    const bins b = bins_of(n, unit);
    json_object(j, key);
    json_real(j, "min", numbers_at(n, 0));
    json_real(j, "median", numbers_at(n, 0.5));
    json_real(j, "max", numbers_at(n, 1));
    json_array(j, "histogram");
    for (int i = 0; i < b.used; i++) {
        json_object(j, NULL);
        json_real(j, "from", b.from + i * b.width);
        json_real(j, "to", b.from + (i + 1) * b.width);
        json_int(j, "count", b.count[i]);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

static void json_bad(json *j, const survey *s)
{
    json_int(j, "unreadable_count", s->bad_count);
    json_array(j, "unreadable");
    for (int64_t i = 0; i < s->bad_kept; i++) {
        json_object(j, NULL);
        json_int(j, "id", s->bad[i].id);
        json_text(j, "key", s->bad[i].key);
        json_text(j, "stage", s->bad[i].stage);
        json_text(j, "message", s->bad[i].message);
        json_object_end(j);
    }
    json_array_end(j);
}

static void json_findings(const findings *f)
{
    json j = {.out = stdout};
    char hex[33];
    uint8_t revision[16] = {0};
    pst_dataset_revision(f->data, revision);
    text_hex(revision, sizeof revision, hex);
    json_object(&j, NULL);
    json_text(&j, "path", f->path);
    json_text(&j, "kind", pst_dataset_kind(f->data));
    json_int(&j, "count", pst_dataset_count(f->data));
    json_uint(&j, "bytes", f->survey.bytes);
    json_text(&j, "revision", hex);
    json_fields(&j, f);
    json_words(&j, "formats", &f->survey.formats);
    json_words(&j, "details", &f->survey.details);
    json_classes(&j, f);
    json_splits(&j, f);
    json_numbers(&j, "width", &f->survey.width, 1);
    json_numbers(&j, "height", &f->survey.height, 1);
    json_numbers(&j, "file_bytes", &f->survey.size, 1024);
    json_int(&j, "probed", f->survey.probed);
    json_bad(&j, &f->survey);
    json_text(&j, "suggested_pipeline", f->pipeline);
    json_object_end(&j);
    printf("\n");
}

/* ---- the command ---------------------------------------------------------------------------- */

static int run_inspect(const void *values)
{
    const inspect_values *v = values;
    pst_dataset *data = NULL;
    int exit_code = open_data(v->data, v->index_dir, &data);
    if (exit_code != CLI_OK)
        return exit_code;
    findings f = {.path = v->data, .data = data, .deep = v->deep};
    survey_run(data, v->probe, &f.survey);
    if (v->deep && interrupt_signal() == 0)
        exit_code = survey_deep(data, &f.survey);
    if (exit_code == CLI_OK && interrupt_signal() == 0) {
        numbers_sort(&f.survey.width);
        numbers_sort(&f.survey.height);
        numbers_sort(&f.survey.size);
        count_classes(&f);
        suggest(&f);
        if (v->json)
            json_findings(&f);
        else
            print_findings(&f);
        if (f.survey.probed > 0 && f.survey.bad_count >= f.survey.probed)
            exit_code = fail("none of the samples of %s can be read", v->data);
    }
    survey_fini(&f.survey);
    pst_dataset_close(data);
    return exit_code;
}

#define AT(field) offsetof(inspect_values, field)
static const arg_operand operands[] = {
    {"DATA", AT(data), false, "folder, tar file, folder of tar shards, manifest, or one file"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_FLAG("json", AT(json), "one JSON object"),
    OPT_FLAG("deep", AT(deep),
             "decode every sample: finds damage behind the header, takes as long as an epoch"),
    OPT_INT("probe", "N", AT(probe), 0, 1e15, "0",
            "look into N samples only, spread evenly; 0 = all"),
    OPT_INDEX_DIR(AT(index_dir)),
    OPT_END,
};
#undef AT

const command command_inspect = {
    .name = "inspect",
    .summary = "what a dataset holds: fields, formats, classes, sizes, unreadable samples",
    .about = "Reads every sample's header. Exit code 1 when no sample can be read. "
             "suggested_pipeline is a start for 'penstock feed "
             "--pipeline'.",
    .examples =
        "penstock inspect photos\npenstock inspect shards/ --json\npenstock inspect photos --deep",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(inspect_values),
    .run = run_inspect,
};
