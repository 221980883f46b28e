# SPDX-License-Identifier: Apache-2.0
"""COCO annotations through the loader, against what torchvision's reference makes of the same file: image ids sorted,
annotations in the order of the file, boxes from corner and size in float32, categories as written, crowds left out."""
import json

import numpy
import penstock
import pytest
from PIL import Image


def reference(notes):
    """What CocoDetection, ConvertCocoPolysToMask and the filter for training make of it."""
    targets, annotated = [], []
    for number, image in enumerate(sorted(notes["images"], key=lambda image: image["id"])):
        own = [note for note in notes["annotations"] if note["image_id"] == image["id"]]
        boxes = numpy.array([note["bbox"] for note in own], numpy.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes = boxes.clip(0, numpy.array([image["width"], image["height"]] * 2, numpy.float32))
        keep = numpy.array([not note["iscrowd"] for note in own], bool)
        keep &= (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        targets.append({"image_id": image["id"], "boxes": boxes[keep],
                        "labels": numpy.array([note["category_id"] for note in own], numpy.int64)[keep],
                        "area": numpy.array([note["area"] for note in own], numpy.float32)[keep],
                        "iscrowd": numpy.zeros(keep.sum(), numpy.uint8)})
        if own and not all(any(side <= 1 for side in note["bbox"][2:]) for note in own):
            annotated.append(number)
    return targets, annotated


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    root, draw = tmp_path_factory.mktemp("coco"), numpy.random.default_rng(5)
    (root / "val2017").mkdir()
    (root / "annotations").mkdir()
    images, annotations = [], []
    for number in draw.permutation(40):
        rows, cols = (int(side) for side in draw.integers(41, 60, 2))
        picture = Image.fromarray(draw.integers(0, 255, (rows, cols, 3), numpy.uint8))
        picture.save(root / "val2017" / f"{number:012d}.jpg")
        images.append({"id": int(number) * 7, "file_name": f"{number:012d}.jpg", "width": cols, "height": rows})
    for number in range(150):
        size = draw.choice([0.5, 1, 3.25, 12.71], 2)
        annotations.append({
            "id": 1000 - number, "image_id": images[draw.integers(0, 25)]["id"],
            "category_id": int(draw.choice([1, 17, 90])),
            "bbox": [round(float(draw.uniform(0, 40)), 2), round(float(draw.uniform(0, 40)), 2), *map(float, size)],
            "area": float(size.prod()), "iscrowd": int(draw.integers(0, 2)), "segmentation": [[1, 1, 5, 1, 5, 5.5]]})
    categories = [{"id": 1, "name": "person"}, {"id": 17, "name": "cat"}, {"id": 90, "name": "toothbrush"}]
    made = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(made))
    return root, made


def test_every_sample_has_the_objects_of_its_image(notes):
    root, made = notes
    targets, annotated = reference(made)
    for path in (root, root / "annotations" / "instances_val2017.json"):
        data = penstock.Dataset(path)
        fields = {name: "" for name in ("image", "boxes", "labels", "area", "iscrowd", "image_id")}
        got = {}
        for batch in penstock.Loader(data, "decode", 7, shuffle=True, seed=3, ends="short", fields=fields):
            for slot, number in enumerate(batch["id"]):
                got[int(number)] = {name: numpy.array(batch[name][slot]) for name in fields}
        assert sorted(got) == list(range(40))
        for number, target in enumerate(targets):
            for name in target:
                assert numpy.array_equal(got[number][name], target[name]), (number, name)
            assert got[number]["boxes"].dtype == numpy.float32


def test_the_annotated_are_those_that_torchvision_trains_on(notes):
    root, made = notes
    annotated = reference(made)[1]
    batches = penstock.Loader(root, "decode", 5, split="val2017/annotated", ends="short", fields={"image_id": ""})
    assert sorted(int(number) for batch in batches for number in batch["id"]) == annotated
    assert 0 < len(annotated) < 40


def test_boxes_are_padded_on_request(notes):
    root, made = notes
    targets = reference(made)[0]
    batch = next(iter(penstock.Loader(root, "decode", 40, shuffle=False, ends="short", fields={"image": "", "boxes": "padded"})))
    most = max(len(target["boxes"]) for target in targets)
    assert batch["boxes"].shape == (40, most, 4)
    for slot, number in enumerate(batch["id"]):
        boxes = targets[int(number)]["boxes"]
        assert batch.lengths("boxes")[slot].tolist() == [len(boxes), 4]
        assert numpy.array_equal(batch["boxes"][slot][:len(boxes)], boxes)
        assert not batch["boxes"][slot][len(boxes):].any()
