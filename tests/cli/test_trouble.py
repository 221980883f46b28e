# SPDX-License-Identifier: Apache-2.0
"""What a user runs into: data that is not what it seems, places that cannot be used, readers that go away. Each time: what
happened, what to do, a code other than 0, and nothing lost."""
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from conftest import CROP, read_ledger
from test_interrupt import Run

NOBODY = 65534


@pytest.fixture
def text_as_jpg(tmp_path):
    (tmp_path / "texts" / "a").mkdir(parents=True)
    (tmp_path / "texts" / "a" / "x.jpg").write_text("hello, I am no picture\n")
    return tmp_path / "texts"


@pytest.mark.parametrize("command", ["feed", "inspect", "preview", "run", "bench"])
def test_a_text_named_jpg(penstock, text_as_jpg, tmp_path, command):
    args = {"feed": [text_as_jpg, "--pipeline", CROP], "inspect": [text_as_jpg],
            "preview": [text_as_jpg, "--pipeline", CROP, "--out", tmp_path / "s.png"],
            "run": [text_as_jpg / "a" / "x.jpg", "--pipeline", CROP, "--npy", tmp_path / "o.npy"],
            "bench": [text_as_jpg, "--seconds", 0.1]}[command]
    done = penstock(command, *args, check=False)
    assert done.code == 1 and done.err.startswith("penstock: ")
    assert not (tmp_path / "s.png").exists() and not (tmp_path / "o.npy").exists()


def test_a_bad_sample_is_named_with_the_ways_on(penstock, text_as_jpg):
    done = penstock("feed", text_as_jpg, "--pipeline", CROP, check=False)
    assert "a/x.jpg" in done.err and "looks like text" in done.err
    assert "--on-error skip:N" in done.err and "--deep" in done.err


@pytest.mark.parametrize("key, reason", [("../p/0.jpg", "'..'"), ("/etc/passwd", "absolute"), ("a\nb.jpg", "control byte"),
                                         ("./0.jpg", "'.'"), ("a//b.jpg", "empty")])
def test_keys_that_lead_elsewhere(penstock, photo, tmp_path, key, reason):
    shutil.copy(photo, tmp_path / "0.jpg")
    manifest = tmp_path / "list.jsonl"
    manifest.write_text(json.dumps({"key": "0.jpg"}) + "\n" + json.dumps({"key": key}) + "\n")
    for command in (["feed", manifest, "--pipeline", CROP], ["inspect", manifest]):
        done = penstock(*command, check=False)
        assert done.code == 1 and "line 2" in done.err and reason in done.err, done.err
        assert len(done.err.splitlines()) == 1


def test_a_dataset_is_no_sample_for_run(penstock, photo, tmp_path):
    shutil.copy(photo, tmp_path / "0.jpg")
    (tmp_path / "list.tsv").write_text("key\tlabel\n0.jpg\t1\n")
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        tar.add(photo, "0.jpg")
    for name in ("list.tsv", "shard.tar"):
        done = penstock("run", tmp_path / name, "--pipeline", "decode", "--npy", tmp_path / "o.npy", check=False)
        assert done.code == 1 and "whole dataset" in done.err
    assert not (tmp_path / "o.npy").exists()


@pytest.mark.parametrize("pipeline, column", [("decode | decode", 9), ("decode | normalize(imagenet) | resize(4)", 31)])
def test_the_place_is_shown_where_pipeline_and_data_disagree(penstock, photos, pipeline, column):
    done = penstock("feed", photos, "--pipeline", pipeline, check=False)
    assert done.code == 1
    assert done.err.splitlines()[1:] == ["    " + pipeline, "    " + " " * column + "^"]


def test_spaces_and_other_scripts_in_paths(feed, photo, tmp_path):
    folder = tmp_path / "sp ace" / "ünï — 日本"
    folder.mkdir(parents=True)
    shutil.copy(photo, folder / "ä b.jpg")
    shutil.copy(photo, folder / "c.jpg")
    ledger = tmp_path / "l ö.tsv"
    report = feed(tmp_path / "sp ace", "--ledger", ledger, env={"LC_ALL": "C"}).report
    assert report["samples"] == 2
    assert {row[5] for row in read_ledger(ledger)} == {"ünï — 日本/ä b.jpg", "ünï — 日本/c.jpg"}


# ---- places that cannot be used --------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["unset", "missing", "a file"])
def test_without_a_place_for_listings_it_works(binary, photos, tmp_path, home):
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    if home != "unset":
        env["HOME"] = "/proc/none" if home == "missing" else "/dev/null"
    done = subprocess.run([binary, "feed", str(photos), "--pipeline", CROP, "--quiet"], env=env, cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_place_for_listings_that_was_asked_for_and_cannot_be_used_is_said(penstock, photos):
    done = penstock("feed", photos, "--pipeline", CROP, "--quiet", "--index-dir", "/dev/null/x")
    assert "cannot be remembered in /dev/null/x" in done.err


@pytest.fixture
def open_folder():
    """A folder that everybody may read: pytest's own are for one user."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_files_that_may_not_be_read(binary, environment, photo, open_folder):
    base = open_folder
    (base / "a").mkdir()
    shutil.copy(photo, base / "a" / "open.jpg")
    shutil.copy(photo, base / "a" / "shut.jpg")
    (base / "a" / "shut.jpg").chmod(0)

    def run(*args):
        return subprocess.run([binary, *map(str, args)], capture_output=True, text=True, timeout=60, user=NOBODY,
                              group=NOBODY, extra_groups=[], env={**environment, "HOME": "/", "XDG_CACHE_HOME": "/root"})

    try:
        run("--version").check_returncode()
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("nobody may not run the program from here")
    done = run("feed", base, "--pipeline", CROP, "--quiet")
    assert done.returncode == 1 and "a/shut.jpg" in done.stderr and "ermission" in done.stderr
    done = run("feed", base, "--pipeline", CROP, "--json", "--on-error", "skip:1")
    report = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and report["samples"] == 1 and report["skipped"] == 1
    (base / "b").mkdir(mode=0o700)
    done = run("inspect", base)
    assert done.returncode == 1 and "b" in done.stderr and "ermission" in done.stderr


# ---- readers that go away --------------------------------------------------------------------------------------------


def test_a_closed_pipe_is_no_drama(binary, environment, photos, tmp_path):
    state = tmp_path / "s"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([binary, "feed", str(photos), "--pipeline", CROP, "--json", "--save-state", str(state)], stdout=write,
                          stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    os.close(write)
    assert done.returncode == 1 and done.stderr == ""
    assert state.stat().st_size > 0


def test_a_full_disk_under_standard_output(binary, environment, photos):
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary, "inspect", str(photos)], stdout=full, stderr=subprocess.PIPE, text=True, env=environment,
                              timeout=60)
    assert done.returncode == 1 and "standard output" in done.stderr


def test_a_terminal_that_is_closed_loses_no_state(binary, environment, feed, photos, tmp_path):
    """As when a connection breaks: the hangup signal."""
    state, first, rest = tmp_path / "s", tmp_path / "a.tsv", tmp_path / "b.tsv"
    run = Run(binary, environment, "feed", photos, "--pipeline", CROP, "--batch", 8, "--epochs", 100000, "--step-ms", 20,
              "--save-state", state, "--ledger", first, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    run.wait_for(b" samples,")
    run.stop(signal.SIGHUP)
    assert run.child.returncode == 128 + signal.SIGHUP
    feed(photos, "--epochs", 100000, "--load-state", state, "--ledger", rest, "--max-batches", 1)
    last, following = read_ledger(first)[-1], read_ledger(rest)[0]
    assert (following[0], following[1]) in ((last[0], last[1] + 1), (last[0] + 1, 0))


@pytest.mark.parametrize("command", ["feed", "preview", "run"])
def test_a_pipeline_that_needs_a_function_of_a_programs(penstock, photos, tmp_path, command):
    args = {"feed": [], "preview": ["--out", tmp_path / "s.png"], "run": ["--npy", tmp_path / "o.npy"]}[command]
    data = next(photos.glob("**/*.jpg")) if command == "run" else photos
    done = penstock(command, data, "--pipeline", "decode | call(mine)", *args, check=False)
    assert done.code == 1 and "call(mine) needs a program that provides it" in done.err
