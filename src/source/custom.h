/* SPDX-License-Identifier: Apache-2.0
 * Datasets whose samples the caller's function fetches: what the dataset object keeps of them.
 * Private to the source room. */
#ifndef PSTI_SOURCE_CUSTOM_H
#define PSTI_SOURCE_CUSTOM_H

#include "core/fork.h"
#include "source/source_priv.h"

/* Values of one field that came with samples already, by id: a label may be known only once its
 * sample was read, and is needed again when the sample comes out of a cache. A cell is written
 * once, before its bit; scalars only. */
typedef struct psti_late {
    uint64_t *cells;
    atomic_uint_fast64_t *present; /* a bit per sample; partner: psti_custom_remember */
    size_t bytes;                  /* of a value; 0: not kept */
} psti_late;

struct psti_custom {
    pst_custom spec; /* name, fields, labels and revision are not used after making */
    psti_late late[PSTI_FIELDS_MAX];
    int64_t count;
    atomic_int refs; /* the dataset and each thread; counter, the last one frees */

    pthread_mutex_t lock; /* guards what follows, and writing to late */
    pthread_cond_t more;
    psti_fork_guard forks;
    psti_fetch *first, *last;
    bool closed;
    int threads;    /* running in this process */
    int busy;       /* of these, in the caller's function */
    double mean_ns; /* of a call of it, of late */
    bool adapts;    /* the caller did not say how many; fixed after making */
    pthread_t *thread;
};

/* 0; -EAGAIN when the value comes with the sample and was not met yet. */
int psti_custom_value(const struct psti_custom *custom, int64_t id, int field, const void **value,
                      size_t *bytes);
/* Memory of what is remembered. */
uint64_t psti_custom_bytes(const struct psti_custom *custom, int fields);
psti_id128 psti_custom_identity(const psti_dataset *data, int64_t id);
/* The dataset goes: ends the threads. NULL is fine. */
void psti_custom_close(struct psti_custom *custom);

#endif
