/* SPDX-License-Identifier: Apache-2.0
 * Counting under one mutex; called a few times a sample. */
#include "core/budget.h"

#include <assert.h>

void psti_budget_init(psti_budget *budget, uint64_t limit)
{
    pthread_mutex_init(&budget->lock, NULL);
    budget->used = 0;
    budget->peak = 0;
    budget->limit = limit;
}

void psti_budget_fini(psti_budget *budget)
{
    pthread_mutex_destroy(&budget->lock);
}

static void take_locked(psti_budget *budget, uint64_t bytes)
{
    budget->used += bytes;
    if (budget->used > budget->peak)
        budget->peak = budget->used;
}

bool psti_budget_try(psti_budget *budget, uint64_t bytes)
{
    pthread_mutex_lock(&budget->lock);
    const bool fits = budget->used <= budget->limit && bytes <= budget->limit - budget->used;
    if (fits)
        take_locked(budget, bytes);
    pthread_mutex_unlock(&budget->lock);
    return fits;
}

void psti_budget_force(psti_budget *budget, uint64_t bytes)
{
    pthread_mutex_lock(&budget->lock);
    take_locked(budget, bytes);
    pthread_mutex_unlock(&budget->lock);
}

void psti_budget_give(psti_budget *budget, uint64_t bytes)
{
    pthread_mutex_lock(&budget->lock);
    assert(budget->used >= bytes);
    budget->used -= bytes;
    pthread_mutex_unlock(&budget->lock);
}

uint64_t psti_budget_used(psti_budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    const uint64_t used = budget->used;
    pthread_mutex_unlock(&budget->lock);
    return used;
}

uint64_t psti_budget_peak(psti_budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    const uint64_t peak = budget->peak;
    pthread_mutex_unlock(&budget->lock);
    return peak;
}
