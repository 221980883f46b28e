# SPDX-License-Identifier: Apache-2.0
"""Where a loop stands, as a dict of numbers, strings and tensors that torch.load(weights_only=True) reads.

It holds what was delivered, the epoch's seed, and what gives its order again: the generators' states when it was drawn
for torch's own samplers, the order itself for any other.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

import numpy
import torch

from .. import _penstock
from . import _samplers
from ._python import Ready
from ._samplers import Order

VERSION = 1
_KEY = "penstock_torch"


@dataclasses.dataclass
class Progress:
    """The open epoch: what it was drawn from and how many batches the loop received."""

    number: int
    base_seed: int
    rng: list[torch.Tensor]
    order: Order | None
    delivered: int = 0
    dealt: int = 0  # with world=: batches of all ranks before those that are dealt now, from a run with another world
    is_over: bool = False
    epoch: Any = None  # of a native path in ready order only, where the job knows what was delivered
    ready: Ready | None = None  # of a Python path in ready order
    skipped: set[int] = dataclasses.field(default_factory=set)  # samples that the order is without, native path


def facts(loader: Any) -> dict[str, Any]:
    """What must be equal for a state to mean the same. Names as the user knows them."""
    try:
        length = len(loader.dataset)
    except TypeError:
        length = -1
    for_all = loader.in_order and "skip" not in loader.on_error  # what was skipped is each rank's own
    return {
        "samples in the dataset": length,
        "batch_size": loader.batch_size if loader.batch_size is not None else -1,
        "drop_last": bool(loader.drop_last),
        "sampler": type(loader.sampler).__name__,
        "batch_sampler": type(loader.batch_sampler).__name__,
        "in_order": bool(loader.in_order),
        # In order, every rank stands at the same step: the state of one is that of all, for any number of them.
        "rank": -1 if loader.rank is None or for_all else loader.rank,
        "world": -1 if loader.world is None or for_all else loader.world,
        # An iterable is gone through by each worker: another number is another order.
        "num_workers of an iterable dataset": loader.num_workers if loader._dataset_kind != 0 else -1,
    }


def save(loader: Any, progress: Progress | None, epochs: int) -> dict[str, Any]:
    state: dict[str, Any] = {_KEY: VERSION, "facts": facts(loader), "epochs": epochs, "is_open": False}
    state["generators"] = [generator.get_state() for generator in _samplers.generators(loader)]
    if progress is None or progress.is_over:
        return state
    state.update(is_open=True, number=progress.number, delivered=progress.delivered)
    state.update(base_seed=progress.base_seed, rng=progress.rng, world=loader.world or 1, dealt=progress.dealt)
    if progress.ready is not None:
        state.update(unit=progress.ready.unit, done=torch.tensor(progress.ready.done, dtype=torch.int64))
    if progress.order is not None and not _samplers.is_regenerable(loader):
        state.update(_given(progress.order))
    if progress.skipped:
        state["skipped"] = torch.tensor(sorted(progress.skipped), dtype=torch.int64)
    if progress.epoch is not None:
        state["job"] = torch.frombuffer(bytearray(progress.epoch.job.state()), dtype=torch.uint8)
    return state


def _given(order: Order) -> dict[str, Any]:
    if order.ids is None:
        raise _penstock.StateError(
            "the sampler gives indices that are no whole numbers; such an order cannot be saved"
        )
    sizes = torch.tensor(order.sizes(), dtype=torch.int64)
    return {"ids": torch.from_numpy(numpy.ascontiguousarray(order.ids, dtype=numpy.int64)), "sizes": sizes}


def check(loader: Any, state: Mapping[str, Any]) -> None:
    """Refuses a state that does not belong to this loader, naming both values."""
    version = state.get(_KEY) if isinstance(state, Mapping) else None
    if version is None:
        raise _penstock.StateError("this is no state of penstock.torch.DataLoader: it has no entry 'penstock_torch'")
    if version != VERSION:
        raise _penstock.StateError(f"the state is of version {version}, this penstock reads version {VERSION}")
    saved, now = state["facts"], facts(loader)
    for name, value in now.items():
        then = saved.get(name)
        if then != value:
            raise _penstock.StateError(f"{name} differs: the state was saved with {then}, this loader has {value}")


def place_of(loader: Any, state: Mapping[str, Any]) -> tuple[int, int]:
    """Batches of all ranks that came before this deal, and steps of it that are done."""
    before, steps, world = state.get("dealt", 0), state["delivered"], state.get("world", 1)
    return (before, steps) if world == (loader.world or 1) else (before + steps * world, 0)


def order_of(loader: Any, state: Mapping[str, Any]) -> Order:
    """The order of the state's open epoch."""
    if "ids" not in state:
        try:
            return _samplers.replay(loader, list(state["rng"]))
        except ValueError as why:
            raise _penstock.StateError(str(why)) from None
    indices, sizes = state["ids"].tolist(), state["sizes"].tolist()
    batches, at = [], 0
    for size in sizes:
        batches.append(indices[at : at + size])
        at += size
    return _samplers.from_batches(batches)


def restore_generators(loader: Any, state: Mapping[str, Any]) -> None:
    own = _samplers.generators(loader)
    if len(own) != len(state["generators"]):
        raise _penstock.StateError(
            f"generators differ: the state was saved with {len(state['generators'])}, this loader has {len(own)}"
        )
    for generator, saved in zip(own, state["generators"]):
        generator.set_state(saved)
