# SPDX-License-Identifier: Apache-2.0
"""The example sources: each holds the tests' pictures and gives the same batches as the folder they come from."""

import importlib.util
import pathlib
import zipfile

import penstock
import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "own_data.py"
TEXT = "decode | resize((16, 16))"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_data", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_of(photos):
    return sorted(photos.rglob("*.jpg"))


def check(photos, source):
    expected = penstock.Loader(photos, TEXT, 9, shuffle=False)
    for want, got in zip(expected, penstock.Loader(source, TEXT, 9, shuffle=False), strict=True):
        assert (want.image == got.image).all() and (want.label == got.label).all()


def test_zip(example, photos, tmp_path):
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as out:
        for path in files_of(photos):
            out.write(path, path.relative_to(photos))
    check(photos, example.Zip(tmp_path / "photos.zip"))


def test_lmdb(example, photos, tmp_path):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "photos.lmdb"), map_size=1 << 24) as env, env.begin(write=True) as out:
        for path in files_of(photos):
            out.put(str(path.relative_to(photos)).encode(), path.read_bytes())
    check(photos, example.Lmdb(str(tmp_path / "photos.lmdb")))


def test_fsspec(example, photos):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in files_of(photos):
        memory.pipe(f"/photos/{path.relative_to(photos)}", path.read_bytes())
    check(photos, example.Fsspec("memory://photos"))


def test_huggingface(example, photos):
    datasets = pytest.importorskip("datasets")
    paths = files_of(photos)
    names = sorted({path.parent.name for path in paths})
    rows = {"image": [{"bytes": p.read_bytes(), "path": None} for p in paths],
            "label": [names.index(p.parent.name) for p in paths]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    check(photos, example.HuggingFace(datasets.Dataset.from_dict(rows, features=features)))
