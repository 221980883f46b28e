# SPDX-License-Identifier: Apache-2.0
"""What the pages show with penstock.Loader runs, on small pictures and the CPU."""

import pathlib
import re
import tarfile
import zipfile

import pytest

import penstock

DOCS = pathlib.Path(__file__).parents[2] / "docs"
SMALLER = {"256,": "8,", "256)": "8)", " 64)": " 8)", "(224)": "(16)", "resize(8)": "resize(20)", '"cuda"': '"cpu"',
           ", channels_last=True": "", "80G": "256M", "64G": "64M"}  # fmt: skip


def blocks(page):
    """The page's Python that uses the native loader, made small."""
    for text in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S):
        if "penstock.Loader(" in text:
            for old, new in SMALLER.items():
                text = text.replace(old, new)
            yield text


@pytest.fixture
def place(photos, tmp_path, monkeypatch):
    """A folder with what the pages name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "train").symlink_to(photos)
    (tmp_path / "shards").mkdir()
    for name in ("photos.zip", "train.zip"):
        with zipfile.ZipFile(name, "w") as file:
            for path in sorted(photos.rglob("*.jpg")):
                file.write(path, path.relative_to(photos))
    with tarfile.open("shards/train-0000.tar", "w") as file:
        for number, path in enumerate(sorted(photos.rglob("*.jpg"))):
            (tmp_path / "label").write_text(str(number % 3))
            file.add(path, f"{number:06}.jpg")
            file.add(tmp_path / "label", f"{number:06}.cls")
    return tmp_path


@pytest.mark.parametrize("page, count", [("switching.md", 6), ("own-data.md", 1)])
def test_loaders_on_a_page_run(place, page, count):
    pytest.importorskip("torch")
    texts = list(blocks(page))
    assert len(texts) == count
    for text in texts:
        names = {"penstock": penstock, "zipfile": zipfile, "label_of": len}
        exec(text, names)
        batch = next(iter(names["loader"]))
        assert tuple(batch.image.shape) == (8, 3, 16, 16) and len(batch.label) == 8, text
