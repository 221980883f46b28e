# SPDX-License-Identifier: Apache-2.0
"""The native path: an epoch of a lowered dataset, prepared by the engine's threads in this process.

Tensors lie over the batch's own memory, without a copy, and may be written to: a batch belongs to the caller. Labels,
and what the user gave for targets and collation, are handled here at delivery.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, Iterable

import numpy
import torch
from torch.utils.data._utils.collate import default_collate

from .. import _penstock
from .._options import on_error_options, without_bits
from . import _engines, _gpu, _position
from ._collate import Collate
from ._datasets import Flat, pick
from ._files import Files
from ._lower import Lowered
from ._samplers import Order, narrow
from ._seeds import mix, seeded

# Batches of unequal size are cut from native ones of this size, with a copy.
_CUT = 32
# Lists and orders of this length leave behind freed memory that is worth giving back to the system.
_LONG = 1 << 16


@dataclasses.dataclass
class NativePlan:
    """All that an epoch needs and that may outlive it."""

    flat: Flat
    lowered: Lowered
    files: Files
    collate: Collate
    mix: str = ""  # the batch op that does what collate.call does, or ""
    why_no_mix: str = ""
    python_only: set[int] = dataclasses.field(default_factory=set)  # flat indices that only Python can read
    unreadable: set[int] = dataclasses.field(default_factory=set)  # those that neither can, and the policy skips


class _Memory:
    """Offers a view's memory as writable: the batch is the caller's."""

    __slots__ = ("__array_interface__", "view")

    def __init__(self, view: _penstock.View) -> None:
        interface = view.__array_interface__
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.view = view


def as_tensor(view: _penstock.View) -> torch.Tensor:
    """A tensor over the view's memory; it keeps the view, and the view its batch."""
    return torch.from_numpy(numpy.asarray(_Memory(view)))


class NativeEpoch:
    """Batches of one epoch from step `start` on."""

    def __init__(
        self,
        loader: Any,
        plan: NativePlan,
        order: Order,
        seed: int,
        start: int = 0,
        ready: bytes | None = None,
        skipped: Iterable[int] = (),
    ) -> None:
        assert order.ids is not None
        self.loader, self.plan, self.order, self.seed = loader, plan, order, seed
        self.flat = narrow(pick(plan.flat.table, len(loader.dataset), order.ids))
        self.policy = on_error_options(loader.on_error)
        self.step = start
        self.even = order.size is not None
        # Samples that Python reads are known by their place, and repeated ones cannot be told apart when they come.
        self.in_order = (
            loader.in_order or not self.even or bool(plan.python_only) or len(numpy.unique(self.flat)) < len(self.flat)
        )
        # In order, a sample that the engine refuses is offered to Pillow before the policy applies. Else it is the engine's.
        self.skips = self.policy["on_error"] == "skip" and self.in_order and self.even
        if self.skips:
            plan.unreadable.update(skipped)
            self._leave_out(plan.unreadable)
        self.bounds = numpy.concatenate(([0], numpy.cumsum(order.sizes()))) if not self.even else None
        self.job: Any = None
        # The user's own collation is given samples in memory, as in torch; what it makes is moved afterwards.
        self.device = None if plan.collate.kind == "user" else _gpu.device_of(loader)
        self._stream: Any = None
        self.python_s, self.python_runs = 0.0, 0  # targets and collation in Python
        self._spare: list[tuple[torch.Tensor, int]] = []
        self._open(ready)

    # ---- the job ----------------------------------------------------------------------------------------------------

    def _open(self, ready: bytes | None = None) -> None:
        loader, plan = self.loader, self.plan
        ids = self.flat
        if plan.python_only:
            ids = _stand_ins(ids, numpy.isin(self.flat, list(plan.python_only)))
        begin = self._begin(len(ids))
        self._taken = begin  # positions that the job has handed over
        if begin >= len(ids) and ready is None:
            self.job = None
            return
        self._shared = None  # keeps an engine that loaders share
        if loader.engine is None:
            self._shared = _engines.acquire(
                loader.num_workers, loader.memory, loader.cache, loader.disk, loader.remote
            )
        engine = loader.engine if self._shared is None else self._shared.engine
        self.mixed = bool(plan.mix) and self.even and not plan.python_only and self.device is None
        try:
            self.job = self._new_job(engine, ids)
        except _penstock.PipelineError as why:
            if not self.mixed:
                raise
            plan.mix, plan.why_no_mix, self.mixed = "", str(why), False
            self.job = self._new_job(engine, ids)
        if ready is not None:
            self.job.load_state(ready)
        elif begin:
            self.job.load_state(_position.moved(self.job.state(), begin))
        if len(ids) >= _LONG:
            _penstock.trim()
        self._stream = None if self.device is None else _gpu.Pictures(self.job, self.device)
        self._turn = self.job.begin(None)

    def _new_job(self, engine: Any, ids: numpy.ndarray) -> Any:
        loader, plan = self.loader, self.plan
        return _penstock.Job(
            engine,
            plan.files.raw,
            f"{plan.lowered.text} || {plan.mix}" if self.mixed else plan.lowered.text,
            min(self.order.size or 1, len(ids)) if self.even else _CUT,
            fields="image,label" if self.mixed else "image",
            seed=self.seed,
            epochs=1,
            order="strict" if self.in_order else "ready",
            ends="short",
            sampler="given",
            ids=ids.astype(numpy.int64, copy=False),
            raw_finish=self.device is not None,
            without=without_bits(loader.without),
            **(self.policy if not self.skips else {**self.policy, "on_error": "raise", "skip": 0}),
        )

    def _begin(self, length: int) -> int:
        """The position of the first sample of this step."""
        if self.bounds is not None:
            return int(self.bounds[self.step])
        return min(self.step * (self.order.size or 1), length)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self.job is not None:
            self.job.close()

    # ---- batches ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.order)

    def next(self) -> Any:
        """The next batch as the user's collation makes it. StopIteration at the end."""
        if self.job is None or self.job.closed:
            raise StopIteration
        images, flat = self._next_even() if self.even else self._next_cut()
        made = (images, self._soft) if self.mixed else self._finish(images, flat)
        self.step += 1
        return made

    def _next_raw(self) -> tuple[Any, numpy.ndarray] | None:
        """Pictures of one native batch and the flat indices they belong to."""
        while True:
            try:
                got = self._receive()
                break
            except _penstock.DataError as why:
                self._read_in_python(why)
            except TimeoutError:
                raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds") from None
        if got is None:
            return None
        images, ids, valid = got
        if self.in_order and len(ids) == valid and (self.skips or self.policy["on_error"] != "skip"):
            flat = self.flat[self._taken : self._taken + len(ids)]
        else:
            flat = ids.copy()  # the native list is the flat one
        self._taken += len(ids)
        return self._patch(images, flat), flat

    def _receive(self) -> tuple[Any, numpy.ndarray, int] | None:
        """Pictures, the numbers of their samples, and how many count."""
        timeout = float(self.loader.timeout)
        if self._stream is not None:
            return self._stream.next(self._turn, timeout)
        raw = self.job.next(self._turn, timeout)
        if raw is None:
            return None
        ragged = raw.info("image")[3] == "ragged"
        images: Any = [as_tensor(slot) for slot in raw.slots("image")] if ragged else as_tensor(raw.view("image"))
        self._soft = as_tensor(raw.view("label")) if self.mixed else None
        return images, numpy.asarray(raw.view("id")), raw.valid_count

    def _next_even(self) -> tuple[Any, numpy.ndarray]:
        got = self._next_raw()
        if got is None:
            raise StopIteration
        return got

    def _next_cut(self) -> tuple[Any, numpy.ndarray]:
        """A batch of its own size, from single pictures of native batches."""
        if self.step >= len(self.order):
            raise StopIteration
        begin, end = int(self.bounds[self.step]), int(self.bounds[self.step + 1])
        while len(self._spare) < end - begin:
            got = self._next_raw()
            if got is None:
                raise StopIteration
            self._spare += zip(got[0], got[1].tolist())
        mine, self._spare = self._spare[: end - begin], self._spare[end - begin :]
        return [image for image, _ in mine], numpy.array([flat for _, flat in mine], dtype=numpy.int64)

    # ---- samples that only Python reads -----------------------------------------------------------------------------

    def _read_in_python(self, why: _penstock.DataError) -> None:
        """Makes sure that Python can read what the engine could not, and goes on; else raises what Python raises."""
        if why.id is None or not (self.skips or self.policy["on_error"] == "raise"):
            raise why
        bad = why.id  # perhaps a stand-in for another one: then it comes later in the order
        if not self.in_order or bad in self.plan.python_only or not numpy.any(self.flat == bad):
            raise why
        try:
            self._sample_in_python(bad)
            self.plan.python_only.add(bad)
        except Exception as of_python:
            if not self.skips:
                raise of_python from why
            self._skip(bad, of_python)
        self.close()
        taken, step = self._taken, self.step
        self._open()
        if self._taken != taken:  # unequal batches: the job had run ahead of the step
            self._spare = []
        self.step = step

    def _skip(self, bad: int, of_python: Exception) -> None:
        """Leaves a sample out from here on; the ones after it move up, so that batches stay full."""
        unreadable = self.plan.unreadable
        unreadable.add(bad)
        if len(unreadable) > self.policy["skip"]:
            path = self.plan.files.raw.sample(bad)[0]
            raise _penstock.DataError(
                f"{path}: {of_python}; with it {len(unreadable)} samples are bad, and on_error={self.loader.on_error!r} "
                "allows fewer: look at them, or allow more"
            ) from of_python
        self._leave_out({bad})

    def _leave_out(self, bad: set[int]) -> None:
        if bad:
            self.flat = self.flat[~numpy.isin(self.flat, list(bad))]

    def _sample_in_python(self, flat: int) -> Any:
        leaf = self.plan.flat.leaf_of(flat)
        dataset = leaf.dataset
        sample = dataset.loader(dataset.samples[flat - leaf.start][0])
        with seeded(mix(self.seed, flat)):
            return dataset.transform(sample)

    def _patch(self, images: Any, flat: numpy.ndarray) -> Any:
        if not self.plan.python_only:
            return images
        for slot, index in enumerate(flat.tolist()):
            if index in self.plan.python_only:
                made = torch.as_tensor(self._sample_in_python(index))
                if isinstance(images, list):
                    images[slot] = made if self.device is None else made.to(self.device)
                else:
                    images[slot].copy_(made)
        return images

    # ---- labels and collation ---------------------------------------------------------------------------------------

    def _label(self, flat: int) -> Any:
        leaf = self.plan.flat.leaf_of(flat)
        label = leaf.samples[flat - leaf.start][1]
        change = leaf.dataset.target_transform
        return label if change is None else change(label)

    def _labels(self, flat: numpy.ndarray) -> list[Any]:
        return [self._label(index) for index in flat.tolist()]

    def _collated_labels(self, flat: numpy.ndarray) -> Any:
        files, leaves = self.plan.files, self.plan.flat.leaves
        if files.has_labels and all(leaf.dataset.target_transform is None for leaf in leaves):
            return torch.from_numpy(files.labels_of(flat))
        return default_collate(tuple(self._labels(flat)))

    def _user_rng(self) -> contextlib.AbstractContextManager[None]:
        """With workers, user code at delivery draws from the batch's own seed; else from the caller's, as in torch."""
        if self.loader.num_workers == 0:
            return contextlib.nullcontext()
        return seeded(mix(self.seed, self.step))

    def _finish(self, images: Any, flat: numpy.ndarray) -> Any:
        collate, leaves = self.plan.collate, self.plan.flat.leaves
        if collate.kind == "default" and all(leaf.dataset.target_transform is None for leaf in leaves):
            return self._collated(images, flat)
        began = time.perf_counter()
        with self._user_rng():
            made = self._collated(images, flat)
        self.python_s += time.perf_counter() - began
        self.python_runs += 1
        return made

    def _collated(self, images: Any, flat: numpy.ndarray) -> Any:
        collate = self.plan.collate
        if collate.kind == "user":
            return collate.call([(self._single(x), y) for x, y in zip(images, self._labels(flat))])
        labels = self._collated_labels(flat)
        if self.device is not None and isinstance(labels, torch.Tensor):
            labels = labels.to(self.device, non_blocking=True)
        batch = torch.stack(images) if isinstance(images, list) else images
        return [batch, labels] if collate.kind == "default" else collate.call(batch, labels)

    def _single(self, image: torch.Tensor) -> torch.Tensor:
        if not self.plan.lowered.image:
            return image
        from torchvision import tv_tensors

        return tv_tensors.Image(image)

    def stats(self) -> dict[str, Any]:
        stats = {} if self.job is None or self.job.closed else self.job.stats()
        if self.skips:
            stats["skipped"] = len(self.plan.unreadable)
        if self.python_runs:
            stats["python_batch_s"] = self.python_s / self.python_runs
        return stats


def _stand_ins(ids: numpy.ndarray, replaced: numpy.ndarray) -> numpy.ndarray:
    """Puts a neighbour in the place of each sample that Python reads; its picture is overwritten at delivery."""
    if replaced.all():
        raise _penstock.DataError("none of the samples can be read natively; use native=False")
    good = numpy.flatnonzero(~replaced)
    at = numpy.flatnonzero(replaced)
    nearest = good[numpy.maximum(numpy.searchsorted(good, at) - 1, 0)]
    ids = ids.copy()
    ids[at] = ids[nearest]
    return ids
