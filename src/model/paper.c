/* SPDX-License-Identifier: Apache-2.0
 * The published model, equation by equation, and two ways to its best split. Its objective is an
 * arithmetic mean of rates, which flatters splits whose cases differ much; it is kept to compare
 * with, and nothing acts on it. Pure. */
#include <math.h>

#include "model/model.h"

enum { E = PSTI_MODEL_ENCODED, D = PSTI_MODEL_DECODED, A = PSTI_MODEL_AUGMENTED };

/* No limit where the rate is not given. */
static double limit(double rate, double bytes)
{
    return rate > 0 ? rate / bytes : INFINITY;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* What every sample passes whatever its form: the links to the node and to the GPU, the GPU. */
static double delivery(const psti_paper_input *in, double nic_bytes)
{
    const double tensor = in->inflation * in->sample_bytes;
    const double links = least(in->nodes * limit(in->nic, nic_bytes + in->overhead_nic),
                               in->nodes * limit(in->pcie, tensor + in->overhead_pcie));
    return least(links, in->nodes * limit(in->gpu, 1));
}

/* (1), (3), (5), (7) */
static void case_rates(const psti_paper_input *in, psti_paper_rate *out)
{
    const double sample = in->sample_bytes, tensor = in->inflation * sample;
    out->form[A] = least(limit(in->cache, tensor), delivery(in, tensor));
    out->form[D] = least(out->form[A], in->nodes * limit(in->augment, 1));
    out->form[E] = least(least(limit(in->cache, sample), delivery(in, sample)),
                         in->nodes * limit(in->decode_augment, 1));
    out->storage = least(out->form[E], limit(in->storage, sample));
}

/* (2), (4), (6), (8) */
static void counts(const psti_paper_input *in, const psti_model_split *split, psti_paper_rate *out)
{
    const double sample = in->sample_bytes, tensor = in->inflation * sample;
    const double bytes = in->cache_bytes;
    out->entries[A] = least(in->samples, split->share[A] * bytes / tensor);
    out->entries[D] = least(in->samples - out->entries[A], split->share[D] * bytes / tensor);
    out->entries[E] =
        least(in->samples - out->entries[A] - out->entries[D], split->share[E] * bytes / sample);
    out->stored = in->samples - out->entries[A] - out->entries[D] - out->entries[E];
}

void psti_paper_evaluate(const psti_paper_input *in, const psti_model_split *split,
                         psti_paper_rate *out)
{
    case_rates(in, out);
    counts(in, split, out);
    double sum = out->stored * out->storage; /* (9) */
    for (int form = 0; form < PSTI_MODEL_FORMS; form++)
        sum += out->entries[form] * out->form[form];
    out->overall = sum / in->samples;
}

/* ---- the best split -------------------------------------------------------------------------- */

typedef struct search {
    const psti_paper_input *in;
    psti_model_split best;
    double overall;
} search;

/* Rounding must not decide: what is better only in the last digits is not taken. */
static void try_split(search *s, double decoded, double augmented)
{
    const double tiny = 1e-12;
    if (!(decoded >= -tiny && augmented >= -tiny && decoded + augmented <= 1 + tiny))
        return; /* outside, or not a number */
    decoded = decoded < 0 ? 0 : decoded;
    augmented = augmented < 0 ? 0 : augmented;
    const double encoded = 1 - decoded - augmented;
    const psti_model_split split = {{encoded < 0 ? 0 : encoded, decoded, augmented}};
    psti_paper_rate rate;
    psti_paper_evaluate(s->in, &split, &rate);
    if (rate.overall <= s->overall * (1 + 1e-9))
        return;
    s->overall = rate.overall;
    s->best = split;
}

double psti_paper_grid(const psti_paper_input *in, psti_model_split *best)
{
    search s = {.in = in};
    for (int augmented = 0; augmented <= 100; augmented++)
        for (int decoded = 0; decoded + augmented <= 100; decoded++)
            try_split(&s, decoded / 100.0, augmented / 100.0);
    *best = s.best;
    return s.overall;
}

/* d * decoded + a * augmented = c */
typedef struct line {
    double d, a, c;
} line;

/* The objective is linear between these lines: the sides of the triangle, and where the augmented,
 * the augmented and decoded, or all entries together come to the whole dataset. */
double psti_paper_solve(const psti_paper_input *in, psti_model_split *best)
{
    const double tensors = in->samples * in->inflation * in->sample_bytes / in->cache_bytes;
    const double m = in->inflation;
    const line lines[] = {{1, 0, 0},       {0, 1, 0},
                          {1, 1, 1},       {0, 1, tensors},
                          {1, 1, tensors}, {1 / m - 1, 1 / m - 1, tensors / m - 1}};
    const int count = sizeof lines / sizeof *lines;
    search s = {.in = in};
    for (int i = 0; i < count; i++) {
        for (int j = i + 1; j < count; j++) {
            const line *p = &lines[i], *q = &lines[j];
            const double det = p->d * q->a - q->d * p->a;
            if (det != 0)
                try_split(&s, (p->c * q->a - q->c * p->a) / det, (p->d * q->c - q->d * p->c) / det);
        }
    }
    *best = s.best;
    return s.overall;
}

/* ---- our inputs in its terms ----------------------------------------------------------------- */

static double per_core(double cores, double seconds)
{
    return seconds > 0 ? cores / seconds : 0;
}

void psti_paper_from(const psti_model_input *in, psti_paper_input *out)
{
    double gpu = 0;
    bool any = false;
    for (int j = 0; j < in->jobs; j++) {
        gpu += in->consumer[j];
        any = any || in->consumer[j] == 0;
    }
    const double tensor = in->bytes[D] > 0 ? in->bytes[D] : in->bytes[A];
    const double rest = in->finish_s + in->other_s;
    *out = (psti_paper_input){
        .gpu = any ? 0 : gpu,
        .decode_augment = per_core(in->cores, in->crop_s + rest),
        .augment = per_core(in->cores, in->augment_s + rest),
        .cache = in->remote_bytes_s > 0 ? in->remote_bytes_s : in->memory_bytes_s,
        .storage = in->source_bytes_s,
        .cache_bytes = in->cache_bytes,
        .sample_bytes = in->bytes[E],
        .inflation = tensor / in->bytes[E],
        .samples = in->samples,
        .nodes = 1,
    };
}
