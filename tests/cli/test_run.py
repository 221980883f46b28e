# SPDX-License-Identifier: Apache-2.0
"""penstock run: exactly what the pipeline yields, as .npy."""
import os
import resource
import signal
import subprocess

import numpy as np
import pytest
from PIL import Image


def test_decode_is_what_pillow_decodes(penstock, photo, tmp_path):
    penstock("run", photo, "--pipeline", "decode", "--npy", tmp_path / "a.npy")
    got = np.load(tmp_path / "a.npy")
    with Image.open(photo) as image:
        assert got.dtype == np.uint8
        np.testing.assert_array_equal(got, np.asarray(image.convert("RGB")))


def test_normalised_output_is_float_planes(penstock, photo, tmp_path):
    done = penstock("run", photo, "--pipeline", "decode | center_crop(64) | normalize(imagenet)", "--npy", tmp_path / "a.npy")
    got = np.load(tmp_path / "a.npy")
    assert got.dtype == np.float32 and got.shape == (3, 64, 64)
    assert "f32 (3, 64, 64)" in done.out
    penstock("run", photo, "--pipeline", "decode | center_crop(64)", "--npy", tmp_path / "b.npy")
    plain = np.load(tmp_path / "b.npy").astype(np.float64).transpose(2, 0, 1) / 255
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(got, (plain - mean[:, None, None]) / std[:, None, None], atol=2e-6)


@pytest.mark.parametrize("dtype, stored", [("f16", np.float16), ("bf16", np.uint16), ("u8", np.uint8)])
def test_types(penstock, photo, tmp_path, dtype, stored):
    penstock("run", photo, "--pipeline", f"decode | center_crop(32) | to({dtype})", "--npy", tmp_path / "a.npy")
    assert np.load(tmp_path / "a.npy").dtype == stored


def test_choices_hang_on_seed_epoch_and_id(penstock, photo, tmp_path):
    def crop(*args):
        penstock("run", photo, "--pipeline", "decode | random_resized_crop(48)", "--npy", tmp_path / "a.npy", *args)
        return np.load(tmp_path / "a.npy").tobytes()

    base = crop("--seed", 1, "--epoch", 2, "--id", 3)
    assert base == crop("--seed", 1, "--epoch", 2, "--id", 3)
    others = {crop("--seed", 2, "--epoch", 2, "--id", 3), crop("--seed", 1, "--epoch", 3, "--id", 3),
              crop("--seed", 1, "--epoch", 2, "--id", 4)}
    assert base not in others and len(others) == 3


def test_output_replaces_a_file_whole_or_not_at_all(penstock, photo, tmp_path):
    out = tmp_path / "a.npy"
    out.write_bytes(b"before")
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(photo.read_bytes()[:300])
    done = penstock("run", bad, "--pipeline", "decode", "--npy", out, check=False)
    assert done.code == 1 and out.read_bytes() == b"before"
    penstock("run", photo, "--pipeline", "decode", "--npy", out)
    assert np.load(out).ndim == 3
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "bad.jpg"]


def test_a_write_that_fails_leaves_the_old_file(binary, photo, tmp_path):
    def small_files_only():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))

    out = tmp_path / "a.npy"
    out.write_bytes(b"before")
    done = subprocess.run([binary, "run", str(photo), "--pipeline", "decode", "--npy", str(out)], preexec_fn=small_files_only,
                          capture_output=True, text=True)
    assert done.returncode == 1 and "cannot write" in done.stderr and "File too large" in done.stderr
    assert out.read_bytes() == b"before" and os.listdir(tmp_path) == ["a.npy"]


def test_refusals(penstock, photos, photo, tmp_path):
    for args, words in [
        ([tmp_path / "none.jpg", "--npy", tmp_path / "a.npy"], "none.jpg"),
        ([photos, "--npy", tmp_path / "a.npy"], "is a folder"),
        ([photo, "--npy", tmp_path], "directory"),
        ([photo, "--npy", tmp_path / "no" / "a.npy"], "cannot write"),
    ]:
        done = penstock("run", *args, "--pipeline", "decode", check=False)
        assert done.code == 1 and words in done.err, done.err
    text = tmp_path / "text.jpg"
    text.write_text("not a picture")
    done = penstock("run", text, "--pipeline", "decode", "--npy", tmp_path / "a.npy", check=False)
    assert done.code == 1 and "text.jpg" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(penstock, photo, tmp_path):
    copy = tmp_path / "locked.jpg"
    copy.write_bytes(photo.read_bytes())
    copy.chmod(0)
    done = penstock("run", copy, "--pipeline", "decode", "--npy", tmp_path / "a.npy", check=False)
    assert done.code == 1 and "locked.jpg" in done.err
