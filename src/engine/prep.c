/* SPDX-License-Identifier: Apache-2.0
 * Preps: one sample at a time through a pipeline, on the calling thread, without an engine. For
 * processes that run Python code on each sample and want the native part of a pipeline before it.
 * No thread, no lock, no global: a prep is its caller's alone, also after fork. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine_priv.h"

enum { KEEP = 16 << 20 }; /* bytes that a prep may hold between samples */

struct pst_prep {
    uint64_t seed;
    psti_plan *plan;
    psti_work *work;
    psti_kit kit;
    psti_buf file; /* of pst_prep_run_file */
};

/* The one field that bytes without a dataset have. */
static int make_plan(pst_prep *prep, const char *text, pst_error *err)
{
    static const psti_plan_input image = {.name = "image",
                                          .kind = PST_IMAGE,
                                          .encoded = true,
                                          .dtype = PST_U8,
                                          .rank = 3,
                                          .shape = {-1, -1, -1}};
    psti_pipeline *pipeline;
    int rc = psti_pipeline_parse(text, &pipeline, err);
    if (rc < 0)
        return rc;
    rc = psti_plan_new(pipeline, &image, 1, &prep->plan, err);
    psti_pipeline_free(pipeline);
    if (rc == 0)
        rc = psti_plan_set_calls(prep->plan, NULL, 0, err);
    if (rc == 0 && psti_plan_mix_stage(prep->plan) >= 0)
        rc = psti_fail(
            err, PST_EPIPELINE, "pipeline", NULL,
            "ops on whole batches (after ||) cannot run on single samples; leave them out");
    return rc;
}

int pst_prep_new(const char *pipeline, uint64_t seed, pst_prep **out, pst_error *err)
{
    if (!pipeline)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "a pipeline is required, for example \"decode | resize(224)\"");
    pst_prep *prep = psti_calloc(PSTI_MEM_ENGINE, 1, sizeof *prep);
    if (!prep)
        return psti_fail(err, -ENOMEM, "prep", NULL, "out of memory");
    prep->seed = seed;
    int rc = make_plan(prep, pipeline, err);
    if (rc == 0) {
        prep->work = psti_work_new();
        if (!prep->work || psti_kit_init(&prep->kit) < 0)
            rc = psti_fail(err, -ENOMEM, "prep", NULL, "out of memory");
    }
    if (rc < 0) {
        pst_prep_free(prep);
        return rc;
    }
    *out = prep;
    return 0;
}

void pst_prep_free(pst_prep *prep)
{
    if (!prep)
        return;
    psti_work_free(prep->work);
    psti_kit_fini(&prep->kit);
    psti_plan_free(prep->plan);
    psti_buf_free(&prep->file);
    psti_free(prep);
}

static int check_draw(uint64_t epoch, int64_t id, uint64_t occurrence, pst_error *err)
{
    if (epoch > UINT32_MAX || occurrence > UINT32_MAX || id < 0)
        return psti_fail(err, -EINVAL, "options", NULL,
                         "epoch and occurrence must be 0..2^32-1 and id must not be negative");
    return 0;
}

/* Up to finish, drawn from the key that a job would draw from. */
static int carry_out(pst_prep *prep, const psti_input *input, const psti_rng_key *key,
                     pst_error *err)
{
    psti_work_set_id(prep->work, (int64_t)key->id);
    int rc = psti_work_start(prep->work, &prep->kit, prep->plan, key, input, err);
    if (rc < 0)
        return rc;
    while ((rc = psti_work_step(prep->work, &prep->kit, err)) > 0)
        ;
    return rc;
}

static int run(pst_prep *prep, const psti_input *input, const psti_rng_key *key, const char *name,
               pst_batch **out, pst_error *err)
{
    int rc = carry_out(prep, input, key, err);
    if (rc == 0) {
        const psti_single single = {.plan = prep->plan,
                                    .work = prep->work,
                                    .kit = &prep->kit,
                                    .epoch = key->epoch,
                                    .id = (int64_t)key->id,
                                    .key = name};
        rc = psti_batch_single(&single, out, err);
    }
    if (rc < 0 && err) {
        err->id = (int64_t)key->id;
        psti_error_key(err, name);
    }
    psti_work_clear(prep->work, &prep->kit, KEEP);
    return rc;
}

int pst_prep_run(pst_prep *prep, const void *bytes, size_t size, uint64_t epoch, int64_t id,
                 uint64_t occurrence, pst_batch **out, pst_error *err)
{
    const int rc = check_draw(epoch, id, occurrence, err);
    if (rc < 0)
        return rc;
    /* No bytes are damaged bytes, not a missing field. */
    const psti_input input = {bytes ? bytes : (const uint8_t *)"", bytes ? size : 0, -1};
    const psti_rng_key key = {prep->seed, epoch, (uint64_t)id, (uint32_t)occurrence, 0};
    return run(prep, &input, &key, "", out, err);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int read_all(int fd, psti_buf *buf, size_t *size)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    if (psti_buf_need(PSTI_MEM_ENGINE, buf, (size_t)st.st_size) < 0)
        return -ENOMEM;
    *size = 0;
    while (*size < (size_t)st.st_size) {
        const ssize_t n = read(fd, buf->data + *size, (size_t)st.st_size - *size);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        *size += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int read_file(pst_prep *prep, const char *path, size_t *size)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const int rc = read_all(fd, &prep->file, size);
    close(fd);
    return rc;
}

int pst_prep_run_file(pst_prep *prep, const char *path, uint64_t epoch, int64_t id,
                      uint64_t occurrence, pst_batch **out, pst_error *err)
{
    int rc = check_draw(epoch, id, occurrence, err);
    if (rc < 0)
        return rc;
    size_t size = 0;
    rc = read_file(prep, path, &size);
    if (rc < 0) {
        psti_fail(err, rc, "read", path, "the file cannot be read: %s", pst_strerror(rc));
        if (err)
            err->id = id;
        return rc;
    }
    const psti_input input = {prep->file.data, size, -1};
    const psti_rng_key key = {prep->seed, epoch, (uint64_t)id, (uint32_t)occurrence, 0};
    rc = run(prep, &input, &key, path, out, err);
    if (prep->file.cap > KEEP)
        psti_buf_free(&prep->file);
    return rc;
}
