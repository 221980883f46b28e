# SPDX-License-Identifier: Apache-2.0
"""``python -m penstock doctor`` tells the truth about this machine and about broken ones."""

import json
import os
import resource
import subprocess
import sys

import penstock
import pytest


def run(*args: str, env: dict | None = None) -> subprocess.CompletedProcess:
    command, env = [sys.executable, *args], {**os.environ, **(env or {})}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def doctor(*before: str, env: dict | None = None, limits: dict | None = None) -> tuple[int, dict]:
    """Runs it after `before`, a few lines of Python; gives the exit status and the findings by name."""
    lower = [f"import resource; resource.setrlimit({which}, ({value}, resource.getrlimit({which})[1]))"
             for which, value in (limits or {}).items()]
    script = "\n".join([*lower, *before, "import runpy, sys; sys.argv = ['penstock', 'doctor', '--json']",
                        "runpy.run_module('penstock', run_name='__main__')"])
    done = run("-c", script, env=env)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["good"] == (done.returncode == 0), done.stderr
    return done.returncode, {finding["name"]: finding for finding in report["findings"]}


NO_TORCH = "import sys; sys.modules['torch'] = None"


@pytest.fixture(scope="module")
def here():
    return doctor()


def test_this_machine_is_good(here):
    code, found = here
    assert code == 0
    assert {"penstock", "jpeg", "kernels", "io_uring", "openat2", "memfd", "cpus", "memory", "memlock"} <= set(found)
    assert found["engine"]["state"] == "ok"
    assert found["jpeg"]["text"].startswith("libjpeg-turbo ")
    settings = penstock.settings()
    assert f"{settings['workers']} workers" in found["cpus"]["text"] and found["kernels"]["text"] == settings["cpu"]


def test_torch_takes_a_batch_without_a_copy(here):
    pytest.importorskip("torch")
    _, found = here
    assert found["torch"]["state"] == "ok"
    assert found["dlpack"]["state"] == "ok" and found["dlpack"]["text"] == "torch takes batches without a copy"


def test_lines_for_people_say_what_to_do():
    done = run("-m", "penstock", "doctor", env={"PENSTOCK_CPU": "c"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "warn", "bad") for line in lines)
    if os.uname().machine == "x86_64":
        assert "warn  kernels   plain C: PENSTOCK_CPU=c is set; unset it" in lines


def test_no_numpy_is_bad():
    code, found = doctor(NO_TORCH, "sys.modules['numpy'] = None")
    assert code == 1 and found["numpy"]["state"] == "bad" and "pip install numpy" in found["numpy"]["advice"]


def test_no_torch_is_fine():
    code, found = doctor(NO_TORCH)
    assert code == 0 and "not installed" in found["torch"]["text"] and "dlpack" not in found


def test_a_torch_that_refuses_batches_is_bad():
    pytest.importorskip("torch")
    code, found = doctor("import torch.utils.dlpack", "torch.utils.dlpack.from_dlpack = None")
    assert code == 1 and found["dlpack"]["state"] == "bad" and found["dlpack"]["text"].startswith("TypeError")


def test_an_engine_that_cannot_run_is_bad(tmp_path):
    code, found = doctor(NO_TORCH, env={"TMPDIR": str(tmp_path)}, limits={resource.RLIMIT_FSIZE: 0})
    assert code == 1 and found["engine"]["state"] == "bad"


def test_small_limits_are_warned_of(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: {512 << 10} kB\n")
    (tmp_path / "cpus").write_text("1\n")
    (tmp_path / "file").write_text("")
    env = {"PENSTOCK_QUOTA_ROOT": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "file")}
    many = "import os; os.cpu_count = lambda: 64"
    code, found = doctor(NO_TORCH, many, env=env, limits={resource.RLIMIT_NOFILE: 256})
    assert code == 0
    assert [found[name]["state"] for name in ("cpus", "memory", "nofile", "listings")] == ["warn"] * 4
    assert "1 of 64 cores" in found["cpus"]["text"] and "512 MiB" in found["memory"]["text"]


def test_plain_main_says_how_files_are_read():
    def shown(**env: str) -> dict:
        return dict(line.split(maxsplit=1) for line in run("-m", "penstock", env=env).stdout.splitlines()[1:])

    assert shown(PENSTOCK_IO="threads")["io"] == "threads"
    assert shown()["io"] in ("uring", "threads")
