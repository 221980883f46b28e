/* SPDX-License-Identifier: Apache-2.0
 * One byte budget. Whoever is about to take memory reserves it first and gives it back afterwards.
 * The budget counts; it does not allocate. Any thread. */
#ifndef PSTI_CORE_BUDGET_H
#define PSTI_CORE_BUDGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct psti_budget {
    pthread_mutex_t lock; /* guards used, peak */
    uint64_t used, peak;
    uint64_t limit; /* fixed after init */
} psti_budget;

void psti_budget_init(psti_budget *budget, uint64_t limit);
void psti_budget_fini(psti_budget *budget);
/* True when the bytes were reserved; never blocks. */
bool psti_budget_try(psti_budget *budget, uint64_t bytes);
/* Reserves even beyond the limit: for what was promised before (and asserted small). */
void psti_budget_force(psti_budget *budget, uint64_t bytes);
void psti_budget_give(psti_budget *budget, uint64_t bytes);
uint64_t psti_budget_used(psti_budget *budget);
uint64_t psti_budget_peak(psti_budget *budget);

#endif
