# SPDX-License-Identifier: Apache-2.0
"""Datasets of .npy files: types and shapes are found, one shape is dense, several are padded or ragged, the values are the files'."""
import json

import numpy as np
import pytest


@pytest.fixture
def arrays(tmp_path):
    """arrays(dtype, shapes) writes one file per shape; gives the folder and what is in it."""

    def make(dtype, shapes, name="data"):
        folder = tmp_path / name / "a"
        folder.mkdir(parents=True)
        values = [(np.arange(np.prod(shape, dtype=int)).reshape(shape) + i).astype(dtype) for i, shape in enumerate(shapes)]
        for i, value in enumerate(values):
            np.save(folder / f"{i:03}.npy", value)
        return folder.parent, values

    return make


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "i4", "i8", "f2", "f4", "f8", "b1"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4, 5)])
def test_run_gives_back_the_array(penstock, arrays, tmp_path, dtype, shape):
    folder, values = arrays(dtype, [shape])
    penstock("run", folder / "a" / "000.npy", "--pipeline", "decode", "--npy", tmp_path / "o.npy")
    found = np.load(tmp_path / "o.npy")
    assert found.dtype == values[0].dtype and np.array_equal(found, values[0])


def field(penstock, folder):
    return json.loads(penstock("inspect", folder, "--json").out)["fields"][0]


def test_inspect_knows_type_and_shape(penstock, arrays):
    assert field(penstock, arrays("f4", [(3, 4)] * 20, "same")[0])["shape"] == [3, 4]
    varied = field(penstock, arrays("i2", [(3 + i % 2, 4) for i in range(20)], "varied")[0])
    assert (varied["dtype"], varied["shape"]) == ("i16", [-1, 4])


@pytest.mark.parametrize("packing", ["dense", "padded", "ragged"])
def test_packing_changes_no_crc(feed, arrays, tmp_path, packing):
    folder, _ = arrays("f4", [(3, 4)] * 6)
    ledgers = []
    for fields in ("npy", f"npy={packing}"):
        feed(folder, "--fields", fields, "--ledger", tmp_path / "l.tsv", pipeline="decode")
        ledgers.append((tmp_path / "l.tsv").read_text())
    assert ledgers[0] == ledgers[1]


def test_several_shapes(penstock, feed, arrays):
    folder, _ = arrays("f4", [(3, 4), (5, 4), (3, 2)])
    for fields in ("npy", "npy=padded", "npy=ragged"):
        assert feed(folder, "--fields", fields, pipeline="decode").report["samples"] == 3
    done = penstock("feed", folder, "--pipeline", "decode", "--fields", "npy=dense", check=False)
    assert done.code == 1 and "padded or ragged" in done.err


def test_one_of_another_shape_among_many_is_a_bad_sample(penstock, arrays):
    """The samples looked at beforehand are all alike; the odd one is found when it comes."""
    folder, _ = arrays("f4", [(3, 4)] * 5 + [(3, 5)] + [(3, 4)] * 60)
    done = penstock("feed", folder, "--pipeline", "decode", check=False)
    assert done.code == 1 and "a/005.npy" in done.err and "npy=padded" in done.err
    penstock("feed", folder, "--pipeline", "decode", "--fields", "npy=padded")


def test_another_type_is_a_bad_sample(penstock, arrays):
    folder, _ = arrays("f4", [(3, 4)] * 4)
    np.save(folder / "a" / "003.npy", np.zeros((3, 4), np.int64))
    done = penstock("feed", folder, "--pipeline", "decode", check=False)
    assert done.code == 1 and "a/003.npy" in done.err and "i64" in done.err


def test_arrays_that_are_not_read_are_refused_with_the_reason(penstock, tmp_path):
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "o.npy", np.array([{}], dtype=object))
    done = penstock("inspect", tmp_path, check=False)
    assert done.code == 1 and "Python objects" in done.out
    done = penstock("feed", tmp_path, "--pipeline", "decode", check=False)
    assert done.code == 1 and "could be read" in done.err
