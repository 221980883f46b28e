/* SPDX-License-Identifier: Apache-2.0
 * penstock run: one file through a pipeline, exactly as a training job would make it, into a .npy
 * file. Main thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "npy.h"
#include "open.h"
#include "outfile.h"
#include "slots.h"

typedef struct run_values {
    const char *file, *pipeline, *npy, *field;
    int64_t epoch, id;
    uint64_t seed, memory;
} run_values;

static int check_file(const char *path)
{
    struct stat info;
    if (strstr(path, "://") != NULL) /* in a bucket, or on a web server */
        return CLI_OK;
    if (stat(path, &info) != 0)
        return fail_errno(errno, "read", path);
    if (S_ISDIR(info.st_mode))
        return fail(
            "%s is a folder; run takes one file. For whole datasets there are feed and preview",
            path);
    return CLI_OK;
}

static int open_job(const run_values *v, pst_engine *engine, pst_dataset *data, pst_job **job)
{
    pst_job_options opts;
    pst_error err = {0};
    pst_job_options_init(&opts);
    opts.pipeline = v->pipeline;
    opts.fields = v->field;
    opts.batch = 1;
    opts.seed = v->seed;
    opts.first_epoch = (uint64_t)v->epoch;
    opts.epochs = 1;
    opts.sampler = PST_SEQUENTIAL;
    opts.draw_id = v->id;
    if (pst_job_open(engine, data, &opts, job, &err) < 0)
        return fail_open(v->pipeline, &err);
    interrupt_job(*job);
    return CLI_OK;
}

/* A shard or a manifest is a file too, but not one sample. */
static int check_single(const char *path, const pst_dataset *data)
{
    if (strcmp(pst_dataset_kind(data), "file") == 0)
        return CLI_OK;
    return fail("%s is a whole dataset (%s); run takes one sample's file. For datasets there are "
                "feed and preview",
                path, pst_dataset_kind(data));
}

/* The field asked for, else the first picture, else the first that is not bookkeeping. */
static const pst_field *pick_field(const run_values *v, const pst_batch_desc *desc)
{
    const pst_field *first = NULL;
    if (v->field != NULL)
        return pst_batch_find(desc, v->field);
    for (uint32_t i = 0; i < desc->fields; i++) {
        const pst_field *field = pst_batch_field(desc, i);
        if (field->kind == PST_IMAGE || field->kind == PST_MASK)
            return field;
        if (first == NULL && strcmp(field->name, "id") && strcmp(field->name, "key") &&
            strcmp(field->name, "valid"))
            first = field;
    }
    return first;
}

static void print_result(const run_values *v, const pst_field *field, const int64_t *shape)
{
    printf("%s: %s %s (", v->npy, field->name, dtype_name(field->dtype));
    for (int i = 0; i < field->rank; i++)
        printf(i ? ", %lld" : "%lld", (long long)shape[i]);
    printf(")%s\n",
           field->dtype == PST_BF16 ? ", stored as uint16: the upper half of a float32" : "");
}

static int write_slot(const run_values *v, const pst_batch_desc *desc)
{
    int64_t shape[PST_MAX_RANK] = {0};
    const pst_field *field = pick_field(v, desc);
    if (field == NULL)
        return fail("%s has no field %s", v->file, v->field ? v->field : "to write");
    slot_shape(desc, field, 0, shape);
    const size_t bytes = slot_bytes(desc, field, 0);
    uint8_t *packed = cli_alloc(bytes);
    slot_pack(desc, field, 0, packed);
    const int exit_code = npy_write(v->npy, field->dtype, field->rank, shape, packed, bytes);
    free(packed);
    if (exit_code == CLI_OK)
        print_result(v, field, shape);
    return exit_code;
}

static int take_one(const run_values *v, pst_job *job)
{
    pst_batch *batch = NULL;
    const int rc = pst_job_next(job, -1, &batch);
    if (rc < 0)
        return fail_job(job, rc);
    if (rc == 0)
        return fail("%s gave no sample", v->file);
    const int exit_code = write_slot(v, pst_batch_get(batch));
    pst_batch_release(batch);
    return exit_code;
}

static int run_run(const void *values)
{
    const run_values *v = values;
    pst_engine *engine = NULL;
    pst_dataset *data = NULL;
    pst_job *job = NULL;
    pst_error err = {0};
    pst_engine_options opts;
    pst_engine_options_init(&opts);
    opts.workers = 1;
    opts.memory_bytes = v->memory;
    int exit_code = check_pipeline(v->pipeline, NULL);
    if (exit_code == CLI_OK)
        exit_code = check_file(v->file);
    if (exit_code == CLI_OK)
        exit_code = outfile_check(v->npy);
    if (exit_code == CLI_OK && pst_engine_new(&opts, &engine, &err) < 0)
        exit_code = fail_error(&err);
    if (exit_code == CLI_OK)
        exit_code = open_data(v->file, "none", &data);
    if (exit_code == CLI_OK)
        exit_code = check_single(v->file, data);
    if (exit_code == CLI_OK)
        exit_code = open_job(v, engine, data, &job);
    if (exit_code == CLI_OK)
        exit_code = take_one(v, job);
    interrupt_job(NULL);
    pst_job_close(job);
    pst_dataset_close(data);
    pst_engine_free(engine);
    return exit_code;
}

#define AT(field) offsetof(run_values, field)
static const arg_operand operands[] = {
    {"FILE", AT(file), false, "one sample's file: .jpg, .png, .webp, .npy"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_NEEDED("pipeline", "TEXT", AT(pipeline), "what is done to it; see: penstock ops"),
    OPT_NEEDED("npy", "OUT", AT(npy), "the file to write"),
    OPT_U64("seed", "S", AT(seed), "0", "of random choices"),
    OPT_INT("epoch", "E", AT(epoch), 0, 4294967295.0, "0", "the choices of this epoch"),
    OPT_INT("id", "I", AT(id), 0, 9e15, "0", "the choices of the sample with this id"),
    OPT_TEXT("field", "NAME", AT(field), NULL, "which field (default: the picture)"),
    OPT_BYTES("memory", "BYTES", AT(memory), "0",
              "memory budget; 0 = a quarter of what the process may have, at most 8 GiB"),
    OPT_END,
};
#undef AT

const command command_run = {
    .name = "run",
    .summary = "put one file through a pipeline and write what comes out as .npy",
    .about = "With the seed, epoch and id of a training run the result is byte for byte what that "
             "run was fed.",
    .examples =
        "penstock run cat.jpg --pipeline 'decode | resize(256) | center_crop(224)' --npy cat.npy\n"
        "penstock run cat.jpg --pipeline 'decode | random_resized_crop(224) | hflip' --npy cat.npy "
        "--seed 1 --epoch 3 --id 17",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(run_values),
    .run = run_run,
};
