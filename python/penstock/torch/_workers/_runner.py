# SPDX-License-Identifier: Apache-2.0
"""MapRunner: batches of a map-style dataset, its samples spread over worker processes."""

from __future__ import annotations

from typing import Any, Callable, Iterator


class MapRunner:
    """Batches of a map-style dataset.

    dataset: anything with `__getitem__`. Workers see it as it is when `start_epoch` starts them (fork) or a pickled
    copy of it (spawn, forkserver). One with `__getitems__` gets whole batches, as in torch 2.
    num_workers: 0 runs everything in the calling thread when `next` is called, consuming random numbers as torch does.
    collate_fn: torch's default_collate is known and done by writing samples straight into the shared batch; any other
        callable runs in a worker, on the list of samples, in order.
    auto_collation: False where torch's batch_size is None: `batches` then yields single indices and collate_fn
        (default_convert) gets a single sample.
    context: None, a start method's name or a multiprocessing context. worker_init_fn(worker_id) as in torch.
    generator: not used for drawing; kept so that a runner can be made with DataLoader's own arguments.
    base_seed: worker i is seeded with base_seed + i when it starts. Each sample is seeded from (epoch_seed, its
        position in the epoch, its index), whatever the number of workers.
    timeout: seconds `next` waits at most; 0 is for ever. prefetch_factor: batches in flight are prefetch_factor *
        num_workers. persistent: workers live until `shutdown`; else they end with the epoch.
    in_order: True: batches in the order of `batches`. False: whichever is complete first.
    regroup: with in_order=False, samples go into batches in the order of their completion, at most `window` batches
        from where they belong; only for batches of equal size (a short last one is fine), not for a user's batch_sampler.
    pin_memory: True or a device name: tensors come out in page-locked memory where there is CUDA.
    prepare: used instead of dataset.__getitem__: prepare(index) -> sample; with `read`, prepare(read(index)).
    """

    def __init__(
        self,
        dataset: Any,
        *,
        num_workers: int,
        collate_fn: Callable[[Any], Any],
        context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        generator: Any = None,
        base_seed: int = 0,
        timeout: float = 0,
        prefetch_factor: int | None = 2,
        persistent: bool = False,
        in_order: bool = True,
        pin_memory: bool | str = False,
        read: Callable[[Any], Any] | None = None,
        prepare: Callable[[Any], Any] | None = None,
        auto_collation: bool = True,
        regroup: bool = False,
        window: int | None = None,
    ) -> None:
        raise NotImplementedError

    def start_epoch(self, batches: Iterator[Any], epoch_seed: int, *, position: int = 0) -> None:
        """Begins an epoch; what was left of another is dropped. Starts the workers where there are none.

        batches: lists of indices (single indices without auto_collation), asked for as far ahead as the look-ahead
        goes, always in the thread that calls. position: samples of this epoch that were delivered before (a resume):
        the first one here has that position.
        """
        raise NotImplementedError

    def next(self) -> Any:
        """The next batch. StopIteration at the end; what a sample raised, at the place of its batch."""
        raise NotImplementedError

    def delivered(self) -> int | list[int]:
        """What the last `next` gave: the batch's number in `batches` (from 0), or, regrouped, its samples' positions."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Ends the workers. Batches that were handed out stay valid. May be called again."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Of the running or last epoch: seconds waited, batches, samples, mean seconds a sample, busy share of each worker."""
        raise NotImplementedError
