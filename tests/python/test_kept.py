# SPDX-License-Identifier: Apache-2.0
"""Batches kept without limit, the ring's memory, and images whose finish is left to a device."""

import numpy
import penstock
from conftest import CROP
import pytest
from penstock import _penstock


def test_a_list_of_a_thousand_batches(photos):
    def batches(loader):
        while True:
            yield from loader

    with penstock.Loader(photos, CROP, 4, seed=5) as plain, penstock.Loader(photos, CROP, 4, seed=5) as loader:
        kept = [batch for batch, _ in zip(batches(loader), range(1000))]
        assert loader.stats()["fresh_batches"] > 900
        for batch, other in zip(kept, batches(plain)):
            assert numpy.array_equal(batch["image"], other["image"])
            assert list(batch.ids) == list(other.ids)


def test_what_finish_does_is_told(photos):
    with penstock.Engine(1) as engine:
        data = penstock.Dataset(photos)
        text = CROP + " | normalize(imagenet)"
        raw = _penstock.Job(engine, data.raw, text, 4, seed=1, raw_finish=True, leases=2)
        done = _penstock.Job(engine, data.raw, text, 4, seed=1)
        told = raw.finishes()["image"]
        assert list(raw.finishes()) == ["image"] and done.finishes() == {}
        assert (told["dtype"], told["layout"], told["channels"]) == ("f32", "nchw", 3)
        a, b = raw.next(raw.begin(0)), done.next(done.begin(0))
        pixels = numpy.asarray(a.view("image"))
        assert pixels.dtype == numpy.uint8 and pixels.shape == (4, 16, 16, 3)
        scale, bias = (numpy.array(told[name][:3], numpy.float32) for name in ("scale", "bias"))
        wanted = pixels.astype(numpy.float32) * scale - bias
        assert numpy.array_equal(wanted.transpose(0, 3, 1, 2), numpy.asarray(b.view("image")))


def test_the_ring_is_listed(photos):
    with penstock.Engine(1) as engine:
        data = penstock.Dataset(photos)
        job = _penstock.Job(engine, data.raw, CROP, 4, seed=1)
        ring = job.memory()
        assert ring == job.memory() and len(ring) == 6
        turn = job.begin(0)
        for _ in range(10):
            batch = job.next(turn)
            assert any(base <= batch.address and batch.address + batch.nbytes <= base + size for base, size in ring)
            del batch
        ragged = _penstock.Job(engine, data.raw, "decode", 4)
        assert ragged.memory() == []


def test_decoded_samples_are_kept(photos):
    def epochs(loader):
        return [numpy.array(batch["image"]) for _ in range(3) for batch in loader]

    data = penstock.Dataset(photos)
    with penstock.Engine(2, 256 << 20, "auto") as engine, penstock.Engine(2, 256 << 20) as bare:
        assert engine.settings["cache"] > 100 << 20 and bare.settings["cache"] == 0
        cached = penstock.Loader(data, CROP, 8, seed=1, engine=engine)
        plain = penstock.Loader(data, CROP, 8, seed=1, engine=bare)
        for a, b in zip(epochs(cached), epochs(plain), strict=True):
            assert numpy.array_equal(a, b)
        stats = cached.stats()
        assert stats["cache_entries"] == 60 and stats["cache_hits"] > 100 and stats["cache_bytes"] > 0
        alone = _penstock.Job(engine, data.raw, CROP, 8, cache=False)
        assert alone.next(alone.begin(0)) is not None and alone.stats()["cache_hits"] == 0
    with pytest.raises(ValueError, match="auto"):
        penstock.Engine(1, 0, "some")
    assert _penstock.settings(cache=1 << 20)["cache"] == 1 << 20


def test_samples_are_kept_on_disk(photos, tmp_path):
    tier = f"{tmp_path / 'tier'}:64M"
    slow = CROP.replace("decode", "decode | delay(0.5)", 1)

    def epoch(**more):
        with penstock.Loader(photos, slow, 8, seed=1, epochs=1, **more) as loader:
            return [numpy.array(batch["image"]) for batch in loader], loader.stats(), loader.explain()

    plain, _, _ = epoch()
    cold, first, _ = epoch(disk=tier)
    warm, second, said = epoch(disk=tier)
    assert all(numpy.array_equal(a, b) and numpy.array_equal(a, c) for a, b, c in zip(plain, cold, warm, strict=True))
    assert first["disk_hits"] == 0 and second["disk_misses"] == 0 and second["disk_hits"] == 60
    assert "disk      60 entries" in said
    with penstock.Engine(1, disk=tier) as engine:
        assert engine.settings["disk"] == 64 << 20
        with pytest.raises(penstock.SettingError, match="disk"):
            penstock.Loader(photos, slow, 8, engine=engine, disk=tier)
    with pytest.raises(penstock.Error, match="DIR:BYTES"):
        penstock.Engine(1, disk="here")
