# SPDX-License-Identifier: Apache-2.0
"""Loader: batches from a dataset through a pipeline, epoch after epoch."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence

from . import _penstock
from ._batch import Batch, make_batch
from ._calls import wrap_calls
from ._dataset import Dataset, as_dataset
from ._options import as_forms, bucket_options, ends_word, fields_text, on_error_options, sampling_options, whole, without_bits
from ._penstock import Engine, Error, SettingError, StateError
from ._pipeline import PipelineLike, as_pipeline
from ._ranks import find_ranks
from ._report import Clock, explain_text, full_stats
from ._sizes import AUTO, as_bytes, cache_bytes

if TYPE_CHECKING:
    Path = str | os.PathLike[str]

_STATE_KEY = "penstock"


class Loader:
    """Batches of `data` through `pipeline`.

    data: a path, a Dataset, or any object with ``len()`` and ``read(i) -> bytes | (bytes, label) | (bytes, dict)``.
    pipeline: ``"decode | random_resized_crop(224) | hflip | normalize(imagenet)"``, or the same from ``penstock.ops``.

    split: the samples of a split only. fields: ``"image,label"``, a list of names, or ``{"image": "padded"}``,
        ``"padded(32)"`` where sizes are to be multiples of 32.
    shuffle, seed: a new order each epoch, drawn from the seed; without shuffle in order of ids.
    sampler: instead of shuffle: "shuffle", "sequential", "weighted", "weighted_once", or the ids themselves in order.
    subset: ids to draw from. weights: one number per sample of the dataset; draws: positions an epoch when weighted.
    repeat: each sample so many times in a row, drawn anew each time.
    run: with shuffle, so many neighbours in order of ids stay together, and such runs are shuffled: from shards in a bucket
    they come with one request.
    buckets: batches hold samples of one bucket, which keeps padding small: "bytes:6" for six of equal size by stored bytes,
    "FIELD:6" by a field of numbers, "aspect" or "aspect:3" by the fields width and height, or a number from 0 to 62 for
    each sample of the dataset. Only the last batches of an epoch are mixed.
    order: "strict" (the sequence is a function of seed, epoch and world) or "ready" (what is finished comes first).
    train: False for evaluation: in order of ids, strict, every sample once, the last batches padded and marked in
    ``batch.valid``.

    rank, world: this process's share; else from torch.distributed or the environment (RANK, WORLD_SIZE).
    ends: "drop", "pad" or "short"; drop_last=True is ends="drop". epochs: stop after so many (0 = no end).
    on_error: "raise", "skip:N", "retry:N" or "skip:N,retry:M".

    engine: an Engine to share with other loaders, or where one is served: "unix:DIR" for the `penstock serve` of that
    directory, "auto" for this user's if one runs; if none runs, the ranks of this machine share one that local rank 0
    starts and that ends with it. Else one is made with `workers`, `memory` and `cache`, which also hold when a served one
    is gone and the loader goes on by itself; one that ranks share has as much for each of them.
    workers: threads (0 = one per core, less one for the trainer; ranks of one machine share the cores).
    memory: bytes or "8G" for everything (0 = chosen here). cache: of these, for samples kept in memory: bytes, "16G", "auto" (what
    the rest leaves; the default) or 0. A cache of some size without memory= brings its own. forms: the most that encoded,
    decoded and augmented samples may have of it, three shares of 1 (None = as it pays).
    disk: "DIR:BYTES", for example "/scratch/cache:200G": samples are kept in files there, too, and found again by later
    runs. remote: "redis://HOST": they are kept on that server for all loaders that name it.
    watch: a folder where `penstock top` may look at the engine while it runs, or "auto" (None = what $PENSTOCK_WATCH says).
    trace: a file that is written with what each thread does when, for ui.perfetto.dev and `penstock trace` (None = what
    $PENSTOCK_TRACE says).
    sampling: "opportunistic": samples that other loaders of the engine have prepared come first, each still once an epoch
    (order is then "ready"); loaders with the same data, pipeline and `group` share.

    device: None gives numpy arrays, "cpu" torch tensors, "cuda" or "cuda:1" tensors on that GPU: bytes go over the bus from
    pinned memory, one batch ahead on a stream of its own, and normalize runs there. channels_last: give pictures that
    memory format on the GPU.
    transform: called with each sample, a named tuple of arrays, after the pipeline; collate: makes a batch of the list of
    samples. Both are your Python and run in the loop's thread; ``penstock.python(fn)`` puts a function into the
    pipeline instead, on the workers.

    Each ``iter()`` starts the next epoch; after ``break`` it drops what was not delivered. One pass at a time; several
    threads may share its iterator. A batch stays valid as long as it is kept.
    """

    def __init__(
        self,
        data: Path | Dataset | Any,
        pipeline: PipelineLike,
        batch_size: int,
        *,
        split: str | None = None,
        shuffle: bool | None = None,
        sampler: str | Iterable[int] | None = None,
        weights: Iterable[float] | None = None,
        seed: int = 0,
        order: str | None = None,
        ends: str | None = None,
        drop_last: bool | None = None,
        workers: int = 0,
        memory: int | str = 0,
        cache: int | str | None = None,
        engine: Engine | str | None = None,
        on_error: str = "raise",
        device: Any = None,
        transform: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        train: bool = True,
        rank: int | None = None,
        world: int | None = None,
        subset: Iterable[int] | None = None,
        draws: int = 0,
        repeat: int = 1,
        run: int = 1,
        fields: str | Sequence[str] | Mapping[str, str] | None = None,
        epochs: int = 0,
        ready_depth: int = 0,
        reorder_window: int = 0,
        channels_last: bool = False,
        sampling: str = "plain",
        group: str | None = None,
        forms: Sequence[float] | None = None,
        schedule: str = "penstock",
        without: Iterable[str] = (),
        buckets: str | Iterable[int] | None = None,
        disk: str | None = None,
        remote: str | None = None,
        watch: Path | None = None,
        trace: Path | None = None,
    ) -> None:
        engines = workers or memory or cache is not None or forms is not None or disk or remote or watch or trace
        if isinstance(engine, Engine) and engines:
            raise SettingError(
                "workers, memory, cache, forms, disk, remote, watch and trace belong to the engine; "
                "give them there, not beside engine="
            )
        if not train:
            _check_evaluation(shuffle, order, drop_last, ends)
        self.ranks = find_ranks(rank, world)
        self.pipeline = as_pipeline(pipeline)
        self.batch_size = whole("batch_size", batch_size, 1, 1 << 20)
        self._options: dict[str, Any] = {
            "split": split,
            "fields": fields_text(fields),
            "seed": whole("seed", seed, 0, (1 << 64) - 1),
            "epochs": epochs,
            "order": order or ("ready" if sampling == "opportunistic" else "strict"),
            "sampling": sampling,
            "group": group,
            "schedule": schedule,
            "without": without_bits(without),
            "ends": ends_word(ends, drop_last, train),
            "rank": self.ranks.rank,
            "world": self.ranks.world,
            "draws": draws,
            "repeat": repeat,
            "run": whole("run", run, 1, 65536),
            "ready_depth": ready_depth,
            "reorder_window": reorder_window,
            "leases": 2,  # the loop holds one while it asks for the next
            **sampling_options(train if shuffle is None else shuffle, sampler, subset, weights),
            **on_error_options(on_error),
            **bucket_options(buckets),
        }
        if self.pipeline.calls:
            self._options["calls"] = wrap_calls(self.pipeline.calls)
        self._front = _front_for(device, channels_last, transform, collate, self._options)
        self.dataset = as_dataset(data)
        self._owns_engine = not isinstance(engine, Engine)
        self._tiers = {"disk": disk, "remote": remote}
        self._shown = {"watch": watch, "trace": trace}
        self._shown = {name: os.fspath(where) for name, where in self._shown.items() if where is not None}
        self.engine = engine if isinstance(engine, Engine) else self._make_engine(workers, memory, cache, forms, engine)
        self._open()

    def _make_engine(
        self,
        workers: int,
        memory: int | str,
        cache: int | str | None,
        forms: Sequence[float] | None,
        address: str | None,
    ) -> Engine:
        """Ranks of one machine take equal shares of it unless told how much; "auto" gives them one engine for all."""
        size, local, kept = as_bytes(memory, "memory"), self.ranks.local, cache_bytes(cache)
        together = {
            "workers": workers * local,
            "memory": size * local,
            "cache": kept if kept == AUTO else kept * local,
            "forms": as_forms(forms),
            **self._tiers,
        }
        if local > 1 and not (workers and size):
            whole = _penstock.settings()
            workers = workers or max(1, whole["cpus"] // local)
            if not size and kept != AUTO:  # each brings its own cache; together they must fit
                _penstock.settings(memory=0, cache=kept * local)
            size = size or max(64 << 20, whole["memory"] // local) + (0 if kept == AUTO else kept)

        def share(where: str | None) -> Engine:
            return Engine(workers, size, kept, forms=as_forms(forms), address=where, **self._shown, **self._tiers)

        if local > 1 and address == "auto":
            from ._local import shared_engine

            return shared_engine(self.ranks, share, together)
        return share(address)

    def _open(self) -> None:
        self._job = _penstock.Job(self.engine, self.dataset.raw, self.pipeline.text, self.batch_size, **self._options)
        self._epoch = 0
        self._resumed = False
        self._turn = 0
        self._clock = Clock()
        self._stream = self._front.open(self._job)

    def __iter__(self) -> Iterator[Batch]:
        """Starts the next epoch, or goes on inside one after load_state_dict."""
        epoch = self._job.epoch if self._resumed else self._epoch
        self._stream.drop()
        self._turn = self._job.begin(None if self._resumed else epoch)
        self._resumed = False
        self._epoch = epoch + 1
        self._clock.begin()
        return _Turn(self, self._stream, self._turn)

    def __len__(self) -> int:
        """Batches in an epoch, for this rank."""
        return self._job.steps

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that the next ``iter()`` starts. Naming the epoch a loaded state is in goes on inside it."""
        epoch = whole("epoch", epoch, 0, (1 << 63) - 1)
        if self._resumed and epoch == self._job.epoch:
            return
        self._epoch = epoch
        self._resumed = False

    def state_dict(self) -> dict[str, str]:
        """What the loop received so far; a batch counts when it is handed over, not when it is prepared."""
        return state_from_bytes(self._stream.state())

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """The next ``iter()`` goes on where the state was taken. World and batch size may differ."""
        blob = state_to_bytes(state)
        if self._turn != 0:
            self._stream.close()
            self._job.close()
            self._open()
        self._job.load_state(blob)
        self._resumed = True

    def stats(self) -> dict[str, Any]:
        """Counts and times so far, in seconds; stages as (name, runs, seconds); "verdict" says what is slow and what would help, over
        the time since an earlier call or since the first batch: kind, text, stall, numbers, help. "bound" is its text."""
        counts = {**self._job.stats(), "verdict": self._job.verdict(), **self._clock.figures()}
        return full_stats(counts, self.engine.settings)

    def explain(self) -> str:
        """What is done where, and what each part costs, as text."""
        return explain_text(self)

    def close(self) -> None:
        """Stops the work. Batches that were handed out stay valid."""
        self._stream.close()
        self._job.close()
        if self._owns_engine:
            self.engine.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Loader {self.dataset.path!r} batch_size={self.batch_size} pipeline={self.pipeline.text!r}>"


class _Turn:
    """One pass over an epoch."""

    __slots__ = ("_loader", "_stream", "_turn", "__weakref__")

    def __init__(self, loader: Loader, stream: Any, turn: int) -> None:
        self._loader, self._stream, self._turn = loader, stream, turn

    def __iter__(self) -> _Turn:
        return self

    def __next__(self) -> Batch:
        clock = self._loader._clock
        clock.ask()
        batch = self._stream.next(self._turn)
        clock.got()
        if batch is not None:
            return batch
        if self._loader._turn != self._turn or self._loader._stream is not self._stream:
            raise Error("a newer pass over this loader was started, which ended this one; use one loader for each")
        raise StopIteration


class HostFront:
    """Batches where the engine wrote them, as `convert` makes arrays of views, through the user's own functions."""

    def __init__(self, convert: Callable[[_penstock.View], Any] | None, finish: Callable[[Batch], Any] | None) -> None:
        self._convert, self._finish = convert, finish

    def open(self, job: _penstock.Job) -> _HostStream:
        return _HostStream(job, self._convert, self._finish)


class _HostStream:
    __slots__ = ("_job", "_make", "_finish")

    def __init__(self, job: _penstock.Job, convert: Any, finish: Any) -> None:
        self._job, self._finish = job, finish
        self._make = make_batch if convert is None else (lambda raw: make_batch(raw, convert))

    def next(self, turn: int) -> Any:
        raw = self._job.next(turn)
        if raw is None:
            return None
        return self._make(raw) if self._finish is None else self._finish(self._make(raw))

    def drop(self) -> None: ...

    def close(self) -> None: ...

    def state(self) -> bytes:
        return self._job.state()


def _front_for(
    device: Any,
    channels_last: bool,
    transform: Callable[[Any], Any] | None,
    collate: Callable[[list[Any]], Any] | None,
    options: dict[str, Any],
) -> Any:
    finish = None
    if transform is not None or collate is not None:
        from ._collate import Regroup

        finish = Regroup(transform, collate)
    if device is None:
        if channels_last:
            raise SettingError("channels_last is a memory format of GPU tensors; give device= too, or to(f32, nhwc)")
        return HostFront(None, finish)
    from . import _device

    return _device.front(device, channels_last, finish, options)


def merge_states(states: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One state from those of all ranks, for ready order without a shared engine."""
    return state_from_bytes(_penstock.merge_states([state_to_bytes(state) for state in states]))


def state_from_bytes(blob: bytes) -> dict[str, str]:
    """As text: torch.load(weights_only=True) takes it in every version, and so does JSON."""
    return {_STATE_KEY: base64.b64encode(blob).decode()}


def state_to_bytes(state: Mapping[str, str]) -> bytes:
    text = state.get(_STATE_KEY) if isinstance(state, Mapping) else None
    if not isinstance(text, str):
        raise StateError(f"this is no state of a penstock.Loader: expected a dict with a text under {_STATE_KEY!r}")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise StateError("the state is damaged: its text is not base64") from None


def _check_evaluation(shuffle: bool | None, order: str | None, drop_last: bool | None, ends: str | None) -> None:
    """train=False promises every sample once, in order; what contradicts that is refused."""
    if shuffle or order == "ready" or drop_last or ends == "drop":
        raise SettingError(
            "train=False gives every sample once and in order; shuffle, order='ready' and dropping do not go with it"
        )
