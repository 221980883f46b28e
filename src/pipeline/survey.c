/* SPDX-License-Identifier: Apache-2.0
 * Looking at the contents of a mask before something is decided: a stage of its own in front of the
 * op that asks. It is the last of the decoded stages, so what it finds, the note, is a function of
 * the sample alone and kept with the decoded form or by whoever carries out the plan. Where the
 * note is known, or where the draw needs none, the stage does nothing. Planning: one thread; notes:
 * the worker that has the sample. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

/* ---- planning -------------------------------------------------------------------------------- */

static const char *last_random(const psti_plan *plan)
{
    return plan->stages[plan->decoded_stages].type.name;
}

int psti_plan_add_survey(psti_plan *plan, const psti_bound *op, uint32_t pictures, pst_error *err)
{
    int mask = -1;
    for (int p = plan->picture_count - 1; p >= 0; p--)
        if (pictures & (uint32_t)1 << p && plan->inputs[plan->pictures[p].input].kind == PST_MASK)
            mask = p;
    if (mask < 0)
        return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s looks for the foreground of a mask, and acts on none: name the "
                            "mask among the fields, or write foreground=0",
                            op->type.name);
    if (plan->decoded_stages < plan->stage_count)
        return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s comes after %s: the foreground is searched once, in what is the "
                            "same every time; put %s first",
                            op->type.name, last_random(plan), op->type.name);
    if (plan->stage_count >= PST_STAGES_MAX - 3)
        return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "too many ops before %s", op->type.name);
    plan->survey = plan->stage_count++;
    plan->decoded_stages = plan->stage_count;
    psti_stage *stage = &plan->stages[plan->survey];
    *stage = (psti_stage){.type = {.name = "foreground", .role = PSTI_ROLE_SURVEY},
                          .place = op->place,
                          .pictures = (uint32_t)1 << mask,
                          .offset = op->offset};
    stage->leader[mask] = (uint8_t)mask;
    snprintf(stage->name, sizeof stage->name, "%s", stage->type.name);
    return 0;
}

bool psti_plan_surveys(const psti_plan *plan)
{
    return plan->survey >= 0;
}

int psti_plan_decoded_parts(const psti_plan *plan)
{
    const int pictures = psti_plan_decoded_pictures(plan);
    return pictures && plan->survey >= 0 ? pictures + 1 : pictures;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static int make_room(psti_work *work)
{
    if (!work->note)
        work->note = psti_calloc(PSTI_MEM_PIPELINE, 1, sizeof *work->note);
    return work->note ? 0 : -ENOMEM;
}

void psti_work_set_note(psti_work *work, const psti_note *note)
{
    work->note_given = note && make_room(work) == 0;
    if (work->note_given)
        memcpy(work->note, note, psti_note_bytes(note));
}

const psti_note *psti_work_note(const psti_work *work)
{
    return work->note_found ? work->note : NULL;
}

psti_scene psti_work_scene(const psti_work *work, int picture)
{
    return (psti_scene){.note = work->note_known ? work->note : NULL,
                        .objects =
                            work->plan->objects.picture == picture ? &work->cast->now : NULL};
}

psti_decoded psti_work_decoded_note(const psti_work *work)
{
    const psti_geom size = {
        .rows = sizeof *work->note / sizeof(int32_t), .cols = 1, .channels = 1, .dtype = PST_I32};
    psti_decoded out = {.header = size, .field = psti_field_of(PST_ARRAY, &size)};
    if (work->note_known)
        out.field.data = (uint8_t *)work->note;
    return out;
}

bool psti_work_wants_survey(const psti_work *work)
{
    return !work->note_known && (work->whole || work->note_wanted);
}

int psti_work_survey(psti_work *work, int p, pst_error *err)
{
    const psti_stage *asks = &work->plan->stages[work->cursor + 1];
    if (!psti_work_wants_survey(work))
        return 0;
    int rc = make_room(work);
    if (rc < 0)
        psti_fail(err, rc, "foreground", NULL, "out of memory");
    else
        rc = asks->type.op->survey(asks->params, &work->shots[p].now, work->note, err);
    if (rc < 0)
        return psti_work_fail(work, "foreground", p, rc, err);
    work->note_known = work->note_found = true;
    return 0;
}
