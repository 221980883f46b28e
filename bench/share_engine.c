/* SPDX-License-Identifier: Apache-2.0
 * What sharing saves on the engine itself, what it does to the order of each job, and the same
 * under simpler rules, case by case: preparations per delivery and hit rates by the engine's own
 * counters (share_run.h), order statistics from what was delivered. Runs with several seeds; the
 * rules beside ours with the first one.
 *
 *   share_engine [--seeds S] [--samples N] [--epochs E] [--order-samples N] [--order-epochs E]
 *                [--case I] [--workers W]
 *
 * Prints tables to standard error and JSON to standard output. Epochs are those of the slowest job;
 * every job's deliveries count from its first on. Exit status 1 when a target is missed, or when
 * the order tests do not find out the substitute that is biased on purpose. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "share_model.h"
#include "share_run.h"

enum { SEEDS_MOST = 16, ROWS_MOST = 7 };

typedef struct settings {
    run_set figures, order;
    int seeds, only;
    pst_dataset *many, *few; /* data of the figures and of the order */
} settings;

/* A line of the table. Order statistics of several seeds are one family of tests. */
typedef struct row {
    const char *rule, *from;
    int seeds;
    double ratio[SEEDS_MOST], hit_rate; /* ascending; their mean. Negative: not asked for */
    run_out first;                      /* of the first seed */
    bool order_known;
    order_verdict order;
    double holm_p[SEEDS_MOST]; /* of each seed alone */
} row;

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_order(row *r, int seed, const order_verdict *one)
{
    if (!r->order_known)
        order_begin(&r->order);
    order_join(&r->order, one);
    r->holm_p[seed] = one->holm_p;
    r->order_known = true;
}

enum { FIGURES = 1, ORDER = 2 };

static row on_engine(const share_case *sc, const settings *set, share_rule rule, int seeds,
                     int what)
{
    static const char *const names[RULES] = {"shared", "not shared", "plain substitution",
                                             "never evict", "lowest id (biased)"};
    row r = {.rule = names[rule], .from = "engine", .seeds = seeds, .hit_rate = -1};
    run_set f = set->figures, o = set->order;
    for (int i = 0; i < seeds; i++) {
        run_out out;
        f.seed = o.seed = (uint64_t)i + 1;
        if (what & FIGURES) {
            run_case(sc, &f, rule, set->many, &out);
            r.ratio[i] = out.ratio;
            r.hit_rate = (i ? r.hit_rate : 0) + out.hit_rate / seeds;
            r.first = i ? r.first : out;
        }
        if (what & ORDER) {
            run_case(sc, &o, rule, set->few, &out);
            add_order(&r, i, &out.order);
        }
    }
    qsort(r.ratio, (size_t)seeds, sizeof *r.ratio, order_ascending);
    return r;
}

static row simulated(const share_case *sc, const settings *set, const char *name,
                     void (*model)(const share_case *, const model_set *, model_out *))
{
    model_set s;
    model_out figures, order;
    model_set_init(&s);
    s.samples = (uint32_t)set->figures.samples;
    s.epochs = set->figures.epochs;
    model(sc, &s, &figures);
    s.samples = (uint32_t)set->order.samples;
    s.epochs = set->order.epochs;
    model(sc, &s, &order);
    row r = {.rule = name, .from = "simulator", .seeds = 1, .hit_rate = 1 - figures.ratio};
    r.ratio[0] = figures.ratio;
    add_order(&r, 0, &order.order);
    return r;
}

static double median(const row *r)
{
    const int half = r->seeds / 2;
    return r->seeds % 2 ? r->ratio[half] : (r->ratio[half - 1] + r->ratio[half]) / 2;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void print_row(const share_case *sc, const row *r)
{
    fprintf(stderr, "  %-26s %-9s ", r->rule, r->from);
    if (r->hit_rate < 0)
        fprintf(stderr, "%35s", "");
    else
        fprintf(stderr, " %.3f (%.3f..%.3f) %5.2f  %.2f", median(r), r->ratio[0],
                r->ratio[r->seeds - 1], median(r) / case_bound(sc), r->hit_rate);
    if (r->order_known)
        fprintf(stderr, "   %6.3f  %.3f %.3f %.3f  %s", order_worst(&r->order), r->order.position_p,
                r->order.class_p, r->order.holm_p,
                order_is_random(&r->order) ? "random" : "NOT RANDOM");
    fputc('\n', stderr);
}

static void print_table(const share_case *sc, const row *rows, int count, bool good)
{
    fprintf(stderr,
            "%s, %.0f %% cached: at most %.3f: %s\n"
            "  %-26s %-9s  preparations (range)  x bound hits  correlation; p: positions "
            "classes Holm\n",
            sc->name, 100 * sc->cached, sc->target, good ? "met" : "MISSED", "rule", "on");
    for (int i = 0; i < count; i++)
        print_row(sc, &rows[i]);
}

static void json_order(const row *r)
{
    printf(",\n     \"order\": {\"correlation\": [");
    for (int i = 0; i < ORDER_LAGS; i++)
        printf("%s%.4f", i ? ", " : "", r->order.worst[i]);
    printf("], \"position_p\": %.2g, \"class_p\": %.2g, \"holm_p\": %.2g, \"holm_p_by_seed\": [",
           r->order.position_p, r->order.class_p, r->order.holm_p);
    for (int i = 0; i < r->seeds; i++)
        printf("%s%.2g", i ? ", " : "", r->holm_p[i]);
    printf("], \"random\": %s}", order_is_random(&r->order) ? "true" : "false");
}

static void json_row(const share_case *sc, const row *r)
{
    printf("    {\"rule\": \"%s\", \"from\": \"%s\", \"seeds\": %d", r->rule, r->from, r->seeds);
    if (r->hit_rate >= 0)
        printf(",\n     \"preparations_per_delivery\": {\"median\": %.4f, \"min\": %.4f, \"max\": "
               "%.4f}, \"times_bound\": %.3f, \"hit_rate\": %.4f",
               median(r), r->ratio[0], r->ratio[r->seeds - 1], median(r) / case_bound(sc),
               r->hit_rate);
    if (r->first.deliveries)
        printf(", \"deliveries\": %llu, \"most_entries\": %llu",
               (unsigned long long)r->first.deliveries, (unsigned long long)r->first.entries);
    if (r->order_known)
        json_order(r);
    putchar('}');
}

static void print_json(const share_case *sc, const row *rows, int count, bool good)
{
    printf("  {\"jobs\": \"%s\", \"cached\": %.2f, \"bound\": %.4f, \"target\": %.4f, \"met\": %s, "
           "\"batch\": %d, \"ready_queues_at_most\": %d,\n   \"rows\": [\n",
           sc->name, sc->cached, case_bound(sc), sc->target, good ? "true" : "false",
           rows[0].first.batch, rows[0].first.queued);
    for (int i = 0; i < count; i++) {
        json_row(sc, &rows[i]);
        puts(i + 1 < count ? "," : "");
    }
    printf("   ]}");
    fflush(stdout);
}

/* A biased substitute shows where substitutes are taken. Jobs that do not share prepare all they
 * get in every epoch: one tells. */
static bool tell_case(const share_case *sc, const settings *set)
{
    settings once = *set;
    once.figures.epochs = 1;
    row rows[ROWS_MOST] = {
        on_engine(sc, set, RULE_OURS, set->seeds, FIGURES | ORDER),
        simulated(sc, set, "shared", model_run),
        on_engine(sc, &once, RULE_APART, 1, FIGURES),
        on_engine(sc, set, RULE_ANY, 1, FIGURES | ORDER),
        simulated(sc, set, "plain, over a static cache", model_static),
        on_engine(sc, set, RULE_KEPT, 1, FIGURES),
    };
    int count = ROWS_MOST - 1;
    bool good = rows[0].ratio[set->seeds - 1] <= sc->target && order_is_random(&rows[0].order);
    if (sc->substitutes) {
        rows[count] = on_engine(sc, set, RULE_LOWEST, 1, ORDER);
        good &= !order_is_random(&rows[count++].order);
    }
    print_table(sc, rows, count, good);
    print_json(sc, rows, count, good);
    return good;
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool option(const char *name, const char *value, settings *set)
{
    const int number = atoi(value);
    if (strcmp(name, "--samples") == 0)
        set->figures.samples = number;
    else if (strcmp(name, "--epochs") == 0)
        set->figures.epochs = number;
    else if (strcmp(name, "--order-samples") == 0)
        set->order.samples = number;
    else if (strcmp(name, "--order-epochs") == 0)
        set->order.epochs = number;
    else if (strcmp(name, "--case") == 0)
        set->only = number;
    else if (strcmp(name, "--seeds") == 0)
        set->seeds = number;
    else if (strcmp(name, "--workers") == 0)
        set->figures.workers = set->order.workers = number;
    else
        return false;
    return number >= 0 && set->seeds >= 1 && set->seeds <= SEEDS_MOST;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static bool tell_all(const settings *set)
{
    bool good = true, first = true;
    printf("{\"command\": \"bench/share_engine --seeds %d\", \"samples\": %d, \"epochs\": %d, "
           "\"order_samples\": %d, \"order_epochs\": %d,\n \"cases\": [\n",
           set->seeds, set->figures.samples, set->figures.epochs, set->order.samples,
           set->order.epochs);
    for (int i = 0; i < SHARE_CASES; i++) {
        if (set->only >= 0 && set->only != i)
            continue;
        if (!first)
            puts(",");
        first = false;
        good &= tell_case(&share_cases[i], set);
    }
    puts("\n]}");
    return good;
}

int main(int argc, char **argv)
{
    settings set = {.figures = {20000, 6, 2, 1}, .order = {2000, 60, 2, 1}, .seeds = 3, .only = -1};
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !option(argv[i], argv[i + 1], &set)) {
            fprintf(stderr, "share_engine: %s: see the top of its source for options\n", argv[i]);
            return 2;
        }
    const char *base = getenv("TMPDIR");
    char folder[400], path[500];
    snprintf(folder, sizeof folder, "%s/share-engine-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        return 2;
    }
    snprintf(path, sizeof path, "%s/figures", folder);
    set.many = run_data(path, set.figures.samples);
    snprintf(path, sizeof path, "%s/order", folder);
    set.few = run_data(path, set.order.samples);
    const bool good = tell_all(&set);
    pst_dataset_close(set.many);
    pst_dataset_close(set.few);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return good ? 0 : 1;
}
