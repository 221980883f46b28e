# SPDX-License-Identifier: Apache-2.0
"""The Python package over a served engine: batches that are kept, forks, what cannot be served."""
import os
import signal

import numpy
import pytest

penstock = pytest.importorskip("penstock")
PIPELINE = "decode | random_resized_crop(32) | hflip"


def epochs(loader, count):
    return [batch for _ in range(count) for batch in loader]


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_a_thousand_batches_held(serve, photos, order):
    """list(loader): first the ring, then segments up to the cap, then copies; every one keeps its bytes."""
    daemon = serve("--client-cap", "1M")
    with penstock.Loader(photos, PIPELINE, batch_size=4, engine=daemon.address, order=order) as loader:
        held = epochs(loader, 42)
    with penstock.Loader(photos, PIPELINE, batch_size=4, order=order) as loader:
        here = epochs(loader, 42)
    assert len(held) == len(here) == 1008
    if order == "strict":
        for a, b in zip(held, here):
            assert numpy.array_equal(a.image, b.image) and numpy.array_equal(a.label, b.label)
    for e in range(42):
        ids = numpy.concatenate([batch.ids for batch in held[24 * e:24 * (e + 1)]])
        assert sorted(ids) == list(range(96))
    assert daemon.get("/v1/engine")["peak_bytes"] <= 256 << 20


def test_held_batches_outlive_daemon_and_loader(serve, photos):
    daemon = serve()
    loader = penstock.Loader(photos, PIPELINE, batch_size=8, engine=daemon.address)
    held = epochs(loader, 2)
    copies = [batch.image.copy() for batch in held]
    daemon.kill()
    more = epochs(loader, 1)
    loader.close()
    assert all(numpy.array_equal(batch.image, copy) for batch, copy in zip(held, copies))
    assert len(more) == 12


def test_held_batches_outlive_a_closed_loader(serve, photos):
    """Nothing is prepared into a batch that its job still holds when it ends, however busy the workers are."""
    daemon = serve()
    held = []
    for _ in range(20):
        with penstock.Loader(photos, PIPELINE, batch_size=2, engine=daemon.address) as loader:
            batches = [batch for _, batch in zip(range(6), loader)]
            held += [(batch, batch.image.copy()) for batch in batches]
    daemon.until(lambda jobs: not jobs)
    assert all(numpy.array_equal(batch.image, copy) for batch, copy in held)


def test_child_does_not_hide_the_end_of_its_parent(serve, photos):
    """A forked child has the descriptors of its parent, and must not keep the job alive."""
    daemon = serve()
    reader, writer = os.pipe()  # the grandchild waits for this end to be closed
    middle = os.fork()
    if middle == 0:
        try:
            os.close(writer)
            loader = penstock.Loader(photos, PIPELINE, batch_size=8, engine=daemon.address)
            next(iter(loader))
            if os.fork() == 0:
                os.read(reader, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(middle, 0)[1] == signal.SIGKILL
    took = daemon.until(lambda jobs: not jobs)
    os.close(writer)
    os.close(reader)
    assert took < 5


def test_functions_stay_in_this_process(serve, photos, capfd):
    daemon = serve()

    def invert(image):
        return 255 - image

    pipeline = penstock.Pipeline("decode | center_crop(32)") | penstock.python(invert)
    with penstock.Loader(photos, pipeline, batch_size=8, engine=daemon.address) as loader:
        assert loader.engine.settings["served"] is True
        images = [batch.image for batch in loader]
    assert len(images) == 12 and "calls functions of this process" in capfd.readouterr().err
