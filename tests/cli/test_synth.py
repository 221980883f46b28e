# SPDX-License-Identifier: Apache-2.0
"""penstock synth: photo-like files, a function of the seed alone; refusals."""
import array
import hashlib
import os
import signal
import subprocess
import time
import wave

import pytest
from PIL import Image


def digest(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.jpg")}


def test_same_seed_same_files_whatever_the_threads(penstock, tmp_path):
    penstock("synth", "images", tmp_path / "a", "--count", 12, "--seed", 9, "--jobs", 1)
    penstock("synth", "images", tmp_path / "b", "--count", 12, "--seed", 9, "--jobs", 3)
    penstock("synth", "images", tmp_path / "c", "--count", 12, "--seed", 10)
    assert len(digest(tmp_path / "a")) == 12
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert not set(digest(tmp_path / "a").values()) & set(digest(tmp_path / "c").values())


def test_fewer_files_are_a_prefix_of_more(penstock, tmp_path):
    penstock("synth", "images", tmp_path / "few", "--count", 5)
    penstock("synth", "images", tmp_path / "more", "--count", 11)
    more = digest(tmp_path / "more")
    assert all(more[name] == value for name, value in digest(tmp_path / "few").items())


def test_files_look_like_photos(penstock, tmp_path):
    penstock("synth", "images", tmp_path / "p", "--count", 200, "--classes", 5)
    files = sorted((tmp_path / "p").rglob("*.jpg"))
    assert len(files) == 200 and len(list((tmp_path / "p").iterdir())) == 5
    mean = sum(f.stat().st_size for f in files) / len(files)
    assert 95e3 < mean < 125e3
    sizes, modes, progressive = [], [], 0
    for f in files:
        with Image.open(f) as image:
            image.load()
            sizes.append(image.size)
            modes.append(image.mode)
            progressive += "progressive" in image.info
    assert sizes.count((500, 375)) > 60 and sizes.count((375, 500)) > 10 and len(set(sizes)) > 6
    assert 0 < modes.count("L") < 30 and modes.count("RGB") > 160
    assert 0 < progressive < 30


def test_classes_differ_in_colour(penstock, tmp_path):
    """The nearest class mean, by the mean colour alone, is right far more often than chance."""
    penstock("synth", "images", tmp_path / "p", "--count", 60, "--classes", 3)
    colours = {}
    for folder in sorted((tmp_path / "p").iterdir()):
        for f in folder.iterdir():
            with Image.open(f) as image:
                if image.mode == "RGB":
                    colours.setdefault(folder.name, []).append(image.convert("YCbCr").resize((1, 1), Image.BOX).getpixel((0, 0))[1:])
    means = {name: [sum(c) / len(c) for c in zip(*values)] for name, values in colours.items()}
    right = total = 0
    for name, values in colours.items():
        for value in values:
            nearest = min(means, key=lambda n: sum((a - b) ** 2 for a, b in zip(value, means[n])))
            right += nearest == name
            total += 1
    assert right > 0.8 * total


def test_refuses_a_folder_that_is_not_empty(penstock, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    done = penstock("synth", "images", tmp_path, "--count", 1, check=False)
    assert done.code == 1 and "not empty" in done.err and "--force" in done.err
    penstock("synth", "images", tmp_path, "--count", 1, "--force")
    assert (tmp_path / "note.txt").read_text() == "mine"


def test_unwritable_place(penstock, tmp_path):
    done = penstock("synth", "images", tmp_path / "no" / "where", "--count", 1, check=False)
    assert done.code == 1 and "cannot make folder" in done.err


def test_full_disk_is_said_and_leaves_no_partial_file(penstock, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True).returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    try:
        done = penstock("synth", "images", small / "p", "--count", 100, check=False)
        assert done.code == 1 and "No space left" in done.err and "free some space" in done.err
        for f in small.rglob("*.jpg"):
            with Image.open(f) as image:
                image.load()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_interrupt_ends_soon_with_whole_files(binary, tmp_path):
    child = subprocess.Popen([binary, "synth", "images", str(tmp_path / "p"), "--count", "100000"], stdout=subprocess.PIPE)
    while not list((tmp_path / "p").rglob("*.jpg")):
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=5)
    assert child.returncode == 130 and b"interrupted" in out
    for f in (tmp_path / "p").rglob("*.jpg"):
        with Image.open(f) as image:
            image.load()


def speech(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.*")}


def samples(path):
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16000)
        return array.array("h", file.readframes(file.getnframes()))


def test_speech_is_a_function_of_the_seed(penstock, tmp_path):
    penstock("synth", "speech", tmp_path / "a", "--count", 40, "--scale", 0.02, "--jobs", 1)
    penstock("synth", "speech", tmp_path / "b", "--count", 40, "--scale", 0.02, "--jobs", 3)
    penstock("synth", "speech", tmp_path / "c", "--count", 40, "--scale", 0.02, "--seed", 1)
    a = speech(tmp_path / "a")
    assert len(a) == 42 and a == speech(tmp_path / "b") and a != speech(tmp_path / "c")


def test_speech_has_librispeechs_lengths(penstock, tmp_path):
    """Durations a tenth as long: two thirds between 12 and 16.7 s, none outside 1.3 and 16.7, 12.3 on average."""
    penstock("synth", "speech", tmp_path / "s", "--count", 400, "--scale", 0.1, "--form", "wav")
    lengths = [10 * len(samples(path)) / 16000 for path in (tmp_path / "s").rglob("*.wav")]
    assert len(lengths) == 400 and min(lengths) >= 1.29 and max(lengths) <= 16.71
    assert 0.6 < sum(n >= 12 for n in lengths) / 400 < 0.71 and 11.8 < sum(lengths) / 400 < 12.8


def test_speech_is_silent_at_its_ends_and_the_text_says_how_much_there_is(penstock, tmp_path):
    penstock("synth", "speech", tmp_path / "s", "--count", 8, "--form", "wav")
    (lines,) = [path.read_text().splitlines() for path in (tmp_path / "s").rglob("*.trans.txt")]
    for line in lines:
        name, text = line.split(" ", 1)
        sound = samples(next((tmp_path / "s").rglob(name + ".wav")))
        assert max(map(abs, sound[:1600])) <= 2 and max(map(abs, sound[-1600:])) <= 2 and max(map(abs, sound)) > 3000
        letters = len(text.replace(" ", ""))
        assert letters % 2 == 0 and 5 < letters / (len(sound) / 16000) < 12, line


def test_forms_and_scales_that_a_kind_does_not_have_are_refused(penstock, tmp_path):
    for words, message in ((("images", "--scale", 2), "--scale is not for images"), (("images", "--form", "wav"), "--form is not"),
                           (("speech", "--form", "mp3"), "'mp3' is unknown for speech; there are: ")):
        done = penstock("synth", words[0], tmp_path / "x", "--count", 1, *words[1:], check=False)
        assert done.code == 2 and message in done.err
    assert not (tmp_path / "x").exists()
