/* SPDX-License-Identifier: Apache-2.0
 * A job's options as bytes, for the daemon. Calls are left out: they are functions. Private. */
#ifndef PSTI_SERVE_SPEC_H
#define PSTI_SERVE_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

typedef struct job_spec {
    pst_job_options options; /* texts and arrays point into bytes */
    const char *name;        /* of the dataset's file in its directory; NULL = the directory */
    const char *path;        /* what the client calls the dataset, for lists */
    uint8_t *bytes;          /* owned: psti_malloc'ed */
    size_t size;
} job_spec;

/* Fills bytes and size. 0 or -ENOMEM. */
int spec_encode(job_spec *s);
/* The other way, from bytes of an untrusted sender: every length is checked, every text ends
 * within. 0 or -EPROTO. Values are checked where the job is opened. */
int spec_decode(job_spec *s);
void spec_fini(job_spec *s);

#endif
