# SPDX-License-Identifier: Apache-2.0
"""Loader: batches from a dataset through a pipeline, epoch after epoch."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from . import _penstock
from ._batch import Batch
from ._dataset import Dataset
from ._penstock import Engine, Error, SettingError, StateError

if TYPE_CHECKING:
    Path = str | os.PathLike[str]

_STATE_KEY = "penstock"
_SAMPLER_NAMES = ("shuffle", "sequential", "weighted", "weighted_once")


class Loader:
    """Batches of `data` through `pipeline`.

    data: a path or a Dataset. pipeline: ``"decode | random_resized_crop(224) | hflip | normalize(imagenet)"``.

    split: the samples of a split only. fields: ``"image,label"``, a list of names, or ``{"image": "padded"}``.
    shuffle, seed: a new order each epoch, drawn from the seed; without shuffle in order of ids.
    sampler: instead of shuffle: "shuffle", "sequential", "weighted", "weighted_once", or the ids themselves in order.
    subset: ids to draw from. weights: one number per sample of the dataset; draws: positions an epoch when weighted.
    repeat: each sample so many times in a row, drawn anew each time.
    order: "strict" (the sequence is a function of seed, epoch and world) or "ready" (what is finished comes first).
    rank, world: this process's share. ends: "drop", "pad" or "short"; drop_last=True is ends="drop".
    epochs: stop after so many (0 = no end). on_error: "raise", "skip:N", "retry:N" or "skip:N,retry:M".
    engine: an Engine to share with other loaders; else one is made with `workers` and `memory` (bytes; 0 = chosen here).

    Each ``iter()`` starts the next epoch; after ``break`` it drops what was not delivered. One pass at a time; several
    threads may share its iterator.
    """

    def __init__(
        self,
        data: Path | Dataset,
        pipeline: str,
        batch_size: int,
        *,
        split: str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        order: str = "strict",
        ends: str | None = None,
        drop_last: bool | None = None,
        workers: int = 0,
        memory: int = 0,
        rank: int = 0,
        world: int = 1,
        sampler: str | Iterable[int] | None = None,
        subset: Iterable[int] | None = None,
        weights: Iterable[float] | None = None,
        draws: int = 0,
        repeat: int = 1,
        on_error: str = "raise",
        fields: str | Sequence[str] | Mapping[str, str] | None = None,
        engine: Engine | None = None,
        epochs: int = 0,
        ready_depth: int = 0,
        reorder_window: int = 0,
    ) -> None:
        if engine is not None and (workers or memory):
            raise SettingError("workers and memory belong to the engine; give them there, not beside engine=")
        self._options: dict[str, Any] = {
            "split": split,
            "fields": _fields_text(fields),
            "seed": seed,
            "epochs": epochs,
            "order": order,
            "ends": _ends(ends, drop_last),
            "rank": rank,
            "world": world,
            "draws": draws,
            "repeat": repeat,
            "ready_depth": ready_depth,
            "reorder_window": reorder_window,
            **_sampling(shuffle, sampler, subset, weights),
            **_on_error(on_error),
        }
        self.pipeline = pipeline
        self.batch_size = batch_size
        self.dataset = data if isinstance(data, Dataset) else Dataset(data)
        self._owns_engine = engine is None
        self.engine = Engine(workers, memory) if engine is None else engine
        self._open()

    def _open(self) -> None:
        self._job = _penstock.Job(self.engine, self.dataset.raw, self.pipeline, self.batch_size, **self._options)
        self._epoch = 0
        self._resumed = False
        self._turn = 0

    def __iter__(self) -> Iterator[Batch]:
        """Starts the next epoch, or goes on inside one after load_state_dict."""
        epoch = self._job.epoch if self._resumed else self._epoch
        self._turn = self._job.begin(None if self._resumed else epoch)
        self._resumed = False
        self._epoch = epoch + 1
        return _Turn(self, self._job, self._turn)

    def __len__(self) -> int:
        """Batches in an epoch, for this rank."""
        return self._job.steps

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that the next ``iter()`` starts. Naming the epoch a loaded state is in goes on inside it."""
        if self._resumed and epoch == self._job.epoch:
            return
        self._epoch = epoch
        self._resumed = False

    def state_dict(self) -> dict[str, bytes]:
        """What the loop received so far; a batch counts when it is handed over, not when it is prepared."""
        return {_STATE_KEY: self._job.state()}

    def load_state_dict(self, state: Mapping[str, bytes]) -> None:
        """The next ``iter()`` goes on where the state was taken. World and batch size may differ."""
        blob = _state_bytes(state)
        if self._turn != 0:
            self._job.close()
            self._open()
        self._job.load_state(blob)
        self._resumed = True

    def stats(self) -> dict[str, Any]:
        """Counts and times so far; times in seconds, stages as (name, runs, seconds)."""
        return self._job.stats()

    def close(self) -> None:
        """Stops the work. Batches that were handed out stay valid."""
        self._job.close()
        if self._owns_engine:
            self.engine.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Loader {self.dataset.path!r} batch_size={self.batch_size} pipeline={self.pipeline!r}>"


class _Turn:
    """One pass over an epoch."""

    __slots__ = ("_loader", "_job", "_turn", "__weakref__")

    def __init__(self, loader: Loader, job: _penstock.Job, turn: int) -> None:
        self._loader, self._job, self._turn = loader, job, turn

    def __iter__(self) -> _Turn:
        return self

    def __next__(self) -> Batch:
        raw = self._job.next(self._turn)
        if raw is not None:
            return Batch(raw)
        if self._loader._turn != self._turn or self._loader._job is not self._job:
            raise Error("a newer pass over this loader was started, which ended this one; use one loader for each")
        raise StopIteration


def merge_states(states: Iterable[Mapping[str, bytes]]) -> dict[str, bytes]:
    """One state from those of all ranks, for ready order without a shared engine."""
    return {_STATE_KEY: _penstock.merge_states([_state_bytes(state) for state in states])}


def _state_bytes(state: Mapping[str, bytes]) -> bytes:
    blob = state.get(_STATE_KEY) if isinstance(state, Mapping) else None
    if not isinstance(blob, bytes):
        raise StateError(f"this is no state of a penstock.Loader: expected a dict with bytes under {_STATE_KEY!r}")
    return blob


def _fields_text(fields: str | Sequence[str] | Mapping[str, str] | None) -> str | None:
    if fields is None or isinstance(fields, str):
        return fields
    if isinstance(fields, Mapping):
        return ",".join(f"{name}={packing}" if packing else name for name, packing in fields.items())
    return ",".join(fields)


def _ends(ends: str | None, drop_last: bool | None) -> str:
    if drop_last is None or ends is not None:
        if drop_last and ends != "drop":
            raise SettingError(f"drop_last=True and ends={ends!r} contradict each other; give one of them")
        return ends or "default"
    return "drop" if drop_last else "default"


def _sampling(
    shuffle: bool,
    sampler: str | Iterable[int] | None,
    subset: Iterable[int] | None,
    weights: Iterable[float] | None,
) -> dict[str, Any]:
    """The sampler's name, and its arrays in the machine's own form."""
    if sampler is not None and not isinstance(sampler, str):
        if subset is not None or weights is not None:
            raise SettingError("a sampler given as ids is the order itself; subset and weights do not go with it")
        return {"sampler": "given", "ids": array("q", sampler)}
    name = sampler or ("weighted" if weights is not None else "shuffle" if shuffle else "sequential")
    if name not in _SAMPLER_NAMES:
        raise SettingError(f"sampler={name!r} is not known; use one of {', '.join(_SAMPLER_NAMES)}, or a list of ids")
    if name.startswith("weighted") != (weights is not None):
        raise SettingError("weights and a weighted sampler go together; one of them is missing")
    chosen: dict[str, Any] = {"sampler": name}
    if subset is not None:
        chosen["ids"] = array("q", subset)
    if weights is not None:
        chosen["weights"] = array("d", weights)
    return chosen


def _on_error(policy: str) -> dict[str, Any]:
    """"skip:10,retry:2" -> the job's options."""
    options: dict[str, Any] = {"on_error": "raise"}
    for part in policy.split(","):
        word, colon, number = part.strip().partition(":")
        if word == "raise" and not colon:
            continue
        if word not in ("skip", "retry") or not number.isdecimal():
            raise SettingError(f"on_error={policy!r} is not known; use 'raise', 'skip:N', 'retry:N' or 'skip:N,retry:M'")
        if word == "skip":
            options.update(on_error="skip", skip=int(number))
        else:
            options["retries"] = int(number)
    return options
