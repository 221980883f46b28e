/* SPDX-License-Identifier: Apache-2.0
 * Opening datasets and checking pipelines for the commands. Main thread. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"
#include "open.h"
#include "progress.h"

static int on_listing(uint64_t found, void *user)
{
    char what[256];
    snprintf(what, sizeof what, "listing %s", (const char *)user);
    progress_step(&(progress_at){.what = what, .things = "found", .done = found});
    return interrupt_signal();
}

/* A place that was asked for and cannot be used is worth a word; the usual one is not. */
static void check_index_dir(const char *dir)
{
    if (dir != NULL && dir[0] != '\0' && access(dir, W_OK) != 0)
        say("the listing cannot be remembered in %s: %s; the next start lists again", dir,
            strerror(errno));
}

int open_data(const char *path, const char *index_dir, pst_dataset **out)
{
    pst_dataset_options opts;
    pst_error err = {0};
    pst_dataset_options_init(&opts);
    opts.index_dir = index_dir != NULL && strcmp(index_dir, "none") == 0 ? "" : index_dir;
    opts.progress = on_listing;
    opts.user = (void *)(uintptr_t)path; /* read only, by on_listing */
    const int rc = pst_dataset_open(path, &opts, out, &err);
    progress_clear();
    if (rc < 0)
        return fail_error(&err);
    check_index_dir(opts.index_dir);
    return CLI_OK;
}

const char *find_field(const pst_dataset *data, int kind, char out[PST_NAME_BYTES])
{
    const int count = pst_dataset_field_count(data);
    for (int i = 0; i < count; i++) {
        pst_field_info info = {0};
        if (pst_dataset_field(data, i, &info) == 0 && info.kind == kind) {
            memcpy(out, info.name, PST_NAME_BYTES);
            return out;
        }
    }
    return NULL;
}

int64_t label_count(const pst_dataset *data)
{
    int64_t count = pst_dataset_class_count(data);
    const int64_t samples = pst_dataset_count(data);
    for (int64_t id = 0; id < samples; id++) {
        pst_sample_info info = {.label = -1};
        if (pst_dataset_sample(data, id, &info) == 0 && info.label >= count &&
            info.label < LABELS_MAX)
            count = info.label + 1;
    }
    return count > 0 ? count : 0;
}

int fail_open(const char *pipeline, const pst_error *err)
{
    return strcmp(err->stage, "pipeline") == 0 ? fail_pipeline(pipeline, err) : fail_error(err);
}

int fail_job(const pst_job *job, int rc)
{
    pst_error err = {0};
    if (rc == -ECANCELED)
        return CLI_FAIL;
    pst_job_error(job, &err);
    return err.code != 0 ? fail_error(&err) : fail("no batch came: %s", pst_strerror(rc));
}

int check_pipeline(const char *text, char *canonical)
{
    pst_error err = {0};
    if (pst_pipeline_check(text, canonical, canonical ? PIPELINE_BYTES : 0, NULL, &err) < 0)
        return fail_pipeline(text, &err);
    return CLI_OK;
}

const char *kind_name(int kind)
{
    static const char *const names[] = {
        [PST_IMAGE] = "image", [PST_MASK] = "mask",     [PST_LABEL] = "label",
        [PST_BOXES] = "boxes", [PST_VOLUME] = "volume", [PST_AUDIO] = "audio",
        [PST_TEXT] = "text",   [PST_BYTES] = "bytes",   [PST_ARRAY] = "array",
        [PST_META] = "meta"};
    return kind >= PST_IMAGE && kind <= PST_META ? names[kind] : "unknown";
}

const char *dtype_name(int dtype)
{
    static const char *const names[] = {
        [PST_U8] = "u8",   [PST_I8] = "i8",   [PST_U16] = "u16",  [PST_I16] = "i16",
        [PST_I32] = "i32", [PST_I64] = "i64", [PST_F16] = "f16",  [PST_BF16] = "bf16",
        [PST_F32] = "f32", [PST_F64] = "f64", [PST_BOOL] = "bool"};
    return dtype >= PST_U8 && dtype <= PST_BOOL ? names[dtype] : "unknown";
}
