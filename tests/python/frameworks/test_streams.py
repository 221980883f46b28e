# SPDX-License-Identifier: Apache-2.0
"""Streams of Hugging Face's datasets and of webdataset are iterable datasets: the batches are those of torch's loader."""

import io
import tarfile

import pytest
import torch
import torch.utils.data

from penstock.torch import DataLoader


def both(make, epochs=2):
    """All batches of torch's loader and of ours."""
    got = []
    for kind in (torch.utils.data.DataLoader, DataLoader):
        torch.manual_seed(2)
        loader = make(kind)
        got.append([batch for _ in range(epochs) for batch in loader])
    return got


def assert_equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            assert_equal(a, b)
    else:
        assert one == other


@pytest.mark.parametrize("workers", [0, 2])
def test_hugging_face_stream(workers):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": [[float(i), i / 3] for i in range(50)], "y": list(range(50))})
    stream = table.to_iterable_dataset(num_shards=4).shuffle(seed=5, buffer_size=8).with_format("torch")
    expected, got = both(lambda kind: kind(stream, 8, num_workers=workers))
    assert_equal(got, expected)
    assert sorted(int(y) for batch in got for y in batch["y"]) == sorted([*range(50)] * 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_hugging_face_table(workers):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": [[float(i), i / 3] for i in range(50)], "y": list(range(50))})
    expected, got = both(lambda kind: kind(table.with_format("torch"), 8, shuffle=True, num_workers=workers))
    assert_equal(got, expected)


def make_shards(folder, count=3, samples=10):
    for shard in range(count):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as tar:
            for i in range(samples):
                number = shard * samples + i
                for name, body in ((f"{number:05}.cls", str(number % 7)), (f"{number:05}.txt", f"text {number}")):
                    member = tarfile.TarInfo(name)
                    member.size = len(body)
                    tar.addfile(member, io.BytesIO(body.encode()))
    return str(folder / "{000..002}.tar")


@pytest.mark.parametrize("workers", [0, 2])
def test_webdataset_stream(tmp_path, workers):
    webdataset = pytest.importorskip("webdataset")
    urls = make_shards(tmp_path)

    def make(kind):
        stream = webdataset.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls", "txt")
        return kind(stream, 4, num_workers=workers)

    expected, got = both(make)
    assert_equal(got, expected)
    assert sorted(text for _, texts in got for text in texts) == sorted([f"text {i}" for i in range(30)] * 2)
