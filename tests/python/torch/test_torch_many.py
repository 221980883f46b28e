# SPDX-License-Identifier: Apache-2.0
"""Many loaders made and dropped, and many batches kept: nothing grows, nothing is lost, memory comes back."""

import contextlib
import gc
import os
import time

import penstock
import pytest
import torch
from dropin_tools import evaluation, folder, training
from penstock.torch import DataLoader
from torch.utils.data import Subset

SLACK = 24 << 20


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        return torch.full((4096,), float(index)), index


def identity(image):
    return image


def footprint():
    """Threads, files and children of this process, and what has a name in shared memory."""
    children = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:
            children.update(file.read().split())
    tasks, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    return tasks, files, children, set(os.listdir("/dev/shm"))


def grew(before):
    """What is more than before. A thread that was joined is listed for a moment, and so is another program's memory."""
    until = time.monotonic() + 20
    while True:
        now = footprint()
        more = [(a, b) for a, b in zip(now, before) if not a <= b]
        if not more or time.monotonic() > until:
            return more
        time.sleep(0.05)


def resident_bytes() -> int:
    """Memory of this process and of what it shares: pages of batches count as well."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))


def loaders(photos):
    """One after the other: native, native with an engine of its own, prefix, Python, persistent Python."""
    known, partly = folder(photos, training()), folder(photos, training())
    partly.transform.transforms.append(identity)
    return [
        lambda: DataLoader(known, 4, shuffle=True, num_workers=2),
        lambda: penstock.Loader(photos, "decode | random_resized_crop(16)", 4, device="cpu", workers=1, memory="64M"),
        lambda: DataLoader(partly, 4, num_workers=1),
        lambda: DataLoader(Numbers(), 4, num_workers=1),
        lambda: DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True),
    ]


def make_and_drop(makers, number):
    loader = makers[number % len(makers)]()
    turn = iter(loader)
    kept = [next(turn) for _ in range(number % 3 + 1)]
    if number % 4 == 0:
        state = loader.state_dict()
        loader = makers[number % len(makers)]()
        loader.load_state_dict(state)
        next(iter(loader))
    return len(kept)


def drop_without_growth(photos, count):
    makers = loaders(photos)
    for number in range(20):
        make_and_drop(makers, number)
    gc.collect()
    before, resident = footprint(), resident_bytes()
    for number in range(count):
        make_and_drop(makers, number)
    gc.collect()
    assert not grew(before)
    assert resident_bytes() - resident < SLACK


def test_a_hundred_loaders_leave_nothing_behind(photos):
    drop_without_growth(photos, 100)


@pytest.mark.long
def test_a_thousand_loaders_leave_nothing_behind(photos):
    drop_without_growth(photos, 1000)


@pytest.mark.parametrize("path", ["native", "prefix", "python"])
def test_a_list_of_a_thousand_batches_equals_torchs_and_its_memory_returns(photos, path):
    """A native list shows that kept batches are not written to again: its samples are compared one by one."""
    workers = 0 if path == "native" else 2
    if path == "python":
        data = Numbers()
    else:
        whole = folder(photos, evaluation(48))
        if path == "prefix":
            whole.transform.transforms.append(identity)
        data = Subset(whole, [i % 60 for i in range(4000)])
    gc.collect()
    resident = resident_bytes()
    loader = DataLoader(data, 4, num_workers=workers)
    got = list(loader)
    assert loader.stats()["path"] == path and len(got) == len(loader) == 1000
    expected = torch.utils.data.DataLoader(data, 4)
    for (images, labels), (theirs, numbers) in zip(got, expected, strict=True):
        assert torch.equal(labels, numbers) and torch.allclose(images, theirs, atol=1e-5)
    del images, labels, theirs, numbers, loader
    grown = resident_bytes() - resident
    got.clear()
    gc.collect()
    assert grown > 2 * SLACK and resident_bytes() - resident < grown // 2
