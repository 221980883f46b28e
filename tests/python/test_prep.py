# SPDX-License-Identifier: Apache-2.0
"""Prep: single samples on the calling thread, in the parent and in forked workers."""

import os
import threading

import penstock
import pytest
from conftest import CROP
from penstock._batch import as_array
from penstock._penstock import Prep
from test_process import forks, in_child


def image_of(batch):
    return as_array(batch.view("image"))[0]


def test_bytes_and_paths_give_what_a_loader_gives(photos):
    loader = penstock.Loader(photos, CROP, 8, seed=9)
    prep = Prep(CROP, 9)
    for epoch in range(2):
        for batch in loader:
            for image, id, key in zip(batch.image, batch.ids.tolist(), batch.keys):
                data = memoryview(loader.dataset.read(id, "image"))
                assert (image_of(prep.run(data, epoch, id)) == image).all()
                assert (image_of(prep.run(photos / key, epoch, id=id, occurrence=0)) == image).all()
    other = prep.run(os.fspath(photos / key), epoch, id, 1)
    assert other.texts("key") == [os.fspath(photos / key)] and other.slot_count == 1
    assert (image_of(other) != image).any()


def test_a_view_keeps_the_sample_alive(photos):
    prep = Prep("decode | resize(8)", 0)
    first = image_of(prep.run(photos / "ant" / "000.jpg"))
    then = first.copy()
    for _ in range(50):
        prep.run(photos / "bee" / "001.jpg")
    del prep
    assert (first == then).all()


def test_errors_name_the_sample(photos):
    prep = Prep(CROP)
    with pytest.raises(penstock.DataError) as caught:
        prep.run(b"not a picture", 0, 7)
    assert (caught.value.id, caught.value.stage) == (7, "decode")
    with pytest.raises(penstock.DataError) as caught:
        prep.run("/nowhere/at/all.jpg")
    assert caught.value.key == "/nowhere/at/all.jpg"
    with pytest.raises(penstock.PipelineError):
        Prep("decode | nonsense")
    with pytest.raises(TypeError):
        prep.run(3)


@forks
def test_it_works_in_a_forked_worker_while_a_loader_runs(photos):
    loader = penstock.Loader(photos, CROP, 4)
    turn = iter(loader)
    path = photos / "cat" / "003.jpg"
    want = image_of(Prep(CROP, 3).run(path, 1, 2)).copy()

    def check():
        return 0 if (image_of(Prep(CROP, 3).run(path, 1, 2)) == want).all() else 1

    for _ in range(5):
        next(turn)
        assert in_child(check) == 0


def test_two_threads_never_use_one_prep_at_once(photos):
    prep = Prep(CROP)
    path = photos / "ant" / "000.jpg"
    want = image_of(prep.run(path)).copy()
    refused, wrong = [], []

    def work():
        for _ in range(300):
            try:
                if (image_of(prep.run(path)) != want).any():
                    wrong.append(1)
            except RuntimeError as error:
                refused.append(str(error))

    crew = [threading.Thread(target=work) for _ in range(3)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert not wrong and all("another thread" in text for text in refused)
