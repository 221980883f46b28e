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

#include "model/model.h"

enum { E, D, A, FORMS, NONE = FORMS, ANY, STATIC, JOBS_MOST = 4, PROBES = 32, CORES = 2 };

/* What is not the limit today is not worth nothing: it may be tomorrow. */
static const double PRICE_LEAST = 0.05;

typedef struct cost {
    double bytes[FORMS];
    double read_s, crop_s, full_s, augment_s, keep_s, finish_s; /* CPU seconds */
} cost;

typedef enum rule { KEEP, LRU, VALUE } rule;

typedef struct policy {
    const char *name;
    enum { PARTITIONS, SHARED, TARGET } budget;
    rule rule;     /* of static entries in partitions */
    bool adaptive; /* prices follow what was measured; else the model's */
    double margin; /* a new static entry must be worth so much more than the one it replaces */
    double cross;  /* the same between a static and an augmented one */
    bool now;      /* augmented entries are worth what they save beside the static ones */
} policy;

typedef struct scene {
    int jobs;
    double rate[JOBS_MOST], offset[JOBS_MOST];
    bool common;   /* one permutation for all jobs */
    double source; /* source seconds of a mean sample over its CPU seconds / cores; 0 = no limit */
    double share;  /* cache bytes / encoded bytes of the dataset */
    double window; /* substitution window, a share of the dataset */
} scene;

typedef struct job {
    double rate, clock;
    int *order, *place; /* position to sample and back; shared when common */
    unsigned char *seen;
    int cursor, delivered;
    long epochs;
    unsigned long shuffle; /* seed of its permutation; with epochs */
} job;

typedef struct sim {
    const scene *sc;
    const policy *po;
    int n;
    const cost *costs;
    double source_s_byte, limit[FORMS], limit_all;
    /* By sample and form: place in the list of residents, or -1. */
    int *at[FORMS], *list[FORMS], count[FORMS];
    double used[FORMS], peak, price_cpu, price_source, lambda;
    double *last;         /* of static entries: when used */
    unsigned char *taken; /* of augmented entries: which jobs consumed it */
    job jobs[JOBS_MOST];
    unsigned long random;
    double now, uses_s;
    /* Added up over the measured part. */
    double cpu, source, first_cpu, first_source;
    long deliveries, preparations, hits[FORMS + 1], inserts[FORMS];
} sim;

static unsigned long draw(unsigned long *state)
{
    unsigned long x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "cache_sim: out of memory\n");
        exit(1);
    }
    return memory;
}

/* ---- value ----------------------------------------------------------------------------------- */

static double source_s(const sim *s, int id)
{
    return s->costs[id].bytes[E] * s->source_s_byte;
}

/* Cost of CPU and source seconds at the prices of the moment. */
static double priced(const sim *s, double cpu_s, double source)
{
    return s->price_cpu * cpu_s / CORES + s->price_source * source;
}

/* What one use of a static entry saves. */
static double saves(const sim *s, int id, int form)
{
    const cost *c = &s->costs[id];
    const double cpu = c->read_s + (form == D ? c->crop_s - c->augment_s : 0);
    return form == NONE ? 0 : priced(s, cpu, source_s(s, id));
}

static int static_form(const sim *s, int id)
{
    return s->at[D][id] >= 0 ? D : s->at[E][id] >= 0 ? E : NONE;
}

/* What it takes to prepare a sample: now, where augmented entries compete with those that it could
 * begin from; from the source otherwise. */
static double prepares(const sim *s, int id)
{
    const cost *c = &s->costs[id];
    const double all = priced(s, c->read_s + c->crop_s, source_s(s, id));
    return s->po->now ? all - saves(s, id, static_form(s, id)) : all;
}

/* How often an augmented entry is used in a second by a job, as a multiple of 1/n: the sooner the
 * job comes by, the more often. What it has had in this epoch, in other form, it may take in the
 * next. */
static double nearness(const sim *s, const job *j, int id)
{
    const double least = 0.02 * s->n;
    const double ahead = j->seen[id] ? 1.5 * s->n - j->cursor : j->place[id] - j->cursor;
    return s->n / (ahead > least ? ahead : least);
}

static double augmented_uses(const sim *s, int id)
{
    double sum = 0;
    for (int k = 0; k < s->sc->jobs; k++)
        if (!(s->taken[id] & 1 << k))
            sum += s->jobs[k].rate * nearness(s, &s->jobs[k], id) / s->n;
    return sum;
}

/* Value per byte of a resident, or of one that would be. */
static double density(const sim *s, int id, int form)
{
    const double value =
        form == A ? augmented_uses(s, id) * prepares(s, id) : s->uses_s * saves(s, id, form);
    return value / s->costs[id].bytes[form];
}

/* ---- residents ------------------------------------------------------------------------------- */

static void put(sim *s, int id, int form)
{
    s->at[form][id] = s->count[form];
    s->list[form][s->count[form]++] = id;
    s->used[form] += s->costs[id].bytes[form];
    s->inserts[form]++;
}

static void drop(sim *s, int id, int form)
{
    const int place = s->at[form][id], last = s->list[form][--s->count[form]];
    s->list[form][place] = last;
    s->at[form][last] = place;
    s->at[form][id] = -1;
    s->used[form] -= s->costs[id].bytes[form];
}

/* A resident by chance, of one form or of several. */
static int any_resident(sim *s, int among, int *found)
{
    const int last = among == ANY ? A : among == STATIC ? D : among;
    int all = 0;
    *found = among < FORMS ? among : E;
    for (int f = *found; f <= last; f++)
        all += s->count[f];
    if (!all)
        return -1;
    int k = (int)(draw(&s->random) % (unsigned)all);
    while (k >= s->count[*found])
        k -= s->count[(*found)++];
    return s->list[*found][k];
}

/* The one to go: of least value per byte, or longest unused, among some. */
static int victim(sim *s, int among, bool by_age, int *form, double *worth)
{
    int best = -1;
    for (int i = 0; i < PROBES; i++) {
        int f;
        const int id = any_resident(s, among, &f);
        if (id < 0)
            return -1;
        const double w = by_age ? s->last[id] : density(s, id, f);
        if (best < 0 || w < *worth) {
            best = id;
            *form = f;
            *worth = w;
        }
    }
    return best;
}

static double used_all(const sim *s)
{
    return s->used[E] + s->used[D] + s->used[A];
}

/* Bytes that are free for a form. Under a target what augmented entries lately came to is theirs.
 */
static double room(const sim *s, int form)
{
    if (s->po->budget == PARTITIONS)
        return s->limit[form] - s->used[form];
    const double left = s->limit_all - used_all(s);
    if (s->po->budget == SHARED)
        return left;
    return form == A ? fmin(left, s->limit[A] - s->used[A]) : left - (s->peak - s->used[A]);
}

/* Among which entries the one to go is looked for; -1: there is no room to be made. */
static int rivals(const sim *s, int form)
{
    if (s->po->budget == PARTITIONS)
        return form;
    if (s->po->budget == SHARED)
        return ANY;
    if (form != A)
        return STATIC;
    return s->used[A] + s->costs[0].bytes[A] <= s->limit[A] && s->count[E] + s->count[D] ? STATIC
                                                                                         : A;
}

/* Augmented entries come and go by nature; static ones should not for little, and neither kind
 * should drive the other out and come back. */
static double margin_of(const sim *s, int out, int in)
{
    if (out == A && in == A)
        return 0;
    return out == A || in == A ? s->po->cross : s->po->margin;
}

/* Whether an entry of this worth may drive that one out. */
static bool gives_way(const sim *s, int out, double least, int in, double worth)
{
    if (s->po->budget == TARGET && in == A && out != A)
        return true; /* up to their target augmented entries come first */
    return least * (1 + margin_of(s, out, in)) < worth;
}

/* Makes room for an entry and puts it in, if what has to go is worth less. */
static bool insert(sim *s, int id, int form, bool by_age, double worth)
{
    const double bytes = s->costs[id].bytes[form];
    if (bytes > (s->po->budget == PARTITIONS ? s->limit[form] : s->limit_all))
        return false;
    while (room(s, form) < bytes) {
        int f = form;
        double least = 0;
        const int old = victim(s, rivals(s, form), by_age, &f, &least);
        if (old < 0)
            return false;
        if (!by_age) {
            if (f != A || s->po->budget != TARGET)
                s->lambda += 0.01 * (least - s->lambda);
            if (!gives_way(s, f, least, form, worth))
                return false;
        }
        drop(s, old, f);
    }
    put(s, id, form);
    s->peak = s->used[A] > s->peak ? s->used[A] : s->peak;
    return true;
}

/* ---- what is kept of a prepared sample ------------------------------------------------------- */

/* One budget: the form whose value exceeds the price of its bytes by most. */
static int wanted_form(const sim *s, int id)
{
    int best = NONE;
    double most = 0;
    for (int form = E; form <= D; form++) {
        const double net = s->uses_s * saves(s, id, form) - s->lambda * s->costs[id].bytes[form];
        if (net > most) {
            most = net;
            best = form;
        }
    }
    return best;
}

/* Returns the form that was made now, or NONE. */
static int keep_one_budget(sim *s, int id)
{
    const int have = static_form(s, id), want = wanted_form(s, id);
    if (want == NONE || want == have || have == D)
        return NONE;
    if (have == E) { /* decoded instead: worth it only if the added bytes are */
        const double more = s->uses_s * (saves(s, id, D) - saves(s, id, E));
        const double bytes = s->costs[id].bytes[D] - s->costs[id].bytes[E];
        if (more < s->lambda * bytes * (1 + s->po->margin))
            return NONE;
        drop(s, id, E);
        if (!insert(s, id, D, false, density(s, id, D))) {
            put(s, id, E);
            s->inserts[E]--;
            return NONE;
        }
        return D;
    }
    return insert(s, id, want, false, density(s, id, want)) ? want : NONE;
}

/* Partitions: decoded first, then encoded, as far as they go. */
static int keep_partitions(sim *s, int id)
{
    const rule r = s->po->rule;
    const int have = static_form(s, id);
    for (int form = D; form >= E; form--) {
        if (have == form)
            return NONE;
        if (s->limit[form] <= 0 || (have == E && form == D && r != KEEP))
            continue;
        bool in = false;
        if (room(s, form) >= s->costs[id].bytes[form]) {
            put(s, id, form);
            in = true;
        } else if (r != KEEP) {
            in = insert(s, id, form, r == LRU, density(s, id, form));
        }
        if (in && have == E)
            drop(s, id, E);
        if (in)
            return form;
    }
    return NONE;
}

static void keep_augmented(sim *s, int id, int by)
{
    if (s->sc->jobs < 2)
        return;
    if (s->at[A][id] >= 0)
        drop(s, id, A);
    s->taken[id] = (unsigned char)(1 << by);
    const double worth = density(s, id, A);
    if (worth > 0 && insert(s, id, A, false, worth))
        s->cpu += s->costs[id].keep_s;
}

/* ---- deliveries ------------------------------------------------------------------------------ */

static void shuffle(const sim *s, job *j)
{
    unsigned long state = j->shuffle * 1000003 + (unsigned long)j->epochs;
    for (int i = 0; i < s->n; i++)
        j->order[i] = i;
    for (int i = s->n - 1; i > 0; i--) {
        const int k = (int)(draw(&state) % (unsigned)(i + 1)), t = j->order[i];
        j->order[i] = j->order[k];
        j->order[k] = t;
    }
    for (int i = 0; i < s->n; i++)
        j->place[j->order[i]] = i;
}

/* A resident that the job may take in place of the sample at its cursor. */
static int substitute(sim *s, int by)
{
    const job *j = &s->jobs[by];
    const double far = s->sc->window * s->n;
    for (int i = 0; i < 2 * PROBES && s->count[A]; i++) {
        const int id = s->list[A][draw(&s->random) % (unsigned)s->count[A]];
        if (!j->seen[id] && !(s->taken[id] & 1 << by) && j->place[id] - j->cursor <= far)
            return id;
    }
    return -1;
}

static void prepare(sim *s, int id, int by)
{
    const cost *c = &s->costs[id];
    const int from = static_form(s, id);
    s->preparations++;
    s->hits[from]++;
    s->last[id] = s->now;
    if (from == NONE) {
        s->cpu += c->read_s;
        s->source += source_s(s, id);
    }
    keep_augmented(s, id, by);
    const int made = s->po->budget != PARTITIONS ? keep_one_budget(s, id) : keep_partitions(s, id);
    s->cpu += from == D ? c->augment_s : made == D ? c->full_s + c->augment_s : c->crop_s;
}

static void deliver(sim *s, int by)
{
    job *j = &s->jobs[by];
    while (j->seen[j->order[j->cursor]])
        j->cursor++;
    int id = j->order[j->cursor];
    const bool found = s->at[A][id] >= 0 && !(s->taken[id] & 1 << by);
    const int other = found || s->sc->common ? -1 : substitute(s, by);
    id = other >= 0 ? other : id;
    if (found || other >= 0) {
        s->taken[id] |= (unsigned char)(1 << by);
        s->hits[A]++;
        if (s->taken[id] == (1 << s->sc->jobs) - 1)
            drop(s, id, A);
    } else {
        prepare(s, id, by);
    }
    s->cpu += s->costs[id].finish_s;
    s->deliveries++;
    j->seen[id] = 1;
    if (++j->delivered < s->n)
        return;
    j->delivered = j->cursor = 0;
    j->epochs++;
    memset(j->seen, 0, (size_t)s->n);
    shuffle(s, j);
}

static int next_job(const sim *s)
{
    int best = 0;
    for (int k = 1; k < s->sc->jobs; k++)
        if (s->jobs[k].clock < s->jobs[best].clock)
            best = k;
    return best;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* The dearer a resource was in the last stretch, the more a second of it is worth. */
static void adapt(sim *s, double cpu, double source)
{
    const double most = cpu > source ? cpu : source;
    if (most <= 0)
        return;
    const double tilt = (cpu - source) / most;
    double w = s->price_cpu + 0.1 * tilt;
    w = w < PRICE_LEAST ? PRICE_LEAST : w > 1 - PRICE_LEAST ? 1 - PRICE_LEAST : w;
    s->price_cpu = w;
    s->price_source = 1 - w;
}

static long slowest(const sim *s)
{
    long least = s->jobs[0].epochs;
    for (int k = 1; k < s->sc->jobs; k++)
        least = s->jobs[k].epochs < least ? s->jobs[k].epochs : least;
    return least;
}

static void clear_sums(sim *s)
{
    s->cpu = s->source = 0;
    s->deliveries = s->preparations = 0;
    memset(s->hits, 0, sizeof s->hits);
    memset(s->inserts, 0, sizeof s->inserts);
}

static void run(sim *s, int warm, int measured)
{
    double cpu = 0, source = 0;
    long stretch = 0;
    bool warming = true;
    while (slowest(s) < warm + measured) {
        const int by = next_job(s);
        s->now = s->jobs[by].clock;
        deliver(s, by);
        s->jobs[by].clock += 1 / s->jobs[by].rate;
        if (++stretch == s->n / 4) {
            if (s->po->adaptive)
                adapt(s, (s->cpu - cpu) / CORES, s->source - source);
            s->peak = (s->peak + s->used[A]) / 2;
            cpu = s->cpu, source = s->source, stretch = 0;
        }
        if (warming && slowest(s) == 1) {
            s->first_cpu = s->cpu / (double)s->deliveries;
            s->first_source = s->source / (double)s->deliveries;
        }
        if (warming && slowest(s) >= warm) {
            warming = false;
            clear_sums(s);
            cpu = source = 0;
        }
    }
}

static void begin(sim *s, const scene *sc, const policy *po, const cost *costs, int n)
{
    *s = (sim){.sc = sc, .po = po, .n = n, .costs = costs, .random = 7};
    for (int f = 0; f < FORMS; f++) {
        s->at[f] = need((size_t)n, sizeof(int));
        s->list[f] = need((size_t)n, sizeof(int));
        memset(s->at[f], 0xff, (size_t)n * sizeof(int));
    }
    s->last = need((size_t)n, sizeof(double));
    s->taken = need((size_t)n, 1);
    for (int k = 0; k < sc->jobs; k++) {
        job *j = &s->jobs[k];
        *j = (job){.rate = sc->rate[k], .clock = sc->offset[k] * n / sc->rate[k]};
        j->shuffle = sc->common ? 1 : (unsigned long)k + 1;
        j->order = need((size_t)n, sizeof(int));
        j->place = need((size_t)n, sizeof(int));
        j->seen = need((size_t)n, 1);
        shuffle(s, j);
        s->uses_s += j->rate / n;
    }
}

static void end(sim *s)
{
    for (int f = 0; f < FORMS; f++) {
        free(s->at[f]);
        free(s->list[f]);
    }
    free(s->last);
    free(s->taken);
    for (int k = 0; k < s->sc->jobs; k++) {
        free(s->jobs[k].order);
        free(s->jobs[k].place);
        free(s->jobs[k].seen);
    }
}

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
    sim *s = need(1, sizeof *s);
    begin(s, sc, po, w->costs, w->n);
    s->source_s_byte = source_of(w, sc);
    s->limit_all = sc->share * w->n * w->mean.bytes[E];
    for (int f = 0; f < FORMS; f++)
        s->limit[f] = split->share[f] * s->limit_all;
    if (po->budget == TARGET) /* what came a little too late would be of no use */
        s->limit[A] = fmin(1.3 * s->limit[A], s->limit_all);
    s->price_cpu = fmin(fmax(prices.cpu, PRICE_LEAST), 1 - PRICE_LEAST);
    s->price_source = 1 - s->price_cpu;
    run(s, 4, 4);
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
    end(s);
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
    *out = need(65536, sizeof **out);
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
    cost *costs = need((size_t)n, sizeof *costs);
    unsigned long random = 3;
    for (int i = 0; i < n; i++)
        costs[i] = measured[draw(&random) % (unsigned)kinds];
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
