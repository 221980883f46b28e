/* SPDX-License-Identifier: Apache-2.0
 * Parcels: a prepared sample's outputs as they wait for their batch, and writing them into it. What
 * waits is what finish reads where that is smaller than what it makes, so that floats are written
 * once, where they belong. Worker threads; the memory is the caller's. */
#include <string.h>

#include "core/clock.h"
#include "pipeline/pipeline_priv.h"

/* Whether finish may be left for later: all that it needs is in the field, and it can write into
 * any box that the batch may need. */
static bool may_wait(const psti_work *work, const psti_plan_output *out)
{
    const int s = work->plan->pictures[out->picture].overlay;
    if (s >= 0 && psti_work_at(work, s, out->picture)->draw.act)
        return false;
    return out->layout != PST_NHWC || out->shape[2] >= 0;
}

void psti_work_parcel(const psti_work *work, int output, psti_parcel *out)
{
    const psti_plan_output *o = &work->plan->outputs[output];
    out->bytes = psti_work_shape(work, output, out->shape);
    out->finished = true;
    if (psti_output_is_masks(work->plan, o)) {
        out->finished = false;
        out->bytes = psti_work_pack_masks(work, NULL);
        return;
    }
    if (o->picture < 0 || !may_wait(work, o))
        return;
    out->field = *psti_work_field(work, output);
    psti_field_pack(&out->field);
    out->finished = out->field.bytes >= out->bytes;
    if (!out->finished)
        out->bytes = out->field.bytes;
}

void psti_work_pack(const psti_work *work, psti_kit *kit, int output, psti_parcel *parcel,
                    uint8_t *dst)
{
    if (parcel->finished) {
        psti_work_finish(work, kit, output, dst);
        return;
    }
    const uint64_t start = psti_now_ns();
    const int finish = work->plan->stage_count;
    if (psti_output_is_masks(work->plan, &work->plan->outputs[output])) {
        psti_work_pack_masks(work, dst);
    } else {
        parcel->field.data = dst;
        psti_field_copy(psti_work_field(work, output), &parcel->field);
    }
    psti_kit_spent(kit, finish, start, psti_now_ns());
    kit->stage_runs[finish] += output == work->plan->counted_output;
}

void psti_plan_unpack(const psti_plan *plan, psti_kit *kit, int output, const psti_parcel *parcel,
                      const uint8_t *src, const int64_t *box, uint8_t *dst)
{
    const uint64_t start = psti_now_ns();
    const psti_plan_output *out = &plan->outputs[output];
    if (!parcel->finished && psti_output_is_masks(plan, out)) {
        psti_unpack_masks(src, parcel->bytes, kit, box, dst);
    } else if (!parcel->finished) {
        psti_field field = parcel->field;
        field.data = (uint8_t *)src; /* only read */
        const psti_finish finish = psti_output_finish(out, &field);
        const psti_pitch pitch = psti_pitch_of(&finish, &field, box);
        psti_finish_write(&finish, &field, &pitch, dst);
    } else if (box) {
        psti_box_copy(dst, box, src, parcel->shape, out->rank, psti_dtype_bytes(out->dtype));
    } else if (parcel->bytes) {
        memcpy(dst, src, parcel->bytes);
    }
    psti_kit_spent(kit, plan->stage_count, start, psti_now_ns());
}
