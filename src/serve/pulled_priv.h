/* SPDX-License-Identifier: Apache-2.0
 * What the files that answer for pulled datasets share. Private. */
#ifndef PSTI_SERVE_PULLED_PRIV_H
#define PSTI_SERVE_PULLED_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "penstock.h"
#include "serve/pulled.h"

enum {
    OK = 200,
    ACCEPTED = 202,
    NOTHING = 204,
    BAD = 400,
    NOT_FOUND = 404,
    NOT_ALLOWED = 405,
    CONFLICT = 409,
    FAILED = 500
};

typedef struct pull {
    struct pull *next;
    struct pulled *all;
    char name[PST_DATASET_NAME_BYTES], url[1024], revision[PST_REVISION_BYTES];
    bool pin, unpin, check, dry, partial;
    pthread_t thread;
    atomic_bool stop; /* partner: progress */
    /* under pulled.lock */
    bool running;
    int rc;
    pst_pull_progress now;
    pst_pull_failure failure;
    pst_error error;
} pull;

struct pulled {
    const char *dir;
    sources *sources;
    pthread_mutex_t lock; /* guards what the pulls tell; a leaf. The list is the control thread's */
    pull *pulls;
};

/* pulled_show.c */
json_t *show_pull(struct pulled *p, const pull *one);
unsigned show_all(struct pulled *p, json_t **out);
unsigned show_one(struct pulled *p, const char *name, const pull *one, json_t **out);
unsigned refuse(unsigned status, const char *why, const char *reason, json_t **out);
unsigned refuse_error(int rc, const pst_error *err, json_t **out);

#endif
