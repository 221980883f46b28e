# SPDX-License-Identifier: Apache-2.0
"""DataLoader: torch's, with Penstock underneath."""

from __future__ import annotations

import inspect
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, Mapping

import torch
import torch.utils.data
from torch.utils.data._utils import pin_memory as _pin

from .._options import on_error_options, without_bits
from .._penstock import Engine, PipelineError, SettingError
from .._sizes import as_bytes, cache_bytes
from . import _accelerate, _explain, _plan, _samplers, _state
from ._native import NativeEpoch
from ._prefix import Prefix
from ._python import IterableEpoch, PythonEpoch, Ready, iterable_runner, map_runner
from ._seeds import mix

_Base = torch.utils.data.DataLoader
_KNOWN = frozenset(inspect.signature(_Base.__init__).parameters)


class DataLoader(_Base):
    """torch.utils.data.DataLoader with every argument in its place and meaning, and these as keywords:

    seed: draws the order and the augmentations from a generator of its own, where `generator` is not given.
    on_error: what a bad sample does, natively: "raise", "skip:N", "retry:N" or "skip:N,retry:M".
    cache: bytes or "16G" for decoded samples, or "auto" (0 = none). memory: bytes or "8G" for everything (0 = chosen by the
    machine).
    disk: "DIR:BYTES", for example "/scratch/cache:200G": samples are kept in files there, too, and found again by later
    runs. remote: "redis://HOST": they are kept on that server for all loaders that name it. Both natively.
    engine: a penstock.Engine to share; else one is shared by the loaders of this process that ask for the same.
    device: where tensors are moved, as in Tensor.to.
    rank, world: this process's share of the batches; without them, and without a DistributedSampler, every process
    gets the whole dataset, as with torch.
    native: "auto", False (never lower anything) or True (an error where the whole cannot be native).
    without: parts of the schedule that are left out, such as "lanes": slow samples are then not put aside.

    num_workers is an upper bound for the native path's threads. in_order=False delivers what is ready first.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        on_error: str = "raise",
        cache: int | str = 0,
        memory: int | str = 0,
        disk: str | None = None,
        remote: str | None = None,
        engine: Engine | None = None,
        device: Any = None,
        rank: int | None = None,
        world: int | None = None,
        native: bool | str = "auto",
        without: Iterable[str] = (),
    ) -> None:
        if native not in ("auto", True, False):
            raise ValueError(f"native should be 'auto', True or False, but got native={native!r}")
        _check_share(rank, world)
        if engine is not None and (disk or remote):
            raise SettingError("disk and remote belong to the engine; give them there, not beside engine=")
        if seed is not None and generator is None:
            generator = torch.Generator()
            generator.manual_seed(seed)
        given = {
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
            "pin_memory_device": pin_memory_device,
            "in_order": in_order,
        }
        if prefetch_factor is None:
            del given["prefetch_factor"]
        self.in_order = in_order
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            **{name: value for name, value in given.items() if name in _KNOWN},
        )
        on_error_options(on_error)
        self.without = (without,) if isinstance(without, str) else tuple(without)
        without_bits(self.without)
        self.cache, self.memory = cache_bytes(cache), as_bytes(memory, "memory")
        self.disk, self.remote = disk, remote
        self.seed, self.on_error = seed, on_error
        self.engine, self.device, self.rank, self.world, self.native = engine, device, rank, world, native
        self._last_plan: _plan.Plan | None = None
        self._progress: _state.Progress | None = None
        self._resume: Mapping[str, Any] | None = None
        self._epochs = 0
        self._base_seed: int | None = None
        self._runner: Any = None
        self._running: Callable[[], Any] = lambda: None
        self._last_stats: dict[str, Any] = {}
        self._may_be_rebuilt = False

    @property
    def _is_accelerate_prepared(self) -> bool:
        """accelerate asks for this before it makes a loader of torch's own from what it finds here."""
        if not self._may_be_rebuilt:
            raise SettingError(_accelerate.ADVICE)
        return False

    # ---- iteration --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Any:
        plan = self._last_plan = _plan.make(self, self._last_plan)
        if plan.path == "torch":
            return super().__iter__()
        if self._resume is not None:
            state, self._resume = self._resume, None
            if state["is_open"]:
                return self._go_on(plan, state)
        if self._dataset_kind != 0:
            progress = _state.Progress(self._epochs, self._draw_base_seed(), [], None)
            self._epochs += 1
            return self._start(plan, progress, iter(()), None)
        iterator = iter(self._index_sampler)
        base_seed = self._draw_base_seed()
        if self.num_workers > 0:
            iterator = iter(self._index_sampler)
        rng = _samplers.rng_snapshot(self)
        order = None if _samplers.is_endless(self) or not self._auto_collation else _samplers.read(iterator, self)
        progress = _state.Progress(self._epochs, base_seed, rng, order)
        self._epochs += 1
        return self._start(plan, progress, iterator, None)

    def _draw_base_seed(self) -> int:
        """One draw for every iterator; workers that persist keep theirs, as in torch."""
        if self.persistent_workers and self.num_workers > 0 and self._base_seed is not None:
            return self._base_seed
        self._base_seed = _samplers.draw_base_seed(self)
        return self._base_seed

    def _go_on(self, plan: _plan.Plan, state: Mapping[str, Any]) -> Any:
        order = None if self._dataset_kind != 0 else _state.order_of(self, state)
        self._base_seed = state["base_seed"]
        dealt, delivered = _state.place_of(self, state)
        progress = _state.Progress(state["number"], state["base_seed"], list(state["rng"]), order, delivered, dealt)
        if "skipped" in state:
            progress.skipped = set(state["skipped"].tolist())
        if "done" in state:
            progress.ready = Ready(state["unit"], state["done"].tolist())
        job = bytes(state["job"].numpy().tobytes()) if "job" in state else None
        return self._start(plan, progress, iter(()), job)

    def _start(self, plan: _plan.Plan, progress: _state.Progress, iterator: Iterator[Any], job: bytes | None) -> Any:
        persistent = self.persistent_workers and self.num_workers > 0
        seed = mix(progress.base_seed, progress.number if persistent else 0)
        epoch: Any = None
        order = None if progress.order is None else self._share(progress.order, progress.dealt)
        if plan.path == "native" and plan.native is not None and order is not None and order.ids is not None:
            try:
                epoch = NativeEpoch(self, plan.native, order, seed, progress.delivered, job, progress.skipped)
                if epoch.skips:
                    progress.skipped = plan.native.unreadable
            except IndexError:
                plan.path, plan.why = "python", "the sampler gives an index that is out of range"
            except PipelineError as why:
                plan.path, plan.why = "python", str(why)
        if epoch is None:
            if plan.path == "native":
                plan.path, plan.why = "python", "the sampler gives indices that are no whole numbers"
            epoch = self._start_python(plan, progress, iterator if order is None else order, seed)
        elif not epoch.in_order:
            progress.epoch = epoch
        self._progress = progress
        self._running = weakref.ref(epoch)
        return _Iterator(self, epoch, progress)

    def _start_python(self, plan: _plan.Plan, progress: _state.Progress, order: Any, seed: int) -> Any:
        if self._dataset_kind != 0:
            runner = self._runner_for(lambda: iterable_runner(self, progress.base_seed), None)
            return IterableEpoch(self, runner, progress.delivered)
        prefix = None
        if plan.path == "prefix" and plan.flat is not None and plan.lowered is not None:
            prefix = Prefix(self.dataset, plan.flat, plan.lowered)
        runner = self._runner_for(lambda: map_runner(self, progress.base_seed, prefix), prefix)
        if not self.in_order and self.num_workers > 0 and progress.ready is None:
            progress.ready = Ready()
        return PythonEpoch(runner, order, seed >> 1, progress.delivered, progress.ready)  # runners take 63 bits

    def _runner_for(self, make: Callable[[], Any], prefix: Prefix | None) -> Any:
        """Workers that persist keep their runner, and with it the dataset as it was, as in torch."""
        if not (self.persistent_workers and self.num_workers > 0):
            return make()
        if self._runner is None:
            self._runner = make()
        return self._runner

    def _share(self, order: _samplers.Order, dealt: int) -> _samplers.Order:
        if self.world is None or self.rank is None:
            return order if not dealt else _samplers.share(order, 0, 1, self.drop_last, dealt)
        return _samplers.share(order, self.rank, self.world, self.drop_last, dealt)

    # ---- what users ask ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches in an epoch, as torch counts them; with world=, those of this rank."""
        length = super().__len__()
        if self.world is None:
            return length
        return length // self.world if self.drop_last else -(-length // self.world)

    def set_epoch(self, epoch: int) -> None:
        """Passes on to a sampler that has set_epoch, such as DistributedSampler."""
        for sampler in (self.sampler, self.batch_sampler):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
                return

    def state_dict(self) -> dict[str, Any]:
        """What the loop received so far: numbers, strings and tensors. Nothing is communicated."""
        if self._resume is not None:
            return dict(self._resume)
        if self._dataset_kind == 0 and self._progress is not None and self._progress.order is None:
            raise SettingError("the sampler does not say how long it is: its order cannot be saved; give it a __len__")
        return _state.save(self, self._progress, self._epochs)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next ``iter()`` goes on where the state was taken. The number of workers may differ."""
        _state.check(self, state)
        _state.restore_generators(self, state)
        self._epochs = state["epochs"]
        self._progress = None
        self._resume = state

    def explain(self) -> str:
        """What became of each part of this loader, why, and what Python costs."""
        plan = _plan.make(self, self._last_plan)
        if self._last_plan is None:
            self._last_plan = plan
        return _explain.text(self, plan, self.stats())

    def stats(self) -> dict[str, Any]:
        """Counts and times of the epoch that is running or ended last; times in seconds."""
        plan, epoch, progress = self._last_plan, self._running(), self._progress
        stats = {
            "path": plan.path if plan else "",
            "epochs": self._epochs,
            "delivered": progress.delivered if progress else 0,
        }
        return {**stats, **(epoch.stats() if epoch is not None else self._last_stats)}


class _Iterator:
    """One pass over an epoch. Independent of others over the same loader, as in torch."""

    def __init__(self, loader: DataLoader, epoch: Any, progress: _state.Progress) -> None:
        self._loader, self._epoch, self._progress = loader, epoch, progress
        native = isinstance(epoch, NativeEpoch)  # workers pin what they make themselves
        self._pin = native and loader.pin_memory and torch.cuda.is_available() and epoch.device is None
        if native and loader.pin_memory and not torch.cuda.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=3,
            )

    def __iter__(self) -> _Iterator:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._epoch is None:
            raise StopIteration
        try:
            batch = self._epoch.next()
        except StopIteration:
            self._progress.is_over = True
            self._progress.epoch = None
            self._loader._last_stats = self._epoch.stats()
            self._epoch.close()
            self._epoch = None
            raise
        self._progress.delivered += 1
        if self._pin:
            batch = _pin.pin_memory(batch)
        return batch if self._loader.device is None else _moved(batch, self._loader.device)


def _moved(data: Any, device: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {key: _moved(value, device) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        moved = [_moved(value, device) for value in data]
        return moved if isinstance(data, list) else type(data)(*moved) if hasattr(data, "_fields") else tuple(moved)
    return data


def _check_share(rank: int | None, world: int | None) -> None:
    if (rank is None) != (world is None):
        raise ValueError(f"rank and world go together, but got rank={rank}, world={world}")
    if rank is not None and world is not None and not 0 <= rank < world:
        raise ValueError(f"rank should be in 0..world-1, but got rank={rank}, world={world}")


