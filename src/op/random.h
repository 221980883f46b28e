/* SPDX-License-Identifier: Apache-2.0
 * Distributions that ops draw from beyond the generator's own, with core/math.h's logarithm, so
 * that a draw is the same on every machine. Stays inside src/op. */
#ifndef PSTI_OP_RANDOM_H
#define PSTI_OP_RANDOM_H

#include <stdbool.h>

#include "core/rng.h"

/* Normal numbers; they come in pairs. `rng` is set by the caller, the rest is zero at first. */
typedef struct psti_normals {
    psti_rng *rng;
    double next;
    bool have;
} psti_normals;
double psti_draw_normal(psti_normals *normals);

/* A gamma-distributed number of shape alpha (> 0) and scale 1. */
double psti_draw_gamma(psti_rng *rng, double alpha);
/* count shares that add up to 1, of the symmetric Dirichlet distribution. */
void psti_draw_dirichlet(psti_rng *rng, double alpha, int count, double *out);

#endif
