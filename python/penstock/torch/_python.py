# SPDX-License-Identifier: Apache-2.0
"""The Python path: datasets as the user wrote them, in the caller's thread or in worker processes."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Callable, Iterator

from torch.utils.data import BatchSampler

from . import _workers
from ._samplers import Order


def common(loader: Any, base_seed: int) -> dict[str, Any]:
    """The arguments that both kinds of runner take from a loader."""
    return {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "context": loader.multiprocessing_context,
        "worker_init_fn": loader.worker_init_fn,
        "base_seed": base_seed,
        "timeout": loader.timeout,
        "prefetch_factor": loader.prefetch_factor,
        "persistent": loader.persistent_workers,
        "in_order": loader.in_order,
        "pin_memory": (loader.pin_memory_device or True) if loader.pin_memory else False,
    }


def map_runner(loader: Any, base_seed: int, prepare: Callable[[Any], Any] | None) -> Any:
    regroup = not loader.in_order and type(loader.batch_sampler) is BatchSampler and loader.batch_size is not None
    return _workers.MapRunner(
        loader.dataset,
        prepare=prepare,
        auto_collation=loader._auto_collation,
        regroup=regroup,
        lanes="lanes" not in loader.without,
        **common(loader, base_seed),
    )


@dataclasses.dataclass
class Ready:
    """What was delivered in ready order; unit: "sample" or "batch"."""

    unit: str = "batch"
    done: list[int] = dataclasses.field(default_factory=list)


class PythonEpoch:
    """Batches of one epoch of a map-style dataset; `order` is a list, or an iterator where the sampler has no end.

    start: batches that were delivered before, in order. done: in ready order, the places in the epoch's order of what
    was delivered: of samples where the runner regroups them, else of batches (`unit`).
    """

    def __init__(
        self, runner: Any, order: Order | Iterator[Any], seed: int, start: int = 0, ready: Ready | None = None
    ) -> None:
        self.runner, self.ready = runner, ready
        self._left: list[int] | None = None  # places of what is left, where some were delivered
        self._size = 1
        if not isinstance(order, Order):
            runner.start_epoch(order, seed, position=0)
        elif ready is not None and ready.done:
            runner.start_epoch(self._rest(order, ready), seed, position=0)
        else:
            batches = (order.batch(step) for step in range(start, len(order)))
            runner.start_epoch(batches, seed, position=sum(order.sizes()[:start]) if start else 0)

    def _rest(self, order: Order, ready: Ready) -> Iterator[Any]:
        """What was not delivered: batches as they are, or samples in batches of the same size."""
        gone = set(ready.done)
        if ready.unit == "batch":
            left = self._left = [step for step in range(len(order)) if step not in gone]
            return (order.batch(step) for step in left)
        size = self._size = order.size or 1
        flat = [index for step in range(len(order)) for index in order.batch(step)]
        left = self._left = [at for at in range(len(flat)) if at not in gone]
        return ([flat[at] for at in left[begin : begin + size]] for begin in range(0, len(left), size))

    def next(self) -> Any:
        batch = self.runner.next()
        if self.ready is not None:
            self._note(self.ready, self.runner.delivered())
        return batch

    def _note(self, ready: Ready, delivered: int | list[int]) -> None:
        samples = isinstance(delivered, list)
        places = delivered if isinstance(delivered, list) else [delivered]
        if self._left is None:
            ready.unit = "sample" if samples else "batch"
        elif ready.unit == "sample" and not samples:  # a batch of what was left
            size = self._size
            places = [at for place in places for at in range(place * size, min((place + 1) * size, len(self._left)))]
        ready.done += [self._left[place] if self._left is not None else place for place in places]

    def close(self) -> None:
        if not self.runner.persistent:
            self.runner.shutdown()

    def stats(self) -> dict[str, Any]:
        return self.runner.stats()


class IterableEpoch:
    """Batches of one epoch of an iterable dataset. A resume goes through what was delivered once more."""

    def __init__(self, loader: Any, runner: Any, skip: int) -> None:
        self.loader, self.runner, self.yielded = loader, runner, 0
        runner.start_epoch()
        while self.yielded < skip:
            self.runner.next()
            self.yielded += 1

    def next(self) -> Any:
        batch = self.runner.next()
        self.yielded += 1
        promised = self.loader._IterableDataset_len_called
        if promised is not None and self.yielded > promised:
            warnings.warn(
                f"len() of this loader said {promised} batches, and its IterableDataset has given {self.yielded}; with "
                "workers each of them must give its own part only",
                stacklevel=3,
            )
        return batch

    def close(self) -> None:
        if not self.runner_persists():
            self.runner.shutdown()

    def runner_persists(self) -> bool:
        return self.loader.persistent_workers and self.loader.num_workers > 0

    def stats(self) -> dict[str, Any]:
        return self.runner.stats()


def iterable_runner(loader: Any, base_seed: int) -> Any:
    return _workers.IterableRunner(
        loader.dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, **common(loader, base_seed)
    )
