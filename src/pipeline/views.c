/* SPDX-License-Identifier: Apache-2.0
 * Views in a plan: several outputs of one decoded picture. Each view is a picture of its own behind
 * those that are decoded; it begins as what its source has become when the stage "views" is
 * reached, goes through the ops of its chain and what stands behind views, and is delivered as a
 * field of its own. Called by plan.c while a plan is made; names also from worker threads. */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

typedef struct forker {
    psti_plan *plan;
    const psti_pipeline *pipeline;
    const psti_bound *op;
    psti_track *tracks;
    pst_error *err;
} forker;

static int views_of(const psti_pipeline *pipeline, const psti_bound *op)
{
    int64_t count = 0;
    for (int c = 0; c < pipeline->chain_count; c++)
        if (&pipeline->ops[pipeline->chains[c].owner] == op)
            count += pipeline->chains[c].count;
    return count > PSTI_PICTURES_MAX ? PSTI_PICTURES_MAX + 1 : (int)count;
}

static int check_room(const forker *f, int source)
{
    const char *field = f->plan->inputs[f->plan->pictures[source].input].name;
    const int views = views_of(f->pipeline, f->op);
    if (f->plan->picture_count + views > PSTI_PICTURES_MAX)
        return psti_fail_at(f->err, PST_EPIPELINE, "pipeline", NULL, f->op->offset,
                            "views makes more of field %s than a plan can hold: %d pictures a "
                            "sample, decoded ones and views",
                            field, PSTI_PICTURES_MAX);
    if (strlen(field) + sizeof "_31" > PST_NAME_BYTES)
        return psti_fail_at(f->err, PST_EPIPELINE, "pipeline", NULL, f->op->offset,
                            "views numbers what it makes of field %s, and that name is too long: "
                            "at most %d bytes",
                            field, (int)(PST_NAME_BYTES - sizeof "_31"));
    return 0;
}

static void add_view(const forker *f, int source, int chain, int view)
{
    psti_plan *plan = f->plan;
    plan->pictures[plan->picture_count] = (psti_plan_picture){
        .input = plan->pictures[source].input,
        .source = source,
        .view = view,
        .chain = chain,
        .fork = -1,
        .overlay = -1,
    };
    f->tracks[plan->picture_count++] = f->tracks[source];
}

static int fork_one(const forker *f, int source)
{
    int view = 0;
    const int rc = check_room(f, source);
    if (rc < 0)
        return rc;
    f->plan->pictures[source].fork = f->plan->stage_count;
    for (int c = 0; c < f->pipeline->chain_count; c++)
        for (int i = 0; &f->pipeline->ops[f->pipeline->chains[c].owner] == f->op &&
                        i < f->pipeline->chains[c].count;
             i++)
            add_view(f, source, c, ++view);
    return 0;
}

int psti_plan_fork(psti_plan *plan, const psti_pipeline *pipeline, const psti_bound *op,
                   uint32_t sources, psti_track *tracks, pst_error *err)
{
    const forker f = {plan, pipeline, op, tracks, err};
    int rc = 0;
    for (int p = 0; rc == 0 && p < plan->source_count; p++)
        if (sources & (uint32_t)1 << p)
            rc = fork_one(&f, p);
    return rc;
}

/* ---- names ----------------------------------------------------------------------------------- */

void psti_plan_picture_name(const psti_plan *plan, int picture, char out[PST_NAME_BYTES])
{
    const psti_plan_picture *from = &plan->pictures[picture];
    const char *field = plan->inputs[from->input].name;
    if (from->source < 0)
        snprintf(out, PST_NAME_BYTES, "%s", field);
    else /* psti_plan_fork has seen to it that it fits */
        snprintf(out, PST_NAME_BYTES, "%.*s_%u", (int)(PST_NAME_BYTES - sizeof "_31"), field,
                 (unsigned)(from->view - 1) % 100);
}

void psti_stage_name(const psti_pipeline *pipeline, const psti_bound *op, psti_stage *stage)
{
    const char *name = stage->type.name;
    char *out = stage->name;
    unsigned first = 0;
    for (int c = 0; c < op->chain; c++)
        if (pipeline->chains[c].owner == pipeline->chains[op->chain].owner)
            first += (unsigned)pipeline->chains[c].count;
    const unsigned last =
        op->chain < 0 ? 0 : first + (unsigned)pipeline->chains[op->chain].count - 1;
    const int room = PST_NAME_BYTES - (int)sizeof " 30-31";
    if (op->chain < 0)
        snprintf(out, PST_NAME_BYTES, "%s", name);
    else if (first == last)
        snprintf(out, PST_NAME_BYTES, "%.*s %u", room, name, first % 100);
    else
        snprintf(out, PST_NAME_BYTES, "%.*s %u-%u", room, name, first % 100, last % 100);
}

int psti_plan_check_names(const psti_plan *plan, pst_error *err)
{
    if (plan->picture_count == plan->source_count)
        return 0;
    for (int i = 0; i < plan->output_count; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(plan->outputs[i].name, plan->outputs[j].name) == 0)
                return psti_fail(err, PST_EFIELD, "pipeline", NULL,
                                 "views delivers a field %s, and the data has one of that name: "
                                 "leave it out of the fields",
                                 plan->outputs[i].name);
    return 0;
}
