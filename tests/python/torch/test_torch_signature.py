# SPDX-License-Identifier: Apache-2.0
"""The arguments: torch's names, order and refusals; what libraries read from a loader and how they make it anew."""

import inspect

import pytest
import torch
import torch.utils.data
from dropin_tools import folder

import penstock
from penstock.torch import DataLoader

OURS = {"seed", "on_error", "cache", "memory", "disk", "remote", "engine", "device", "rank", "world", "native", "without"}


def test_every_argument_of_torch_has_its_place():
    theirs = list(inspect.signature(torch.utils.data.DataLoader.__init__).parameters.values())
    ours = list(inspect.signature(DataLoader.__init__).parameters.values())
    assert [(p.name, p.kind) for p in ours[: len(theirs)]][:14] == [(p.name, p.kind) for p in theirs][:14]
    kinds = {p.name: p.kind for p in ours}
    assert all(kinds[p.name] == p.kind for p in theirs)
    assert OURS <= kinds.keys()
    assert all(kinds[name] == inspect.Parameter.KEYWORD_ONLY for name in OURS)


def test_defaults_are_torchs():
    theirs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    ours = inspect.signature(DataLoader.__init__).parameters
    for name, parameter in theirs.items():
        if name != "prefetch_factor":  # 2 in old versions, None in new ones; both mean 2 with workers
            assert ours[name].default == parameter.default, name


def test_is_a_loader_of_torch_with_its_attributes(photos):
    dataset = folder(photos)
    loader = DataLoader(dataset, 7, True, num_workers=2, drop_last=True, persistent_workers=True, prefetch_factor=3)
    plain = torch.utils.data.DataLoader(dataset, 7, True, num_workers=2, drop_last=True)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.dataset is dataset and loader.batch_size == 7 and loader.drop_last and loader.num_workers == 2
    assert loader.prefetch_factor == 3 and loader.persistent_workers and loader.collate_fn is plain.collate_fn
    assert type(loader.sampler) is type(plain.sampler) and type(loader.batch_sampler) is type(plain.batch_sampler)
    assert len(loader) == len(plain) == 60 // 7
    with pytest.raises(ValueError):
        loader.batch_size = 3


REFUSED = [
    {"num_workers": -1},
    {"timeout": -1},
    {"num_workers": 0, "prefetch_factor": 4},
    {"persistent_workers": True},
    {"shuffle": True, "sampler": [0, 1]},
    {"batch_sampler": [[0]], "batch_size": 4},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"multiprocessing_context": "fork"},
    {"num_workers": 1, "multiprocessing_context": "no such"},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=str)
def test_refuses_what_torch_refuses(photos, arguments):
    dataset = folder(photos)
    with pytest.raises(Exception) as theirs:
        torch.utils.data.DataLoader(dataset, **arguments)
    with pytest.raises(type(theirs.value)) as ours:
        DataLoader(dataset, **arguments)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("arguments", [{"native": "yes"}, {"rank": 1}, {"rank": 2, "world": 2}], ids=str)
def test_refuses_its_own_arguments(photos, arguments):
    with pytest.raises(ValueError):
        DataLoader(folder(photos), **arguments)


def test_iterable_dataset_with_a_sampler_is_refused():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Stream(), shuffle=True)


def test_made_anew_from_its_attributes_with_another_sampler(photos):
    """Libraries read the signature and the attributes of the same name, and put in a sampler of their own."""
    loader = DataLoader(folder(photos), 6, num_workers=1, seed=3, native=True, memory=1 << 28)
    arguments = {
        name: getattr(loader, name)
        for name in inspect.signature(type(loader).__init__).parameters
        if name not in ("self", "shuffle", "batch_sampler") and hasattr(loader, name)
    }
    arguments["sampler"] = list(range(0, 60, 2))
    again = type(loader)(**arguments)
    assert type(again) is DataLoader and again.native is True and again.seed == 3 and again.memory == 1 << 28
    assert sum(len(y) for _, y in again) == 30


def test_amounts_of_memory_as_people_write_them(photos):
    loader = DataLoader(folder(photos), 8, memory="256M", cache="32M")
    assert (loader.memory, loader.cache) == (256 << 20, 32 << 20) and sum(1 for _ in loader) == 8
    for wrong in ({"memory": "lots"}, {"cache": "64X"}, {"on_error": "ignore"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DataLoader(folder(photos), 8, **wrong)


def test_tiers_outside_memory(photos, tmp_path):
    tier = f"{tmp_path / 'tier'}:64M"

    def epoch(**more):
        loader = DataLoader(folder(photos), 8, num_workers=2, seed=1, native=True, **more)
        return [images for images, _ in loader], loader.stats()

    plain, bare = epoch()
    cold, first = epoch(disk=tier)
    warm, second = epoch(disk=tier)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(plain, cold, warm, strict=True))
    assert bare["disk_hits"] == bare["disk_misses"] == 0 and first["disk_hits"] == 0
    assert second["disk_hits"] >= 60 and second["disk_misses"] == 0
    with pytest.raises(penstock.Error, match="DIR:BYTES"):
        next(iter(DataLoader(folder(photos), 8, disk="here")))
    with pytest.raises(penstock.Error, match="redis://"):
        next(iter(DataLoader(folder(photos), 8, remote="http://127.0.0.1:1")))
    with penstock.Engine(1) as engine:
        for mine in ({"disk": tier}, {"remote": "redis://127.0.0.1:1"}):
            with pytest.raises(penstock.SettingError, match="belong to the engine"):
                DataLoader(folder(photos), 8, engine=engine, **mine)


def test_a_batch_may_be_larger_than_the_dataset(photos):
    for size in (61, 10**7):
        assert [len(labels) for _, labels in DataLoader(folder(photos), size)] == [60]


def test_native_true_names_what_is_in_the_way(photos):
    loader = DataLoader([1, 2, 3], native=True)
    with pytest.raises(ValueError, match="builtins.list"):
        iter(loader)
