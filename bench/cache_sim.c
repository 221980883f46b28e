/* SPDX-License-Identifier: Apache-2.0
 * Which rule should a cache of three forms follow? Simulates jobs that read every sample once an
 * epoch through a cache, with costs measured on real samples (photo_costs), and adds up what each
 * rule makes of the cores and of the source. Reading and computing overlap, so the slower of the
 * two says how many samples a second come out. Deterministic; prints a table, tab-separated.
 *
 *   cache_sim COSTS.tsv [SAMPLES [CASE]] > table.tsv     CASE: a part of a case's name
 *
 * The rules that are compared:
 *   partitions   each form has its bytes; encoded and decoded entries stay once they are in (keep),
 * or go by age (lru), or by value per byte (value); augmented ones go by value one budget   all
 * entries compete: value of a use * uses a second / bytes */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rules.h"
#include "model/model.h"

/* ---- cases ----------------------------------------------------------------------------------- */

typedef struct world {
    const cost *costs;
    int n;
    cost mean;
} world;

static void mean_cost(world *w)
{
    double *to = (double *)&w->mean;
    for (int i = 0; i < w->n; i++)
        for (size_t k = 0; k < sizeof(cost) / sizeof(double); k++)
            to[k] += ((const double *)&w->costs[i])[k] / w->n;
}

static psti_model_input model_input(const world *w, const scene *sc, double source_s_byte)
{
    const cost *m = &w->mean;
    psti_model_input in = {.samples = w->n,
                           .cache_bytes = sc->share * w->n * m->bytes[E],
                           .cores = CORES,
                           .bytes = {m->bytes[E], m->bytes[D], m->bytes[A]},
                           .read_s = m->read_s,
                           .crop_s = m->crop_s,
                           .full_s = m->full_s,
                           .augment_s = m->augment_s,
                           .keep_s = m->keep_s,
                           .finish_s = m->finish_s,
                           .source_bytes_s = source_s_byte > 0 ? 1 / source_s_byte : 0,
                           .jobs = sc->jobs};
    /* Rates that the jobs keep to each other whatever the capacity is. */
    for (int k = 0; k < sc->jobs && !sc->common && sc->jobs > 1; k++)
        in.consumer[k] = sc->rate[k] * 1e-3;
    in.sharing.spread = 0.03;
    return in;
}

static double source_of(const world *w, const scene *sc)
{
    const cost *m = &w->mean;
    const double cpu = (m->read_s + m->crop_s + m->finish_s) / CORES;
    return sc->source * cpu / m->bytes[E];
}

typedef struct outcome {
    double rate, first, preparations, cpu, source;
    double from[FORMS + 1], inserts[FORMS], held[FORMS];
} outcome;

static outcome simulate(const world *w, const scene *sc, const policy *po,
                        const psti_model_split *split, psti_model_prices prices)
{
    sim *s = sim_need(1, sizeof *s);
    sim_begin(s, sc, po, w->costs, w->n);
    s->source_s_byte = source_of(w, sc);
    s->limit_all = sc->share * w->n * w->mean.bytes[E];
    for (int f = 0; f < FORMS; f++)
        s->limit[f] = split->share[f] * s->limit_all;
    if (po->budget == TARGET) /* what came a little too late would be of no use */
        s->limit[A] = fmin(1.3 * s->limit[A], s->limit_all);
    s->price_cpu = fmin(fmax(prices.cpu, PRICE_LEAST), 1 - PRICE_LEAST);
    s->price_source = 1 - s->price_cpu;
    sim_run(s, 4, 4);
    const double count = (double)s->deliveries, busy = fmax(s->cpu / CORES, s->source);
    outcome o = {.rate = count / busy,
                 .first = 1 / fmax(s->first_cpu / CORES, s->first_source),
                 .preparations = (double)s->preparations / count,
                 .cpu = s->cpu / CORES / count,
                 .source = s->source / count};
    for (int f = 0; f <= FORMS; f++)
        o.from[f] = (double)s->hits[f] / count;
    for (int f = 0; f < FORMS; f++) {
        o.inserts[f] = (double)s->inserts[f] / count;
        o.held[f] = s->limit_all > 0 ? s->used[f] / s->limit_all : 0;
    }
    sim_end(s);
    free(s);
    return o;
}

static void print_row(const char *name, const char *what, const outcome *o, double best)
{
    printf("%s\t%s\t%.1f\t%.3f\t%.1f\t%.3f", name, what, o->rate, best > 0 ? o->rate / best : 1,
           o->first, o->preparations);
    for (int f = 0; f < FORMS; f++)
        printf("\t%.2f", o->held[f]);
    printf("\t%.3f\t%.3f\t%.3f\t%.3f", o->from[E], o->from[D], o->from[A], o->from[NONE]);
    printf("\t%.4f\t%.3f\t%.3f\n", o->inserts[E] + o->inserts[D], 1e3 * o->cpu, 1e3 * o->source);
}

/* The best partition found by trying, in steps of a tenth, or of a fifth for several jobs. */
static outcome best_partition(const world *w, const scene *sc, psti_model_prices prices,
                              psti_model_split *best)
{
    const policy keep = {"", PARTITIONS, KEEP, false, 0, 0, false};
    outcome top = {0};
    const int steps = sc->jobs > 1 ? 5 : 10;
    for (int a = 0; a <= (sc->jobs > 1 ? steps : 0); a++)
        for (int d = 0; d + a <= steps; d++) {
            const double step = 1.0 / steps;
            const psti_model_split split = {{(steps - a - d) * step, d * step, a * step}};
            const outcome o = simulate(w, sc, &keep, &split, prices);
            if (o.rate > top.rate) {
                top = o;
                *best = split;
            }
        }
    return top;
}

static void run_case(const world *w, const char *name, const scene *sc)
{
    const policy rules[] = {
        {"partitions as planned, keep", PARTITIONS, KEEP, false, 0, 0, false},
        {"partitions as planned, lru", PARTITIONS, LRU, false, 0, 0, false},
        {"partitions as planned, value", PARTITIONS, VALUE, false, 0.1, 0, false},
        {"one budget, prices of the model", SHARED, VALUE, false, 0.1, 1, true},
        {"one budget, prices measured", SHARED, VALUE, true, 0.1, 1, true},
        {"one budget, measured, no margin", SHARED, VALUE, true, 0, 0, true},
        {"target for augmented, model", TARGET, VALUE, false, 0.1, 0, true},
        {"target for augmented, measured", TARGET, VALUE, true, 0.1, 0, true},
        {"target, measured, augmented by uses", TARGET, VALUE, true, 0.1, 0, false},
    };
    const psti_model_input in = model_input(w, sc, source_of(w, sc));
    psti_model_answer answer;
    psti_model_solve(&in, &answer);
    psti_paper_input paper;
    psti_model_split paper_split, found = {{0}};
    psti_paper_from(&in, &paper);
    psti_paper_solve(&paper, &paper_split);
    const outcome best = best_partition(w, sc, answer.prices, &found);
    const policy none = {"", PARTITIONS, KEEP, false, 0, 0, false};
    const outcome empty = simulate(w, sc, &none, &(psti_model_split){{0}}, answer.prices);
    print_row(name, "no cache", &empty, best.rate);
    const outcome published = simulate(w, sc, &none, &paper_split, answer.prices);
    print_row(name, "partitions as published, keep", &published, best.rate);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const outcome o = simulate(w, sc, &rules[i], &answer.split, answer.prices);
        print_row(name, rules[i].name, &o, best.rate);
    }
    print_row(name, "best partition by trial, keep", &best, best.rate);
    const outcome predicted = {
        .rate = answer.rate.capacity,
        .first = answer.first.capacity,
        .preparations = answer.rate.preparations,
        .cpu = answer.rate.cpu_s,
        .source = answer.rate.source_s,
        .from = {answer.rate.from[E], answer.rate.from[D], answer.rate.from[A],
                 answer.rate.from_source},
        .held = {answer.split.share[E], answer.split.share[D], answer.split.share[A]}};
    print_row(name, "predicted for the plan", &predicted, best.rate);
    fflush(stdout);
}

static int load(const char *path, cost **out)
{
    FILE *file = fopen(path, "r");
    char line[512];
    int count = 0;
    *out = sim_need(65536, sizeof **out);
    if (!file || !fgets(line, sizeof line, file))
        return 0;
    while (count < 65536 && fgets(line, sizeof line, file)) {
        cost *c = &(*out)[count];
        double us[6];
        if (sscanf(line, "%lf %lf %lf %lf %lf %lf %lf %lf %lf", &c->bytes[E], &c->bytes[D],
                   &c->bytes[A], &us[0], &us[1], &us[2], &us[3], &us[4], &us[5]) != 9)
            continue;
        c->read_s = us[0] * 1e-6, c->crop_s = us[1] * 1e-6, c->full_s = us[2] * 1e-6;
        c->augment_s = us[3] * 1e-6, c->keep_s = us[4] * 1e-6, c->finish_s = us[5] * 1e-6;
        count++;
    }
    fclose(file);
    return count;
}

int main(int argc, char **argv)
{
    cost *measured;
    const int kinds = argc > 1 ? load(argv[1], &measured) : 0;
    const int n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 6000;
    if (kinds < 1 || n < 100) {
        fprintf(stderr, "usage: cache_sim COSTS.tsv [SAMPLES [CASE]]\n");
        return 2;
    }
    cost *costs = sim_need((size_t)n, sizeof *costs);
    unsigned long random = 3;
    for (int i = 0; i < n; i++)
        costs[i] = measured[sim_draw(&random) % (unsigned)kinds];
    world w = {.costs = costs, .n = n};
    mean_cost(&w);
    static const struct {
        const char *name;
        double source;
    } limits[] = {{"cores", 0}, {"both", 1.5}, {"source", 3}};
    static const double shares[] = {0.05, 0.2, 0.6};
    const scene jobs[] = {
        {.jobs = 1, .rate = {1}, .window = 0.1},
        {.jobs = 4,
         .rate = {1, 1, 1, 1},
         .offset = {0, .01, .02, .03},
         .common = true,
         .window = 0.1},
        {.jobs = 4, .rate = {1, 2.03, 3.07, 5.11}, .offset = {0, .3, .7, .1}, .window = 0.1}};
    static const char *const job_names[] = {"1 job", "4 equal", "1:2:3:5"};
    printf(
        "jobs, limit, cache\trule\tsamples/s\tof best partition\tfirst epoch\tpreparations\theld E"
        "\theld D\theld A\tfrom E\tfrom D\tfrom A\tfrom source\tstatic inserts\tcpu ms\tsource "
        "ms\n");
    for (int j = 0; j < 3; j++)
        for (int l = 0; l < 3; l++)
            for (int c = 0; c < 3; c++) {
                scene sc = jobs[j];
                char name[64];
                sc.source = limits[l].source;
                sc.share = shares[c];
                snprintf(name, sizeof name, "%s, %s, %.0f %%", job_names[j], limits[l].name,
                         100 * shares[c]);
                if (argc < 4 || strstr(name, argv[3]))
                    run_case(&w, name, &sc);
            }
    free(costs);
    free(measured);
    return 0;
}
