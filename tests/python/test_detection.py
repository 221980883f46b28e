# SPDX-License-Identifier: Apache-2.0
"""Boxes, labels and masks that follow their pictures, against the rules of torchvision's detection reference written again in
numpy's float32. Pictures say of each pixel where it was (red its column, green its row, blue 200), so that what an op drew can
be read from what it made."""
import json

import numpy
import penstock
import pytest
from PIL import Image

F32 = numpy.float32
SIDE = (96, 120)  # rows, columns


def coded(rows, cols):
    picture = numpy.full((rows, cols, 3), 200, numpy.uint8)
    picture[..., 0] = numpy.arange(cols)[None, :]
    picture[..., 1] = numpy.arange(rows)[:, None]
    return picture


def rectangle(left, top, width, height):
    return [[left, top, left + width, top, left + width, top + height, left, top + height]]


def write(root, pictures, annotations):
    """A COCO folder; pictures: (rows, cols) by id; annotations without ids."""
    (root / "val").mkdir(parents=True)
    (root / "annotations").mkdir()
    images = []
    for number, (rows, cols) in pictures.items():
        Image.fromarray(coded(rows, cols)).save(root / "val" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": cols, "height": rows})
    notes = [{"id": 100 + place, "area": note["bbox"][2] * note["bbox"][3], "iscrowd": 0, **note}
             for place, note in enumerate(annotations)]
    made = {"images": images, "annotations": notes, "categories": [{"id": n, "name": f"c{n}"} for n in range(1, 10)]}
    (root / "annotations" / "instances_val.json").write_text(json.dumps(made))
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Twelve pictures with whole-numbered rectangles, some of which are crowds, reach out of the picture or are empty."""
    draw, notes = numpy.random.default_rng(11), []
    for image in range(12):
        for place in range(image % 6):
            left, top = int(draw.integers(0, SIDE[1] - 30)), int(draw.integers(0, SIDE[0] - 30))
            width, height = (int(side) for side in draw.integers(5, 60, 2))
            notes.append({"image_id": image, "category_id": 1 + place, "bbox": [left, top, width, height],
                          "segmentation": rectangle(left, top, width, height)})
    notes.append({"image_id": 6, "category_id": 3, "bbox": [-8, -6, 30, 25], "segmentation": rectangle(-8, -6, 30, 25)})
    crowd = numpy.zeros(SIDE, numpy.uint8)
    crowd[10:20, 5:9] = 1
    runs = [int(n) for n in numpy.diff(numpy.flatnonzero(numpy.diff(numpy.r_[2, crowd.T.ravel(), 2])))]
    notes.append({"image_id": 5, "category_id": 9, "bbox": [5, 10, 4, 10], "iscrowd": 1,
                  "segmentation": {"size": list(SIDE), "counts": runs}})
    notes.append({"image_id": 5, "category_id": 8, "bbox": [5, 10, 0, 10], "segmentation": rectangle(5, 10, 1, 10)})
    return write(tmp_path_factory.mktemp("coco") / "set", {number: SIDE for number in range(12)}, notes), notes


def targets_of(notes, image, crowds=False):
    """As ConvertCocoPolysToMask: boxes in float32, clamped, empty ones and crowds left out."""
    own = [note for note in notes if note["image_id"] == image and (crowds or not note.get("iscrowd"))]
    boxes = numpy.array([note["bbox"] for note in own], F32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    boxes[:, 0::2] = boxes[:, 0::2].clip(0, SIDE[1])
    boxes[:, 1::2] = boxes[:, 1::2].clip(0, SIDE[0])
    keep = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 2] > boxes[:, 0])
    return boxes[keep], numpy.array([note["category_id"] for note in own], numpy.int64)[keep]


FIELDS = {"image": "", "boxes": "", "labels": "", "masks": ""}


def samples(root, pipeline, epochs=1, fields=FIELDS, **options):
    with penstock.Loader(root, pipeline, 5, seed=7, ends="short", fields=fields, **options) as loader:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                for slot, number in enumerate(batch["id"]):
                    yield int(number), {name: numpy.array(batch[name][slot]) for name in fields}


def masks_of(boxes, rows, cols):
    made = numpy.zeros((len(boxes), rows, cols), numpy.uint8)
    for mask, (left, top, right, bottom) in zip(made, boxes.astype(int)):
        mask[top:bottom, left:right] = 1
    return made


def test_objects_as_they_are_stored(data):
    root, notes = data
    seen = 0
    for number, got in samples(root, "decode"):
        boxes, labels = targets_of(notes, number)
        assert numpy.array_equal(got["boxes"], boxes) and numpy.array_equal(got["labels"], labels)
        assert got["masks"].dtype == numpy.uint8 and numpy.array_equal(got["masks"], masks_of(boxes, *SIDE))
        seen += len(boxes)
    assert seen == 31


def test_crowds_stay_on_request(data):
    root, notes = data
    got = dict(samples(root, "decode(crowd=keep)"))[5]
    assert numpy.array_equal(got["labels"], targets_of(notes, 5, crowds=True)[1]) and got["labels"][-1] == 9
    crowd = numpy.zeros(SIDE, numpy.uint8)
    crowd[10:20, 5:9] = 1
    assert numpy.array_equal(got["masks"][-1], crowd)


def test_labels_alone_follow_too(data):
    root, notes = data
    for number, got in samples(root, "decode", fields={"image": "", "labels": ""}):
        assert numpy.array_equal(got["labels"], targets_of(notes, number)[1])


def test_without_pictures_objects_pass_as_stored(data):
    root, notes = data
    got = dict(samples(root, "decode", fields={"labels": ""}))
    assert len(got[5]["labels"]) == 7


def resized(boxes, rows, cols):
    ratios = numpy.array([F32(cols) / F32(SIDE[1]), F32(rows) / F32(SIDE[0])] * 2, F32)
    return boxes * ratios


def test_resize_and_flips(data):
    root, notes = data
    for number, got in samples(root, "decode | resize(200, max_size=240) | hflip(1) | vflip(1)"):
        boxes, labels = targets_of(notes, number)
        rows, cols = got["image"].shape[:2]
        assert (rows, cols) == (192, 240)
        want = resized(boxes, rows, cols)
        want[:, [0, 2]] = F32(cols) - want[:, [2, 0]]
        want[:, [1, 3]] = F32(rows) - want[:, [3, 1]]
        assert numpy.abs(got["boxes"] - want).max(initial=0) <= 1e-4
        assert numpy.array_equal(got["labels"], labels)
        assert numpy.array_equal(got["masks"], masks_of(want.round(), rows, cols))


def test_crops_and_pads(data):
    root, notes = data
    for number, got in samples(root, "decode | center_crop((50, 60)) | pad((3, 4, 5, 6))"):
        boxes, labels = targets_of(notes, number)
        want = boxes - numpy.array([30, 23, 30, 23], F32)
        want = want.clip(0, numpy.array([60, 50, 60, 50], F32))
        keep = (want[:, 2] > want[:, 0]) & (want[:, 3] > want[:, 1])
        want = want[keep] + numpy.array([3, 4, 3, 4], F32)
        assert numpy.array_equal(got["boxes"], want) and numpy.array_equal(got["labels"], labels[keep])
        assert got["masks"].shape == (len(want), 60, 68)


def test_turned_by_a_quarter(data):
    root, notes = data
    for number, got in samples(root, "decode | rotate(90, expand=true)"):
        boxes, labels = targets_of(notes, number)
        want = numpy.stack([boxes[:, 1], SIDE[1] - boxes[:, 2], boxes[:, 3], SIDE[1] - boxes[:, 0]], 1)
        assert got["image"].shape[:2] == SIDE[::-1]
        assert numpy.abs(got["boxes"] - want).max(initial=0) <= 1e-4 and numpy.array_equal(got["labels"], labels)
        assert numpy.array_equal(got["masks"], masks_of(want.round(), *SIDE[::-1]))


def test_random_resized_crop(data):
    """The window is read from the corners of the picture, which is enlarged by whole numbers."""
    root, notes = data
    for number, got in samples(root, "decode | random_crop((40, 48)) | resize((80, 96), interpolation=nearest)", 3):
        boxes, labels = targets_of(notes, number)
        left, top = got["image"][0, 0, :2].astype(int)
        want = (boxes - numpy.array([left, top] * 2, F32)).clip(0, numpy.array([48, 40] * 2, F32))
        keep = (want[:, 2] > want[:, 0]) & (want[:, 3] > want[:, 1])
        assert numpy.array_equal(got["boxes"], want[keep] * 2) and numpy.array_equal(got["labels"], labels[keep])


def place(picture):
    """Where the stored picture's corner lies in this one, and which part of it is there; None: nothing of it."""
    inside = picture[..., 2] == 200
    if not inside.any():
        return None
    rows, cols = numpy.flatnonzero(inside.any(1)), numpy.flatnonzero(inside.any(0))
    first = picture[rows[0], cols[0]].astype(int)
    assert inside[rows[0]:rows[-1] + 1, cols[0]:cols[-1] + 1].all()
    assert numpy.array_equal(picture[rows[0]:rows[-1] + 1, cols[0]:cols[-1] + 1],
                             coded(*SIDE)[first[1]:first[1] + len(rows), first[0]:first[0] + len(cols)])
    return int(cols[0]) - first[0], int(rows[0]) - first[1]


def test_zoom_out(data):
    root, notes = data
    sides, spots = [], []
    for number, got in samples(root, "decode | zoom_out(fill=(1, 2, 3))", 40):
        boxes, labels = targets_of(notes, number)
        left, top = place(got["image"])
        rows, cols = got["image"].shape[:2]
        assert numpy.array_equal(got["boxes"], boxes + numpy.array([left, top] * 2, F32))
        assert numpy.array_equal(got["labels"], labels)
        outside = got["image"][got["image"][..., 2] != 200]
        assert (outside == (1, 2, 3)).all()
        sides.append(rows / SIDE[0])
        if cols - SIDE[1] > 60:
            spots.append(left / (cols - SIDE[1]))
    sides = numpy.array(sides)
    acted = sides > 1
    assert abs(acted.mean() - 0.5) < 3 * (0.25 / len(sides)) ** 0.5 + 0.01
    uniform(sides[acted], 1, 4)
    uniform(spots, 0, 1)


def uniform(values, low, high, bins=8):
    counts = numpy.histogram(values, bins, (low, high))[0]
    expected = len(values) / bins
    assert ((counts - expected) ** 2 / expected).sum() < 24.3, counts  # 7 degrees of freedom, p = 0.001


# ---- crops by overlap --------------------------------------------------------------------------------------------------------

def overlap(boxes, window):
    left, top = numpy.maximum(boxes[:, :2], window[:2]).T
    right, bottom = numpy.minimum(boxes[:, 2:], window[2:]).T
    inter = (right - left).clip(0) * (bottom - top).clip(0)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return inter / (area + (window[2] - window[0]) * (window[3] - window[1]) - inter)


def reference_crop(draw, boxes, rows, cols):
    """RandomIoUCrop.forward: the window and which boxes stay; None: as it is."""
    options = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    while True:
        least = options[draw.integers(0, len(options))]
        if least >= 1.0 or not len(boxes):
            return None
        for _ in range(40):
            width, height = (int(side * by) for side, by in zip((cols, rows), 0.3 + 0.7 * draw.random(2)))
            if not 0.5 <= width / height <= 2:
                continue
            left, top = (int(rest * by) for rest, by in zip((cols - width, rows - height), draw.random(2)))
            window = numpy.array([left, top, left + width, top + height], F32)
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            within = ((middle > window[:2]) & (middle < window[2:])).all(1)
            if within.any() and overlap(boxes[within], window).max() >= least:
                return window, within


def check_crop(got, boxes, labels, place_of):
    """The window of a crop; boxes and labels are what the reference keeps of it."""
    rows, cols = got["image"].shape[:2]
    left, top = place_of
    window = numpy.array([-left, -top, cols - left, rows - top], F32)
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    within = ((middle > window[:2]) & (middle < window[2:])).all(1)
    want = (boxes[within] - window[[0, 1, 0, 1]]).clip(0, numpy.array([cols, rows] * 2, F32))
    assert numpy.abs(got["boxes"] - want).max(initial=0) <= 1e-4
    assert numpy.array_equal(got["labels"], labels[within])
    return window, within


def test_iou_crop(data):
    """Each result is one that the reference could have made, and how often is how often it makes it."""
    root, notes = data
    draw, ours, theirs = numpy.random.default_rng(3), [], []
    for number, got in samples(root, "decode | iou_crop", 250):
        boxes, labels = targets_of(notes, number)
        rows, cols = got["image"].shape[:2]
        if not len(boxes):
            assert (rows, cols) == SIDE and got["boxes"].shape == (0, 4) and got["masks"].shape == (0, *SIDE)
            continue
        if (rows, cols) == SIDE:
            assert numpy.array_equal(got["boxes"], boxes)
            ours.append(None)
        else:
            ours.append(check_crop(got, boxes, labels, place(got["image"])))
            assert len(got["labels"]) > 0
        theirs.append(reference_crop(draw, boxes, *SIDE))
    assert len(ours) == 2750
    for measure in (
        lambda crop: -1 if crop is None else crop[1].sum(),
        lambda crop: -1 if crop is None else (crop[0][2] - crop[0][0]) // 12,
        lambda crop: -1 if crop is None else (crop[0][3] - crop[0][1]) // 10,
        lambda crop: -1 if crop is None else crop[0][0] // 10,
        lambda crop: -1 if crop is None else crop[0][1] // 8,
    ):
        same(list(map(measure, ours)), list(map(measure, theirs)))


def same(a, b):
    """Chi-square of two samples of equal size over the values that come often enough."""
    values = sorted(set(a) | set(b))
    counts = numpy.array([[list(side).count(value) for value in values] for side in (a, b)])
    often = counts.sum(0) >= 20
    table = numpy.c_[counts[:, often], counts[:, ~often].sum(1)]
    table = table[:, table.sum(0) > 0]
    chi2 = ((table[0] - table[1]) ** 2 / table.sum(0)).sum()
    freedom = table.shape[1] - 1
    assert chi2 < freedom + 3.3 * (2 * freedom) ** 0.5 + 4, (chi2, table)  # about p = 0.001


def test_the_recipe_of_ssd(data):
    """Zoomed out and cropped: only the part of the canvas that is read is made, and it is the right one."""
    root, notes = data
    crops = 0
    for number, got in samples(root, "decode | zoom_out(fill=0) | iou_crop", 30):
        boxes, labels = targets_of(notes, number)
        where = place(got["image"])
        if where is None or not len(boxes):
            continue
        crops += got["image"].shape[:2] != SIDE
        check_crop(got, boxes, labels, where) if len(got["boxes"]) < len(boxes) else None
        assert got["masks"].shape == (len(got["boxes"]), *got["image"].shape[:2])
        for mask, box in zip(got["masks"], got["boxes"].astype(int)):
            assert mask.sum() == (box[2] - box[0]) * (box[3] - box[1]) and mask[box[1], box[0]]
    assert crops > 100


def test_the_cached_and_the_read_have_the_same_objects(data):
    recipe = "decode | resize((64, 80)) | iou_crop(overlaps=0.3) | hflip"
    read = list(samples(data[0], recipe, 4, shuffle=False, cache=0))
    found = list(samples(data[0], recipe, 4, shuffle=False, cache="64M"))
    assert len(read) == len(found) == 48
    for (number, one), (same, other) in zip(read, found):
        assert number == same and all(numpy.array_equal(one[name], other[name]) for name in FIELDS)


# ---- as torchvision's dictionaries -------------------------------------------------------------------------------------------

def test_targets_are_views_of_the_batch(data):
    root, notes = data
    fields = {"image": "padded", "boxes": "padded", "labels": "", "masks": "", "image_id": "", "area": "", "iscrowd": ""}
    for batch in penstock.Loader(root, "decode | random_crop((60, 60), pad_if_needed=true)", 12, ends="short", epochs=1, fields=fields):
        targets = batch.targets()
        assert len(targets) == batch.size and [*targets[0]] == [*list(fields)[1:4], "image_id", "area", "iscrowd"]
        for slot, target in enumerate(targets):
            assert target["image_id"].tolist() == [batch["image_id"][slot]]
            count = len(target["labels"])
            assert target["boxes"].shape == (count, 4) and target["masks"].shape == (count, 60, 60)
            assert len(target["area"]) == len(target["iscrowd"]) == count
            assert numpy.shares_memory(target["boxes"], batch["boxes"]) or not count
    batch = next(iter(penstock.Loader(root, "decode", 2, fields={"image": ""})))
    with pytest.raises(TypeError, match="no objects"):
        batch.targets()


def test_batches_of_one_shape_are_padded_to_32(tmp_path):
    sizes = {number: (40, 60) if number % 3 else (60, 40) for number in range(30)}
    root = write(tmp_path / "set", sizes, [{"image_id": n, "category_id": 1, "bbox": [1, 1, 9, 9]} for n in range(30)])
    fields = {"image": "padded(32)", "boxes": ""}
    loader = penstock.Loader(root, "decode | hflip | normalize(imagenet)", 5, fields=fields, buckets="aspect", epochs=1)
    shapes = [batch["image"].shape for batch in loader]
    assert sorted(shapes) == [(5, 3, 64, 64)] * 6
    with penstock.Loader(root, "decode", 5, fields=fields, buckets="aspect", epochs=1) as loader:
        assert all(len(numpy.unique(batch.lengths("image"), axis=0)) == 1 for batch in loader)


def test_collate_gives_what_torchvision_models_take(data):
    torch = pytest.importorskip("torch")
    from penstock.torch import detection_collate

    root, notes = data
    fields = ("image", "boxes", "labels", "masks", "image_id")
    loader = penstock.Loader(root, "decode | iou_crop | to(f32, nchw)", 4, device="cpu", fields=fields, collate=detection_collate,
                             epochs=1, ends="short")
    seen = []
    for images, targets in loader:
        assert len(images) == len(targets)
        for image, target in zip(images, targets):
            assert image.dtype is torch.float32 and image.shape[0] == 3 and 0 <= image.min() and image.max() <= 1
            assert target["boxes"].shape == (len(target["labels"]), 4) and target["labels"].dtype is torch.int64
            assert target["masks"].shape == (len(target["labels"]), *image.shape[1:])
            seen += target["image_id"].tolist()
    assert sorted(seen) == list(range(12))


# ---- sizes, normalize --------------------------------------------------------------------------------------------------------

def mlperf_size(rows, cols, size, most):
    least, largest = float(min(rows, cols)), float(max(rows, cols))
    if largest / least * size > most:
        size = int(round(most * least / largest))
    if (cols <= rows and cols == size) or (rows <= cols and rows == size):
        return rows, cols
    return (int(size * rows / cols), size) if cols < rows else (size, int(size * cols / rows))


def test_sizes_of_mlperf(tmp_path):
    sizes = [(60, 80), (80, 60), (37, 111), (111, 37), (64, 64), (80, 133), (133, 80), (41, 97), (80, 90), (71, 150), (150, 71)]
    for rows, cols in sizes:
        Image.fromarray(coded(rows, cols)).save(tmp_path / f"{rows}-{cols}.png")
    loader = penstock.Loader(tmp_path, "decode | resize(80, max_size=133, rule=mlperf)", 1, ends="short")
    for batch in loader:
        rows, cols = (int(side) for side in batch["key"][0].split(".")[0].split("-"))
        assert batch["image"][0].shape[:2] == mlperf_size(rows, cols, 80, 133), batch["key"]


def test_caffe_normalises_bytes_from_blue_to_red(tmp_path):
    Image.fromarray(coded(40, 50)).save(tmp_path / "a.png")
    batch = next(iter(penstock.Loader(tmp_path, "decode | bgr | normalize(caffe)", 1, ends="short")))
    want = coded(40, 50)[..., ::-1].astype(F32).transpose(2, 0, 1) - numpy.array([102.9801, 115.9465, 122.7717], F32)[:, None, None]
    assert numpy.abs(batch["image"][0] - want).max() < 1e-4


# ---- what is wrong with the data, or with the pipeline -----------------------------------------------------------------------

@pytest.mark.parametrize("note, says", [
    ({"bbox": [200, 10, 5, 5]}, "annotation 100: the box from (200, 10) to (205, 15) lies outside"),
    ({"bbox": [-50, 10, 20, 5]}, "outside"),
    ({"bbox": [10, 96, 5, 5]}, "outside"),
    ({"bbox": [1e39, 0, 5, 5]}, "numbers that are none"),
    ({"bbox": [1, 1, 5, 5], "segmentation": [[1e12, 0, 5, 5, 7, 7]]}, "shape is not one in a picture"),
    ({"bbox": [1, 1, 5, 5], "segmentation": {"size": [2, 2], "counts": [1, 3]}}, "shape is not one in a picture"),
])
def test_an_impossible_object_makes_the_sample_bad(tmp_path, note, says):
    root = write(tmp_path / "set", {1: SIDE}, [{"image_id": 1, "category_id": 1, **note}])
    with pytest.raises(penstock.DataError) as caught:
        list(samples(root, "decode"))
    assert says in str(caught.value)


def test_annotations_of_another_picture_are_refused(tmp_path):
    root = write(tmp_path / "set", {1: SIDE}, [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5]}])
    Image.fromarray(coded(50, 60)).save(root / "val" / "1.png")
    with pytest.raises(penstock.DataError, match="of a picture of 120 columns, this one has 60"):
        list(samples(root, "decode"))


def test_what_boxes_cannot_follow_is_refused(data):
    with pytest.raises(penstock.PipelineError, match="boxes can follow only one"):
        penstock.Loader(data[0], "decode | views(2: hflip)", 2, fields=FIELDS)
    smaller = penstock.python(lambda image: image[::2, ::2], shape=(48, 60))
    with pytest.raises(penstock.PipelineError, match="boxes cannot follow"):
        penstock.Loader(data[0], penstock.ops.decode() | smaller, 2, fields=FIELDS)


def test_iou_crop_needs_boxes(data):
    with pytest.raises(penstock.PipelineError, match="needs images with objects"):
        penstock.Loader(data[0], "decode | iou_crop", 2, fields={"image": ""})
