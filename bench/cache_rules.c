/* SPDX-License-Identifier: Apache-2.0
 * The simulation behind cache_sim: what is resident, what goes, what a prepared sample leaves
 * behind, and jobs that take one sample after the other. One thread, deterministic. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_rules.h"

unsigned long sim_draw(unsigned long *state)
{
    unsigned long x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void *sim_need(size_t count, size_t size)
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
    int k = (int)(sim_draw(&s->random) % (unsigned)all);
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
        const int k = (int)(sim_draw(&state) % (unsigned)(i + 1)), t = j->order[i];
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
        const int id = s->list[A][sim_draw(&s->random) % (unsigned)s->count[A]];
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

void sim_run(sim *s, int warm, int measured)
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

void sim_begin(sim *s, const scene *sc, const policy *po, const cost *costs, int n)
{
    *s = (sim){.sc = sc, .po = po, .n = n, .costs = costs, .random = 7};
    for (int f = 0; f < FORMS; f++) {
        s->at[f] = sim_need((size_t)n, sizeof(int));
        s->list[f] = sim_need((size_t)n, sizeof(int));
        memset(s->at[f], 0xff, (size_t)n * sizeof(int));
    }
    s->last = sim_need((size_t)n, sizeof(double));
    s->taken = sim_need((size_t)n, 1);
    for (int k = 0; k < sc->jobs; k++) {
        job *j = &s->jobs[k];
        *j = (job){.rate = sc->rate[k], .clock = sc->offset[k] * n / sc->rate[k]};
        j->shuffle = sc->common ? 1 : (unsigned long)k + 1;
        j->order = sim_need((size_t)n, sizeof(int));
        j->place = sim_need((size_t)n, sizeof(int));
        j->seen = sim_need((size_t)n, 1);
        shuffle(s, j);
        s->uses_s += j->rate / n;
    }
}

void sim_end(sim *s)
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
