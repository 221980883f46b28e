# SPDX-License-Identifier: Apache-2.0
"""Runs arbitrary Python datasets in worker processes and brings their batches back through shared memory.

What the rest of `penstock.torch` uses is here: `MapRunner` and `IterableRunner`. Both have the same small shape:

    runner = MapRunner(dataset, num_workers=4, collate_fn=default_collate, ...)
    runner.start_epoch(iter(batch_sampler), epoch_seed)
    while True:
        try:
            batch = runner.next()
        except StopIteration:
            break
    runner.shutdown()

The caller draws the seeds (one int64 from its generator for each iterator, as torch does), makes the lists of indices,
and keeps the state; a runner only turns indices into batches.
"""

from ._iterable import IterableRunner
from ._runner import MapRunner

__all__ = ["IterableRunner", "MapRunner"]
