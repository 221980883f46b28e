/* SPDX-License-Identifier: Apache-2.0
 * Batch ops: done once on a batch that is complete and sealed, by the worker that completed it,
 * before it is published. Nothing but values is read from the block. What they draw depends on
 * seed, epoch, step and rank alone. */
#include "sched/sched_priv.h"

/* Draws for the batch, notes the draw in its header, and carries it out unless that is left to the
 * consumer. Nobody else reads or writes the block. */
void mix_batch(const psti_feed *feed, pst_batch *block)
{
    const psti_plan *plan = feed->spec.plan;
    const psti_rng_key key = {.seed = feed->spec.seed,
                              .epoch = block->run->number,
                              .id = (uint64_t)(block->run->first_step + block->step),
                              .occurrence = (uint32_t)feed->spec.rank};
    pst_mix mix = {.lam = 1};
    psti_plan_mix_draw(plan, &key, &mix);
    const bool here = mix.kind != PST_MIX_NONE && !psti_plan_mix_left(plan);
    for (int i = 0; here && i < feed->outputs; i++)
        if (feed->out[i].mixed) /* so it is dense, and lies where the layout says */
            psti_plan_mix_run(plan, &mix, i, block_slot(block, &feed->layout, i, 0), block->valid,
                              block->slots);
    mix.done = here;
    ((pst_batch_desc *)block->base)->mix = mix;
}
