# SPDX-License-Identifier: Apache-2.0
"""penstock.pull, datasets and evict."""
import pytest

import penstock


@pytest.fixture
def bucket(tmp_path):
    folder = tmp_path / "bucket"
    for i in range(5):
        (folder / "a").mkdir(parents=True, exist_ok=True)
        (folder / "a" / f"{i}.bin").write_bytes(bytes([i]) * 1000)
    return folder


def test_pull_list_evict(bucket, tmp_path):
    seen = []
    one = penstock.pull("set", str(bucket), dir=str(tmp_path / "d"), progress=seen.append)
    assert one["complete"] and one["objects"] == 5 and one["bytes"] == 5000
    assert seen[-1]["objects_done"] == 5 and seen[-1]["revision"] == one["revision"]
    assert [d["name"] for d in penstock.datasets(str(tmp_path / "d"))] == ["set"]
    assert penstock.evict("set", dir=str(tmp_path / "d")) == 5000
    assert penstock.datasets(str(tmp_path / "d")) == []


def test_an_exception_stops_a_pull(bucket, tmp_path):
    def stop(now):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        penstock.pull("set", str(bucket), dir=str(tmp_path / "d"), progress=stop)
    assert not penstock.datasets(str(tmp_path / "d"))[0]["complete"]
    assert penstock.pull("set", dir=str(tmp_path / "d"))["complete"]


def test_errors(bucket, tmp_path):
    with pytest.raises(penstock.Error, match="name"):
        penstock.pull("a/b", str(bucket), dir=str(tmp_path / "d"))
    with pytest.raises(TypeError):
        penstock.evict()
    with pytest.raises(penstock.Error, match="no such dataset"):
        penstock.pull("set", str(bucket), dir=str(tmp_path / "d"))
        penstock.evict("other", dir=str(tmp_path / "d"))
