/* SPDX-License-Identifier: Apache-2.0
 * A pipeline on a dataset's fields: which op acts on which picture, in which order. Ops keep their
 * order; normalize and to are taken out of it and done while writing the batch, so an op that only
 * moves values and stands behind them is thereby lowered to before them. Made once per job, then
 * only read, by any thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

typedef struct planner {
    const psti_pipeline *pipeline;
    psti_plan *plan;
    bool raw[PSTI_INPUTS_MAX]; /* pictures that pass as bytes */
    psti_track tracks[PSTI_PICTURES_MAX];
    pst_error *err;
} planner;

/* Whether ops act on the field: it is decoded to a picture, a volume or a wave. */
static bool takes_ops(const psti_plan_input *input)
{
    return input->encoded && (input->kind == PST_IMAGE || input->kind == PST_MASK ||
                              input->kind == PST_VOLUME || input->kind == PST_AUDIO);
}

/* What it is decoded to. A mask of a volume has the volume's dimensions. */
static psti_axes axes_of(const psti_plan_input *input)
{
    return input->kind == PST_VOLUME || (input->kind == PST_MASK && input->rank == 4)
               ? PSTI_AXES_VOLUME
           : input->kind == PST_AUDIO ? PSTI_AXES_WAVE
                                      : PSTI_AXES_PICTURE;
}

/* ---- which fields ---------------------------------------------------------------------------- */

static const char *field_at(int i, const void *user)
{
    const psti_plan *plan = user;
    return i < plan->count ? plan->inputs[i].name : NULL;
}

/* Index of the input that a block names, which must be decoded; or a negative code. */
static int find_field(const planner *p, const psti_block_field *field)
{
    for (int i = 0; i < p->plan->count; i++) {
        const psti_plan_input *input = &p->plan->inputs[i];
        if (strcmp(input->name, field->name) != 0)
            continue;
        if (takes_ops(input))
            return i;
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, field->offset,
                            "the field %s is no picture: ops act on images and masks, volumes and "
                            "recordings",
                            field->name);
    }
    char hint[300];
    psti_suggest(hint, sizeof hint, field->name, strlen(field->name), field_at, p->plan);
    return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, field->offset,
                        "the data has no field \"%s\"%s", field->name, hint);
}

static int fail_op(const planner *p, const psti_bound *op, const char *why, const char *field)
{
    return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, op->offset, "%s %s%s%s",
                        op->type.name, why, field ? " " : "", field ? field : "");
}

/* Marks what `bytes` lets through. It holds for a field as a whole, so it is known before any op is
 * looked at. */
static int mark_raw(planner *p, const psti_bound *op)
{
    const psti_block *block = &p->pipeline->blocks[op->block];
    for (int i = 0; i < block->field_count; i++) {
        const int field = find_field(p, &block->fields[i]);
        if (field < 0)
            return field;
        p->raw[field] = true;
    }
    for (int i = 0; block->field_count == 0 && i < p->plan->count; i++)
        p->raw[i] = takes_ops(&p->plan->inputs[i]);
    return 0;
}

static int find_pictures(planner *p)
{
    psti_plan *plan = p->plan;
    for (int i = 0; i < p->pipeline->op_count; i++)
        if (p->pipeline->ops[i].type.role == PSTI_ROLE_BYTES) {
            const int rc = mark_raw(p, &p->pipeline->ops[i]);
            if (rc < 0)
                return rc;
        }
    for (int i = 0; i < plan->count; i++) {
        plan->picture_of[i] = -1;
        if (p->raw[i] || !takes_ops(&plan->inputs[i]))
            continue;
        if (plan->picture_count == PSTI_SOURCES_MAX)
            return psti_fail(p->err, PST_EFIELD, "pipeline", NULL,
                             "a job reads at most %d pictures a sample: name fewer fields",
                             PSTI_SOURCES_MAX);
        const psti_axes axes = axes_of(&plan->inputs[i]);
        p->tracks[plan->picture_count].geom =
            (psti_geom){-1, -1, -1, axes == PSTI_AXES_VOLUME ? -1 : 0, .axes = axes};
        plan->pictures[plan->picture_count] =
            (psti_plan_picture){.input = i, .source = -1, .chain = -1, .fork = -1, .overlay = -1};
        plan->picture_of[i] = plan->picture_count++;
    }
    plan->source_count = plan->picture_count;
    return 0;
}

static const psti_plan_input *input_of(const planner *p, int picture)
{
    return &p->plan->inputs[p->plan->pictures[picture].input];
}

/* Whether the op acts on masks too; decode and views do, and `to` where it is told. */
static bool fits_masks(const psti_bound *op)
{
    return op->type.role == PSTI_ROLE_DECODE || op->type.role == PSTI_ROLE_VIEWS ||
           (op->type.role == PSTI_ROLE_OP && (op->type.op->flags & PSTI_OP_GEOMETRIC));
}

static int named_targets(const planner *p, const psti_bound *op, uint32_t *out)
{
    const psti_block *block = &p->pipeline->blocks[op->block];
    for (int i = 0; i < block->field_count; i++) {
        const int field = find_field(p, &block->fields[i]);
        if (field < 0)
            return field;
        const psti_plan_input *input = &p->plan->inputs[field];
        if (p->raw[field])
            return fail_op(p, op, "cannot act on what passes as bytes: field", input->name);
        if (input->kind == PST_MASK && !fits_masks(op) && op->type.role != PSTI_ROLE_TO)
            return fail_op(p, op, "acts on images only, not on the mask", input->name);
        *out |= (uint32_t)1 << p->plan->picture_of[field];
    }
    return 0;
}

/* Every picture the op fits; decode fits those that are not decoded yet. */
static uint32_t fitting_targets(const planner *p, const psti_bound *op)
{
    uint32_t out = 0;
    for (int i = 0; i < p->plan->source_count; i++) {
        if (op->type.role == PSTI_ROLE_DECODE && p->tracks[i].decoded)
            continue;
        if (input_of(p, i)->kind != PST_MASK || fits_masks(op))
            out |= (uint32_t)1 << i;
    }
    return out;
}

/* Whether what the picture is by now is what the op acts on. */
static bool fits_axes(const planner *p, const psti_bound *op, int picture)
{
    const psti_axes axes = p->tracks[picture].geom.axes;
    if (op->type.role == PSTI_ROLE_NORMALIZE)
        return axes == PSTI_AXES_PICTURE;
    if (op->type.role != PSTI_ROLE_OP)
        return true;
    const unsigned on = op->type.op->on ? op->type.op->on : PSTI_ON_PICTURES;
    return on & 1u << axes;
}

/* Leaves out what the op does not act on; where the field was named that is an error. */
static int keep_fitting(const planner *p, const psti_bound *op, bool named, uint32_t *pictures)
{
    static const char *const nouns[] = {[PSTI_AXES_PICTURE] = "does not act on pictures; field",
                                        [PSTI_AXES_VOLUME] = "does not act on volumes; field",
                                        [PSTI_AXES_WAVE] = "does not act on recordings; field",
                                        [PSTI_AXES_FRAMES] =
                                            "does not act on features of recordings; field"};
    for (int i = 0; i < p->plan->picture_count; i++) {
        if (!(*pictures & (uint32_t)1 << i) || fits_axes(p, op, i))
            continue;
        if (named)
            return fail_op(p, op, nouns[p->tracks[i].geom.axes], input_of(p, i)->name);
        *pictures &= ~((uint32_t)1 << i);
    }
    return 0;
}

/* Pictures that have views are gone on with as these; an op inside views acts on its chain's. */
static uint32_t follow_views(const planner *p, const psti_bound *op, uint32_t sources)
{
    uint32_t out = 0;
    for (int i = 0; i < p->plan->picture_count; i++) {
        const psti_plan_picture *picture = &p->plan->pictures[i];
        const int source = picture->source < 0 ? i : picture->source;
        if (sources & (uint32_t)1 << source && picture->fork < 0 &&
            (op->chain < 0 || op->chain == picture->chain))
            out |= (uint32_t)1 << i;
    }
    return out;
}

static int targets_of(const planner *p, const psti_bound *op, uint32_t *out)
{
    *out = 0;
    const bool named = p->pipeline->blocks[op->block].field_count > 0;
    int rc = named ? named_targets(p, op, out) : 0;
    if (!named)
        *out = fitting_targets(p, op);
    *out = follow_views(p, op, *out);
    if (rc == 0)
        rc = keep_fitting(p, op, named, out);
    if (rc < 0 || named || *out)
        return rc;
    bool any = false;
    for (int i = 0; i < p->plan->count; i++)
        any |= takes_ops(&p->plan->inputs[i]);
    if (op->type.role == PSTI_ROLE_DECODE && !any)
        return 0;
    return fail_op(p, op,
                   op->type.role == PSTI_ROLE_DECODE
                       ? "finds every picture decoded or passed as bytes"
                       : "finds no field of the data to act on",
                   NULL);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Whether one of the pictures may share decisions with another: the same view of the same kind of
 * data. */
static bool goes_with(const planner *p, uint32_t pictures, int follower, int other)
{
    return pictures & (uint32_t)1 << other &&
           p->plan->pictures[other].view == p->plan->pictures[follower].view &&
           p->tracks[other].geom.axes == p->tracks[follower].geom.axes;
}

/* The first among the pictures that it goes with and that is no mask, else the first mask. */
static int leader_of(const planner *p, uint32_t pictures, int follower)
{
    int mask = follower;
    for (int i = p->plan->picture_count - 1; i >= 0; i--)
        if (goes_with(p, pictures, follower, i))
            mask = i;
    for (int i = 0; i < p->plan->picture_count; i++)
        if (goes_with(p, pictures, follower, i) && input_of(p, i)->kind != PST_MASK)
            return i;
    return mask;
}

/* What of finish the picture has met already, or NULL. */
static const psti_bound *finish_before(const psti_track *track)
{
    return track->normalize ? track->normalize : track->to;
}

/* Whether what the picture has met of finish makes floats of it. */
static bool makes_floats(const psti_track *track)
{
    const int dtype = track->to ? psti_to_dtype(track->to->params) : 0;
    return track->normalize || dtype == PST_F16 || dtype == PST_BF16 || dtype == PST_F32;
}

static int add_stage(planner *p, const psti_bound *op, uint32_t pictures)
{
    psti_plan *plan = p->plan;
    const int most = PST_STAGES_MAX - 1 - (p->pipeline->batch_count > 0);
    if (plan->stage_count == most)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "more than %d ops before finish", most);
    const size_t bytes = op->type.params_bytes ? op->type.params_bytes : 1;
    void *params = psti_malloc(PSTI_MEM_PIPELINE, bytes);
    if (!params)
        return psti_fail(p->err, -ENOMEM, "pipeline", NULL, "out of memory for the plan");
    if (op->type.params_bytes)
        memcpy(params, op->params, op->type.params_bytes);
    if (!psti_op_type_ends_decoded(&op->type) && plan->decoded_stages == plan->stage_count)
        plan->decoded_stages++;
    psti_stage *stage = &plan->stages[plan->stage_count++];
    *stage = (psti_stage){.type = op->type,
                          .params = params,
                          .place = op->place,
                          .pictures = pictures,
                          .offset = op->offset};
    if (psti_op_type_call(&op->type)) /* errors and figures go by the function's name */
        stage->type.name = ((const psti_call_params *)params)->name;
    psti_stage_name(p->pipeline, op, stage);
    for (int i = 0; i < plan->picture_count; i++) {
        if (p->tracks[i].overlay == op)
            plan->pictures[i].overlay = plan->stage_count - 1;
        if (!(pictures & (uint32_t)1 << i))
            continue;
        stage->lowered |= finish_before(&p->tracks[i]) != NULL;
        stage->leader[i] = (uint8_t)leader_of(p, pictures, i);
    }
    return 0;
}

static int plan_decode(planner *p, const psti_bound *op, int picture)
{
    const psti_decode_params *params = op->params;
    const psti_plan_input *input = input_of(p, picture);
    psti_track *track = &p->tracks[picture];
    if (track->decoded)
        return fail_op(p, op, "comes twice for field", input->name);
    track->decoded = true;
    p->plan->pictures[picture].decode = (psti_decode_options){.kind = input->kind,
                                                              .color = params->color,
                                                              .orient = params->orient,
                                                              .limits = psti_limits_default,
                                                              .axes = track->geom.axes};
    if (track->geom.axes == PSTI_AXES_VOLUME) {
        track->geom.channels = params->color == PSTI_COLOR_KEEP ? -1 : 1;
    } else if (track->geom.axes == PSTI_AXES_WAVE) {
        track->geom.cols = 1;
        track->geom.channels = params->color == PSTI_COLOR_KEEP ? -1 : 1;
    } else if (input->kind == PST_MASK || params->color == PSTI_COLOR_GRAY)
        track->geom.channels = 1;
    else if (params->color == PSTI_COLOR_RGB)
        track->geom.channels = 3;
    return 0;
}

/* An op with a fill lays values of its own into the picture; after normalize they would be others.
 */
static bool only_moves(const psti_op *op)
{
    for (const psti_param *param = op->params; param->name; param++)
        if (strcmp(param->name, "fill") == 0)
            return false;
    return op->flags & PSTI_OP_MOVES;
}

/* Whether the op may stand there, and whether it goes over what finish writes. */
static int plan_place(planner *p, const psti_bound *op, psti_track *track)
{
    const psti_op *kind = op->type.op;
    const bool finished = kind->overlay && makes_floats(track);
    pst_error why = {0};
    if (track->overlay)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s cannot come after %s, which acts on floats there: put it before",
                            op->type.name, track->overlay->type.name);
    if (kind->place && kind->place(op->params, finished, &why) < 0)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, op->offset, "%s: %s",
                            op->type.name, why.message);
    if (finished)
        track->overlay = op;
    return 0;
}

/* An op in the middle: what is lowered past normalize or to must give the same bytes there. */
static int plan_middle(planner *p, const psti_bound *op, int picture)
{
    psti_track *track = &p->tracks[picture];
    const psti_bound *before = finish_before(track);
    const int rc = plan_place(p, op, track);
    if (rc < 0)
        return rc;
    if (before && !op->type.op->overlay && !only_moves(op->type.op))
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s cannot come after %s: put it before", op->type.name,
                            before->type.name);
    const psti_geom in = track->geom;
    op->type.op->infer(op->params, &in, &track->geom);
    psti_geom_keep(op->type.op, &in, &track->geom);
    if (input_of(p, picture)->kind == PST_MASK)
        track->geom.dtype = in.dtype;
    return 0;
}

/* What normalize and to make belongs to outputs, and these are the views. */
static int plan_views(planner *p, const psti_bound *op, int picture)
{
    const psti_bound *before = finish_before(&p->tracks[picture]);
    if (p->plan->pictures[picture].source >= 0)
        return fail_op(p, op, "comes twice for field", input_of(p, picture)->name);
    if (before)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "views cannot come after %s: put it before", before->type.name);
    return 0;
}

static int plan_on_picture(planner *p, const psti_bound *op, int picture)
{
    psti_track *track = &p->tracks[picture];
    const psti_plan_input *input = input_of(p, picture);
    if (op->type.role == PSTI_ROLE_DECODE)
        return plan_decode(p, op, picture);
    if (!track->decoded)
        return psti_fail_at(
            p->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
            "%s comes before the field %s is decoded: a pipeline starts with decode", op->type.name,
            input->name);
    switch (op->type.role) {
    case PSTI_ROLE_NORMALIZE:
        return psti_track_normalize(track, op, input, p->err);
    case PSTI_ROLE_TO:
        return psti_track_to(track, op, input, p->err);
    case PSTI_ROLE_VIEWS:
        return plan_views(p, op, picture);
    default:
        return plan_middle(p, op, picture);
    }
}

static int plan_op(planner *p, const psti_bound *op)
{
    uint32_t pictures;
    if (op->type.role == PSTI_ROLE_BYTES)
        return 0;
    int rc = targets_of(p, op, &pictures);
    for (int i = 0; rc == 0 && i < p->plan->picture_count; i++)
        if (pictures & (uint32_t)1 << i)
            rc = plan_on_picture(p, op, i);
    if (rc == 0 && op->type.role == PSTI_ROLE_VIEWS) {
        rc = psti_plan_fork(p->plan, p->pipeline, op, pictures, p->tracks, p->err);
        pictures = follow_views(p, op, pictures);
    }
    if (rc == 0 && pictures && op->type.role == PSTI_ROLE_OP && op->type.op->survey)
        rc = psti_plan_add_survey(p->plan, op, pictures, p->err);
    if (rc == 0 && pictures && !psti_op_type_finishes(&op->type))
        rc = add_stage(p, op, pictures);
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The picture, or its views. */
static int plan_picture_outputs(planner *p, int input)
{
    psti_plan *plan = p->plan;
    const int picture = plan->picture_of[input];
    const char *name = plan->inputs[input].name;
    static const char *const nouns[] = {"picture", "volume", "recording"};
    if (!p->tracks[picture].decoded)
        return psti_fail(p->err, PST_EPIPELINE, "pipeline", NULL,
                         "the field %s is a %s that nothing decodes: write \"%s: decode\" "
                         "or \"%s: bytes\", or leave it out of the fields",
                         name, nouns[p->tracks[picture].geom.axes], name, name);
    int rc = 0;
    for (int i = 0; rc == 0 && i < plan->picture_count; i++) {
        const bool it = i == picture || plan->pictures[i].source == picture;
        if (it && plan->pictures[i].fork < 0)
            rc = psti_plan_output_of(plan, input, false, i, &p->tracks[i], p->err);
    }
    return rc;
}

static int plan_outputs(planner *p)
{
    psti_plan *plan = p->plan;
    int rc = 0;
    for (int i = 0; rc == 0 && i < plan->count; i++) {
        if (plan->inputs[i].hidden)
            continue;
        rc = plan->picture_of[i] < 0 ? psti_plan_output_of(plan, i, p->raw[i], -1, NULL, p->err)
                                     : plan_picture_outputs(p, i);
    }
    for (int i = plan->output_count - 1; i >= 0; i--)
        if (plan->outputs[i].picture >= 0)
            plan->counted_output = i;
    return rc < 0 ? rc : psti_plan_check_names(plan, p->err);
}

static int reserve(planner *p, const psti_plan_input *inputs, int count)
{
    if (count < 0 || count > PSTI_INPUTS_MAX)
        return psti_fail(p->err, PST_EFIELD, "pipeline", NULL,
                         "a job delivers at most %d fields: name fewer", PSTI_INPUTS_MAX);
    psti_plan *plan = p->plan = psti_calloc(PSTI_MEM_PIPELINE, 1, sizeof *plan);
    if (plan) {
        plan->inputs = psti_calloc(PSTI_MEM_PIPELINE, (size_t)count + 1, sizeof *plan->inputs);
        plan->outputs = psti_calloc(PSTI_MEM_PIPELINE, PSTI_OUTPUTS_MAX, sizeof *plan->outputs);
    }
    if (!plan || !plan->inputs || !plan->outputs)
        return psti_fail(p->err, -ENOMEM, "pipeline", NULL, "out of memory for the plan");
    plan->count = count;
    plan->survey = -1;
    if (count)
        memcpy(plan->inputs, inputs, (size_t)count * sizeof *inputs);
    for (int i = 0; i < count; i++)
        plan->inputs[i].name[PST_NAME_BYTES - 1] = 0;
    return 0;
}

int psti_plan_new(const psti_pipeline *pipeline, const psti_plan_input *inputs, int count,
                  psti_plan **out, pst_error *err)
{
    planner p = {.pipeline = pipeline, .err = err};
    *out = NULL;
    int rc = reserve(&p, inputs, count);
    if (rc == 0)
        rc = find_pictures(&p);
    for (int i = 0; rc == 0 && i < pipeline->op_count; i++)
        rc = plan_op(&p, &pipeline->ops[i]);
    if (rc == 0)
        rc = psti_plan_find_objects(p.plan, err);
    if (rc == 0)
        rc = plan_outputs(&p);
    if (rc == 0)
        rc = psti_plan_batch(p.plan, pipeline, err);
    if (rc == 0)
        *out = p.plan;
    else
        psti_plan_free(p.plan);
    return rc;
}

void psti_plan_free(psti_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < plan->stage_count; i++)
        psti_free(plan->stages[i].params);
    psti_free(plan->inputs);
    psti_free(plan->outputs);
    psti_free(plan);
}

int psti_plan_outputs(const psti_plan *plan, const psti_plan_output **out)
{
    *out = plan->outputs;
    return plan->output_count;
}

int psti_plan_stage_count(const psti_plan *plan)
{
    return plan->stage_count + 1 + (plan->mix_name != NULL);
}

bool psti_plan_stage_is_call(const psti_plan *plan, int stage)
{
    return stage >= 0 && stage < plan->stage_count && psti_op_type_call(&plan->stages[stage].type);
}

const char *psti_plan_stage_name(const psti_plan *plan, int stage)
{
    if (stage < plan->stage_count)
        return plan->stages[stage].name;
    return stage == plan->stage_count ? "finish" : plan->mix_name;
}

int psti_plan_decoded_stages(const psti_plan *plan)
{
    return plan->decoded_stages;
}

int psti_plan_decoded_pictures(const psti_plan *plan)
{
    uint32_t decoded = 0;
    for (int s = 0; s < plan->decoded_stages; s++)
        if (plan->stages[s].type.role == PSTI_ROLE_DECODE)
            decoded |= plan->stages[s].pictures;
    return decoded + 1 == (uint32_t)1 << plan->source_count ? plan->source_count : 0;
}

bool psti_plan_decoded_calls(const psti_plan *plan)
{
    for (int s = 0; s < plan->decoded_stages; s++)
        if (psti_op_type_call(&plan->stages[s].type))
            return true;
    return false;
}

psti_id128 psti_plan_decoded_form(const psti_plan *plan, const psti_pipeline *pipeline)
{
    const psti_id128 print = pipeline->prints.decoded;
    psti_hash hash;
    psti_hash_init(&hash);
    psti_hash_u64(&hash, print.lo);
    psti_hash_u64(&hash, print.hi);
    /* A form is the same with what was found in it and without. */
    psti_hash_u64(&hash, (uint64_t)(plan->decoded_stages - (plan->survey >= 0)));
    for (int p = 0; p < plan->source_count; p++) {
        const psti_plan_input *input = &plan->inputs[plan->pictures[p].input];
        psti_hash_text(&hash, input->name, strlen(input->name));
        psti_hash_u64(&hash, (uint64_t)input->kind);
    }
    return psti_hash_final(&hash);
}

void psti_plan_force_full(psti_plan *plan, bool force)
{
    plan->force_full = force;
}
