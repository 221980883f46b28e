# SPDX-License-Identifier: Apache-2.0
"""Runs a runner with the arguments of a torch DataLoader, and compares what two loaders gave."""

import collections.abc
import contextlib
import time

import numpy
import torch

from penstock.torch._workers import IterableRunner, MapRunner, _tasks


def runner_for(loader, **options):
    """A runner with the arguments of a torch DataLoader (not started)."""
    options = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "context": loader.multiprocessing_context,
        "worker_init_fn": loader.worker_init_fn,
        "base_seed": 1234,
        "timeout": loader.timeout,
        "prefetch_factor": loader.prefetch_factor,
        "persistent": loader.persistent_workers,
        **options,
    }
    if loader._dataset_kind == 1:
        return IterableRunner(loader.dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, **options)
    return MapRunner(loader.dataset, auto_collation=loader._auto_collation, **options)


def start(runner, loader, seed=99):
    if isinstance(runner, IterableRunner):
        runner.start_epoch()
    else:
        runner.start_epoch(iter(loader._index_sampler), seed)


def rest(runner):
    """All that is left of the epoch."""
    batches = []
    with contextlib.suppress(StopIteration):
        while True:
            batches.append(runner.next())
    return batches


def epoch(loader, **options):
    """One epoch of a runner with the loader's arguments."""
    runner = runner_for(loader, **options)
    try:
        start(runner, loader)
        return rest(runner)
    finally:
        runner.shutdown()


def same(ours, theirs, where="batch"):
    """Asserts equality down to types, dtypes and shapes."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, f"{where}: {ours.dtype} {ours.shape}"
        assert torch.equal(ours, theirs), where
    elif isinstance(theirs, numpy.ndarray):
        assert ours.dtype == theirs.dtype, where
        numpy.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, collections.abc.Mapping):
        assert list(ours) == list(theirs), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{where}: {len(ours)} items, not {len(theirs)}"
        for number, pair in enumerate(zip(ours, theirs)):
            same(*pair, f"{where}[{number}]")
    else:
        assert ours == theirs, where


def until_full(runner):
    """Waits until as much is ready as may be, which is what lanes count as slack."""
    words, deadline = runner._arena.words, time.monotonic() + 60
    while (words[_tasks.FILLED] & ((1 << _tasks.FILLED_BITS) - 1)) - words[_tasks.TAKEN] < words[_tasks.ROOM]:
        assert words[_tasks.MORE] and time.monotonic() < deadline
        time.sleep(0.001)
