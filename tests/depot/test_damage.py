# SPDX-License-Identifier: Apache-2.0
"""A pulled file in which a bit flipped, that was cut off or is gone: found when it is read, fetched again, never served."""
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rigs"))
np = pytest.importorskip("numpy")

DAMAGES = int(os.environ.get("PENSTOCK_DAMAGES", "6"))
SEED = int(os.environ.get("PENSTOCK_SEED", "5"))
BLOCK = 16384
CROP = "decode | random_resized_crop(32) | hflip"
PIPELINES = {"shards": CROP, "plain": CROP, "arrays": "decode | balanced_crop(16)", "volumes": "decode | center_crop3(16)"}


@pytest.fixture(scope="module")
def binary():
    path = os.environ.get("PENSTOCK")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("PENSTOCK must name the penstock binary", returncode=3)
    return path


def write_shards(photos, folder):
    """Three shards of 16 photos with their classes; one shard has long names, whose bytes no tar header's checksum covers."""
    folder.mkdir()
    files = sorted(photos.rglob("*.jpg"))
    for shard in range(3):
        with tarfile.open(folder / f"{shard}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            for i, path in enumerate(files[shard::3]):
                stem = f"{shard}-{i:03}" + ("-" + "n" * 120 if shard == 1 else "")
                for ext, content in (("jpg", path.read_bytes()), ("cls", b"%d" % (i % 4))):
                    info = tarfile.TarInfo(f"{stem}.{ext}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def write_arrays(folder):
    folder.mkdir()
    rng = np.random.default_rng(SEED)
    for i in range(4):
        np.save(folder / f"case_{i:05}_x.npy", rng.integers(0, 255, (1, 40, 72, 80)).astype(np.float32))
        np.save(folder / f"case_{i:05}_y.npy", (rng.random((1, 40, 72, 80)) < 0.001).astype(np.uint8))


@pytest.fixture(scope="module")
def buckets(binary, tmp_path_factory):
    root = tmp_path_factory.mktemp("buckets")
    subprocess.run([binary, "synth", "images", str(root / "plain"), "--count", "48", "--classes", "4", "--seed", "5"], check=True,
                   stdout=subprocess.DEVNULL)
    write_shards(root / "plain", root / "shards")
    write_arrays(root / "arrays")
    shutil.copytree(root / "arrays", root / "volumes")
    return root


class Depot:
    """One dataset, pulled; what it delivers when nothing is wrong is known."""

    def __init__(self, binary, root, kind, url, more=None):
        self.binary, self.root, self.kind = binary, root, kind
        self.env = {**os.environ, **(more or {}), "PENSTOCK_DATASETS": str(root / "depot"), "XDG_CACHE_HOME": str(root / "cache")}
        self.data = Path(json.loads(self.run("pull", kind, url, "--json").stdout)["path"])
        self.wanted, said = self.feed()
        assert "fetched again" not in said and self.wanted

    def run(self, *args, check=True, **more):
        done = subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, timeout=120, env={**self.env, **more})
        assert not check or done.returncode == 0, done.stderr
        return done

    def feed(self, *args, data=None, **more):
        """{key: crc of what was delivered}, and what was said."""
        ledger = self.root / "ledger"
        done = self.run("feed", data or f"penstock://{self.kind}", "--pipeline", PIPELINES[self.kind], "--batch", 4, "--seed", 3, "--ledger", ledger,
                        "--json", *args, **more)
        rows = [line.split("\t") for line in ledger.read_text().splitlines() if not line.startswith("#")]
        return {row[5]: row[6] for row in rows}, done.stderr

    def forget_listing(self):
        shutil.rmtree(self.root / "cache", ignore_errors=True)


@pytest.fixture
def depot(binary, buckets, tmp_path):
    return lambda kind: Depot(binary, tmp_path, kind, buckets / kind)


def flip(path, at, bit=0):
    """As a disk does it: nothing but the bit changes, not even the time."""
    before = path.stat()
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.chmod(path, 0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path, size):
    os.chmod(path, 0o644)
    os.truncate(path, size)


def members(path):
    """(where the header is, where the bytes are, where the next header is) of each; and where the archive's last blocks begin."""
    with tarfile.open(path) as tar:
        return [(m.offset, m.offset_data, m.offset_data + (m.size + 511) // 512 * 512) for m in tar.getmembers()]


def place_in_the_middle(rng, path):
    """A byte of a voxel that lies in the crop."""
    array = np.load(path, mmap_mode="r")
    z, y, x = (size // 2 + rng.randrange(-7, 7) for size in array.shape[1:])
    voxel = (z * array.shape[2] + y) * array.shape[3] + x
    return array.offset + voxel * array.itemsize + rng.randrange(array.itemsize)


def damage(rng, depot, number):
    """Something happens to one file. What happened, and whether reading everything must find it."""
    files = sorted(p for p in depot.data.rglob("*") if p.is_file())
    path = rng.choice(files)
    size = path.stat().st_size
    kind = ["flip", "flip", "header", "padding", "flip", "delete", "cut"][number % 7]
    if kind == "delete":
        path.unlink()
        return path, "deleted", True
    if kind == "cut":
        to = rng.randrange(size)
        cut(path, to)
        return path, f"cut to {to}", True
    found = depot.kind in ("plain", "shards")  # of arrays parts alone are read
    at = rng.randrange(size)
    if depot.kind == "volumes" and kind == "flip":
        at, found = place_in_the_middle(rng, path), True
    if depot.kind == "shards":
        header, data, end = rng.choice(members(path))
        at = {"header": rng.randrange(header, data), "padding": rng.randrange(max(data, end - 40), end)}.get(kind, at)
        found = at // BLOCK <= members(path)[-1][2] // BLOCK and at < members(path)[-1][2]
    bit = rng.randrange(8)
    flip(path, at, bit)
    return path, f"{kind} of bit {bit} at {at}", found


@pytest.mark.parametrize("kind", sorted(PIPELINES))
def test_damage_is_found_fetched_again_and_never_served(depot, buckets, kind):
    rng = random.Random(f"{SEED} {kind}")
    print("seed", SEED)
    home = depot(kind)
    found = 0
    for number in range(DAMAGES):
        path, what, must = damage(rng, home, number)
        if rng.random() < 0.4:
            home.forget_listing()  # then the shards' headers are read again, too
        got, said = home.feed(PENSTOCK_IO=rng.choice(["uring", "threads", ""]))
        where = f"{path.name}: {what}"
        assert got == home.wanted, where
        same = path.exists() and path.read_bytes() == (buckets / kind / path.relative_to(home.data)).read_bytes()
        assert same or not must, f"{where} was not found"
        if same:
            assert "fetched again" in said, where
            found += 1
        else:  # it lies where nothing is read
            home.run("pull", kind, "--check")
            assert path.read_bytes() == (buckets / kind / path.relative_to(home.data)).read_bytes()
    print(f"{kind}: {found} of {DAMAGES} found by reading")
    got, said = home.feed()
    assert got == home.wanted and "fetched again" not in said


def test_a_whole_set_of_damages_at_once(depot, buckets):
    """Several places of one shard, and others in the same epoch."""
    home = depot("shards")
    for shard in range(2):
        for header, data, end in members(home.data / f"{shard}.tar")[::5]:
            flip(home.data / f"{shard}.tar", (data + end) // 2, 3)
    cut(home.data / "2.tar", 3 * BLOCK)
    got, said = home.feed("--epochs", 2)
    assert got.keys() == home.wanted.keys() and "fetched again" in said
    for shard in range(3):
        assert (home.data / f"{shard}.tar").read_bytes() == (buckets / "shards" / f"{shard}.tar").read_bytes()
    assert home.feed()[0] == home.wanted


def test_without_the_bucket_it_says_what_and_where(binary, buckets, tmp_path):
    shutil.copytree(buckets / "shards", tmp_path / "bucket")
    home = Depot(binary, tmp_path, "shards", tmp_path / "bucket")
    _, data, end = members(home.data / "0.tar")[8]
    at = (data + end) // 2
    flip(home.data / "0.tar", at)
    (tmp_path / "bucket").rename(tmp_path / "elsewhere")
    done = home.run("feed", "penstock://shards", "--pipeline", CROP, "--batch", 4, check=False)
    assert done.returncode == 1
    assert "0.tar" in done.stderr and f"byte {at // BLOCK * BLOCK}" in done.stderr and "penstock pull --check" in done.stderr
    (tmp_path / "elsewhere").rename(tmp_path / "bucket")
    assert home.feed()[0] == home.wanted


def test_annotations_are_compared_when_they_are_read(binary, buckets, tmp_path):
    """A flipped bit in a file that is read while the dataset is opened, whether it can still be understood or not."""
    bucket = tmp_path / "bucket"
    shutil.copytree(buckets / "plain", bucket)
    keys = sorted(str(p.relative_to(bucket)) for p in bucket.rglob("*.jpg"))
    (bucket / "splits").mkdir()
    (bucket / "splits" / "train.txt").write_text("\n".join(keys[:20]) + "\n")
    home = Depot(binary, tmp_path, "plain", bucket)
    wanted, _ = home.feed("--split", "train")
    assert len(wanted) == 20
    text = home.data / "splits" / "train.txt"
    for at in (0, len(keys[0]), 100):
        flip(text, at, 1)
        home.forget_listing()
        got, said = home.feed("--split", "train")
        assert got == wanted and "train.txt was gone or damaged" in said
        assert text.read_bytes() == (bucket / "splits" / "train.txt").read_bytes()


def test_one_pulled_before_there_were_blocks_is_read_and_says_so(depot):
    home = depot("shards")
    revision = home.data.parent
    (revision / "blocks").unlink()
    (revision / ".complete").write_text((revision / ".complete").read_text().split("\n")[0] + "\n")
    got, said = home.feed()
    assert got == home.wanted and "without checksums of blocks" in said
    home.run("pull", "shards", "--check")
    flip(home.data / "1.tar", members(home.data / "1.tar")[4][1] + 1000)
    got, said = home.feed()
    assert got == home.wanted and "fetched again" in said and "without checksums" not in said


@pytest.mark.parametrize("kind", ["shards", "plain"])
def test_what_is_read_by_its_own_path_is_compared_too(depot, buckets, kind):
    """One shard, or one folder of a revision."""
    home = depot(kind)
    part = "1.tar" if kind == "shards" else sorted(os.listdir(home.data))[1]
    wanted, said = home.feed(data=home.data / part)
    assert wanted and len(wanted) < 48 and "fetched again" not in said
    files = [home.data / part] if kind == "shards" else sorted((home.data / part).iterdir())
    flip(files[0], 20000, 2)
    if kind == "plain":
        files[-1].unlink()
    got, said = home.feed(data=home.data / part)
    assert got == wanted and "fetched again" in said
    for path in files:
        assert path.read_bytes() == (buckets / kind / path.relative_to(home.data)).read_bytes()


@pytest.fixture
def faultd(buckets):
    rigs = pytest.importorskip("rigs")
    with rigs.Faultd(buckets={"data": buckets}) as server:
        yield server


@pytest.fixture
def far(binary, buckets, faultd, tmp_path):
    more = faultd.environment(PENSTOCK_DATASETS=str(tmp_path / "depot"))
    probe = subprocess.run([binary, "pull", "shards", "s3://data/shards", "--json"], capture_output=True, text=True, env={**os.environ, **more})
    if probe.returncode != 0 and "built without" in probe.stderr:
        pytest.skip(probe.stderr)
    return Depot(binary, tmp_path, "shards", "s3://data/shards", more)


def test_only_the_damaged_blocks_are_fetched(far, faultd, buckets):
    _, data, end = members(far.data / "1.tar")[6]
    at = (data + end) // 2
    faultd.rules([])
    flip(far.data / "1.tar", at)
    got, said = far.feed()
    assert got == far.wanted and "fetched again" in said
    assert faultd.stats()["requests"]["get"] == 1
    entry = [e for e in faultd.log() if e.get("range")][-1]
    first = at // BLOCK * BLOCK
    assert f"{first}-{first + BLOCK - 1}" in str(entry["range"]) and entry["if_match"]
    assert (far.data / "1.tar").read_bytes() == (buckets / "shards" / "1.tar").read_bytes()


def test_an_object_that_was_replaced_is_not_mixed_with_the_old_one(far, faultd):
    _, data, end = members(far.data / "1.tar")[6]
    flip(far.data / "1.tar", (data + end) // 2)
    before = (far.data / "1.tar").read_bytes()
    faultd.replace("data", "shards/1.tar")
    done = far.run("feed", "penstock://shards", "--pipeline", CROP, "--batch", 4, check=False)
    assert done.returncode == 1 and "1.tar" in done.stderr and "replaced" in done.stderr
    assert (far.data / "1.tar").read_bytes() == before


def test_members_of_shards_have_the_identities_of_the_bucket(far, tmp_path):
    far.run("feed", "s3://data/shards", "--pipeline", CROP, "--batch", 8, "--save-state", tmp_path / "state", "--max-batches", 3)
    done = far.run("feed", "penstock://shards", "--pipeline", CROP, "--batch", 8, "--load-state", tmp_path / "state", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["samples"] == 48 - 24
