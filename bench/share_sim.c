/* SPDX-License-Identifier: Apache-2.0
 * The cases of sharing on a model of jobs (share_model.h), in seconds and with every setting of the
 * rules at hand. For each case it prints preparations per delivery and how far that is from the
 * bound, beside what simpler rules give, and from a second run whether each job's order stayed
 * random. Exit status 1 when a target is missed. The same on the engine: share_engine.
 *
 *   share_sim [--samples N] [--epochs E] [--order-samples N] [--order-epochs E] [--seed S]
 *             [--case I] [--window W] [--window-max W] [--tolerance C] [--probes K] [--check 1]
 *             [--flags F]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "share_model.h"

/* Returns whether all targets are met. */
static bool tell(const share_case *sc, const model_set *figures, const model_set *order)
{
    model_out ours, kept, random, plain;
    model_set never = *figures;
    never.keep = true;
    model_run(sc, figures, &ours);
    model_run(sc, &never, &kept);
    model_run(sc, order, &random);
    model_static(sc, order, &plain);
    const bool good = ours.ratio <= sc->target && order_is_random(&random.order);
    printf("%-25s %4.0f %%  %.3f (%.2f)  %.3f  %.2f   1.000  %.3f (%.2f)  %.3f   %.2f  ", sc->name,
           100 * sc->cached, ours.ratio, ours.ratio / case_bound(sc), sc->target, 1 - ours.ratio,
           plain.ratio, order_worst(&plain.order), kept.ratio, random.window);
    for (int i = 0; i < ORDER_LAGS; i++)
        printf(" %6.3f", random.order.worst[i]);
    printf("  %.3f %.3f %.3f  %s\n", random.order.position_p, random.order.class_p,
           random.order.holm_p, good ? "met" : "MISSED");
    fflush(stdout);
    return good;
}

static int option(const char *name, const char *value, model_set *f, model_set *o)
{
    const double number = atof(value);
    if (!strcmp(name, "--samples"))
        f->samples = (uint32_t)number;
    else if (!strcmp(name, "--epochs"))
        f->epochs = (int)number;
    else if (!strcmp(name, "--order-samples"))
        o->samples = (uint32_t)number;
    else if (!strcmp(name, "--order-epochs"))
        o->epochs = (int)number;
    else if (!strcmp(name, "--seed"))
        f->seed = o->seed = (uint64_t)number;
    else if (!strcmp(name, "--check"))
        f->check = o->check = number > 0;
    else if (!strcmp(name, "--window"))
        f->spec.window = o->spec.window = number;
    else if (!strcmp(name, "--window-max"))
        f->spec.window_max = o->spec.window_max = number;
    else if (!strcmp(name, "--tolerance"))
        f->spec.tolerance = o->spec.tolerance = number;
    else if (!strcmp(name, "--probes"))
        f->spec.probes = o->spec.probes = (uint32_t)number;
    else if (!strcmp(name, "--flags"))
        f->spec.flags = o->spec.flags = (uint32_t)number;
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    model_set figures;
    model_set_init(&figures);
    model_set order = figures;
    order.samples = 2000;
    order.epochs = 60;
    int only = -1;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--case"))
            only = atoi(argv[i + 1]);
        else if (i + 1 == argc || option(argv[i], argv[i + 1], &figures, &order)) {
            fprintf(stderr, "share_sim: %s is no option, or has no value\n", argv[i]);
            return 2;
        }
    }
    printf("%-25s cached  ours (xbound)  target hits   none   plain (corr)   kept   window  "
           "correlation, lags 1 to 5           p: position class Holm\n",
           "jobs");
    bool good = true;
    for (int i = 0; i < SHARE_CASES; i++)
        if (only < 0 || only == i)
            good &= tell(&share_cases[i], &figures, &order);
    return good ? 0 : 1;
}
