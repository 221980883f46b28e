/* SPDX-License-Identifier: Apache-2.0
 * A histogram of durations: 16 buckets per power of two, so a quantile is right within 6 %.
 * The owner serialises access. */
#ifndef PSTI_CORE_HIST_H
#define PSTI_CORE_HIST_H

#include <stdint.h>

enum { PSTI_HIST_BUCKETS = 64 * 16 };

typedef struct psti_hist {
    uint64_t count;
    uint32_t bucket[PSTI_HIST_BUCKETS];
} psti_hist;

void psti_hist_add(psti_hist *hist, uint64_t value);
/* The value below which a share q (0..1) of the entries lies; 0 when empty. */
uint64_t psti_hist_quantile(const psti_hist *hist, double q);
/* Which share of the sum of all entries those above `value` have; 0 when empty. */
double psti_hist_mass_above(const psti_hist *hist, uint64_t value);
/* Every entry counts half as much from now on. */
void psti_hist_fade(psti_hist *hist);

#endif
