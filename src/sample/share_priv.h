/* SPDX-License-Identifier: Apache-2.0
 * What the files of sharing have in common: the quick permutation, bitmaps that are searched, and
 * the group with its members and entries. How they stay consistent is written at each struct, and
 * psti_share_check walks through all of it. */
#ifndef PSTI_SAMPLE_SHARE_PRIV_H
#define PSTI_SAMPLE_SHARE_PRIV_H

#include "core/hash.h"
#include "core/memory.h"
#include "sample/share.h"

/* ---- quick permutation ------------------------------------------------------------------- */

/* A keyed permutation of [0, n), n < 2^32, both ways, for choices that are not part of the byte
 * promise: less even than psti_permutation, and fifteen times as fast. */
enum { PSTI_QUICK_ROUNDS = 6 };
typedef struct psti_quick {
    uint32_t n, rows, columns; /* n <= rows * columns */
    uint64_t key[PSTI_QUICK_ROUNDS];
} psti_quick;
void psti_quick_init(psti_quick *q, uint32_t n, uint64_t key0, uint64_t key1);
uint32_t psti_quick_at(const psti_quick *q, uint32_t position);
uint32_t psti_quick_find(const psti_quick *q, uint32_t value);

/* ---- bitmaps that are searched ----------------------------------------------------------- */

/* Bits 0..n-1 in words, and above them levels in which a bit says that a word below is not 0, up to
 * a single word: the next set bit is found in a few steps however far it is. */
enum { PSTI_BITS_LEVELS = 6 };
typedef struct psti_bits {
    uint32_t n;
    int levels;
    uint32_t count[PSTI_BITS_LEVELS]; /* words of each level */
    size_t words;                     /* of all */
    uint64_t *level[PSTI_BITS_LEVELS];
} psti_bits;
int psti_bits_init(psti_bits *b, uint32_t n); /* all clear; 0 or -ENOMEM */
void psti_bits_fini(psti_bits *b);
void psti_bits_none(psti_bits *b);
void psti_bits_all(psti_bits *b);
void psti_bits_set(psti_bits *b, uint32_t at);
void psti_bits_clear(psti_bits *b, uint32_t at);
/* The first set bit at or after `from` (which may be n or more); n when there is none. */
uint32_t psti_bits_next(const psti_bits *b, uint32_t from);
static inline bool psti_bits_test(const psti_bits *b, uint32_t at)
{
    return b->level[0][at >> 6] >> (at & 63) & 1;
}

/* ---- how random a member's order stays --------------------------------------------------- */

/* Positions of a subset of the samples in the last epochs, and their correlation from one epoch to
 * the next ones, each a decayed mean. */
enum { PSTI_TRAIL_SAMPLES = 4096 };
typedef struct psti_trail {
    uint32_t stride, offset; /* ids offset, offset + stride, … are watched */
    uint32_t count;
    uint32_t *place;                      /* (LAGS + 1) rows of count; UINT32_MAX: not delivered */
    uint64_t epochs;                      /* rows filled so far, the current one included */
    uint64_t length[PSTI_SHARE_LAGS + 1]; /* deliveries of each row's epoch */
    double mean[PSTI_SHARE_LAGS], weight[PSTI_SHARE_LAGS];
    double last, scatter; /* one epoch apart, the last value; how much one value scatters */
} psti_trail;
int psti_trail_init(psti_trail *t, uint32_t samples, uint64_t key);
void psti_trail_fini(psti_trail *t);
void psti_trail_note(psti_trail *t, uint32_t id, uint32_t position);
/* Ends the current row, whose epoch had `delivered` deliveries, and starts a new one. True when
 * there is a new value in mean[0]. */
bool psti_trail_turn(psti_trail *t, uint64_t delivered);

/* ---- the group ------------------------------------------------------------------------------ */

#define PSTI_NO_ENTRY UINT32_MAX

/* A resident entry, or a free slot (where = PSTI_NO_ENTRY, id = next free slot). */
typedef struct psti_share_entry {
    uint32_t id;
    uint32_t where; /* its place in share->live */
    uint64_t want;  /* members that may take it ahead of its place: it is in their `ready` */
    uint64_t used;  /* members that consumed it, ever */
    void *payload;
} psti_share_entry;

/* An entry that may be the next to leave: the lowest of those looked at so far, with what they were
 * worth then. All are resident. */
enum { PSTI_SHARE_CANDIDATES = 16 };
typedef struct psti_share_candidate {
    uint32_t slot;
    double worth;
} psti_share_candidate;

/* A preparation under way, or a free ticket (id = next free one). */
typedef struct psti_share_ticket {
    uint32_t id;
    bool open;
    uint64_t used; /* members that must not get it: who prepares it, and who may have, before it
                      returned */
} psti_share_ticket;

/* A member and its epoch. Position = place in its permutation.
 *
 * seen[id]   handed to it in this epoch, or excluded.
 * left       positions of samples that are not seen. Excluded ones are dropped when `front` comes
 *            past, so it may hold a few too many.
 * ready      positions of entries it may get: exactly those with its bit in `want`, and all of them
 *            are in `left`.
 * front      no position before it needs to be prepared by this member: all are seen, ready, or
 *            being prepared by others. Whatever ends one of these moves it back.
 *
 * An epoch begins with nothing ready, whatever is resident: an entry that outlived the member's
 * last epoch is, more often than not, of a sample that came early in it, and as a substitute it
 * would come early again. It is taken when `front` comes to it. */
typedef struct psti_share_seat {
    bool live, open; /* open: in an epoch */
    psti_quick order;
    uint64_t serial; /* of the permutation; 0: none yet */
    int heir;        /* the member whose order it is thought to take in its next epoch, or -1 */
    uint64_t *seen;
    psti_bits left, ready;
    uint32_t front;
    uint32_t length, delivered;
    uint32_t substitutes; /* in this epoch */
    double window;        /* share of samples */
    uint32_t reach;       /* the same in positions, at least 1 */
    double rate;          /* its part of the group's deliveries, over the last eighth of an epoch */
    uint32_t tally;       /* deliveries since rates were last derived */
    uint64_t epochs, deliveries, preparations;
    psti_trail trail;
} psti_share_seat;

struct psti_share {
    psti_share_spec spec;
    uint32_t samples;
    uint64_t room;
    uint64_t random;  /* state of the small generator */
    uint64_t serials; /* permutations made */
    uint64_t numbers; /* preparations begun */
    uint64_t members; /* mask */
    psti_share_seat seat[PSTI_SHARE_MEMBERS];
    uint32_t *slot_of;   /* by id: entry or PSTI_NO_ENTRY */
    uint64_t *preparing; /* by id */
    psti_share_entry *entry;
    uint32_t slots, slots_made, free_slot; /* allocated; ever used; chain of free ones */
    uint32_t *live;                        /* entries in any order, for probing */
    uint32_t resident;
    psti_share_candidate candidate[PSTI_SHARE_CANDIDATES];
    uint32_t candidates;
    psti_share_ticket *ticket;
    uint32_t tickets, tickets_made, free_ticket, open_tickets;
    uint32_t tick, tick_span; /* deliveries since rates were last derived, and between two times */
    psti_share_counts counts;
};

static inline bool psti_mask_test(const uint64_t *mask, uint32_t at)
{
    return mask[at >> 6] >> (at & 63) & 1;
}
static inline uint64_t psti_member_bit(int member)
{
    return (uint64_t)1 << member;
}
static inline size_t psti_mask_words(uint32_t n)
{
    return ((size_t)n + 63) / 64;
}

uint64_t psti_share_draw(psti_share *share); /* 64 random bits */
/* Sets or clears the member's interest in an entry; want and ready together. */
void psti_share_offer(psti_share *share, int member, uint32_t slot);
void psti_share_withdraw(psti_share *share, int member, uint32_t slot);
/* The sample is no longer in preparation, or no longer resident: those who still need it and cannot
 * take it must come by again. */
void psti_share_recall(psti_share *share, uint32_t id);
/* Finds out which members will follow which in their next epoch. */
void psti_share_foresee(psti_share *share);

#endif
