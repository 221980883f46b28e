# SPDX-License-Identifier: Apache-2.0
"""Loaders in reference cycles with what they read and call, as when an object keeps its own loader: they are collected."""

import gc
import weakref

import penstock
import pytest
from conftest import CROP
from penstock import ops
from test_custom import Files
from test_loader import COUNT, ids_of
from test_process import ended, threads


class Reads(Files):
    """Has the loader that it reads for."""

    def start(self, photos):
        self.loader = penstock.Loader(self, CROP, 4)


class Augments:
    """Has the loader whose pipeline calls it."""

    def start(self, photos):
        self.loader = penstock.Loader(photos, ops.decode() | penstock.python(self.augment), 4)

    def augment(self, picture):
        return picture


class Fails(Files):
    """What it raised is kept for the loader's error, with frames that hold the loader."""

    def start(self, photos):
        loader = penstock.Loader(self, CROP, 4)
        with pytest.raises(penstock.DataError):
            loader.dataset.read(3, "image")
        self.turn = iter(loader)

    def read(self, i):
        if i == 3:
            raise KeyError("no such row")
        return super().read(i)


def make(kind, photos):
    return kind(photos) if issubclass(kind, Files) else kind()


@pytest.mark.parametrize("kind", [Reads, Augments, Fails])
@pytest.mark.parametrize("begun", [True, False])
def test_an_object_with_its_own_loader_goes(photos, kind, begun):
    gc.collect()
    before = threads()
    owner = make(kind, photos)
    owner.start(photos)
    if begun and kind is not Fails:
        next(iter(owner.loader))
    assert threads() > before
    gone = weakref.ref(owner)
    del owner
    # A call under way keeps it: then the next collection has it.
    assert ended(lambda: gc.collect() >= 0 and gone() is None)
    assert ended(lambda: threads() <= before)


def test_a_dataset_alone_goes(photos):
    source = Files(photos)
    source.dataset = penstock.Dataset(source)
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


def test_one_that_is_in_use_stays(photos):
    owner = Reads(photos)
    owner.start(photos)
    loader = owner.loader
    del owner
    turn = iter(loader)
    seen = next(turn).ids.tolist()
    gc.collect()
    assert sorted(seen + [i for batch in turn for i in batch.ids.tolist()]) == list(range(COUNT))


def test_collecting_again_and_again_beside_running_loaders(photos):
    loaders = [penstock.Loader(Files(photos), ops.decode() | penstock.python(lambda p: p), 4) for _ in range(2)]
    turns = [iter(loader) for loader in loaders]
    got = [[], []]
    for _ in range(COUNT // 4):
        for turn, ids in zip(turns, got):
            ids += next(turn).ids.tolist()
        owner = Augments()
        owner.start(photos)
        del owner
        gc.collect()
    assert [sorted(ids) for ids in got] == [list(range(COUNT))] * 2
    assert len(ids_of(loaders[0])) == COUNT


def test_nothing_is_called_on_an_object_that_is_taken_apart(photos):
    failed = []

    class Looks(Reads):
        def start(self, photos):
            self.loader = penstock.Loader(self, CROP, 1, shuffle=False, workers=1)

        def read(self, i):
            try:
                return super().read(i)
            except AttributeError as error:
                failed.append(str(error))
                raise

    for _ in range(30):
        owner = Looks(photos)
        owner.start(photos)
        gone = weakref.ref(owner)
        del owner
        while gone() is not None:
            gc.collect()
    assert not failed
