/* SPDX-License-Identifier: Apache-2.0
 * What the engine's tests share: small datasets made on the spot, and ledgers of what a job
 * delivered. */
#ifndef PSTI_TESTS_ENGINE_KIT_H
#define PSTI_TESTS_ENGINE_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"

#define KIT_PIPELINE "decode | random_resized_crop(16) | hflip | normalize(imagenet)"
enum { KIT_ENTRY_BYTES = 1280 }; /* what the cache takes for its augmented form */

/* One delivered sample. */
typedef struct line {
    uint64_t epoch, step;
    int rank, slot;
    int64_t id;
    uint32_t crc;
    bool valid;
} line;

/* One sample of a job that shares. */
typedef struct kit_sample {
    uint64_t epoch;
    int64_t id, number; /* number: of its preparation */
    uint32_t crc;
} kit_sample;

typedef struct ledger {
    line *at;
    size_t count, cap;
    size_t batches;
} ledger;

/* A fresh folder; the caller removes it with kit_remove. */
char *kit_folder(void);
void kit_remove(char *folder);
void kit_write(const char *folder, const char *name, const void *bytes, size_t size);
/* A JPEG of noise; free() it. seed decides content; progressive as asked. */
uint8_t *kit_jpeg(int width, int height, unsigned seed, bool progressive, size_t *size);
/* count JPEGs of mixed small sizes in `classes` class folders. */
void kit_images(const char *folder, int count, int classes);
/* A file of that kind whose data is cut in the middle. */
void kit_break(const char *folder, int index, int classes);
void kit_name(int index, int classes, char name[64]);

/* They print why not and exit. Memory is what the engine may take in all; kit_sharing_engine has
 * room for that many augmented entries of KIT_PIPELINE, and for no other form. */
pst_engine *kit_engine_with(const pst_engine_options *opts);
pst_engine *kit_engine(int workers, uint64_t memory);
pst_engine *kit_cached_engine(int workers, uint64_t memory, uint64_t cache);
pst_engine *kit_sharing_engine(int workers, int entries);
pst_dataset *kit_dataset(const char *folder);
pst_job_options kit_options(const char *pipeline, int batch, uint64_t seed, uint64_t epochs);
/* The same for a job that shares: KIT_PIPELINE, ready order, one batch ahead. */
pst_job_options kit_sharing_options(int batch, uint64_t seed, uint64_t epochs);
/* Opens a job or prints why not and exits. */
pst_job *kit_job(pst_engine *engine, pst_dataset *data, const pst_job_options *opts);
/* Appends what the job delivers, at most max_batches. Returns the last answer of pst_job_next: 0
 * after the epochs, or an error. */
int kit_collect(pst_job *job, int rank, uint64_t epochs, size_t max_batches, ledger *out);
/* What a batch of a job that shares holds; how many. */
uint32_t kit_samples(const pst_batch_desc *desc, kit_sample *out);
/* Of the sample's own elements, whatever the batch padded them with; another one where that is not
 * zero. */
uint32_t kit_field_crc(uint32_t crc, const pst_batch_desc *desc, const pst_field *field,
                       uint32_t slot);
void ledger_free(ledger *l);
/* Without padding, sorted by epoch, id, crc. */
void ledger_sort(ledger *l);
bool ledger_same(const ledger *a, const ledger *b);       /* the multiset of (epoch, id, crc) */
bool ledger_same_order(const ledger *a, const ledger *b); /* line by line, but for rank */
void ledger_push(ledger *l, const line *one);

#endif
