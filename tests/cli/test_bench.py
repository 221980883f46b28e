# SPDX-License-Identifier: Apache-2.0
"""penstock bench and penstock settings."""
import json
import os
import subprocess

import pytest


def test_bench_json(penstock, photos):
    found = json.loads(penstock("bench", photos, "--seconds", 0.3, "--batch", 8, "--json").out)
    cpus = json.loads(penstock("settings", "--json").out)["cpus"]
    assert [row["workers"] for row in found["results"]][0] == 1
    assert [row["workers"] for row in found["results"]][-1] == cpus
    for row in found["results"]:
        assert row["samples_per_s"] > 0 and row["decode_limit_per_s"] > 0
        assert row["of_limit"] == pytest.approx(row["samples_per_s"] / row["decode_limit_per_s"], rel=1e-3)
        assert any(stage["name"] == "decode" for stage in row["stages"])
    assert found["limit_files"] == 48


def test_bench_table(penstock, photos):
    out = penstock("bench", photos, "--seconds", 0.2, "--batch", 8, "--workers", 1, "--pipeline", "decode | center_crop(32)").out
    assert "samples/s" in out and "of limit" in out and "decode" in out


def test_settings_say_what_defaults_become(penstock):
    found = json.loads(penstock("settings", "--json").out)
    cpus = len(os.sched_getaffinity(0))
    assert 1 <= found["cpus"] <= cpus
    assert found["workers"] == (found["cpus"] - 1 if found["cpus"] > 2 else found["cpus"])
    assert found["memory_bytes"] <= 8 << 30 and found["memory_bytes"] <= found["may_have"]
    assert found["io"] in ("uring", "threads", "auto") and found["kernels"]
    given = json.loads(penstock("settings", "--workers", 5, "--memory", "64M", "--io-depth", 9, "--io", "threads", "--json").out)
    assert (given["workers"], given["memory_bytes"], given["io_depth"], given["io"]) == (5, 64 << 20, 9, "threads")
    assert "workers" in penstock("settings").out


def test_settings_follow_the_affinity(binary):
    out = subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), binary, "settings", "--json"], capture_output=True,
                         text=True, check=True).stdout
    assert json.loads(out)["cpus"] == 1 and json.loads(out)["workers"] == 1


@pytest.fixture
def one_core_one_gib():
    """A cgroup with one core and 1 GiB; gives the files to write a pid to."""
    name, v1, v2 = f"penstock-test-{os.getpid()}", "/sys/fs/cgroup/{}/", "/sys/fs/cgroup/"
    limits = [(v1.format("cpu"), "cpu.cfs_quota_us", "100000"), (v1.format("memory"), "memory.limit_in_bytes", str(1 << 30))]
    if os.path.exists(v2 + "cgroup.controllers"):
        limits = [(v2, "cpu.max", "100000 100000"), (v2, "memory.max", str(1 << 30))]
    made = []
    try:
        for root, file, value in limits:
            if root + name not in made:
                os.mkdir(root + name)
                made.append(root + name)
            with open(f"{root}{name}/{file}", "w") as out:
                out.write(value)
    except OSError as error:
        for path in made:
            os.rmdir(path)
        pytest.skip(f"cannot make a cgroup here: {error}")
    yield [path + "/cgroup.procs" for path in made]
    for path in made:
        os.rmdir(path)


def test_settings_follow_the_cgroup(binary, one_core_one_gib):
    def enter():
        for path in one_core_one_gib:
            with open(path, "w") as out:
                out.write(str(os.getpid()))

    found = json.loads(subprocess.run([binary, "settings", "--json"], capture_output=True, text=True, check=True, preexec_fn=enter).stdout)
    assert (found["cpus"], found["workers"]) == (1, 1)
    assert found["may_have"] <= 1 << 30 and found["memory_bytes"] <= 256 << 20
