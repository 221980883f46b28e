# SPDX-License-Identifier: Apache-2.0
"""A worker process from its start to its end, whatever kind of dataset it serves."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from ..._penstock import die_with_parent
from . import _codec, _collate, _tasks
from ._arena import Arena, Region
from ._errors import packed
from ._seed import seed_worker


class Descriptor:
    """A file descriptor that goes along to a process however it is started."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing import reduction

        return _received, (reduction.DupFd(self.fd),)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def __del__(self) -> None:  # where an interrupt came between opening and closing
        self.close()


def _received(fd: Any) -> Descriptor:
    return Descriptor(fd.detach())


@dataclass
class Setup:
    """What a worker is given."""

    arena: Arena
    tasks: list[Descriptor]  # one that all read from, or one for each worker
    results: Descriptor
    num_workers: int
    dataset: Any
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None
    base_seed: int
    ring: int = 0
    parent: int = field(default_factory=os.getpid)
    dies_with_parent: bool = False
    get: Callable[[Any], Any] | None = None
    has_items: bool = False
    regroup: bool = False
    lanes: bool = False
    costs: int = 0  # the first word of the histogram of what samples take
    batch_size: int | None = None
    drop_last: bool = False
    is_pipe: bool = False  # a torch IterDataPipe, seeded from the shared seed


class Worker:
    """What both kinds of workers have: their region, their pipe, their counters."""

    def __init__(self, setup: Setup, worker_id: int) -> None:
        self.setup = setup
        self.id = worker_id
        self.arena = setup.arena
        self.words = setup.arena.words
        self.region = Region(setup.arena, worker_id + 1)
        self.input = setup.tasks[worker_id if len(setup.tasks) > 1 else 0].fd
        self.counters = _tasks.RING + setup.ring + worker_id * _tasks.COUNTERS

    def send(self, offset: int, serial: int) -> None:
        os.write(self.setup.results.fd, _tasks.RECORD.pack(offset, serial))

    def collate(self, data: Any) -> int:
        """collate_fn's result as a chunk."""
        try:
            return _codec.dump(self.region, self.setup.collate_fn(data))
        finally:
            self.region.collated.clear()

    def run(self) -> None:
        raise NotImplementedError


def main(kind: type[Worker], setup: Setup, worker_id: int) -> None:
    """The target of a worker process. Returns when the trainer says so or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the trainer decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if setup.dies_with_parent and not die_with_parent(setup.parent):
        return
    torch.set_num_threads(1)
    worker = kind(setup, worker_id)
    try:
        _prepare(worker)
    except Exception as error:
        text = packed(error, f"while DataLoader worker process {worker_id} was starting")
        worker.words[worker.counters + _tasks.INIT_ERROR] = _codec.store(worker.region, text)
        worker.send(0, worker_id)
        return
    worker.run()


def _prepare(worker: Worker) -> None:
    from torch.utils.data._utils import worker as torch_worker

    setup = worker.setup
    seed = seed_worker(setup.base_seed, worker.id)
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=worker.id, num_workers=setup.num_workers, seed=seed, dataset=setup.dataset
    )
    _collate.stack_into(worker.region)
    if setup.worker_init_fn is not None:
        setup.worker_init_fn(worker.id)
