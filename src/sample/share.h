/* SPDX-License-Identifier: Apache-2.0
 * Sharing work between jobs: who has seen and consumed what, and what a job takes next. Members of
 * a group read the same samples through the same pipeline; what one of them prepared is offered to
 * the others. The pixels live in the cache: here an entry is a number, and a pointer of the
 * caller's.
 *
 * Promises, whatever the schedule of calls: in an epoch a member gets every sample that was not
 * excluded exactly once, and no entry is ever handed twice to one member, or to the one that
 * prepared it, across all its epochs. Decisions are a function of the key and the sequence of
 * calls: no clock, no threads. The caller serialises all calls on one share. */
#ifndef PSTI_SAMPLE_SHARE_H
#define PSTI_SAMPLE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

enum { PSTI_SHARE_MEMBERS = 64, PSTI_SHARE_LAGS = 5 };

typedef struct psti_share psti_share;

typedef struct psti_share_spec {
    uint64_t samples;  /* of the dataset: ids are 0..samples-1 (1..2^32 - 2) */
    uint64_t key[2];   /* incarnation of the group: random bits, the source of all choices here */
    uint64_t room;     /* entries the cache is thought to hold, psti_share_room (0..; 0) */
    double window;     /* substitution window a member starts with, share of samples (0..1; 0.05) */
    double window_max; /* the widest it may become (window..1; 0.25) */
    double tolerance;  /* correlation of consecutive epochs above which it shrinks (0..1; 0.02) */
    uint32_t probes;   /* entries looked at to find a victim (1..1024; 16) */
    uint32_t flags;    /* PSTI_SHARE_…, for experiments and tests (0) */
} psti_share_spec;

enum {
    PSTI_SHARE_ALONE = 1, /* each member has permutations of its own */
    PSTI_SHARE_LOWEST_ID =
        2 /* substitutes are the eligible entry of lowest id: biased, for tests */
};

void psti_share_spec_init(psti_share_spec *spec);
int psti_share_new(const psti_share_spec *spec, psti_share **out, pst_error *err);
void psti_share_free(psti_share *share);
/* How many entries the cache is thought to hold; members that stand no further apart than this use
 * one permutation. Takes effect at the next epoch of each. */
void psti_share_room(psti_share *share, uint64_t entries);

/* *member in 0..63. `returning`: the member may have consumed what is resident now, in an earlier
 * life; it gets nothing of it. PST_ELIMIT when 64 are there. */
int psti_share_join(psti_share *share, bool returning, int *member, pst_error *err);
/* Preparations it began stay open until each is inserted, finished or cancelled. */
void psti_share_leave(psti_share *share, int member);

/* Begins an epoch; what is left of the last one is dropped. seen: samples this member must not get
 * (bit id & 7 of byte id / 8; consumed before a resume, not in its subset), or NULL. */
void psti_share_epoch(psti_share *share, int member, const uint8_t *seen);

typedef enum psti_share_kind {
    PSTI_SHARE_NONE,   /* every sample of the epoch was handed out */
    PSTI_SHARE_WAIT,   /* all that is left is being prepared: ask again after the next insert,
                          finish or cancel */
    PSTI_SHARE_HIT,    /* a resident entry, now consumed by this member */
    PSTI_SHARE_PREPARE /* prepare it; then insert, finish or cancel the pick */
} psti_share_kind;

typedef struct psti_share_pick {
    psti_share_kind kind;
    uint32_t id;
    uint32_t entry;  /* HIT */
    void *payload;   /* HIT */
    uint32_t ticket; /* PREPARE: names the preparation until it ends */
    uint64_t number; /* PREPARE: one counter per group, the key of its draws */
    bool substitute; /* HIT: taken ahead of its place */
} psti_share_pick;

void psti_share_next(psti_share *share, int member, psti_share_pick *pick);

/* What inserting this preparation would be worth now (psti_share_value of the entry it would
 * become); 0: nobody else wants it. */
double psti_share_wanted(const psti_share *share, const psti_share_pick *pick);
/* How a preparation ends. Insert: it is resident from now on; an older entry of the same sample, of
 * which no member has more use, gives way: its payload comes back in *replaced (NULL otherwise).
 * -ENOMEM: the preparation is finished, nothing was inserted. */
int psti_share_insert(psti_share *share, const psti_share_pick *pick, void *payload,
                      uint32_t *entry, void **replaced);
void psti_share_finish(psti_share *share, const psti_share_pick *pick); /* not to be inserted */
void psti_share_cancel(psti_share *share, const psti_share_pick *pick); /* came to nothing */

/* Expected uses per delivery of the whole group, over the members that have not consumed it: rate /
 * samples to go until the member takes it, times the chance that it is still there, window /
 * samples to go. Members that have seen the sample in this epoch count where it is known whose
 * order they will follow in the next. On the same scale an entry that every member can use in every
 * epoch is worth the sum of the rates / samples, if nothing drives it out. */
double psti_share_value(const psti_share *share, uint32_t entry);
/* Evicted. Returns the payload. */
void *psti_share_remove(psti_share *share, uint32_t entry);
/* The entry of lowest value among `probes` random ones; false: none that may leave was met.
 * may_leave: NULL = all may; bytes: NULL = all are alike, else the value is divided by it. */
typedef struct psti_share_judge {
    bool (*may_leave)(void *user, void *payload);
    double (*bytes)(void *user, void *payload);
    void *user;
} psti_share_judge;
bool psti_share_victim(psti_share *share, const psti_share_judge *judge, uint32_t *entry,
                       double *value);

typedef struct psti_share_counts {
    uint64_t deliveries, preparations, hits; /* deliveries = preparations + hits */
    uint64_t substitutes;                    /* hits taken ahead of their place */
    uint64_t cancelled, inserted, replaced, removed;
    uint64_t resident, preparing; /* now */
    uint64_t bytes;               /* memory of this object, now */
} psti_share_counts;
void psti_share_counts_get(const psti_share *share, psti_share_counts *out);

typedef struct psti_share_member {
    uint64_t epochs;                   /* begun */
    uint64_t length, delivered;        /* of the open epoch */
    uint64_t deliveries, preparations; /* since it joined */
    uint64_t order;      /* number of the permutation in use; equal numbers, equal order */
    double window, rate; /* rate: its lately derived part of the group's deliveries */
    double correlation[PSTI_SHARE_LAGS]; /* of positions 1, 2, … epochs apart, decayed mean */
} psti_share_member;
void psti_share_member_get(const psti_share *share, int member, psti_share_member *out);

/* Checks every invariant; slow. NULL when all is well, else what is wrong. */
const char *psti_share_check(const psti_share *share);

#endif
