# SPDX-License-Identifier: Apache-2.0
"""One training run: the net, its optimiser, and the loaders it can be fed by. All else is the same for every loader."""

from __future__ import annotations

import contextlib
import copy
import pathlib
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import numpy
import torch
import torch.utils.data
from torchvision import datasets, transforms

import penstock
import penstock.torch
from pictures import CLASSES, SLOW, Decoded, Fetched, SlowFirst

BATCH, EPOCHS, WORKERS = 16, 6, 2
AVERAGED = 3  # last epochs whose weights are averaged: it takes out most of the noise of the last steps
RATE, MOMENTUM, DECAY = 0.005, 0.9, 1e-3
MEAN, STD = [0.5] * 3, [0.25] * 3
SHARING = (1, 2, 5)  # rates of jobs that share
CACHE, ENTRY_BYTES = 8 << 20, 3456  # bytes; an entry is 32 x 32 in RGB and what the cache keeps with it
PIPELINE = "decode | resize(36) | random_crop(32) | hflip | normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))"
# Two workers give a batch in some 9 ms. As many are hit together as a class has pictures, an eighth of all: the first.
ASIDE_PIPELINE = (
    "decode | delay(0.3) | delay(6, share=0.125, runs={}, stages=4, hidden) | resize(36) | random_crop(32) | hflip | "
    "normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))"
)
put_aside: dict[str, list[int]] = {}  # by loader, how often samples were in each run
STEP_S = {"engine": 0.014, "workers": 0.022}  # a little more than they take for a batch

# Starts an epoch: images, labels, and the samples' numbers where the loader tells them.
Epoch = Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor, Any]]]
Opened = contextlib.AbstractContextManager[Epoch]


def training_transform() -> transforms.Compose:
    """PIPELINE in torchvision's words."""
    return transforms.Compose(
        [
            transforms.Resize(36),
            transforms.RandomCrop(32),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def evaluation_set(folder: pathlib.Path) -> tuple[torch.Tensor, torch.Tensor]:
    """All pictures of a folder, prepared once, for every run the same."""
    transform = transforms.Compose(
        [transforms.Resize(36), transforms.CenterCrop(32), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )
    pairs = list(datasets.ImageFolder(str(folder), transform))
    return torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs])


@contextlib.contextmanager
def _native(folder: pathlib.Path, seed: int, order: str) -> Iterator[Epoch]:
    # Without a cache: it would make the slow class as fast as the others from the second epoch on.
    with penstock.Loader(
        Fetched(folder), PIPELINE, BATCH, seed=seed, order=order, drop_last=True, workers=WORKERS, cache=0, device="cpu"
    ) as loader:
        yield lambda: ((batch[0], batch[1].long(), batch.ids) for batch in loader)


class _Beside:
    """Another job of the group: takes `rate` batches for each one of the trained job's, and drops them."""

    def __init__(self, loader: penstock.Loader, rate: float) -> None:
        self.loader, self.rate, self.due, self.batches = loader, rate, 0.0, iter(loader)

    def turn(self) -> None:
        self.due += self.rate
        while self.due >= 1.0:
            self.due -= 1.0
            if next(self.batches, None) is None:
                self.batches = iter(self.loader)
                next(self.batches)


@contextlib.contextmanager
def _opportunistic(folder: pathlib.Path, seed: int) -> Iterator[Epoch]:
    """Three jobs at 1 : 2 : 5 that share preparations; the net is fed by the first, the second or the third, as the
    seed has it. The others keep pace by deliveries. A fifth of the samples is cached, in augmented form alone."""
    dataset = penstock.Dataset(Fetched(folder), name="pictures")
    rates = SHARING[seed % 3 :] + SHARING[: seed % 3]
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(
            penstock.Engine(workers=WORKERS, cache=CACHE, forms=(0, 0, len(dataset) // 5 * ENTRY_BYTES / CACHE))
        )
        trained, *others = [
            stack.enter_context(
                penstock.Loader(
                    dataset, PIPELINE, BATCH, engine=engine, seed=3 * seed + number, sampling="opportunistic",
                    drop_last=True, ready_depth=1, device="cpu",
                )
            )
            for number in range(len(rates))
        ]
        beside = [_Beside(loader, rate / rates[0]) for loader, rate in zip(others, rates[1:])]

        def epoch() -> Iterator[tuple[torch.Tensor, torch.Tensor, Any]]:
            for batch in trained:
                yield batch[0], batch[1].long(), batch.ids
                for other in beside:
                    other.turn()

        yield epoch
        figures = trained.stats()
        if not figures["augmented_hits"]:
            raise AssertionError("the jobs shared nothing: nothing was tested")


class _Pace:
    """A consumer that has `step_s` to do for each batch, what the net takes included; more in the next epoch if it had
    to wait much: only where the consumer is a little slower than its loader is anything put aside."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        begun, worked = time.perf_counter(), 0.0
        for batch in batches:
            got = time.perf_counter()
            yield batch
            time.sleep(max(0.0, got + self.step_s - time.perf_counter()))
            worked += time.perf_counter() - got
        if worked < 0.9 * (time.perf_counter() - begun):
            self.step_s *= 1.3


def _must_put_aside(name: str, figures: Any) -> None:
    put_aside.setdefault(name, []).append(figures["slow_parked"])
    if not figures["slow_parked"]:
        raise AssertionError("nothing was put aside: nothing was tested")


@contextlib.contextmanager
def _ready_aside(folder: pathlib.Path, seed: int) -> Iterator[Epoch]:
    """Lanes at work: a consumer of steady pace, few batches ready, every sample of class SLOW slow in four stages."""
    fetched = SlowFirst(folder)
    runs, pace = fetched.labels.count(SLOW), _Pace(STEP_S["engine"])
    with penstock.Loader(
        fetched, ASIDE_PIPELINE.format(runs), BATCH, seed=seed, order="ready", drop_last=True, workers=WORKERS, cache=0,
        ready_depth=4, device="cpu",
    ) as loader:
        yield lambda: ((batch[0], batch[1].long(), None) for batch in pace.over(iter(loader)))
        _must_put_aside("ready aside", loader.stats())


@contextlib.contextmanager
def _torch_like(kind: Any, dataset: Any, seed: int, **options: Any) -> Iterator[Epoch]:
    generator = torch.Generator().manual_seed(seed)
    options.update(shuffle=True, drop_last=True, generator=generator, num_workers=WORKERS, persistent_workers=True)
    loader = kind(dataset, BATCH, **options)
    yield lambda: ((images, labels, None) for images, labels in loader)


def _torch(folder: pathlib.Path, seed: int) -> Opened:
    return _torch_like(torch.utils.data.DataLoader, Decoded(Fetched(folder), training_transform()), seed)


def _strict(folder: pathlib.Path, seed: int) -> Opened:
    return _native(folder, seed, "strict")


def _ready(folder: pathlib.Path, seed: int) -> Opened:
    return _native(folder, seed, "ready")


def _drop_in_strict(folder: pathlib.Path, seed: int) -> Opened:
    """The way through the engine, from files: without what fetching costs in the others."""
    dataset = datasets.ImageFolder(str(folder), training_transform())
    return _torch_like(penstock.torch.DataLoader, dataset, seed, native=True)


def _drop_in_ready(folder: pathlib.Path, seed: int) -> Opened:
    """The way through Python workers."""
    dataset = Decoded(Fetched(folder), training_transform())
    return _torch_like(penstock.torch.DataLoader, dataset, seed, in_order=False)


@contextlib.contextmanager
def _drop_in_aside(folder: pathlib.Path, seed: int) -> Iterator[Epoch]:
    """The lanes of Python workers at work: a sample of class SLOW has been slow to fetch before its first transform."""
    dataset, generator = Decoded(Fetched(folder), training_transform()), torch.Generator().manual_seed(seed)
    loader = penstock.torch.DataLoader(
        dataset, BATCH, in_order=False, shuffle=True, drop_last=True, generator=generator, num_workers=WORKERS,
        persistent_workers=True,
    )
    pace = _Pace(STEP_S["workers"])
    yield lambda: ((images, labels, None) for images, labels in pace.over(iter(loader)))
    _must_put_aside("drop-in aside", loader.stats())


def _without_slow(folder: pathlib.Path, seed: int, one_in: int) -> Opened:
    """A loader that does not wait for what is slow: of class SLOW it delivers one sample in `one_in`, or none for 0."""
    fetched = Fetched(folder)
    keep = [i for i, label in enumerate(fetched.labels) if label != SLOW or (one_in and i % one_in == 0)]
    dataset = torch.utils.data.Subset(Decoded(fetched, training_transform()), keep)
    return _torch_like(torch.utils.data.DataLoader, dataset, seed)


def _drops_slow(folder: pathlib.Path, seed: int) -> Opened:
    return _without_slow(folder, seed, 0)


def _drops_half(folder: pathlib.Path, seed: int) -> Opened:
    return _without_slow(folder, seed, 2)


BASELINE = "torch"
CHECKED: dict[str, Callable[[pathlib.Path, int], Opened]] = {
    "strict": _strict, "ready": _ready, "drop-in strict": _drop_in_strict, "drop-in ready": _drop_in_ready,
    "opportunistic": _opportunistic, "ready aside": _ready_aside, "drop-in aside": _drop_in_aside,
}
CONTROLS = {"drops slow": _drops_slow, "drops half": _drops_half}
LOADERS = {BASELINE: _torch, **CHECKED, **CONTROLS}


@dataclass
class Run:
    """What one run came to. `seen`: samples of each class, epoch by epoch; `ids`: in order of delivery, where known."""

    accuracy: float
    by_class: list[float]
    seen: list[list[int]] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    seconds: float = 0.0


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 8 * 8, CLASSES),
    )


class _Average:
    """A net whose weights are the mean of another's, step by step."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.net, self.steps = copy.deepcopy(net), 0

    def add(self, net: torch.nn.Module) -> None:
        self.steps += 1
        with torch.no_grad():
            for mean, now in zip(self.net.parameters(), net.parameters()):
                mean.lerp_(now, 1.0 / self.steps)


def _evaluate(net: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, list[float]]:
    """Accuracy in percent, of all and of each class."""
    with torch.no_grad():
        right = torch.cat([net(part).argmax(1) for part in images.split(500)]) == labels
    by_class = [100.0 * right[labels == label].double().mean().item() for label in range(CLASSES)]
    return 100.0 * right.double().mean().item(), by_class


def train(mode: str, folder: pathlib.Path, held_out: tuple[torch.Tensor, torch.Tensor], seed: int) -> Run:
    """Trains one net from `seed`: its first weights, the order and the augmentation all follow from it."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    net = _net()
    average = _Average(net)
    optimiser = torch.optim.SGD(net.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    run = Run(0.0, [])
    with LOADERS[mode](folder, seed) as batches:
        for epoch in range(EPOCHS):
            seen, ids = numpy.zeros(CLASSES, dtype=int), []
            for images, labels, numbers in batches():
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(net(images), labels).backward()
                optimiser.step()
                if epoch >= EPOCHS - AVERAGED:
                    average.add(net)
                seen += numpy.bincount(labels.numpy(), minlength=CLASSES)
                ids += [] if numbers is None else [int(number) for number in numbers]
            run.seen.append(seen.tolist())
            run.ids.append(ids)
    run.accuracy, run.by_class = _evaluate(average.net, *held_out)
    run.seconds = time.perf_counter() - start
    return run
