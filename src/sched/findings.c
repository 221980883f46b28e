/* SPDX-License-Identifier: Apache-2.0
 * What was found in the contents of samples, by id: for feeds whose decoded forms are not kept, so
 * that it is searched once and not once an epoch. Open addressing, grows; each note has memory of
 * its own size. Under pool->lock. */
#include <string.h>

#include "sched/sched_priv.h"

static size_t slot_of(const finding_map *map, int64_t id)
{
    size_t i = (size_t)psti_mix64((uint64_t)id) & (map->cap - 1);
    while (map->at[i].used && map->at[i].id != id)
        i = (i + 1) & (map->cap - 1);
    return i;
}

const psti_note *findings_get(const finding_map *map, int64_t id)
{
    return map->count ? map->at[slot_of(map, id)].note : NULL;
}

static bool grow(finding_map *map)
{
    finding_map larger = {.cap = map->cap ? 2 * map->cap : 64, .count = map->count};
    larger.at = psti_calloc(PSTI_MEM_SCHED, larger.cap, sizeof *larger.at);
    if (!larger.at)
        return false;
    for (size_t i = 0; i < map->cap; i++)
        if (map->at[i].used)
            larger.at[slot_of(&larger, map->at[i].id)] = map->at[i];
    psti_free(map->at);
    *map = larger;
    return true;
}

void findings_put(finding_map *map, int64_t id, const psti_note *note)
{
    if (2 * (map->count + 1) > map->cap && !grow(map))
        return; /* it is only remembered for speed */
    struct finding *kept = &map->at[slot_of(map, id)];
    psti_note *mine = psti_malloc(PSTI_MEM_SCHED, psti_note_bytes(note));
    if (!mine)
        return;
    memcpy(mine, note, psti_note_bytes(note));
    map->count += !kept->used;
    psti_free(kept->note);
    *kept = (struct finding){id, true, mine};
}

void findings_forget(finding_map *map, int64_t id)
{
    if (!map->count)
        return;
    struct finding *kept = &map->at[slot_of(map, id)];
    psti_free(kept->note);
    kept->note = NULL;
}

void findings_fini(finding_map *map)
{
    for (size_t i = 0; i < map->cap; i++)
        psti_free(map->at[i].note);
    psti_free(map->at);
    *map = (finding_map){0};
}
