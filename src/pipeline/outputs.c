/* SPDX-License-Identifier: Apache-2.0
 * What a plan delivers: normalize and to checked and gathered into one psti_finish per picture,
 * element type, layout and static shape of every output. Called by plan.c while a plan is made. */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

static int fail_at_op(pst_error *err, const psti_bound *op, const char *why, const char *field)
{
    return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, op->offset, "%s %s %s", op->type.name,
                        why, field);
}

int psti_track_normalize(psti_track *track, const psti_bound *op, const psti_plan_input *field,
                         pst_error *err)
{
    if (track->normalize)
        return fail_at_op(err, op, "comes twice for field", field->name);
    if (track->to)
        return fail_at_op(err, op, "must come before to; field", field->name);
    psti_list mean, std;
    const int rc = psti_normalize_values(op->params, &mean, &std, err);
    if (rc < 0)
        return rc;
    const int64_t channels = track->geom.channels;
    if (mean.count != 1 && channels > 0 && mean.count != channels)
        return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "normalize has %d channels, field %s has %lld", mean.count, field->name,
                            (long long)channels);
    track->normalize = op;
    return 0;
}

static bool image_dtype(int dtype)
{
    return dtype == PST_U8 || dtype == PST_F16 || dtype == PST_BF16 || dtype == PST_F32;
}

int psti_track_to(psti_track *track, const psti_bound *op, const psti_plan_input *field,
                  pst_error *err)
{
    const psti_to_params *params = op->params;
    const int dtype = psti_to_dtype(params);
    if (track->to)
        return fail_at_op(err, op, "comes twice for field", field->name);
    if (field->kind == PST_MASK && params->layout)
        return fail_at_op(err, op,
                          "takes no layout for a mask, which has rows and columns only; field",
                          field->name);
    if (track->geom.axes != PSTI_AXES_PICTURE && params->layout)
        return fail_at_op(err, op, "takes no layout for what is no picture; field", field->name);
    if (track->geom.axes != PSTI_AXES_PICTURE && field->kind != PST_MASK && dtype &&
        (dtype == PST_U8 || !image_dtype(dtype)))
        return fail_at_op(err, op, "makes f16, bf16 or f32 of volumes and recordings; field",
                          field->name);
    if (field->kind == PST_IMAGE && dtype && !image_dtype(dtype))
        return fail_at_op(err, op, "makes u8, f16, bf16 or f32 of images; field", field->name);
    if (track->normalize && dtype == PST_U8)
        return fail_at_op(err, op, "cannot make u8 of normalised values; field", field->name);
    track->to = op;
    return 0;
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* One number of mean and std stands for every channel. */
static int fill_normalize(psti_finish *finish, const psti_bound *op, int *channels, pst_error *err)
{
    psti_list mean, std;
    const int rc = psti_normalize_values(op->params, &mean, &std, err);
    if (rc < 0)
        return rc;
    for (int c = 0; c < 4; c++) {
        finish->mean[c] = mean.count == 1 ? mean.v[0] : c < mean.count ? mean.v[c] : 0;
        finish->std[c] = std.count == 1 ? std.v[0] : c < std.count ? std.v[c] : 1;
    }
    finish->normalize = true;
    *channels = mean.count == 1 ? 0 : mean.count;
    return 0;
}

/* *channels: what normalize wants of a picture whose channels are not known before it is decoded.
 */
static int finish_of(psti_finish *finish, const psti_plan_input *input, const psti_track *track,
                     int *channels, pst_error *err)
{
    const psti_to_params *to = track->to ? track->to->params : NULL;
    const int asked = to ? psti_to_dtype(to) : 0;
    *finish = (psti_finish){.channels = track->geom.channels > 0 ? (int)track->geom.channels : 4};
    if (input->kind == PST_MASK) {
        const int stored = input->dtype == PST_U16 ? PST_U16 : PST_U8;
        finish->dtype = asked ? asked : stored;
        finish->layout = PST_LAYOUT_NONE;
    } else if (track->geom.axes != PSTI_AXES_PICTURE) {
        finish->dtype = asked ? asked : PST_F32;
        finish->layout = PST_LAYOUT_NONE;
    } else {
        const bool normal = track->normalize != NULL;
        const int rc = normal ? fill_normalize(finish, track->normalize, channels, err) : 0;
        if (rc < 0)
            return rc;
        finish->dtype = asked ? asked : normal ? PST_F32 : PST_U8;
        finish->layout = normal ? PST_NCHW : PST_NHWC;
        if (to && to->layout)
            finish->layout = to->layout == 1 ? PST_NHWC : PST_NCHW;
    }
    psti_finish_init(finish);
    return 0;
}

int psti_shape_of(int layout, const psti_geom *geom, int64_t shape[PST_MAX_RANK])
{
    const int first = layout == PST_NCHW;
    switch (geom->axes) {
    case PSTI_AXES_VOLUME:
        shape[0] = geom->channels;
        shape[1] = geom->depth;
        shape[2] = geom->rows;
        shape[3] = geom->cols;
        return 4;
    case PSTI_AXES_WAVE: /* a mono recording has one dimension */
        shape[0] = geom->rows;
        if (geom->channels == 1)
            return 1;
        shape[1] = geom->channels;
        return 2;
    case PSTI_AXES_FRAMES:
        shape[0] = geom->rows;
        shape[1] = geom->cols;
        return 2;
    default:
        shape[first] = geom->rows;
        shape[first + 1] = geom->cols;
        if (layout == PST_LAYOUT_NONE)
            return 2;
        shape[first ? 0 : 2] = geom->channels;
        return 3;
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Bytes and text are as long as they are; anything else is what the data says it is. */
static void passing_shape(psti_plan_output *out, const psti_plan_input *input)
{
    out->dtype = input->dtype ? input->dtype : input->encoded ? 0 : PST_U8;
    out->rank = input->rank;
    memcpy(out->shape, input->shape, sizeof out->shape);
    if (input->kind == PST_TEXT || input->kind == PST_BYTES) {
        out->dtype = PST_U8;
        out->rank = 1;
        out->shape[0] = -1;
    }
}

int psti_plan_output_of(psti_plan *plan, int i, bool raw, int picture, const psti_track *track,
                        pst_error *err)
{
    const psti_plan_input *input = &plan->inputs[i];
    if (plan->output_count == PSTI_OUTPUTS_MAX)
        return psti_fail(err, PST_EFIELD, "pipeline", NULL,
                         "a job delivers at most %d fields: name fewer, or make fewer views",
                         PSTI_OUTPUTS_MAX);
    psti_plan_output *out = &plan->outputs[plan->output_count++];
    memcpy(out->name, input->name, sizeof out->name);
    out->input = i;
    out->picture = picture;
    out->kind = input->kind;
    out->layout = PST_LAYOUT_NONE;
    if (raw) {
        out->kind = PST_BYTES;
        out->dtype = PST_U8;
        out->rank = 1;
        out->shape[0] = -1;
        return 0;
    }
    if (!track && input->per_object && plan->objects.picture >= 0) {
        psti_plan_object_output(plan, i, out);
        return 0;
    }
    if (!track) {
        passing_shape(out, input);
        return 0;
    }
    psti_plan_picture_name(plan, picture, out->name);
    int *channels = &plan->pictures[picture].channels;
    const int rc = finish_of(&out->finish, input, track, channels, err);
    out->dtype = out->finish.dtype;
    out->layout = out->finish.layout;
    out->rank = psti_shape_of(out->layout, &track->geom, out->shape);
    return rc;
}

/* ---- finish elsewhere --------------------------------------------------------------------------
 */

void psti_plan_raw_finish(psti_plan *plan)
{
    for (int i = 0; i < plan->output_count; i++) {
        psti_plan_output *out = &plan->outputs[i];
        if (out->picture < 0 || out->kind != PST_IMAGE)
            continue;
        psti_plan_picture *picture = &plan->pictures[out->picture];
        /* What is laid over finish needs its floats: such a picture stays with us. */
        if (picture->raw || picture->overlay >= 0)
            continue;
        const bool planar = out->layout == PST_NCHW;
        const psti_geom geom = {out->shape[planar], out->shape[planar + 1],
                                out->shape[planar ? 0 : 2]};
        picture->raw = true;
        picture->asked = out->finish;
        out->finish =
            (psti_finish){.channels = out->finish.channels, .dtype = PST_U8, .layout = PST_NHWC};
        psti_finish_init(&out->finish);
        out->dtype = PST_U8;
        out->layout = PST_NHWC;
        out->rank = psti_shape_of(out->layout, &geom, out->shape);
    }
}

const psti_finish *psti_plan_finish(const psti_plan *plan, int output)
{
    if (plan->outputs[output].picture < 0)
        return NULL;
    const psti_plan_picture *picture = &plan->pictures[plan->outputs[output].picture];
    return picture->raw ? &picture->asked : &plan->outputs[output].finish;
}

bool psti_plan_is_raw(const psti_plan *plan, int output)
{
    const int picture = plan->outputs[output].picture;
    return picture >= 0 && plan->pictures[picture].raw;
}

bool psti_plan_is_picture(const psti_plan *plan, int input)
{
    return plan->picture_of[input] >= 0;
}
