/* SPDX-License-Identifier: Apache-2.0
 * The published model: its equations against values worked out by hand from the published inputs,
 * and the exact solver against the 1 % grid. */
#include <math.h>

#include "check.h"
#include "core/rng.h"
#include "model/model.h"

static const double gbit = 1e9 / 8;

static psti_paper_input base(void)
{
    return (psti_paper_input){
        .cache_bytes = 64e9, .sample_bytes = 114e3, .inflation = 5.12, .nodes = 1};
}

static psti_paper_input in_house(double nodes)
{
    psti_paper_input in = base();
    in.gpu = 4550, in.decode_augment = 2132, in.augment = 4050;
    in.nic = 10 * gbit, in.pcie = 32e9, in.cache = 10 * gbit, in.storage = 500e6;
    in.nodes = nodes;
    return in;
}

static psti_paper_input aws(void)
{
    psti_paper_input in = base();
    in.gpu = 9989, in.decode_augment = 3432, in.augment = 6520;
    in.nic = 10 * gbit, in.pcie = 32e9, in.cache = 10 * gbit, in.storage = 256e6;
    return in;
}

static psti_paper_input azure(void)
{
    psti_paper_input in = base();
    in.gpu = 14301, in.decode_augment = 9783, in.augment = 12930;
    in.nic = 80 * gbit, in.pcie = 64e9, in.cache = 30 * gbit, in.storage = 250e6;
    return in;
}

/* Encoded, decoded, augmented. */
static const psti_model_split splits[6] = {{{1, 0, 0}},   {{0, 1, 0}},   {{0, 0, 1}},
                                           {{.5, .5, 0}}, {{.5, 0, .5}}, {{0, .5, .5}}};

typedef struct vector {
    const char *name;
    psti_paper_input in;
    double footprint;
    double a, d, e, s, overall[6];
} vector;

static bool near(double got, double want)
{
    return fabs(got - want) <= 0.051; /* the values are given to one decimal */
}

static void check_vector(const vector *v)
{
    psti_paper_input in = v->in;
    in.samples = v->footprint / in.sample_bytes;
    for (int i = 0; i < 6; i++) {
        psti_paper_rate rate;
        psti_paper_evaluate(&in, &splits[i], &rate);
        CHECKF(near(rate.form[PSTI_MODEL_AUGMENTED], v->a) &&
                   near(rate.form[PSTI_MODEL_DECODED], v->d) &&
                   near(rate.form[PSTI_MODEL_ENCODED], v->e) && near(rate.storage, v->s),
               "%s: cases %.1f %.1f %.1f %.1f", v->name, rate.form[PSTI_MODEL_AUGMENTED],
               rate.form[PSTI_MODEL_DECODED], rate.form[PSTI_MODEL_ENCODED], rate.storage);
        CHECKF(near(rate.overall, v->overall[i]), "%s, split %d: %.2f, not %.1f", v->name, i,
               rate.overall, v->overall[i]);
    }
}

static void equations_give_the_known_values(void)
{
    const vector vectors[] = {
        {"in-house, 1 node",
         in_house(1),
         512e9,
         2141.6,
         2141.6,
         2132,
         2132,
         {2132.0, 2132.2, 2132.2, 2132.1, 2132.1, 2132.2}},
        {"in-house, 2 nodes",
         in_house(2),
         512e9,
         2141.6,
         2141.6,
         4264,
         4264,
         {4264.0, 4212.2, 4212.2, 4238.1, 4238.1, 4212.2}},
        {"aws",
         aws(),
         512e9,
         2141.6,
         2141.6,
         3432,
         2245.6,
         {2393.9, 2243.1, 2243.1, 2318.5, 2318.5, 2243.1}},
        {"azure",
         azure(),
         512e9,
         6424.8,
         6424.8,
         9783,
         2193.0,
         {3141.7, 2296.3, 2296.3, 2719.0, 2719.0, 2296.3}},
        {"azure, small",
         azure(),
         64e9,
         6424.8,
         6424.8,
         9783,
         2193.0,
         {9783.0, 3019.5, 3019.5, 6401.3, 6401.3, 3019.5}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        check_vector(&vectors[i]);
}

static void every_node_adds_its_cores(void)
{
    psti_paper_input in = in_house(2);
    in.cache = in.nic = in.gpu = 0; /* no limit: the cores are left */
    in.samples = 1e6;
    psti_paper_rate rate;
    psti_paper_evaluate(&in, &splits[1], &rate);
    CHECK(near(rate.form[PSTI_MODEL_DECODED], 2 * 4050));
    CHECK(near(rate.form[PSTI_MODEL_ENCODED], 2 * 2132));
}

static void counts_add_up_to_the_dataset(void)
{
    psti_paper_input in = azure();
    for (double footprint = 1e9; footprint < 1e13; footprint *= 3) {
        in.samples = footprint / in.sample_bytes;
        for (int i = 0; i < 6; i++) {
            psti_paper_rate rate;
            psti_paper_evaluate(&in, &splits[i], &rate);
            double sum = rate.stored;
            for (int form = 0; form < PSTI_MODEL_FORMS; form++) {
                sum += rate.entries[form];
                CHECK(rate.entries[form] >= 0);
            }
            CHECK(rate.stored >= -1e-6 && fabs(sum - in.samples) < 1e-6 * in.samples);
        }
    }
}

static void gradient_bytes_slow_links_down(void)
{
    psti_paper_input in = aws();
    in.samples = 512e9 / in.sample_bytes;
    in.overhead_nic = 1e6;
    psti_paper_rate rate;
    psti_paper_evaluate(&in, &splits[0], &rate);
    CHECK(near(rate.form[PSTI_MODEL_ENCODED], 1.25e9 / (114e3 + 1e6)));
    CHECK(near(rate.form[PSTI_MODEL_AUGMENTED], 1.25e9 / (5.12 * 114e3 + 1e6)));
}

/* Machines of all kinds: bandwidths and rates over four orders of magnitude. */
static psti_paper_input any_machine(uint64_t n)
{
    const psti_rng_key key = {.seed = 11, .id = n};
    psti_rng rng;
    psti_rng_init(&rng, &key, 0);
    psti_paper_input in = base();
    double *field[] = {&in.gpu, &in.decode_augment, &in.augment};
    for (size_t i = 0; i < 3; i++)
        *field[i] = 100 * pow(10, 3 * psti_rng_unit(&rng));
    in.augment = fmax(in.augment, in.decode_augment);
    in.cache = 1e8 * pow(10, 3 * psti_rng_unit(&rng));
    in.storage = 1e7 * pow(10, 3 * psti_rng_unit(&rng));
    in.inflation = 0.5 + 8 * psti_rng_unit(&rng);
    in.samples = 3e4 * pow(10, 1.5 * psti_rng_unit(&rng));
    return in;
}

static void exact_solver_is_never_below_the_grid(void)
{
    int above = 0;
    for (uint64_t n = 0; n < 300; n++) {
        const psti_paper_input in = any_machine(n);
        psti_model_split on_grid, exact;
        const double grid = psti_paper_grid(&in, &on_grid), best = psti_paper_solve(&in, &exact);
        CHECKF(best >= grid * (1 - 1e-8), "machine %d: %.4f below the grid's %.4f", (int)n, best,
               grid);
        /* One step of 1 % moves at most 2 % of what a whole cache of one form changes. */
        CHECKF(best <= grid * 1.25, "machine %d: %.4f, grid %.4f", (int)n, best, grid);
        above += best > grid * 1.0001;
        psti_paper_rate rate;
        psti_paper_evaluate(&in, &exact, &rate);
        CHECK(fabs(rate.overall - best) <= 1e-9 * best);
    }
    CHECKF(above > 0, "the grid is as good everywhere: %d", above);
}

static void ties_go_to_encoded(void)
{
    psti_paper_input in = in_house(1); /* decode_augment binds before storage does: all alike */
    in.samples = 512e9 / in.sample_bytes;
    in.cache = 1e12, in.nic = 1e12;
    in.augment = in.decode_augment;
    in.gpu = in.decode_augment;
    psti_model_split split;
    psti_paper_grid(&in, &split);
    CHECK(split.share[PSTI_MODEL_ENCODED] == 1);
    psti_paper_solve(&in, &split);
    CHECK(split.share[PSTI_MODEL_ENCODED] == 1);
}

static void no_cache_has_an_answer(void)
{
    psti_paper_input in = aws();
    in.samples = 1e6;
    in.cache_bytes = 0;
    psti_model_split split;
    CHECK(near(psti_paper_solve(&in, &split), 2245.6));
}

int main(void)
{
    RUN(equations_give_the_known_values);
    RUN(every_node_adds_its_cores);
    RUN(counts_add_up_to_the_dataset);
    RUN(gradient_bytes_slow_links_down);
    RUN(exact_solver_is_never_below_the_grid);
    RUN(ties_go_to_encoded);
    RUN(no_cache_has_an_answer);
    return check_report();
}
