# SPDX-License-Identifier: Apache-2.0
"""penstock synth: photo-like files, a function of the seed alone; refusals."""
import array
import gzip
import hashlib
import json
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


def test_detection_has_annotations_as_coco_has_them(penstock, tmp_path):
    """Boxes lie in their pictures and enclose their polygons, in COCO's shares of sizes; the loader takes every sample."""
    penstock("synth", "detection", tmp_path / "a", "--count", 150, "--scale", 0.04, "--jobs", 1, "--classes", 7)
    penstock("synth", "detection", tmp_path / "b", "--count", 150, "--scale", 0.04, "--jobs", 3, "--classes", 7)
    text = (tmp_path / "a/annotations/instances_train.json").read_text()
    assert digest(tmp_path / "a") == digest(tmp_path / "b") and len(digest(tmp_path / "a")) == 150
    assert text == (tmp_path / "b/annotations/instances_train.json").read_text()
    made = json.loads(text)
    sizes = {image["id"]: (image["width"], image["height"]) for image in made["images"]}
    for image in made["images"]:
        with Image.open(tmp_path / "a/train" / image["file_name"]) as picture:
            assert picture.size == sizes[image["id"]]
    assert list(sizes.values()).count((128, 96)) > 50
    small = 0
    for note in made["annotations"]:
        left, top, width, height = note["bbox"]
        (cols, rows), points = sizes[note["image_id"]], note["segmentation"][0]
        assert 0 <= left and 0 <= top and left + width <= cols + 0.005 and top + height <= rows + 0.005
        assert min(points[0::2]) == left and abs(max(points[0::2]) - left - width) < 0.006 and len(points) >= 16
        assert min(points[1::2]) == top and 0 < note["area"] <= width * height and 1 <= note["category_id"] <= 7
        small += note["area"] < 32 * 32 * 0.04
    assert 5 < len(made["annotations"]) / 150 < 10 and 0.3 < small / len(made["annotations"]) < 0.6
    done = penstock("feed", tmp_path / "a", "--pipeline", "decode | zoom_out | iou_crop | resize((64, 64))",
                    "--fields", "image,boxes,labels,masks", "--batch", 8)
    assert "150 samples in 19 batches" in done.out


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


def test_volumes_are_scans_with_masks(penstock, tmp_path):
    for form, files in (("nifti", 16), ("npy", 16)):
        out = penstock("synth", "volumes", tmp_path / form, "--count", 8, "--scale", 0.002, "--form", form).out
        assert out.startswith("8 scans in")
        assert len([p for p in (tmp_path / form).rglob("*") if p.is_file()]) == files
        out = penstock("inspect", tmp_path / form, "--deep").out
        assert "8 samples" in out and "0 of 8 samples" in out, out
    recipe = "decode | spacing((1.6, 1.2, 1.2)) | pad_min(16) | balanced_crop(16) | random_flip"
    assert "8 samples" in penstock("feed", tmp_path / "nifti", "--pipeline", recipe, "--batch", 4).out


def test_volumes_have_the_sizes_that_were_asked_for(penstock, tmp_path):
    numpy = pytest.importorskip("numpy")
    penstock("synth", "volumes", tmp_path / "v", "--count", 40, "--scale", 0.004)
    voxels = []
    for case in (tmp_path / "v").iterdir():
        head = gzip.open(case / "imaging.nii.gz").read(352)
        size, unit = numpy.frombuffer(head, "<i2", 3, 42), numpy.frombuffer(head, "<f4", 3, 80)
        prepared = (unit.astype(float) / (1.6, 1.2, 1.2) * size).astype(int)
        assert gzip.open(case / "segmentation.nii.gz").read(80)[:48] == head[:48] and (prepared > 8).all()
        voxels.append(prepared.prod() / 0.004 / 1e6)
        assert 0.5 <= unit[0] <= 5 and 0.44 <= unit[1] <= 1.041
    assert 5 < min(voxels) and max(voxels) < 80 and 17 < numpy.median(voxels) < 31


def test_volumes_are_a_function_of_the_seed(penstock, tmp_path):
    def digests(folder):
        return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.npy")}

    made = {}
    for name, options in (("a", ("--jobs", 1)), ("b", ("--jobs", 3)), ("c", ("--seed", 1))):
        options += ("--count", 3, "--scale", 0.001, "--form", "npy")
        penstock("synth", "volumes", tmp_path / name, *options)
        made[name] = digests(tmp_path / name)
    assert len(made["a"]) == 6 and made["a"] == made["b"] and not set(made["a"].values()) & set(made["c"].values())
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
    cases = {("images", "--scale", 2): "--scale is not for images", ("images", "--form", "wav"): "--form is not",
             ("speech", "--form", "mp3"): "'mp3' is unknown for speech; there are: "}
    for words, message in cases.items():
        done = penstock("synth", words[0], tmp_path / "x", "--count", 1, *words[1:], check=False)
        assert done.code == 2 and message in done.err
    assert not (tmp_path / "x").exists()
