/* SPDX-License-Identifier: Apache-2.0
 * What is resident: how a preparation becomes an entry, what an entry is worth, and which one
 * leaves. The caller serialises.
 */
#include <assert.h>
#include <errno.h>

#include "sample/share_priv.h"

/* Slots grow by an eighth: the table of a full cache is hardly larger than it must be. */
static int slots_grow(psti_share *share)
{
    const uint32_t more = share->slots + share->slots / 8 + 64;
    void *entry = psti_realloc(PSTI_MEM_SAMPLE, share->entry, more, sizeof *share->entry);
    if (!entry)
        return -ENOMEM;
    share->entry = entry;
    void *live = psti_realloc(PSTI_MEM_SAMPLE, share->live, more, sizeof *share->live);
    if (!live)
        return -ENOMEM;
    share->live = live;
    share->slots = more;
    return 0;
}

static int slot_new(psti_share *share, uint32_t *out)
{
    if (share->free_slot != PSTI_NO_ENTRY) {
        *out = share->free_slot;
        share->free_slot = share->entry[*out].id;
        return 0;
    }
    if (share->slots_made == share->slots && slots_grow(share))
        return -ENOMEM;
    *out = share->slots_made++;
    return 0;
}

/* What the ticket of a pick stands for; the preparation ends here. */
static psti_share_ticket close_ticket(psti_share *share, const psti_share_pick *pick)
{
    psti_share_ticket *ticket = &share->ticket[pick->ticket];
    assert(pick->kind == PSTI_SHARE_PREPARE && pick->ticket < share->tickets_made && ticket->open &&
           ticket->id == pick->id);
    const psti_share_ticket was = *ticket;
    *ticket = (psti_share_ticket){.id = share->free_ticket};
    share->free_ticket = pick->ticket;
    share->open_tickets--;
    share->preparing[was.id >> 6] &= ~((uint64_t)1 << (was.id & 63));
    return was;
}

void psti_share_finish(psti_share *share, const psti_share_pick *pick)
{
    close_ticket(share, pick);
    psti_share_recall(share, pick->id);
}

void psti_share_cancel(psti_share *share, const psti_share_pick *pick)
{
    psti_share_finish(share, pick);
    share->counts.cancelled++;
}

static void forget_candidate(psti_share *share, uint32_t slot);

static void *slot_free(psti_share *share, uint32_t slot)
{
    psti_share_entry *e = &share->entry[slot];
    assert(slot < share->slots_made && e->where != PSTI_NO_ENTRY);
    for (uint64_t mask = e->want; mask; mask &= mask - 1)
        psti_share_withdraw(share, __builtin_ctzll(mask), slot);
    forget_candidate(share, slot);
    void *payload = e->payload;
    share->slot_of[e->id] = PSTI_NO_ENTRY;
    const uint32_t last = share->live[--share->resident];
    share->live[e->where] = last;
    share->entry[last].where = e->where;
    *e = (psti_share_entry){.id = share->free_slot, .where = PSTI_NO_ENTRY};
    share->free_slot = slot;
    return payload;
}

void *psti_share_remove(psti_share *share, uint32_t entry)
{
    const uint32_t id = share->entry[entry].id;
    void *payload = slot_free(share, entry);
    share->counts.removed++;
    if (!psti_mask_test(share->preparing, id))
        psti_share_recall(share, id);
    return payload;
}

int psti_share_insert(psti_share *share, const psti_share_pick *pick, void *payload,
                      uint32_t *entry, void **replaced)
{
    *replaced = NULL;
    uint32_t slot;
    if (slot_new(share, &slot)) {
        psti_share_finish(share, pick);
        return -ENOMEM;
    }
    const psti_share_ticket was = close_ticket(share, pick);
    if (share->slot_of[was.id] != PSTI_NO_ENTRY) {
        *replaced = slot_free(share, share->slot_of[was.id]);
        share->counts.replaced++;
    }
    share->entry[slot] = (psti_share_entry){
        .id = was.id, .where = share->resident, .used = was.used, .payload = payload};
    share->live[share->resident++] = slot;
    share->slot_of[was.id] = slot;
    for (uint64_t mask = share->members; mask; mask &= mask - 1)
        psti_share_offer(share, __builtin_ctzll(mask), slot);
    psti_share_recall(share,
                      was.id); /* the preparer may be in its next epoch, and cannot have it */
    share->counts.inserted++;
    *entry = slot;
    return 0;
}

/* Deliveries of its own until a member comes to a sample: in this epoch from `front` on; when it
 * has seen the sample, in the next, if it is known whose order it will follow. Negative: unknown.
 */
static double samples_to_go(const psti_share *share, const psti_share_seat *seat, uint32_t id)
{
    if (!psti_mask_test(seat->seen, id)) {
        const uint32_t position = psti_quick_find(&seat->order, id);
        return position > seat->front ? position - seat->front : 0;
    }
    if (seat->heir < 0)
        return -1;
    const uint32_t left = seat->length - seat->delivered;
    return left + (double)psti_quick_find(&share->seat[seat->heir].order, id);
}

/* One use after `ahead` deliveries is worth rate / ahead; but what lies beyond the window may be
 * gone until then, the more so the further it is, and what lies inside is taken at any time. */
static double value_of(const psti_share *share, uint32_t id, uint64_t used)
{
    double value = 0;
    for (uint64_t mask = share->members & ~used; mask; mask &= mask - 1) {
        const psti_share_seat *seat = &share->seat[__builtin_ctzll(mask)];
        if (!seat->open)
            continue;
        const double ahead = samples_to_go(share, seat, id), reach = seat->reach;
        if (ahead > reach)
            value += seat->rate * reach / (ahead * ahead);
        else if (ahead >= 0)
            value += seat->rate / reach;
    }
    return value;
}

double psti_share_value(const psti_share *share, uint32_t entry)
{
    return value_of(share, share->entry[entry].id, share->entry[entry].used);
}

double psti_share_wanted(const psti_share *share, const psti_share_pick *pick)
{
    return value_of(share, pick->id, share->ticket[pick->ticket].used);
}

/* ---- the entry that leaves ------------------------------------------------------------------ */

static double worth_of(const psti_share *share, const psti_share_judge *judge, uint32_t slot)
{
    const double value = psti_share_value(share, slot);
    if (!judge || !judge->bytes)
        return value;
    return value / judge->bytes(judge->user, share->entry[slot].payload);
}

static void drop_candidate(psti_share *share, uint32_t at)
{
    share->candidate[at] = share->candidate[--share->candidates];
}

static void forget_candidate(psti_share *share, uint32_t slot)
{
    for (uint32_t i = 0; i < share->candidates; i++)
        if (share->candidate[i].slot == slot) {
            drop_candidate(share, i);
            return;
        }
}

static bool may_leave(const psti_share *share, const psti_share_judge *judge, uint32_t slot)
{
    return !judge || !judge->may_leave || judge->may_leave(judge->user, share->entry[slot].payload);
}

/* Among those kept if it is one of the lowest. */
static void consider(psti_share *share, const psti_share_judge *judge, uint32_t slot)
{
    uint32_t highest = 0;
    if (!may_leave(share, judge, slot))
        return;
    for (uint32_t i = 0; i < share->candidates; i++) {
        if (share->candidate[i].slot == slot)
            return;
        if (share->candidate[i].worth > share->candidate[highest].worth)
            highest = i;
    }
    const psti_share_candidate c = {.slot = slot, .worth = worth_of(share, judge, slot)};
    if (share->candidates < PSTI_SHARE_CANDIDATES)
        share->candidate[share->candidates++] = c;
    else if (c.worth < share->candidate[highest].worth)
        share->candidate[highest] = c;
}

/* The lowest and the second lowest; at least one is there. */
static void find_lowest(const psti_share *share, uint32_t *lowest, double *second)
{
    *lowest = 0;
    *second = __builtin_inf();
    for (uint32_t i = 1; i < share->candidates; i++) {
        const double worth = share->candidate[i].worth, best = share->candidate[*lowest].worth;
        if (worth < best)
            *lowest = i;
        const double other = worth < best ? best : worth;
        *second = other < *second ? other : *second;
    }
}

bool psti_share_victim(psti_share *share, const psti_share_judge *judge, uint32_t *entry,
                       double *value)
{
    for (uint32_t i = 0; i < share->spec.probes && share->resident; i++) {
        const uint64_t draw = psti_share_draw(share) >> 32;
        consider(share, judge, share->live[draw * share->resident >> 32]);
    }
    while (share->candidates) {
        uint32_t at;
        double second;
        find_lowest(share, &at, &second);
        psti_share_candidate *c = &share->candidate[at];
        if (!may_leave(share, judge, c->slot)) { /* not any more */
            drop_candidate(share, at);
            continue;
        }
        const double before = c->worth;
        c->worth = worth_of(share, judge, c->slot); /* members have moved since */
        if (c->worth > before && c->worth > second)
            continue;
        *entry = c->slot;
        *value = c->worth;
        return true;
    }
    return false;
}
