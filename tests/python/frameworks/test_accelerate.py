# SPDX-License-Identifier: Apache-2.0
"""accelerate makes loaders of torch's own. Ours refuses with the line to write, and after that line the batches are ours."""

import pytest
import torch
import torch.utils.data
from frameworks_tools import folder, labels_of

import penstock
import penstock.torch
from penstock.torch import DataLoader

accelerate = pytest.importorskip("accelerate")


@pytest.fixture
def accelerator():
    return accelerate.Accelerator(cpu=True)


def test_prepare_is_refused_with_the_line_to_write(photos, accelerator):
    model = torch.nn.Linear(3, 3)
    with pytest.raises(penstock.Error, match=r"loader = penstock.torch.prepare\(accelerator, loader\)"):
        accelerator.prepare(model, DataLoader(folder(photos), 8))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_from_penstock(photos, accelerator, workers):
    def seen(kind):
        accelerate.utils.set_seed(7)
        loader = kind(folder(photos), 8, shuffle=True, num_workers=workers)
        if kind is DataLoader:
            loader = penstock.torch.prepare(accelerator, loader)
        model, loader = accelerator.prepare(torch.nn.Linear(3, 3), loader)
        return loader, [labels_of(loader), labels_of(loader)]

    _, expected = seen(torch.utils.data.DataLoader)
    loader, got = seen(DataLoader)
    assert got == expected and got[0] != got[1]
    assert loader.stats()["path"] == "native" and "path: native" in loader.explain()
    assert isinstance(loader, DataLoader)


def test_settings_are_kept(photos, accelerator):
    loader = DataLoader(folder(photos), 8, drop_last=True, cache=1 << 20, memory=1 << 28, native=True, num_workers=1)
    made = penstock.torch.prepare(accelerator, loader)
    inner = made.base_dataloader
    assert (inner.cache, inner.memory, inner.native, inner.num_workers) == (1 << 20, 1 << 28, True, 1)
    assert len(made) == len(list(made)) == 7


def test_gradient_accumulation_sees_the_end(photos, accelerator):
    made = penstock.torch.prepare(accelerator, DataLoader(folder(photos), 8))
    assert [made.end_of_dataloader for _ in made] == [False] * 7 + [True]
    assert made.remainder == 60 % 8


def test_shards_of_two_processes(photos):
    """What accelerate deals to each of two processes, from Penstock."""
    from accelerate.data_loader import BatchSamplerShard

    for rank in range(2):
        batches = torch.utils.data.BatchSampler(range(60), 8, False)
        plain = torch.utils.data.DataLoader(folder(photos), batch_sampler=BatchSamplerShard(batches, 2, rank))
        ours = DataLoader(folder(photos), batch_sampler=BatchSamplerShard(batches, 2, rank))
        assert labels_of(ours) == labels_of(plain) and ours.stats()["path"] == "native"


def test_a_share_of_ones_own_is_refused(photos, accelerator):
    with pytest.raises(penstock.SettingError, match="once more"):
        penstock.torch.prepare(accelerator, DataLoader(folder(photos), 8, rank=0, world=2))
