# SPDX-License-Identifier: Apache-2.0
"""A dataset from a list of files: the same batches as from the folder, and files that are first seen when they are read."""

import os

import numpy
import pytest
from conftest import CROP

from penstock import _penstock


def listing(root) -> list[str]:
    return sorted(str(path) for path in root.glob("*/*.jpg"))


def batches(dataset, engine, epochs=1, **options):
    job = _penstock.Job(engine, dataset, CROP, 8, epochs=epochs, fields="image,label", **options)
    got = []
    for _ in range(epochs):
        turn = job.begin(None)
        while (batch := job.next(turn)) is not None:
            got.append((numpy.asarray(batch.view("image")).copy(), numpy.asarray(batch.view("label")).copy()))
    return job, got


def test_equals_the_folder(photos):
    paths = listing(photos)
    names = sorted({os.path.basename(os.path.dirname(path)) for path in paths})
    labels = [names.index(os.path.basename(os.path.dirname(path))) for path in paths]
    files = _penstock.files(iter(paths), labels, names, photos)
    tree = _penstock.Dataset(photos)
    assert files.kind == "files" and len(files) == len(tree) == 60
    assert files.classes == tree.classes and numpy.array_equal(files.labels, tree.labels)
    assert [files.sample(i)[:3] for i in range(60)] == [tree.sample(i)[:3] for i in range(60)]
    assert files.read(7, "image") == tree.read(7, "image")
    engine = _penstock.Engine(2)
    for order in ("strict", "ready"):
        _, ours = batches(files, engine, epochs=2, seed=3, order=order)
        _, theirs = batches(tree, engine, epochs=2, seed=3, order=order)
        if order == "strict":
            assert all(numpy.array_equal(a, c) and numpy.array_equal(b, d) for (a, b), (c, d) in zip(ours, theirs))
        assert sorted(numpy.concatenate([y for _, y in ours])) == sorted(numpy.concatenate([y for _, y in theirs]))


def test_decoded_samples_are_kept(photos):
    paths = listing(photos)
    engine = _penstock.Engine(2, cache="auto")
    files = _penstock.files(paths, [0] * 60)
    first, got = batches(files, engine, sampler="sequential")
    # A job of its own: a second epoch of the first begins while the last samples of the one before are still being decoded.
    second, _ = batches(files, engine, sampler="sequential")
    assert first.stats()["cache_misses"] == 60 and second.stats()["cache_hits"] == 60
    # Another list with the same files finds them, although it has not looked at them.
    other, again = batches(_penstock.files(paths, [0] * 60), engine, sampler="sequential")
    assert other.stats()["cache_hits"] == 60
    assert all(numpy.array_equal(a[0], b[0]) for a, b in zip(got, again))


def test_a_missing_file_is_a_bad_sample_when_its_turn_comes(own_photos):
    paths = listing(own_photos)
    os.unlink(paths[9])
    files = _penstock.files(paths, range(15))
    engine = _penstock.Engine(1)
    job = _penstock.Job(engine, files, CROP, 8, sampler="sequential", epochs=1)
    turn = job.begin(None)
    assert job.next(turn).slot_count == 8
    with pytest.raises(_penstock.DataError) as caught:
        job.next(turn)
    assert caught.value.id == 9 and caught.value.stage == "read" and "No such file" in str(caught.value)
    _, got = batches(files, engine, sampler="sequential", on_error="skip", skip=1)
    assert numpy.concatenate([y for _, y in got]).tolist() == [*range(9), *range(10, 15)]


def test_a_state_fits_the_same_list_only(photos):
    paths = listing(photos)
    engine = _penstock.Engine(1)
    job = _penstock.Job(engine, _penstock.files(paths, [1] * 60), CROP, 8, epochs=1)
    job.next(job.begin(None))
    state = job.state()
    _penstock.Job(engine, _penstock.files(paths, [1] * 60), CROP, 8, epochs=1).load_state(state)
    for other in (_penstock.files(paths[::-1], [1] * 60), _penstock.files(paths, [1] * 59 + [2])):
        with pytest.raises(_penstock.StateError):
            _penstock.Job(engine, other, CROP, 8, epochs=1).load_state(state)


def test_what_is_refused(photos):
    with pytest.raises(ValueError, match="2 labels for 1 paths"):
        _penstock.files(["a.jpg"], [0, 1])
    with pytest.raises(TypeError, match="label"):
        _penstock.files(["a.jpg"], [True])
    with pytest.raises(TypeError):
        _penstock.files([3])
    with pytest.raises(_penstock.Error, match="empty"):
        _penstock.files([])
    with pytest.raises(_penstock.Error, match="UTF-8"):
        _penstock.files([os.fsdecode(b"\xff.jpg")])
    with pytest.raises(ValueError, match="null"):
        _penstock.files(["a\0.jpg"])
    with pytest.raises(OverflowError):
        _penstock.files(["a.jpg"], [1 << 80])


def test_next_gives_up_after_a_while(photos):
    """The reading function waits until it is told to go on, so no batch can come."""
    import threading

    go = threading.Event()

    class Slow:
        def __len__(self):
            return 4

        def read(self, index):
            go.wait()
            return open(listing(photos)[index], "rb").read(), 0

    import penstock

    loader = penstock.Loader(Slow(), CROP, 2, workers=1, shuffle=False)
    job = loader._job
    turn = job.begin(None)
    try:
        with pytest.raises(TimeoutError):
            job.next(turn, 0.05)
        with pytest.raises(TimeoutError):
            job.next(turn, 0.25)
    finally:
        go.set()
    assert job.next(turn, 60).slot_count == 2
