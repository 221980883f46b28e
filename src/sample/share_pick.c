/* SPDX-License-Identifier: Apache-2.0
 * What a member takes next. In its own order, as long as what stands there is resident; where it is
 * not, a resident sample a little further on; only when there is none, a preparation. What others
 * are preparing is put off until it is there. The caller serialises.
 */
#include <assert.h>

#include "sample/share_priv.h"

void psti_share_offer(psti_share *share, int member, uint32_t slot)
{
    psti_share_seat *seat = &share->seat[member];
    psti_share_entry *e = &share->entry[slot];
    const uint64_t bit = psti_member_bit(member);
    if (!seat->open || (e->want | e->used) & bit || psti_mask_test(seat->seen, e->id))
        return;
    e->want |= bit;
    psti_bits_set(&seat->ready, psti_quick_find(&seat->order, e->id));
}

void psti_share_withdraw(psti_share *share, int member, uint32_t slot)
{
    psti_share_seat *seat = &share->seat[member];
    psti_share_entry *e = &share->entry[slot];
    e->want &= ~psti_member_bit(member);
    psti_bits_clear(&seat->ready, psti_quick_find(&seat->order, e->id));
}

void psti_share_recall(psti_share *share, uint32_t id)
{
    for (uint64_t mask = share->members; mask; mask &= mask - 1) {
        const int member = __builtin_ctzll(mask);
        psti_share_seat *seat = &share->seat[member];
        const uint32_t slot = share->slot_of[id];
        if (!seat->open || psti_mask_test(seat->seen, id))
            continue;
        if (slot != PSTI_NO_ENTRY && share->entry[slot].want & psti_member_bit(member))
            continue;
        const uint32_t position = psti_quick_find(&seat->order, id);
        if (position < seat->front)
            seat->front = position;
    }
}

/* Rates follow what was delivered in the last eighth of an epoch or so, all members together. */
static void derive_rates(psti_share *share)
{
    if (++share->tick < share->tick_span)
        return;
    for (uint64_t mask = share->members; mask; mask &= mask - 1) {
        psti_share_seat *seat = &share->seat[__builtin_ctzll(mask)];
        seat->rate += ((double)seat->tally / share->tick - seat->rate) * 0.125;
        seat->tally = 0;
    }
    share->tick = 0;
    psti_share_foresee(share);
}

/* The sample leaves what is left of the member's epoch. */
static void deliver(psti_share *share, psti_share_seat *seat, uint32_t position, uint32_t id)
{
    seat->seen[id >> 6] |= (uint64_t)1 << (id & 63);
    psti_bits_clear(&seat->left, position);
    psti_trail_note(&seat->trail, id, seat->delivered++);
    seat->deliveries++;
    seat->tally++;
    derive_rates(share);
}

static void take(psti_share *share, int member, uint32_t position, psti_share_pick *pick)
{
    psti_share_seat *seat = &share->seat[member];
    const uint32_t id = psti_quick_at(&seat->order, position), slot = share->slot_of[id];
    psti_share_entry *e = &share->entry[slot];
    assert(slot != PSTI_NO_ENTRY && e->want & psti_member_bit(member));
    e->want &= ~psti_member_bit(member);
    e->used |= psti_member_bit(member);
    psti_bits_clear(&seat->ready, position);
    deliver(share, seat, position, id);
    share->counts.hits++;
    *pick =
        (psti_share_pick){.kind = PSTI_SHARE_HIT, .id = id, .entry = slot, .payload = e->payload};
}

/* Tickets grow by doubling: there are as many as samples are in the making at once. */
static bool ticket_new(psti_share *share, uint32_t *out)
{
    if (share->free_ticket != PSTI_NO_ENTRY) {
        *out = share->free_ticket;
        share->free_ticket = share->ticket[*out].id;
        return true;
    }
    if (share->tickets_made == share->tickets) {
        const uint32_t more = share->tickets ? 2 * share->tickets : 64;
        void *grown = psti_realloc(PSTI_MEM_SAMPLE, share->ticket, more, sizeof *share->ticket);
        if (!grown)
            return false;
        share->ticket = grown;
        share->tickets = more;
    }
    *out = share->tickets_made++;
    return true;
}

static void prepare(psti_share *share, int member, uint32_t position, uint32_t id,
                    psti_share_pick *pick)
{
    psti_share_seat *seat = &share->seat[member];
    uint32_t ticket;
    if (!ticket_new(share, &ticket))
        return; /* the pick stays WAIT: nothing has happened */
    share->ticket[ticket] =
        (psti_share_ticket){.id = id, .open = true, .used = psti_member_bit(member)};
    share->open_tickets++;
    share->preparing[id >> 6] |= (uint64_t)1 << (id & 63);
    const uint32_t slot = share->slot_of[id];
    if (slot != PSTI_NO_ENTRY && share->entry[slot].want & psti_member_bit(member))
        psti_share_withdraw(share, member, slot);
    deliver(share, seat, position, id);
    seat->preparations++;
    share->counts.preparations++;
    *pick = (psti_share_pick){
        .kind = PSTI_SHARE_PREPARE, .id = id, .ticket = ticket, .number = share->numbers++};
}

/* Moves `front` to the first position that this member has to see to: its sample is resident, or
 * nobody has it. False when there is none. */
static bool advance(psti_share *share, int member, uint32_t *id)
{
    psti_share_seat *seat = &share->seat[member];
    for (;;) {
        const uint32_t at = psti_bits_next(&seat->left, seat->front);
        seat->front = at;
        if (at == share->samples)
            return false;
        *id = psti_quick_at(&seat->order, at);
        if (psti_mask_test(seat->seen, *id)) {
            psti_bits_clear(&seat->left, at);
            continue;
        }
        const uint32_t slot = share->slot_of[*id];
        if (slot != PSTI_NO_ENTRY)
            psti_share_offer(share, member, slot); /* what is older than the epoch is taken here */
        if (psti_bits_test(&seat->ready, at) || !psti_mask_test(share->preparing, *id))
            return true;
        seat->front = at + 1;
    }
}

static uint32_t lowest_id(const psti_share_seat *seat, uint32_t from, uint32_t end)
{
    uint32_t best = from;
    for (uint32_t at = from; at < end; at = psti_bits_next(&seat->ready, at + 1))
        if (psti_quick_at(&seat->order, at) < psti_quick_at(&seat->order, best))
            best = at;
    return best;
}

/* A random one of the ready positions in the window, of which `first` is the nearest: the next at
 * or after a random place. */
static uint32_t choose(psti_share *share, const psti_share_seat *seat, uint32_t first, uint32_t end)
{
    if (share->spec.flags & PSTI_SHARE_LOWEST_ID)
        return lowest_id(seat, first, end);
    const uint32_t start =
        seat->front + (uint32_t)((psti_share_draw(share) >> 32) * (end - seat->front) >> 32);
    const uint32_t at = psti_bits_next(&seat->ready, start);
    return at < end ? at : first;
}

void psti_share_next(psti_share *share, int member, psti_share_pick *pick)
{
    psti_share_seat *seat = &share->seat[member];
    *pick = (psti_share_pick){.kind = PSTI_SHARE_NONE};
    if (!seat->open || seat->delivered == seat->length)
        return;
    pick->kind = PSTI_SHARE_WAIT;
    const uint32_t put_off = psti_bits_next(&seat->ready, 0);
    if (put_off < seat->front) {
        take(share, member, put_off, pick);
        return;
    }
    uint32_t id;
    if (!advance(share, member, &id))
        return;
    const uint32_t front = seat->front;
    if (psti_bits_test(&seat->ready, front)) {
        take(share, member, front, pick);
        return;
    }
    const uint32_t rest = share->samples - front;
    const uint32_t end = front + (seat->reach < rest ? seat->reach : rest);
    const uint32_t first = psti_bits_next(&seat->ready, front);
    if (first < end) {
        take(share, member, choose(share, seat, first, end), pick);
        pick->substitute = true;
        seat->substitutes++;
        share->counts.substitutes++;
        return;
    }
    prepare(share, member, front, id, pick);
}
