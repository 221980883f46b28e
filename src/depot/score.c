/* SPDX-License-Identifier: Apache-2.0
 * Which datasets make way: decayed use times the seconds that fetching them again takes. Pure
 * functions; called while the depot is locked, and by the simulation that judges the rule. */
#include <math.h>
#include <stdlib.h>

#include "depot/depot.h"

static const double half_life_s = 24 * 3600;

double psti_depot_decayed(double uses, int64_t last_s, int64_t now_s)
{
    return now_s > last_s ? uses * exp2(-(double)(now_s - last_s) / half_life_s) : uses;
}

double psti_depot_used(double uses, int64_t last_s, int64_t now_s)
{
    return 1 + psti_depot_decayed(uses, last_s, now_s);
}

double psti_depot_score(const psti_depot_unit *unit, int64_t now_s)
{
    return psti_depot_decayed(unit->uses, unit->last_s, now_s) * unit->refetch_s;
}

typedef struct ranking {
    const psti_depot_unit *units;
    int64_t now_s;
} ranking;

/* Equal scores: what was used longest ago goes first, then in the order given, so that the same
 * books give the same choice. */
static int by_score(const void *a, const void *b, void *user)
{
    const ranking *r = user;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const psti_depot_unit *x = &r->units[i], *y = &r->units[j];
    const double p = psti_depot_score(x, r->now_s), q = psti_depot_score(y, r->now_s);
    if (p != q)
        return p < q ? -1 : 1;
    if (x->last_s != y->last_s)
        return x->last_s < y->last_s ? -1 : 1;
    return i < j ? -1 : 1;
}

uint64_t psti_depot_choose(const psti_depot_unit *units, size_t count, uint64_t need, int64_t now_s,
                           uint32_t *order, bool *goes)
{
    ranking r = {.units = units, .now_s = now_s};
    size_t able = 0, taken = 0;
    uint64_t freed = 0;
    for (size_t i = 0; i < count; i++) {
        goes[i] = false;
        if (!units[i].held && units[i].bytes > 0)
            order[able++] = (uint32_t)i;
    }
    qsort_r(order, able, sizeof *order, by_score, &r);
    for (; taken < able && freed < need; taken++) {
        goes[order[taken]] = true;
        freed += units[order[taken]].bytes;
    }
    if (freed < need) {
        for (size_t i = 0; i < taken; i++)
            goes[order[i]] = false;
        return freed;
    }
    /* The last one that was taken may be large enough to make earlier ones needless. */
    for (size_t i = taken; i-- > 0;) {
        const uint64_t bytes = units[order[i]].bytes;
        if (freed - bytes >= need) {
            goes[order[i]] = false;
            freed -= bytes;
        }
    }
    return freed;
}
