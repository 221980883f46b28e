/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the dataset named on the command line and shows its first batches.
 *     cc first_batch.c $(pkg-config --cflags --libs penstock) && ./a.out photos/ */
#include <inttypes.h>
#include <penstock.h>
#include <stdio.h>

static int complain(const pst_error *err)
{
    char text[1024];
    pst_error_format(err, text, sizeof(text));
    fprintf(stderr, "first_batch: %s\n", text);
    return 1;
}

static void show(const pst_batch_desc *batch)
{
    const pst_field *image = pst_batch_find(batch, "image");
    const int64_t *ids = pst_batch_data(batch, pst_batch_find(batch, "id"));
    printf("epoch %" PRIu64 " step %" PRIu64 " ids", batch->epoch, batch->step);
    for (uint32_t i = 0; i < batch->slots; i++)
        printf(" %" PRId64, ids[i]);
    printf(" shape %u", batch->slots);
    for (int i = 0; image != NULL && i < image->rank; i++)
        printf(" x %" PRId64, image->shape[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return fprintf(stderr, "usage: first_batch DATASET\n"), 2;
    pst_engine *engine = NULL;
    pst_dataset *data = NULL;
    pst_job *job = NULL;
    pst_error err = {0};
    pst_job_options opts;
    pst_job_options_init(&opts);
    opts.pipeline = "decode | random_resized_crop(224) | hflip | normalize(imagenet)";
    opts.batch = 8;

    int rc = pst_engine_new(NULL, &engine, &err);
    rc = rc < 0 ? rc : pst_dataset_open(argv[1], NULL, &data, &err);
    rc = rc < 0 ? rc : pst_job_open(engine, data, &opts, &job, &err);
    for (int i = 0; rc >= 0 && i < 3; i++) {
        pst_batch *batch = NULL;
        rc = pst_job_next(job, -1, &batch);
        if (rc > 0) {
            show(pst_batch_get(batch));
            pst_batch_release(batch);
        } else if (rc < 0) {
            pst_job_error(job, &err);
        }
    }
    pst_job_close(job);
    pst_dataset_close(data);
    pst_engine_free(engine);
    return rc < 0 ? complain(&err) : 0;
}
