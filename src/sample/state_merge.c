/* SPDX-License-Identifier: Apache-2.0
 * Joining the states of a job's ranks into one that stands for all of them. States of separate
 * engines hold what one rank consumed; those of a shared engine, and strict ones without skips,
 * hold everything and must agree. Pure functions in the caller's thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "sample/state_format.h"

#define REFUSE(err, ...) psti_fail(err, PST_ESTATE, "merge", NULL, __VA_ARGS__)

static int no_memory(pst_error *err)
{
    return psti_fail(err, -ENOMEM, "merge", NULL, "out of memory for a joined state");
}

/* ---- do they belong together? ---------------------------------------------------------------- */

static int check_id(const psti_state *a, const psti_state *b, const char *name, psti_id128 x,
                    psti_id128 y, pst_error *err)
{
    if (x.lo == y.lo && x.hi == y.hi)
        return 0;
    char hex[2][33];
    psti_id128_hex(x, hex[0]);
    psti_id128_hex(y, hex[1]);
    return REFUSE(err, "the states are not of one job: the %s is %s for rank %d and %s for rank %d",
                  name, hex[0], a->rank, hex[1], b->rank);
}

static int check_ids(const psti_state *a, const psti_state *b, pst_error *err)
{
    int rc = check_id(a, b, "dataset", a->revision, b->revision, err);
    if (rc == 0)
        rc = check_id(a, b, "pipeline", a->fingerprint, b->fingerprint, err);
    if (rc == 0)
        rc = check_id(a, b, "sampler", a->source, b->source, err);
    return rc;
}

/* What one rank's own engine delivered in ready order: the bitmap alone counts. */
static bool ready_part(const psti_state *s)
{
    return s->per_rank && s->order == PST_ORDER_READY;
}

static int check_numbers(const psti_state *a, const psti_state *b, pst_error *err)
{
    const struct {
        const char *name;
        uint64_t a, b;
    } pairs[] = {
        {"seed", a->seed, b->seed},
        {"epoch", a->epoch, b->epoch},
        {"number of positions", (uint64_t)a->length, (uint64_t)b->length},
        {"order", (uint64_t)a->order, (uint64_t)b->order},
        {"ends setting", (uint64_t)a->ends, (uint64_t)b->ends},
        {"batch", (uint64_t)a->batch, (uint64_t)b->batch},
        {"world", (uint64_t)a->world, (uint64_t)b->world},
        {"per-rank mark", a->per_rank, b->per_rank},
        {"consumed prefix", ready_part(a) ? 0 : (uint64_t)a->prefix,
         ready_part(b) ? 0 : (uint64_t)b->prefix},
        {"length of the given order", (uint64_t)a->given_count, (uint64_t)b->given_count},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].a != pairs[i].b)
            return REFUSE(
                err,
                "the states are not of one moment of one job: the %s is %llu for rank %d and "
                "%llu for rank %d",
                pairs[i].name, (unsigned long long)pairs[i].a, a->rank,
                (unsigned long long)pairs[i].b, b->rank);
    return 0;
}

/* Positions consumed according to one state alone; used = NULL stands for the prefix. */
static bool is_used(const psti_state *s, int64_t position)
{
    if (!s->used)
        return position < s->prefix;
    return s->used[position >> 3] >> (position & 7) & 1;
}

/* Where both must record the same: everything but what separate engines did in ready order. */
static int check_used(const psti_state *a, const psti_state *b, pst_error *err)
{
    if (ready_part(a))
        return 0;
    if (!a->used && !b->used)
        return 0;
    for (int64_t p = 0; p < a->length; p++)
        if (is_used(a, p) != is_used(b, p))
            return REFUSE(err,
                          "the states are not of one moment of one job: position %lld is consumed "
                          "for rank %d "
                          "but not for rank %d",
                          (long long)p, is_used(a, p) ? a->rank : b->rank,
                          is_used(a, p) ? b->rank : a->rank);
    return 0;
}

static int check_given(const psti_state *a, const psti_state *b, pst_error *err)
{
    for (int64_t i = 0; i < a->given_count; i++)
        if (a->given[i] != b->given[i])
            return REFUSE(
                err, "entry %lld of the given order is %lld for rank %d and %lld for rank %d",
                (long long)i, (long long)a->given[i], a->rank, (long long)b->given[i], b->rank);
    return 0;
}

static int check_pair(const psti_state *a, const psti_state *b, pst_error *err)
{
    if (a->merged || b->merged)
        return REFUSE(err, "one of the states is joined already; give those that the ranks saved");
    int rc = check_ids(a, b, err);
    if (rc == 0)
        rc = check_numbers(a, b, err);
    if (rc == 0)
        rc = check_used(a, b, err);
    if (rc == 0)
        rc = check_given(a, b, err);
    return rc;
}

/* ---- are all there? -------------------------------------------------------------------------- */

static int missing_ranks(const uint8_t *seen, int world, size_t count, pst_error *err)
{
    char list[96] = "";
    size_t used = 0;
    int missing = 0;
    for (int rank = 0; rank < world; rank++) {
        if (seen[rank])
            continue;
        if (missing++ < 8)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", rank);
    }
    return REFUSE(err, "%zu states were given for a world of %d ranks; missing: rank %s%s", count,
                  world, list, missing > 8 ? ", …" : "");
}

/* Each rank at most once; every rank where a state holds only its own rank's part. */
static int check_ranks(const psti_state *states, size_t count, pst_error *err)
{
    const int world = states[0].world;
    uint8_t *seen = psti_calloc(PSTI_MEM_SAMPLE, (size_t)world, 1);
    if (!seen)
        return no_memory(err);
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        const int rank = states[i].rank;
        if (rank < 0 || rank >= world)
            rc = REFUSE(err, "rank %d is not one of 0..%d", rank, world - 1);
        else if (seen[rank]++)
            rc = REFUSE(err, "rank %d of %d is there twice", rank, world);
    }
    if (rc == 0 && states[0].per_rank && count < (size_t)world)
        rc = missing_ranks(seen, world, count, err);
    psti_free(seen);
    return rc;
}

/* ---- joining --------------------------------------------------------------------------------- */

static int overlap(const psti_state *states, size_t last, int64_t byte, uint8_t bits,
                   pst_error *err)
{
    const int64_t position = byte * 8 + __builtin_ctz(bits);
    size_t first = 0;
    while (first < last && !is_used(&states[first], position))
        first++;
    return REFUSE(
        err,
        "position %lld was delivered by rank %d and by rank %d; the states do not fit together",
        (long long)position, states[first].rank, states[last].rank);
}

static uint8_t used_byte(const psti_state *s, int64_t byte)
{
    uint8_t bits = 0;
    if (s->used)
        return s->used[byte];
    for (int64_t p = byte * 8; p < byte * 8 + 8 && p < s->prefix; p++)
        bits |= (uint8_t)(1u << (p & 7));
    return bits;
}

/* Ready, separate engines: each rank's own part, disjoint. */
static int join_ready(const psti_state *states, size_t count, psti_state *out, pst_error *err)
{
    for (size_t i = 0; i < count; i++)
        for (size_t byte = 0; byte < state_bitmap_bytes(out); byte++) {
            const uint8_t bits = used_byte(&states[i], (int64_t)byte);
            if (bits & out->used[byte])
                return overlap(states, i, (int64_t)byte, bits & out->used[byte], err);
            out->used[byte] |= bits;
        }
    out->prefix = 0;
    return 0;
}

/* Adds the share indices that one rank consumed of the deal that began at its prefix or bitmap. */
static int add_share(const psti_state *s, psti_state *out, pst_error *err)
{
    const psti_deal_spec spec = {.length = s->length,
                                 .batch = s->batch,
                                 .rank = s->rank,
                                 .world = s->world,
                                 .ends = s->ends,
                                 .prefix = s->prefix,
                                 .used = s->used};
    psti_deal *deal;
    const int rc = psti_deal_new(&spec, &deal, err);
    if (rc < 0)
        return rc;
    const int64_t own = psti_deal_share(deal);
    for (int64_t i = 0; i < s->share && i < own; i++) {
        bool valid;
        const int64_t p = psti_deal_position(deal, i, &valid);
        out->used[p >> 3] |= (uint8_t)(1u << (p & 7));
    }
    psti_deal_free(deal);
    return 0;
}

/* Strict, separate engines with skips: where the deal began, and each rank's share. */
static int join_strict(const psti_state *states, size_t count, psti_state *out, pst_error *err)
{
    for (size_t byte = 0; byte < state_bitmap_bytes(out); byte++)
        out->used[byte] = used_byte(&states[0], (int64_t)byte);
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = add_share(&states[i], out, err);
    return rc;
}

static int join_used(const psti_state *states, size_t count, psti_state *out, pst_error *err)
{
    if (!states[0].per_rank && !states[0].used)
        return 0;
    out->used = psti_calloc(PSTI_MEM_SAMPLE, state_bitmap_bytes(out), 1);
    if (!out->used)
        return no_memory(err);
    if (!states[0].per_rank)
        memcpy(out->used, states[0].used, state_bitmap_bytes(out));
    else if (out->order == PST_ORDER_READY)
        return join_ready(states, count, out, err);
    else
        return join_strict(states, count, out, err);
    return 0;
}

/* The union of two ascending lists, in memory for both. */
static int64_t unite(const int64_t *a, int64_t na, const int64_t *b, int64_t nb, int64_t *to)
{
    int64_t n = 0, i = 0, j = 0;
    while (i < na || j < nb) {
        const bool from_a = j == nb || (i < na && a[i] <= b[j]);
        const int64_t value = from_a ? a[i] : b[j];
        i += from_a;
        j += j < nb && b[j] == value;
        to[n++] = value;
    }
    return n;
}

static int join_skipped(const psti_state *states, size_t count, psti_state *out, pst_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const psti_state *s = &states[i];
        if (s->skipped_count == 0)
            continue;
        const size_t room = (size_t)out->skipped_count + (size_t)s->skipped_count;
        int64_t *both = psti_calloc(PSTI_MEM_SAMPLE, room, sizeof *both);
        if (!both)
            return no_memory(err);
        out->skipped_count =
            unite(out->skipped, out->skipped_count, s->skipped, s->skipped_count, both);
        psti_free(out->skipped);
        out->skipped = both;
    }
    return 0;
}

static int copy_rest(const psti_state *from, psti_state *out, pst_error *err)
{
    if (from->pipeline) {
        out->pipeline = psti_strdup(PSTI_MEM_SAMPLE, from->pipeline);
        if (!out->pipeline)
            return no_memory(err);
    }
    if (from->given) {
        out->given = psti_calloc(PSTI_MEM_SAMPLE, (size_t)from->given_count, sizeof *out->given);
        if (!out->given)
            return no_memory(err);
        out->given_count = from->given_count;
        memcpy(out->given, from->given, (size_t)from->given_count * sizeof *out->given);
    }
    return 0;
}

static int join(const psti_state *states, size_t count, psti_state *out, pst_error *err)
{
    *out = states[0];
    out->used = NULL;
    out->skipped = out->given = NULL;
    out->skipped_count = out->given_count = 0;
    out->pipeline = NULL;
    out->merged = true;
    out->per_rank = false;
    out->rank = 0;
    out->share = 0;
    int rc = join_used(states, count, out, err);
    if (rc == 0)
        rc = join_skipped(states, count, out, err);
    if (rc == 0)
        rc = copy_rest(&states[0], out, err);
    return rc;
}

int psti_state_join(const psti_state *states, size_t count, psti_state *out, pst_error *err)
{
    memset(out, 0, sizeof *out);
    if (count == 0)
        return REFUSE(err, "there is no state to join; give those of all ranks");
    int rc = 0;
    for (size_t i = 1; i < count && rc == 0; i++)
        rc = check_pair(&states[0], &states[i], err);
    if (rc == 0)
        rc = check_ranks(states, count, err);
    if (rc == 0)
        rc = join(states, count, out, err);
    if (rc < 0)
        psti_state_fini(out);
    return rc;
}
