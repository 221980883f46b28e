/* SPDX-License-Identifier: Apache-2.0
 * Batch ops: done once on a batch that is complete and sealed, by the worker that completed it,
 * before it is published. What they draw depends on seed, epoch, step and rank alone. */
#include "sched/sched_priv.h"

/* Draws for the batch, notes the draw in its header, and carries it out unless that is left to the
 * consumer. Nobody else reads or writes the block. */
void mix_batch(const psti_feed *feed, pst_batch *block)
{
    const psti_plan *plan = feed->spec.plan;
    pst_batch_desc *desc = (pst_batch_desc *)block->base;
    const psti_rng_key key = {
        .seed = feed->spec.seed, .epoch = desc->epoch, .id = desc->step, .occurrence = desc->rank};
    psti_plan_mix_draw(plan, &key, &desc->mix);
    if (desc->mix.kind == PST_MIX_NONE || psti_plan_mix_left(plan))
        return;
    const pst_field *fields = (const pst_field *)(block->base + sizeof *desc);
    for (int i = 0; i < feed->outputs; i++)
        if (feed->out[i].mixed)
            psti_plan_mix_run(plan, &desc->mix, i, block->base + fields[i].data_offset,
                              block->valid, block->slots);
    desc->mix.done = 1;
}
