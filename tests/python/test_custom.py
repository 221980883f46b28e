# SPDX-License-Identifier: Apache-2.0
"""Datasets that a Python object reads for: same batches as files, fields, errors, threads, ends."""

import gc
import hashlib
import io
import os
import pathlib
import struct
import subprocess
import sys
import threading
import time

import numpy
import penstock
import pytest
from conftest import CROP
from test_loader import COUNT, ids_of
from test_process import forks, in_child, threads


class Files:
    """The photos through Python: (bytes, label)."""

    def __init__(self, photos):
        self.paths = sorted(photos.glob("*/*.jpg"))
        self.classes = sorted({path.parent.name for path in self.paths})
        self.calls = 0

    def __len__(self):
        return len(self.paths)

    def read(self, i):
        self.calls += 1
        path = self.paths[i]
        return path.read_bytes(), self.classes.index(path.parent.name)


def everything(loader):
    return [(b.ids.tolist(), b.label.tolist(), numpy.asarray(b.image).tobytes()) for b in loader]


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_batches_are_those_of_files(photos, order):
    mine, files = (penstock.Loader(data, CROP, 8, seed=4, order=order) for data in (Files(photos), photos))
    for _ in range(2):
        got, want = everything(mine), everything(files)
        if order == "strict":
            assert got == want
        else:
            assert sorted(i for ids, _, _ in got for i in ids) == list(range(COUNT))
    assert mine.dataset.kind == "custom" and mine.dataset.path == "Files"


def test_what_read_may_give(photos):
    files = Files(photos)
    whole = files.read(7)[0]

    class Answers:
        labels = list(range(6))

        def __len__(self):
            return 6

        def key(self, i):
            return f"zip://{i}"

        def read(self, i):
            return (whole, bytearray(whole), (memoryview(whole), 50), (whole, None), {"image": whole, "label": 9}, whole)[i]

    batch = next(iter(penstock.Loader(Answers(), "decode | resize(8)", 6, shuffle=False)))
    assert batch.label.tolist() == [0, 1, 50, 3, 9, 5] and list(batch.keys) == [f"zip://{i}" for i in range(6)]


def test_fields_come_with_the_samples(photos):
    whole = Files(photos).read(7)[0]

    class Rich:
        fields = {"caption": "text", "score": "f32", "box": ("f64", 2), "blob": "bytes", "odd": ("i64", -1)}

        def __len__(self):
            return 6

        def read(self, i):
            box = numpy.array([i, -i], "f8")
            return whole, {"caption": f"Größe {i}", "score": i / 2, "box": box, "blob": b"x" * i, "odd": numpy.arange(i)}

    data = penstock.Dataset(Rich())
    fields = ["image", "label", *Rich.fields]
    batch = next(iter(penstock.Loader(data, "decode | resize(8)", 2, sampler=[4, 5], fields=fields)))
    assert batch.raw.texts("caption") == ["Größe 4", "Größe 5"]
    assert batch["score"].tolist() == [2.0, 2.5] and batch["score"].dtype == numpy.float32
    assert batch["box"].tolist() == [[4, -4], [5, -5]]
    assert [bytes(blob) for blob in batch.raw.slots("blob")] == [b"xxxx", b"xxxxx"]
    assert [memoryview(odd).tolist() for odd in batch.raw.slots("odd")] == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert batch["label"].tolist() == [-1, -1]
    assert data.read(4, "caption") == "Größe 4".encode()


def broken(photos, exc, times=10**9):
    class Broken(Files):
        left = times

        def read(self, i):
            if i == 13 and self.left > 0:
                self.left -= 1
                raise exc
            return super().read(i)

    return Broken(photos)


def test_an_exception_is_the_samples_error_and_its_cause(photos):
    original = KeyError("no such row")
    loader = penstock.Loader(broken(photos, original), CROP, 4)
    with pytest.raises(penstock.DataError) as caught:
        ids_of(loader)
    error = caught.value
    assert (error.id, error.stage, error.key, error.code) == (13, "read", "13", penstock.CODES["ECALL"])
    assert "KeyError: 'no such row'" in str(error) and f"{os.path.basename(__file__)}:" in str(error)
    assert error.__cause__ is original and original.__traceback__ is not None
    with pytest.raises(penstock.DataError) as caught:
        loader.dataset.read(13, "image")
    assert caught.value.__cause__ is original


def test_policies_hold_for_exceptions(photos):
    skipping = penstock.Loader(broken(photos, ValueError("bad")), CROP, 4, on_error="skip:1", epochs=1)
    assert sorted(ids_of(skipping)) == [i for i in range(COUNT) if i != 13]
    assert [error.id for error in skipping.engine.bad()] == [13]
    # One epoch: the next one's read of the same sample would take its share of the failures.
    retrying = {"on_error": "retry:2", "epochs": 1}
    assert len(ids_of(penstock.Loader(broken(photos, TimeoutError(), 2), CROP, 4, **retrying))) == COUNT
    with pytest.raises(penstock.Error):
        ids_of(penstock.Loader(broken(photos, TimeoutError(), 3), CROP, 4, **retrying))


@pytest.mark.parametrize("answer, text", [
    (3, "takes bytes"), ((b"", "cat"), "whole number"), ((b"", {"color": 1}), "not declared"), ((1, 2, 3), "must give"),
    ((b"", 1 << 70), "OverflowError"), (None, "no field image")])
def test_wrong_answers_are_told(answer, text):
    class Wrong:
        def __len__(self):
            return 3

        def read(self, i):
            return answer

    with pytest.raises(penstock.Error, match=text):
        ids_of(penstock.Loader(Wrong(), CROP, 2))


class Scans:
    """Volumes and their masks as bytes of .npy files."""

    fields = {"image": "volume", "mask": "mask"}

    def __init__(self, count=5):
        draw = numpy.random.default_rng(1)
        self.scans = [draw.normal(size=(9 + i, 8, 10)).astype("f4") for i in range(count)]
        self.masks = [(scan > 1).astype("u1") for scan in self.scans]

    def __len__(self):
        return len(self.scans)

    def read(self, i):
        return npy(self.scans[i]), {"mask": npy(self.masks[i])}


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def test_volumes_come_with_their_masks():
    scans = Scans()
    loader = penstock.Loader(scans, "decode", 1, shuffle=False, fields="image,mask")
    for i, batch in enumerate(loader):
        numpy.testing.assert_array_equal(batch.image[0], scans.scans[i][None])
        numpy.testing.assert_array_equal(batch.mask[0], scans.masks[i][None])
    assert i == len(scans) - 1
    for image, mask in penstock.Loader(scans, "decode | balanced_crop(6) | random_flip", 2, fields="image,mask"):
        assert image.shape[1:] == mask.shape[1:] == (1, 6, 6, 6)
        assert set(numpy.unique(mask)) <= {0, 1}


def scanned(array, spacing):
    """A NIfTI file of two-byte numbers."""
    head = bytearray(352)
    struct.pack_into("<i8h", head, 0, 348, *[0] * 8)
    struct.pack_into("<4h", head, 40, 3, *array.shape)
    struct.pack_into("<2h", head, 70, 4, 16)
    struct.pack_into("<4f", head, 76, 1, spacing, spacing, spacing)
    struct.pack_into("<f", head, 108, 352)
    head[344:348] = b"n+1\0"
    return bytes(head) + array.astype("<i2").tobytes("F")


class Pairs:
    """Two volumes of two-byte numbers a sample."""

    def __init__(self, *order):
        draw = numpy.random.default_rng(2)
        self.order, self.fields = order, {name: "volume" for name in order}
        self.made = [{"image": draw.integers(-900, 900, (10, 9, 8)), "late": draw.integers(-900, 900, (10, 9, 8))} for _ in range(3)]

    def __len__(self):
        return len(self.made)

    def read(self, i):
        files = [scanned(self.made[i][name], 2.0) for name in self.order]
        return files[0], dict(zip(self.order[1:], files[1:]))


def test_two_volumes_of_a_sample_are_each_made_of_their_own_numbers():
    pipeline = "decode | spacing(1.5) | cast(f32)"
    both = [b for b in penstock.Loader(Pairs("image", "late"), pipeline, 1, shuffle=False, fields="image,late")]
    for at, name in enumerate(("image", "late")):
        alone = [b for b in penstock.Loader(Pairs(name), pipeline, 1, shuffle=False, fields=name)]
        for mine, ours in zip(alone, both):
            numpy.testing.assert_array_equal(mine[0][0], ours[at][0])
            assert mine[0][0].dtype == numpy.float32 and mine[0][0].shape == (1, 13, 12, 10)


def test_wrong_declarations_are_told(photos):
    with pytest.raises(penstock.SettingError, match="float99"):
        penstock.Dataset(Files(photos), fields={"x": "float99"})
    with pytest.raises(ValueError, match="one int64"):
        penstock.Dataset(Files(photos), labels=[1, 2])
    with pytest.raises(penstock.SettingError, match="len"):
        penstock.Dataset(photos, name="x")

    def nameless(i):
        raise LookupError("nameless")

    with pytest.raises(LookupError):
        penstock.Dataset(Files(photos), key=nameless)


def test_state_is_bound_to_name_and_revision(photos):
    def loader(**options):
        return penstock.Loader(penstock.Dataset(Files(photos), **options), CROP, 4, seed=2)

    first = loader(revision="a")
    turn = iter(first)
    seen = [next(turn).ids.tolist() for _ in range(3)]
    state = first.state_dict()
    again = loader(revision="a")
    again.load_state_dict(state)
    assert sorted(sum(seen, []) + ids_of(again)) == list(range(COUNT))
    with pytest.raises(penstock.StateError):
        loader(revision="b").load_state_dict(state)


def test_reads_run_at_once_on_threads_that_stay(photos):
    barrier = threading.Barrier(3, timeout=20)
    local = threading.local()
    seen = set()

    class Together(Files):
        def read(self, i):
            if not hasattr(local, "mine"):
                local.mine = object()
                seen.add(threading.get_ident())
                barrier.wait()
            return super().read(i)

    assert len(ids_of(penstock.Loader(penstock.Dataset(Together(photos), threads=3), CROP, 4))) == COUNT
    assert len(seen) == 3


def test_nothing_is_left_behind(photos):
    gc.collect()
    before = threads()
    source = Files(photos)
    references = sys.getrefcount(source)
    for _ in range(10):
        loader = penstock.Loader(source, CROP, 8)
        next(iter(loader))
        del loader
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before and sys.getrefcount(source) == references


def test_bytes_are_not_kept(photos):
    """What was lent to the engine comes back: few of the buffers live at any time."""
    alive = [0, 0]

    class Blob(bytearray):
        def __init__(self, data):
            super().__init__(data)
            alive[0] += 1
            alive[1] = max(alive)

        def __del__(self):
            alive[0] -= 1

    class Counting(Files):
        def read(self, i):
            data, label = super().read(i)
            return Blob(data), label

    loader = penstock.Loader(Counting(photos), CROP, 4, workers=1, epochs=4, ready_depth=1)
    for _ in range(4):
        ids_of(loader)
    loader.close()
    del loader
    gc.collect()
    assert alive[0] == 0 and alive[1] < 4 * COUNT


def test_a_loader_dropped_inside_a_read_does_not_hang(photos):
    """A garbage collection on a reading thread may take the loader that the thread reads for."""
    holder = {}

    class Dropping(Files):
        def read(self, i):
            if i == 20:
                holder["go"].wait(10)
                holder.clear()
            return super().read(i)

    before = threads()  # more than there will be, if threads of an earlier test are still ending
    holder["go"] = threading.Event()
    holder["loader"] = penstock.Loader(Dropping(photos), CROP, 4, shuffle=False, workers=1)
    go = holder["go"]
    next(iter(holder["loader"]))
    go.set()
    deadline = time.monotonic() + 20
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before and not holder


def test_closing_inside_a_read_is_refused(photos):
    holder = {}

    class Closing(Files):
        def read(self, i):
            holder["loader"].close()

    ready = threading.Event()

    class Waiting(Closing):
        def read(self, i):
            ready.wait(10)
            return super().read(i)

    holder["loader"] = penstock.Loader(Waiting(photos), CROP, 4)
    ready.set()
    with pytest.raises(penstock.Error, match="within its own read"):
        next(iter(holder["loader"]))
    holder.pop("loader").close()


@forks
def test_a_forked_child_reads_with_a_dataset_of_its_own(photos):
    source = Files(photos)
    loader = penstock.Loader(source, CROP, 4)
    turn = iter(loader)
    for _ in range(3):
        next(turn)
        assert in_child(lambda: sorted(ids_of(penstock.Loader(source, CROP, 4))) != list(range(COUNT))) == 0
    assert len(list(turn)) == COUNT // 4 - 3


SCRIPT = """
import sys, threading, time
import penstock
class Slow:
    def __len__(self): return 1000
    def read(self, i):
        time.sleep(0.001)
        return open(sys.argv[1], "rb").read(), i
loader = penstock.Loader(Slow(), "decode | resize(8)", 4, workers=2)
turn = iter(loader)
next(turn)
MODE
"""


@pytest.mark.parametrize("mode", [
    "pass", "sys.exit(0)", "del loader", "penstock.kept = loader",
    "import os; pid = os.fork(); os.waitpid(pid, 0) if pid else None",
    "threading.Thread(target=lambda: [None for _ in turn], daemon=True).start(); time.sleep(0.05)"])
def test_the_interpreter_ends_in_mid_epoch(photos, mode):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    script = SCRIPT.replace("MODE", mode)
    done = subprocess.run([sys.executable, "-c", script, str(photos / "ant" / "000.jpg")], env=env, timeout=60,
                          capture_output=True, text=True)
    # A thread that is still in its loop may be told that the loader is gone, and may not get to the end of saying so.
    told = done.stderr == "" or (done.stderr.startswith("Exception in thread") and "Fatal" not in done.stderr)
    assert done.returncode == 0 and told, done.stderr


def test_it_needs_no_path(photos):
    assert isinstance(pathlib.Path(photos), os.PathLike)  # a path has no len() and is not taken for a reader
    assert penstock.Dataset(photos).kind == "folder"


def test_cached_samples_are_not_read_again(photos):
    class Counted:
        def __init__(self):
            self.paths = sorted(photos.rglob("*.jpg"))
            self.reads = 0

        def __len__(self):
            return len(self.paths)

        def read(self, i):
            self.reads += 1
            return self.paths[i].read_bytes(), i * 3

    source = Counted()
    loader = penstock.Loader(source, "decode | random_resized_crop(16)", 8, memory="256M", cache="32M", seed=2)
    epochs = [{int(i): int(y) for batch in loader for i, y in zip(batch.ids, batch.label)} for _ in range(3)]
    assert epochs == [{i: i * 3 for i in range(len(source))}] * 3
    assert source.reads <= 2 * len(source) and loader.stats()["cache_hits"] >= len(source)


class Slow(Files):
    """Reading is what everybody waits for."""

    def read(self, i):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1000)  # half a millisecond, without the interpreter's lock
        return super().read(i)


def test_jobs_share_a_slow_source_evenly(photos):
    """In deliveries: of four equal jobs, the one that got most has at most 1.25 times what the one that got least has."""
    data = penstock.Dataset(Slow(photos), name="slow", threads=1)
    taken, enough = [0] * 4, threading.Event()

    def job(k):
        with penstock.Loader(data, CROP, 8, engine=engine, seed=k, order="ready") as loader:
            while not enough.is_set():
                for batch in loader:
                    taken[k] += len(batch)
                    if sum(taken) >= 1200:
                        enough.set()
                    if enough.is_set():
                        break

    with penstock.Engine(workers=2, memory=256 << 20) as engine:
        jobs = [threading.Thread(target=job, args=(k,)) for k in range(4)]
        for thread in jobs:
            thread.start()
        for thread in jobs:
            thread.join()
    assert max(taken) <= 1.25 * min(taken), taken
