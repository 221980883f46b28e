/* SPDX-License-Identifier: Apache-2.0
 * See engine_kit.h. Failures of the kit itself end the test program. */
#include "engine_kit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

static void die(const char *what)
{
    perror(what);
    exit(99);
}

char *kit_folder(void)
{
    const char *base = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/penstock-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(path))
        die(path);
    return strdup(path);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void kit_remove(char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

void kit_write(const char *folder, const char *name, const void *bytes, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f))
        die(path);
}

uint8_t *kit_jpeg(int width, int height, unsigned seed, bool progressive, size_t *size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char *out = NULL;
    unsigned long bytes = 0;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &bytes);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 85, TRUE);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    uint8_t *row = malloc((size_t)width * 3);
    uint32_t state = seed * 2654435761u + 1;
    while (c.next_scanline < c.image_height) {
        for (int i = 0; i < width * 3; i++) {
            state = state * 1664525u + 1013904223u;
            row[i] = (uint8_t)((state >> 26) + (unsigned)(i + (int)c.next_scanline) * 3);
        }
        JSAMPROW rows[1] = {row};
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    *size = bytes;
    return out;
}

void kit_name(int index, int classes, char name[64])
{
    snprintf(name, 64, "c%02d/img_%04d.jpg", index % classes, index);
}

void kit_images(const char *folder, int count, int classes)
{
    for (int i = 0; i < count; i++) {
        char name[64];
        size_t size;
        uint8_t *bytes =
            kit_jpeg(24 + i * 7 % 29, 20 + i * 5 % 23, (unsigned)i + 1, i % 5 == 4, &size);
        kit_name(i, classes, name);
        kit_write(folder, name, bytes, size);
        free(bytes);
    }
}

void kit_break(const char *folder, int index, int classes)
{
    char name[64];
    kit_name(index, classes, name);
    kit_write(folder, name, "\xff\xd8\xff\xe0 not a picture", 19);
}

pst_engine *kit_engine_with(const pst_engine_options *opts)
{
    pst_engine *engine;
    pst_error err;
    if (pst_engine_new(opts, &engine, &err) < 0) {
        fprintf(stderr, "engine: %s\n", err.message);
        exit(99);
    }
    return engine;
}

pst_engine *kit_cached_engine(int workers, uint64_t memory, uint64_t cache)
{
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = workers;
    o.memory_bytes = memory;
    o.cache_bytes = cache;
    return kit_engine_with(&o);
}

pst_engine *kit_engine(int workers, uint64_t memory)
{
    return kit_cached_engine(workers, memory, 0);
}

/* The cache is larger than what the form may take of it, so that its part alone is the limit. */
pst_engine *kit_sharing_engine(int workers, int entries)
{
    const uint64_t bytes = (uint64_t)entries * KIT_ENTRY_BYTES;
    pst_engine_options o;
    pst_engine_options_init(&o);
    o.workers = workers;
    o.cache_bytes = (1u << 20) + bytes;
    o.memory_bytes = (64u << 20) + o.cache_bytes;
    o.forms[2] = (double)bytes / (double)o.cache_bytes;
    return kit_engine_with(&o);
}

pst_job_options kit_options(const char *pipeline, int batch, uint64_t seed, uint64_t epochs)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = pipeline;
    o.batch = batch;
    o.seed = seed;
    o.epochs = epochs;
    return o;
}

pst_job_options kit_sharing_options(int batch, uint64_t seed, uint64_t epochs)
{
    pst_job_options o = kit_options(KIT_PIPELINE, batch, seed, epochs);
    o.order = PST_ORDER_READY;
    o.sampling = PST_SAMPLING_OPPORTUNISTIC;
    o.ready_depth = 1;
    return o;
}

pst_dataset *kit_dataset(const char *folder)
{
    pst_dataset_options o;
    pst_dataset_options_init(&o);
    o.index_dir = "";
    pst_dataset *data;
    pst_error err;
    if (pst_dataset_open(folder, &o, &data, &err) < 0) {
        fprintf(stderr, "dataset: %s\n", err.message);
        exit(99);
    }
    return data;
}

pst_job *kit_job(pst_engine *engine, pst_dataset *data, const pst_job_options *opts)
{
    pst_job *job;
    pst_error err;
    if (pst_job_open(engine, data, opts, &job, &err) < 0) {
        fprintf(stderr, "job: %s: %s\n", err.stage, err.message);
        exit(99);
    }
    return job;
}

void ledger_push(ledger *l, const line *one)
{
    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->at = realloc(l->at, l->cap * sizeof *l->at);
    }
    l->at[l->count++] = *one;
}

static bool all_zero(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i])
            return false;
    return true;
}

/* Of what a slot of this box holds in its first corner. */
static uint32_t box_crc(uint32_t crc, const uint8_t *data, const int64_t *box, const int64_t *shape,
                        int rank, size_t unit)
{
    if (rank == 0)
        return pst_crc32c(crc, data, unit);
    size_t step = unit;
    for (int d = 1; d < rank; d++)
        step *= (size_t)box[d];
    for (int64_t i = 0; i < shape[0]; i++)
        crc = rank == 1 ? pst_crc32c(crc, data + (size_t)i * step, step)
                        : box_crc(crc, data + (size_t)i * step, box + 1, shape + 1, rank - 1, unit);
    const size_t own = (size_t)shape[0] * step;
    return all_zero(data + own, (size_t)box[0] * step - own) ? crc : ~crc;
}

uint32_t kit_field_crc(uint32_t crc, const pst_batch_desc *desc, const pst_field *field,
                       uint32_t slot)
{
    size_t bytes;
    const uint8_t *data = pst_batch_slot(desc, field, slot, &bytes);
    if (field->packing != PST_PADDED)
        return pst_crc32c(crc, data, bytes);
    const int64_t *shapes = (const int64_t *)((const uint8_t *)desc + field->shapes_offset);
    return box_crc(crc, data, field->shape, shapes + (size_t)slot * field->rank, field->rank,
                   pst_dtype_bytes(field->dtype));
}

static uint32_t slot_crc(const pst_batch_desc *desc, uint32_t slot)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < desc->fields; i++) {
        const pst_field *field = pst_batch_field(desc, i);
        if (field->kind == PST_META || strcmp(field->name, "key") == 0)
            continue;
        crc = kit_field_crc(crc, desc, field, slot);
    }
    return crc;
}

static void add_batch(ledger *l, const pst_batch_desc *desc, int rank)
{
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    const uint8_t *valid = pst_batch_data(desc, pst_batch_find(desc, "valid"));
    for (uint32_t i = 0; i < desc->slots; i++) {
        const line one = {desc->epoch, desc->step,        rank,    (int)i,
                          ids[i],      slot_crc(desc, i), valid[i]};
        ledger_push(l, &one);
    }
    l->batches++;
}

int kit_collect(pst_job *job, int rank, uint64_t epochs, size_t max_batches, ledger *out)
{
    for (uint64_t ended = 0; ended < epochs && max_batches > 0;) {
        pst_batch *batch;
        const int rc = pst_job_next(job, 20000000000, &batch);
        if (rc < 0)
            return rc;
        ended += rc == 0;
        if (rc == 0)
            continue;
        add_batch(out, pst_batch_get(batch), rank);
        pst_batch_release(batch);
        max_batches--;
    }
    return 0;
}

uint32_t kit_samples(const pst_batch_desc *desc, kit_sample *out)
{
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    const int64_t *numbers = pst_batch_data(desc, pst_batch_find(desc, "preparation"));
    for (uint32_t i = 0; i < desc->slots; i++)
        out[i] = (kit_sample){desc->epoch, ids[i], numbers[i], slot_crc(desc, i)};
    return desc->slots;
}

void ledger_free(ledger *l)
{
    free(l->at);
    *l = (ledger){0};
}

static int compare(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->crc < y->crc ? -1 : x->crc > y->crc;
}

void ledger_sort(ledger *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].valid)
            l->at[kept++] = l->at[i];
    l->count = kept;
    if (kept)
        qsort(l->at, kept, sizeof *l->at, compare);
}

bool ledger_same(const ledger *a, const ledger *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (compare(&a->at[i], &b->at[i]) != 0)
            return false;
    return true;
}

bool ledger_same_order(const ledger *a, const ledger *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const line *x = &a->at[i], *y = &b->at[i];
        if (compare(x, y) != 0 || x->step != y->step || x->slot != y->slot || x->valid != y->valid)
            return false;
    }
    return true;
}
