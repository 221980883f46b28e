/* SPDX-License-Identifier: Apache-2.0
 * The group: members come and go, begin epochs, and are measured. Which permutation an epoch gets
 * is decided here, and how wide a member's window is. The caller serialises.
 */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "sample/share_priv.h"

void psti_share_spec_init(psti_share_spec *spec)
{
    *spec = (psti_share_spec){.window = 0.05, .window_max = 0.25, .tolerance = 0.02, .probes = 16};
}

static bool spec_is_good(const psti_share_spec *s)
{
    return s->samples >= 1 && s->samples < UINT32_MAX - 1 && s->window >= 0 &&
           s->window <= s->window_max && s->window_max <= 1 && s->tolerance >= 0 &&
           s->tolerance <= 1 && s->probes >= 1 && s->probes <= 1024;
}

int psti_share_new(const psti_share_spec *spec, psti_share **out, pst_error *err)
{
    *out = NULL;
    if (!spec_is_good(spec))
        return psti_fail(err, -EINVAL, "share", NULL, "a setting of the group is out of range");
    psti_share *share = psti_calloc(PSTI_MEM_SAMPLE, 1, sizeof *share);
    if (!share)
        return psti_fail(err, -ENOMEM, "share", NULL, "no memory for a group of jobs");
    const uint32_t n = (uint32_t)spec->samples;
    share->spec = *spec;
    share->samples = n;
    share->room = spec->room;
    share->random = psti_mix64(spec->key[0]) ^ spec->key[1];
    share->free_slot = share->free_ticket = PSTI_NO_ENTRY;
    share->tick_span = n / 64 > 64 ? n / 64 : 64;
    share->slot_of = psti_malloc(PSTI_MEM_SAMPLE, n * sizeof *share->slot_of);
    share->preparing = psti_calloc(PSTI_MEM_SAMPLE, psti_mask_words(n), sizeof *share->preparing);
    if (!share->slot_of || !share->preparing) {
        psti_share_free(share);
        return psti_fail(err, -ENOMEM, "share", NULL, "no memory for sharing %lu samples",
                         (unsigned long)n);
    }
    memset(share->slot_of, 0xff, n * sizeof *share->slot_of);
    *out = share;
    return 0;
}

static void seat_fini(psti_share_seat *seat)
{
    psti_free(seat->seen);
    psti_bits_fini(&seat->left);
    psti_bits_fini(&seat->ready);
    psti_trail_fini(&seat->trail);
    *seat = (psti_share_seat){0};
}

void psti_share_free(psti_share *share)
{
    if (!share)
        return;
    for (int i = 0; i < PSTI_SHARE_MEMBERS; i++)
        seat_fini(&share->seat[i]);
    psti_free(share->slot_of);
    psti_free(share->preparing);
    psti_free(share->entry);
    psti_free(share->live);
    psti_free(share->ticket);
    psti_free(share);
}

void psti_share_room(psti_share *share, uint64_t entries)
{
    share->room = entries;
}

uint64_t psti_share_draw(psti_share *share)
{
    share->random += 0x9e3779b97f4a7c15u;
    return psti_mix64(share->random);
}

static void set_window(const psti_share *share, psti_share_seat *seat, double window)
{
    seat->window = window;
    const double reach = window * share->samples;
    seat->reach = reach < 1 ? 1 : (uint32_t)reach;
}

/* What is resident, and what is in the making: a member that left may have begun it. */
static void mark_all_used(psti_share *share, uint64_t bit)
{
    for (uint32_t i = 0; i < share->resident; i++)
        share->entry[share->live[i]].used |= bit;
    for (uint32_t i = 0; i < share->tickets_made; i++)
        if (share->ticket[i].open)
            share->ticket[i].used |= bit;
}

/* Rates are parts of a whole: of the others' when one comes, about whom nothing is known yet, and
 * of what is left when one has gone. Else a newcomer would pass for one that is half as fast. */
static void scale_rates(psti_share *share, double by)
{
    for (uint64_t mask = share->members; mask; mask &= mask - 1)
        share->seat[__builtin_ctzll(mask)].rate *= by;
}

int psti_share_join(psti_share *share, bool returning, int *member, pst_error *err)
{
    if (share->members == UINT64_MAX)
        return psti_fail(err, PST_ELIMIT, "share", NULL,
                         "64 jobs share this pipeline already; wait until one ends, or open this "
                         "one without sharing");
    const int at = __builtin_ctzll(~share->members);
    psti_share_seat *seat = &share->seat[at];
    const uint32_t n = share->samples;
    seat->seen = psti_calloc(PSTI_MEM_SAMPLE, psti_mask_words(n), sizeof *seat->seen);
    if (!seat->seen || psti_bits_init(&seat->left, n) || psti_bits_init(&seat->ready, n) ||
        psti_trail_init(&seat->trail, n, share->spec.key[1] + (uint64_t)at)) {
        seat_fini(seat);
        return psti_fail(err, -ENOMEM, "share", NULL, "no memory for a job that shares");
    }
    seat->live = true;
    seat->heir = -1;
    seat->rate = 1.0 / (__builtin_popcountll(share->members) + 1);
    scale_rates(share, 1 - seat->rate);
    share->members |= psti_member_bit(at);
    set_window(share, seat, share->spec.window);
    if (returning)
        mark_all_used(share, psti_member_bit(at));
    *member = at;
    return 0;
}

/* Takes a member's bit out of every resident entry: nobody who sits here later is taken for it. */
static void forget_member(psti_share *share, int member, bool used)
{
    const uint64_t bit = psti_member_bit(member);
    for (uint32_t i = 0; i < share->resident; i++) {
        psti_share_entry *e = &share->entry[share->live[i]];
        e->want &= ~bit;
        if (used)
            e->used &= ~bit;
    }
}

void psti_share_leave(psti_share *share, int member)
{
    forget_member(share, member, true);
    for (uint32_t i = 0; i < share->tickets_made; i++)
        share->ticket[i].used &= ~psti_member_bit(member);
    share->members &= ~psti_member_bit(member);
    if (share->seat[member].rate < 0.99)
        scale_rates(share, 1 / (1 - share->seat[member].rate));
    seat_fini(&share->seat[member]);
    psti_share_foresee(share);
}

/* The share of an epoch that members may stand apart and still find each other's work. */
static double cached_share(const psti_share *share)
{
    return (double)(share->room > share->resident ? share->room : share->resident) / share->samples;
}

/* Whether one that begins an epoch after `wait` more deliveries of its own can take the order of
 * another. Only an order younger than all it has had: none comes to it twice. */
static bool may_follow(const psti_share *share, const psti_share_seat *seat,
                       const psti_share_seat *other, double wait)
{
    if (!other->open || other == seat || other->serial <= seat->serial)
        return false;
    const double pace = other->rate / (seat->rate + 1e-30);
    const double apart = cached_share(share);
    const double lead = (other->delivered + wait * pace) / other->length;
    return lead <= apart && __builtin_fabs(lead + pace - 1) <= (seat->epochs ? 2 * apart : 1e9);
}

/* Of those it can follow the one that is least far ahead; -1: none. */
static int nearest_leader(const psti_share *share, const psti_share_seat *seat, double wait)
{
    int best = -1;
    if (share->spec.flags & PSTI_SHARE_ALONE)
        return best;
    for (uint64_t mask = share->members; mask; mask &= mask - 1) {
        const int i = __builtin_ctzll(mask);
        const psti_share_seat *other = &share->seat[i];
        if (may_follow(share, seat, other, wait) &&
            (best < 0 || other->delivered < share->seat[best].delivered))
            best = i;
    }
    return best;
}

static void choose_order(psti_share *share, psti_share_seat *seat)
{
    const int leader = nearest_leader(share, seat, 0);
    if (leader >= 0) {
        seat->order = share->seat[leader].order;
        seat->serial = share->seat[leader].serial;
        return;
    }
    seat->serial = ++share->serials;
    psti_quick_init(&seat->order, share->samples, share->spec.key[0] ^ psti_mix64(seat->serial),
                    share->spec.key[1]);
}

void psti_share_foresee(psti_share *share)
{
    for (uint64_t mask = share->members; mask; mask &= mask - 1) {
        psti_share_seat *seat = &share->seat[__builtin_ctzll(mask)];
        seat->heir = -1;
        if (seat->open)
            seat->heir = nearest_leader(share, seat, seat->length - seat->delivered);
    }
}

/* Widens the window a little while the order stays random, and narrows it when it does not: on the
 * mean over epochs, or at once when a single epoch is far off. An epoch that took hardly anything
 * ahead of its place says nothing for a wider window. */
static void adapt_window(const psti_share *share, psti_share_seat *seat)
{
    const psti_trail *trail = &seat->trail;
    const double limit = share->spec.tolerance;
    double worst = 0, window = seat->window;
    for (int i = 0; i < PSTI_SHARE_LAGS; i++)
        if (trail->weight[i] > 0 && trail->mean[i] > worst)
            worst = trail->mean[i];
    if (worst > limit || trail->last > limit + 3 * trail->scatter)
        window *= 0.7;
    else if (worst < 0.7 * limit && seat->substitutes > seat->delivered / 50)
        window *= 1.15;
    if (window < share->spec.window)
        window = share->spec.window;
    if (window > share->spec.window_max)
        window = share->spec.window_max;
    set_window(share, seat, window);
}

static uint32_t copy_seen(psti_share_seat *seat, uint32_t n, const uint8_t *seen)
{
    const size_t words = psti_mask_words(n);
    memset(seat->seen, 0, words * sizeof *seat->seen);
    if (!seen)
        return n;
    for (uint32_t byte = 0; byte < (n + 7) / 8; byte++)
        seat->seen[byte / 8] |= (uint64_t)seen[byte] << (byte % 8 * 8);
    if (n % 64)
        seat->seen[words - 1] &= ((uint64_t)1 << n % 64) - 1;
    uint32_t left = n;
    for (size_t i = 0; i < words; i++)
        left -= (uint32_t)__builtin_popcountll(seat->seen[i]);
    return left;
}

void psti_share_epoch(psti_share *share, int member, const uint8_t *seen)
{
    psti_share_seat *seat = &share->seat[member];
    if (seat->open && psti_trail_turn(&seat->trail, seat->delivered))
        adapt_window(share, seat);
    choose_order(share, seat);
    forget_member(share, member, false);
    seat->length = copy_seen(seat, share->samples, seen);
    psti_bits_all(&seat->left);
    psti_bits_none(&seat->ready);
    seat->front = 0;
    seat->delivered = seat->substitutes = 0;
    seat->open = true;
    seat->epochs++;
    psti_share_foresee(share);
}

void psti_share_counts_get(const psti_share *share, psti_share_counts *out)
{
    *out = share->counts;
    out->resident = share->resident;
    out->preparing = share->open_tickets;
    out->deliveries = out->preparations + out->hits;
    const size_t words = psti_mask_words(share->samples);
    size_t bytes = sizeof *share + share->samples * sizeof *share->slot_of + words * 8;
    bytes += share->slots * (sizeof *share->entry + sizeof *share->live);
    bytes += share->tickets * sizeof *share->ticket;
    for (int i = 0; i < PSTI_SHARE_MEMBERS; i++) {
        const psti_share_seat *seat = &share->seat[i];
        if (seat->live)
            bytes += (words + seat->left.words + seat->ready.words) * 8 +
                     (size_t)seat->trail.count * (PSTI_SHARE_LAGS + 1) * 4;
    }
    out->bytes = bytes;
}

void psti_share_member_get(const psti_share *share, int member, psti_share_member *out)
{
    const psti_share_seat *seat = &share->seat[member];
    *out = (psti_share_member){.epochs = seat->epochs,
                               .length = seat->length,
                               .delivered = seat->delivered,
                               .deliveries = seat->deliveries,
                               .preparations = seat->preparations,
                               .order = seat->serial,
                               .window = seat->window,
                               .rate = seat->rate};
    memcpy(out->correlation, seat->trail.mean, sizeof out->correlation);
}
