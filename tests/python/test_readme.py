# SPDX-License-Identifier: Apache-2.0
"""The README's program runs as it is printed there, and learns."""

import subprocess
import sys

import pytest
import readme

import penstock


def test_the_program_trains_and_saves(tmp_path):
    torch = pytest.importorskip("torch")
    readme.make_photos(tmp_path / "photos")
    script = "import torch; torch.manual_seed(0)\n" + readme.program()
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    readme.check_output(done.stdout)
    saved = torch.load(tmp_path / "run.pt", map_location="cpu")
    assert set(saved) == {"net", "data"}
    again = penstock.Loader(tmp_path / "photos", "decode | random_resized_crop(96) | hflip | normalize(imagenet)", 64)
    again.load_state_dict(saved["data"])
    assert sum(len(labels) for _, labels in again) == 150  # five epochs are over: the sixth is whole


def test_the_program_is_about_ten_lines():
    assert len([line for line in readme.program().splitlines() if line.strip()]) <= 12
