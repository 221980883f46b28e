# SPDX-License-Identifier: Apache-2.0
"""The examples run as their own comments say."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(*command, env=None) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, env=env)


@pytest.fixture(scope="module")
def c_example(tmp_path_factory):
    """Installs the library into a folder of its own and compiles against its pkg-config file."""
    build = os.environ.get("PENSTOCK_BUILD_DIR", "")
    if not build or not shutil.which("pkg-config") or not shutil.which("meson"):
        pytest.skip("needs PENSTOCK_BUILD_DIR, pkg-config and meson")
    root = tmp_path_factory.mktemp("c")
    installed = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", root)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    (pc_file,) = root.rglob("penstock.pc")
    env = {**os.environ, "PKG_CONFIG_PATH": str(pc_file.parent), "PKG_CONFIG_SYSROOT_DIR": str(root)}
    flags = run("pkg-config", "--cflags", "--libs", "penstock", env=env).stdout.split()
    program = root / "first_batch"
    built = run("cc", "-Wall", "-Wextra", "-Werror", EXAMPLES / "first_batch.c", *flags, "-o", program)
    assert built.returncode == 0, built.stderr
    return program, {**os.environ, "LD_LIBRARY_PATH": str(pc_file.parents[1])}


def test_the_c_example_shows_batches(c_example, photos):
    program, env = c_example
    shown = run(program, photos, env=env)
    lines = shown.stdout.splitlines()
    assert shown.returncode == 0 and len(lines) == 3, shown.stderr
    assert lines[0].startswith("epoch 0 step 0 ids ") and lines[0].endswith("shape 8 x 3 x 224 x 224")


def test_the_c_example_complains(c_example, tmp_path):
    program, env = c_example
    assert run(program, env=env).returncode == 2
    missing = run(program, tmp_path / "nowhere", env=env)
    assert missing.returncode == 1 and "nowhere" in missing.stderr


def test_both_examples_show_the_same_ids(c_example, photos):
    program, env = c_example
    in_c = [line.split(" shape ")[0] for line in run(program, photos, env=env).stdout.splitlines()]
    in_python = run(sys.executable, EXAMPLES / "first_batch.py", photos).stdout.splitlines()
    assert [line.split(" shape ")[0] for line in in_python] == in_c


def test_the_python_example_shows_batches(photos, tmp_path):
    shown = run(sys.executable, EXAMPLES / "first_batch.py", photos)
    assert shown.returncode == 0 and shown.stdout.splitlines()[2].startswith("epoch 0 step 2 ids "), shown.stderr
    missing = run(sys.executable, EXAMPLES / "first_batch.py", tmp_path / "nowhere")
    assert missing.returncode == 1 and "nowhere" in missing.stderr


def test_the_c_example_stays_short():
    assert len((EXAMPLES / "first_batch.c").read_text().splitlines()) <= 60


def test_a_sweep_shares_its_work():
    shown = run(sys.executable, EXAMPLES / "many_jobs.py", "--epochs", 2)
    assert shown.returncode == 0, shown.stderr
    assert "samples prepared by others" in shown.stdout
    each = float(shown.stdout.split(";")[-1].split()[0])
    assert each < 0.8, shown.stdout


def test_a_small_detector_learns():
    pytest.importorskip("torch")
    shown = run(sys.executable, EXAMPLES / "detection.py", "--epochs", 6)
    assert shown.returncode == 0, shown.stderr
    found = [float(line.split("found ")[1].split("%")[0]) for line in shown.stdout.splitlines() if "found" in line]
    assert len(found) == 6 and max(found) > 50, shown.stdout


def test_a_unet_learns_from_raw_scans():
    pytest.importorskip("torch")
    shown = run(sys.executable, EXAMPLES / "unet3d.py", "--epochs", 2)
    assert shown.returncode == 0, shown.stderr
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in shown.stdout.splitlines() if "loss" in line]
    assert len(losses) == 2 and losses[1] < losses[0] and "dice of whole scans" in shown.stdout


def test_speech_is_learned():
    pytest.importorskip("torch")
    build = os.environ.get("PENSTOCK_BUILD_DIR", "")
    if not shutil.which("penstock") and not os.access(os.path.join(build, "penstock"), os.X_OK):
        pytest.skip("needs the command line")
    shown = run(sys.executable, EXAMPLES / "speech.py", "--epochs", 3, "--device", "cpu")
    assert shown.returncode == 0, shown.stderr
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in shown.stdout.splitlines() if "loss" in line]
    assert len(losses) == 3 and losses[2] < 0.8 * losses[0] and "letters wrong" in shown.stdout, shown.stdout
