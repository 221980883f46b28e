# SPDX-License-Identifier: Apache-2.0
"""What the defaults become on the machines they are documented for: as read from a made-up root, and inside a real
memory cgroup with one CPU."""
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

GIB = 1 << 30
MIB = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")


def make_root(root, cpus, memory, files=None):
    """A folder that stands for a machine: its CPUs, its memory and the files of its cgroups."""
    files = {"cpus": f"{cpus}\n", "proc/meminfo": f"MemTotal: {memory // 1024} kB\n", **(files or {})}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = {"proc/self/cgroup": "0::/pod/train\n", "sys/fs/cgroup/pod/train/cpu.max": "100000 100000\n",
      "sys/fs/cgroup/pod/memory.max": f"{GIB}\n", "sys/fs/cgroup/pod/train/memory.max": "max\n"}
V1 = {"proc/self/cgroup": "4:memory:/pod\n3:cpu,cpuacct:/pod\n",
      "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{GIB}\n",
      "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "100000\n", "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n"}

# name, (CPUs, memory, cgroup files), what must come out: cpus, may_have, workers, memory
MACHINES = [
    ("2 cores, 4 GiB", (2, 4 * GIB, {}), (2, 4 * GIB, 2, 1 * GIB)),
    ("16 cores, 128 GiB", (16, 128 * GIB, {}), (16, 128 * GIB, 15, 8 * GIB)),
    ("1-core 1-GiB cgroup v2 on it", (16, 128 * GIB, V2), (1, 1 * GIB, 1, 256 * MIB)),
    ("1-core 1-GiB cgroup v1 on it", (16, 128 * GIB, V1), (1, 1 * GIB, 1, 256 * MIB)),
    ("3 cores, 6 GiB", (3, 6 * GIB, {}), (3, 6 * GIB, 2, 1536 * MIB)),
]


def test_defaults_on_the_documented_machines(penstock, tmp_path, capsys):
    found = []
    for i, (name, machine, _) in enumerate(MACHINES):
        root = make_root(tmp_path / str(i), *machine)
        found.append(json.loads(penstock("settings", "--json", env={"PENSTOCK_QUOTA_ROOT": str(root)}).out))
    with capsys.disabled():
        print(f"\n{'machine':30} {'cpus':>5} {'may have':>10} {'workers':>8} {'memory':>10} {'io depth':>9}")
        for (name, _, _), s in zip(MACHINES, found):
            print(f"{name:30} {s['cpus']:5} {s['may_have'] // MIB:6} MiB {s['workers']:8} {s['memory_bytes'] // MIB:6} MiB "
                  f"{s['io_depth']:9}")
    for (name, _, expected), s in zip(MACHINES, found):
        assert (s["cpus"], s["may_have"], s["workers"], s["memory_bytes"]) == expected, name
        assert s["io_depth"] == 32, name


@pytest.mark.parametrize("name, machine, expected", MACHINES[:3], ids=[m[0] for m in MACHINES[:3]])
def test_a_feed_runs_with_them(feed, photos, tmp_path, name, machine, expected):
    root = make_root(tmp_path, *machine)
    report = feed(photos, "--max-batches", 2, env={"PENSTOCK_QUOTA_ROOT": str(root)}).report
    settings = report["settings"]
    assert (settings["cpus"], settings["workers"], settings["memory_bytes"]) == (expected[0], expected[2], expected[3])
    assert settings["order"] == "strict" and 4 <= settings["ready_depth"] <= 16
    assert report["batches"] == 2 and report["peak_bytes"] <= settings["memory_bytes"]


def test_this_machine(penstock):
    found = json.loads(penstock("settings", "--json").out)
    assert 1 <= found["cpus"] <= len(os.sched_getaffinity(0))
    assert found["workers"] == (found["cpus"] - 1 if found["cpus"] > 2 else found["cpus"])
    assert found["memory_bytes"] == min(8 * GIB, found["may_have"] // 4)
    assert found["io"] in ("uring", "threads") and found["kernels"]
    assert found["features"]["jpeg"].startswith("libjpeg-turbo 2") and set(found["features"]) == {"jpeg", "png", "webp", "gzip", "deflate", "flac", "fft", "uring", "control", "bucket", "remote"}
    assert "workers" in penstock("settings").out and found["features"]["jpeg"] in penstock("settings").out


def test_a_cache_without_memory_brings_its_own(penstock, tmp_path):
    large = {"PENSTOCK_QUOTA_ROOT": str(make_root(tmp_path / "large", 16, 128 * GIB))}
    small = {"PENSTOCK_QUOTA_ROOT": str(make_root(tmp_path / "small", 2, 4 * GIB))}

    def memory(env, *args):
        found = json.loads(penstock("settings", "--json", *args, env=env).out)
        return found["memory_bytes"], found["cache_bytes"]

    beside = 2 * GIB + GIB // 2  # of 8 GiB: samples on their way, and a sixteenth for rings
    assert memory(large, "--cache", "16G") == (16 * GIB + beside, 16 * GIB)
    assert memory(large, "--cache", "1G") == (8 * GIB, GIB)
    assert memory(large, "--cache", "6G") == (6 * GIB + beside, 6 * GIB)
    assert memory(large, "--cache", "16G", "--memory", "17G") == (17 * GIB, 16 * GIB)
    assert memory(small, "--cache", "3G") == (3 * GIB + 576 * MIB, 3 * GIB)
    refused = penstock("settings", "--cache", "4G", env=small, check=False)
    assert refused.code != 0 and "4096.0 MiB, and 576.0 MiB beside it" in refused.err and "than the 4096.0 MiB" in refused.err
    refused = penstock("settings", "--cache", "16G", "--memory", "8G", env=large, check=False)
    assert refused.code != 0 and "leaves less than 16 MiB" in refused.err


def test_what_is_given_counts(penstock, tmp_path):
    env = {"PENSTOCK_QUOTA_ROOT": str(make_root(tmp_path, 16, 128 * GIB))}
    given = json.loads(penstock("settings", "--workers", 3, "--memory", "32GiB", "--io", "threads", "--io-depth", 7,
                                "--json", env=env).out)
    assert given["workers"] == 3 and given["memory_bytes"] == 32 * GIB
    assert given["io"] == "threads" and given["io_depth"] == 7
    pinned = json.loads(penstock("settings", "--json", env={**env, "PENSTOCK_CPU": "c"}).out)
    assert pinned["kernels"] == "c"


def test_a_budget_outside_the_limits_is_refused_with_both_values(penstock, tmp_path):
    env = {"PENSTOCK_QUOTA_ROOT": str(make_root(tmp_path, 16, 128 * GIB, V2))}
    much = penstock("settings", "--memory", "2GiB", env=env, check=False)
    assert much.code == 1 and "2048.0 MiB" in much.err and "1024.0 MiB" in much.err
    little = penstock("settings", "--memory", "1M", env=env, check=False)
    assert little.code == 1 and "at least 16 MiB" in little.err


# ---- a real cgroup ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cgroup():
    """The procs file of a fresh memory cgroup of 1 GiB, v1 or v2. Skips where none can be made."""
    v2 = (CGROUPS / "cgroup.controllers").exists()
    group = (CGROUPS if v2 else CGROUPS / "memory") / f"penstock-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        with open(group / ("memory.max" if v2 else "memory.limit_in_bytes"), "r+") as limit:
            limit.write(str(GIB))
    except OSError as error:
        group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield group / "cgroup.procs"
    group.rmdir()


def run_inside(procs, command, env):
    """Runs a command in the cgroup, on one CPU; gives the object of its last line."""

    def enter():
        procs.write_text(str(os.getpid()))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=enter)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def test_inside_a_real_cgroup_of_one_gib(cgroup, binary, environment, photos):
    settings = run_inside(cgroup, [binary, "settings", "--json"], environment)
    assert (settings["cpus"], settings["workers"]) == (1, 1)
    assert (settings["may_have"], settings["memory_bytes"]) == (GIB, 256 * MIB)
    report = run_inside(cgroup, [binary, "feed", str(photos), "--pipeline", "decode | random_resized_crop(224) | "
                                 "hflip | normalize(imagenet)", "--batch", "64", "--epochs", "4", "--json"], environment)
    assert report["samples"] == 4 * 48 and report["settings"]["workers"] == 1
    assert report["peak_bytes"] <= 256 * MIB
    if "PENSTOCK_GRACE_S" not in os.environ:  # sanitizers keep their own books in memory
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 <= (256 + 24) * MIB
