/* SPDX-License-Identifier: Apache-2.0
 * Walks through every invariant that share_priv.h states. For tests and for the check of a running
 * engine: it takes time in proportion to samples times members. The caller serialises.
 */
#include "sample/share_priv.h"

static const char *check_bits(const psti_bits *b)
{
    for (int i = 0; i + 1 < b->levels; i++)
        for (uint32_t w = 0; w < b->count[i]; w++)
            if ((b->level[i][w] != 0) != psti_mask_test(b->level[i + 1], w))
                return "a bitmap and its summary differ";
    return NULL;
}

static const char *check_entries(const psti_share *share)
{
    uint32_t known = 0, spare = 0;
    for (uint32_t i = 0; i < share->resident; i++) {
        const uint32_t slot = share->live[i];
        if (slot >= share->slots_made || share->entry[slot].where != i)
            return "the list of entries and an entry differ";
        if (share->slot_of[share->entry[slot].id] != slot)
            return "an entry is not found by its id";
        if (share->entry[slot].want & share->entry[slot].used)
            return "an entry is offered to a member that consumed it";
        if ((share->entry[slot].want | share->entry[slot].used) & ~share->members)
            return "an entry remembers a member that left";
    }
    for (uint32_t id = 0; id < share->samples; id++)
        known += share->slot_of[id] != PSTI_NO_ENTRY;
    for (uint32_t slot = share->free_slot; slot != PSTI_NO_ENTRY; slot = share->entry[slot].id)
        if (++spare > share->slots_made || share->entry[slot].where != PSTI_NO_ENTRY)
            return "the chain of free entries is broken";
    if (known != share->resident)
        return "an id names an entry that is not resident";
    return spare + share->resident == share->slots_made ? NULL : "an entry was lost";
}

static const char *check_tickets(const psti_share *share)
{
    uint32_t open = 0, preparing = 0;
    for (uint32_t i = 0; i < share->tickets_made; i++) {
        const psti_share_ticket *t = &share->ticket[i];
        if (!t->open)
            continue;
        open++;
        if (!psti_mask_test(share->preparing, t->id))
            return "a preparation is not marked";
        if (t->used & ~share->members)
            return "a preparation belongs to a member that left";
    }
    for (size_t i = 0; i < psti_mask_words(share->samples); i++)
        preparing += (uint32_t)__builtin_popcountll(share->preparing[i]);
    return open == preparing && open == share->open_tickets ? NULL : "preparations were miscounted";
}

static const char *check_position(const psti_share *share, int member, uint32_t at)
{
    const psti_share_seat *seat = &share->seat[member];
    const uint32_t id = psti_quick_at(&seat->order, at), slot = share->slot_of[id];
    const uint64_t bit = psti_member_bit(member);
    const bool seen = psti_mask_test(seat->seen, id), ready = psti_bits_test(&seat->ready, at);
    const bool wanted = slot != PSTI_NO_ENTRY && share->entry[slot].want & bit;
    if (ready != wanted)
        return "what a member may get and the entries differ";
    if (ready && seen)
        return "a member may get what it has seen";
    if (!seen && !psti_bits_test(&seat->left, at))
        return "a sample was lost from an epoch";
    if (!seen && at < seat->front && !ready && !psti_mask_test(share->preparing, id))
        return "a sample was passed over and nobody prepares it";
    return NULL;
}

static const char *check_seat(const psti_share *share, int member)
{
    const psti_share_seat *seat = &share->seat[member];
    const char *wrong = check_bits(&seat->left);
    if (!wrong)
        wrong = check_bits(&seat->ready);
    if (!seat->open)
        return wrong;
    uint32_t unseen = 0;
    for (uint32_t at = 0; at < share->samples && !wrong; at++) {
        unseen += !psti_mask_test(seat->seen, at);
        wrong = check_position(share, member, at);
    }
    if (!wrong && unseen + seat->delivered != seat->length)
        wrong = "the samples of an epoch were miscounted";
    return wrong;
}

const char *psti_share_check(const psti_share *share)
{
    const char *wrong = check_entries(share);
    if (!wrong)
        wrong = check_tickets(share);
    for (int i = 0; i < PSTI_SHARE_MEMBERS && !wrong; i++) {
        if (share->seat[i].live != (bool)(share->members >> i & 1))
            return "the mask of members is wrong";
        if (share->seat[i].live)
            wrong = check_seat(share, i);
    }
    return wrong;
}
