#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Boxes against torchvision's functions and its detection reference (restated here, since it is no part of the package),
and masks of polygons against pycocotools' rule, restated in numpy.

    tests/pipeline/parity_objects.py OBJECTS_TOOL
"""
import subprocess
import sys

import numpy
import torch
from torchvision.models.detection.transform import resize_boxes
from torchvision.ops import box_iou
from torchvision.transforms import functional as F

TOOL = sys.argv[1]
SAME = (1, 0, 0, 0, 1, 0)
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit("FAILED: %s" % what)


def ask(*commands):
    text = "\n".join(" ".join(str(part) for part in command) for command in commands)
    return subprocess.run([TOOL], input=text, capture_output=True, text=True, check=True).stdout.splitlines()


# ---- boxes -----------------------------------------------------------------------------------------------------------

def draw_boxes(rng, count, rows, cols):
    """Boxes as COCO's: two decimals, some beyond the edges, some without width."""
    start = rng.uniform(-5, [cols, rows], (count, 2)).round(2)
    size = rng.uniform(0, [cols / 2, rows / 2], (count, 2)).round(2) * (rng.random((count, 2)) > 0.05)
    boxes = torch.tensor(numpy.concatenate([start, size], 1), dtype=torch.float32)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def begin(boxes, rows, cols):
    numbers = ("%.9g" % value for value in boxes.flatten().tolist())
    return ("boxes", len(boxes), rows, cols, *numbers)


def shown(lines):
    rows = numpy.array([line.split() for line in lines[:-1]], numpy.float64).reshape(-1, 5)
    return rows[:, 0].astype(int), rows[:, 1:], [float(value) for value in lines[-1].split()[1:]]


def clamped(boxes, rows, cols):
    """ConvertCocoPolysToMask."""
    boxes = boxes.clone()
    boxes[:, 0::2].clamp_(min=0, max=cols)
    boxes[:, 1::2].clamp_(min=0, max=rows)
    return boxes


def close(got, want, what):
    check(got.shape == tuple(want.shape) and (numpy.abs(got - want.double().numpy()) <= 1e-4).all(), what)


def boxes_follow(rng):
    for turn in range(40):
        rows, cols = (int(side) for side in rng.integers(50, 1400, 2))
        raw = draw_boxes(rng, int(rng.integers(0, 30)), rows, cols)
        boxes, number = clamped(raw, rows, cols), torch.arange(len(raw))
        keep = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 2] > boxes[:, 0])
        boxes, number = boxes[keep], number[keep]
        commands, start = [begin(raw, rows, cols), ("empty",)], (rows, cols)
        for kind in rng.choice(["resize", "hflip", "vflip", "zoom_out", "iou_crop", "crop"], 5):
            if kind == "resize":  # GeneralizedRCNNTransform
                to = tuple(int(side) for side in rng.integers(20, 1400, 2))
                boxes, commands = resize_boxes(boxes, [rows, cols], list(to)), commands + [("resize", *to)]
                rows, cols = to
            elif kind == "hflip":  # RandomHorizontalFlip
                boxes, commands = boxes.clone(), commands + [("hflip",)]
                boxes[:, [0, 2]] = cols - boxes[:, [2, 0]]
            elif kind == "vflip":
                boxes, commands = boxes.clone(), commands + [("vflip",)]
                boxes[:, [1, 3]] = rows - boxes[:, [3, 1]]
            elif kind == "zoom_out":  # RandomZoomOut
                by, high, wide = 1 + 3 * rng.random(), rows, cols
                rows, cols = int(rows * by), int(cols * by)
                left, top = int((cols - wide) * rng.random()), int((rows - high) * rng.random())
                boxes, commands = boxes.clone(), commands + [("pad", left, top, rows, cols)]
                boxes[:, 0::2] += left
                boxes[:, 1::2] += top
            else:
                high, wide = int(rows * rng.uniform(0.3, 1)) + 1, int(cols * rng.uniform(0.3, 1)) + 1
                left, top = int((cols - wide) * rng.random()), int((rows - high) * rng.random())
                if kind == "iou_crop":  # RandomIoUCrop
                    x, y = 0.5 * (boxes[:, 0] + boxes[:, 2]), 0.5 * (boxes[:, 1] + boxes[:, 3])
                    keep = (left < x) & (x < left + wide) & (top < y) & (y < top + high)
                    boxes, number = boxes[keep], number[keep]
                    commands.append(("outside", left, top, left + wide, top + high))
                boxes = boxes.clone()
                boxes[:, 0::2] -= left
                boxes[:, 1::2] -= top
                boxes, rows, cols = clamped(boxes, high, wide), high, wide
                commands.append(("crop", left, top, high, wide))
                if kind == "crop":
                    keep = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 2] > boxes[:, 0])
                    boxes, number, commands = boxes[keep], number[keep], commands + [("empty",)]
        got_number, got, got_map = shown(ask(*commands, ("show",)))
        check(got_number.tolist() == number.tolist(), "turn %d: %s keeps %s" % (turn, commands[1:], got_number))
        close(got, boxes, "turn %d: %s" % (turn, commands[1:]))
        corner_follows(rng, commands, start, got_map)


def corner_follows(rng, commands, start, got_map):
    """The map moves a point as a box around that point is moved, where nothing is clamped."""
    x, y = rng.uniform(0, start[1]), rng.uniform(0, start[0])
    steps = [command for command in commands[1:] if command[0] not in ("empty", "outside")]
    steps = [("pad", -step[1], -step[2], *step[3:]) if step[0] == "crop" else step for step in steps]
    box = torch.tensor([[x, y, x, y]], dtype=torch.float32)
    moved = shown(ask(begin(box, *start), *steps, ("show",)))[1][0]
    want = got_map[0] * x + got_map[1] * y + got_map[2], got_map[3] * x + got_map[4] * y + got_map[5]
    check(abs(moved[0] - want[0]) < 1e-2 and abs(moved[1] - want[1]) < 1e-2, "map %s of %s" % (got_map, steps))


def affine_bounds_the_corners(rng):
    for _ in range(20):
        matrix, rows, cols = rng.uniform(-1.5, 1.5, 6), 90, 120
        matrix[[2, 5]] *= 30
        boxes = clamped(draw_boxes(rng, 12, rows, cols), rows, cols)
        corner = boxes.double().numpy()[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 4, 2)
        moved = corner @ matrix.reshape(2, 3)[:, :2].T + matrix[[2, 5]]
        want = clamped(torch.tensor(numpy.concatenate([moved.min(1), moved.max(1)], 1)).float(), 100, 80)
        got = shown(ask(begin(boxes, rows, cols), ("affine", *matrix.tolist(), 100, 80), ("show",)))
        close(got[1], want, "affine %s" % matrix)


def overlaps(rng):
    boxes = clamped(draw_boxes(rng, 24, 60, 80), 60, 80)
    boxes = torch.cat([boxes, boxes[:2], torch.tensor([[0., 0, 80, 60], [5, 5, 5, 5]])])
    want = box_iou(boxes, boxes).numpy()
    pairs = [(a, b) for a in range(len(boxes)) for b in range(len(boxes))]
    got = ask(*(("iou", *boxes[a].tolist(), *boxes[b].tolist()) for a, b in pairs))
    got = numpy.array([float(value) for value in got]).reshape(want.shape)
    check(numpy.allclose(got, want, rtol=0, atol=1e-6, equal_nan=True), "box_iou")


def verdicts():
    keep, drop, outside, strange = range(4)
    cases = [((1, 2, 3, 4), keep), ((-5, -5, 3, 4), keep), ((-5, -5, 500, 400), keep), ((0, 0, 40, 30), keep),
             ((5, 5, 5, 9), drop), ((5, 9, 8, 9), drop), ((8, 5, 5, 9), drop), ((40, 30, 40, 30), drop),
             ((40, 0, 50, 9), outside), ((0, 30, 9, 35), outside), ((-9, 0, 0, 9), outside), ((0, -9, 9, 0), outside),
             ((50, 5, 50, 9), outside), ((-20, -20, -10, -10), outside),
             (("nan", 0, 1, 1), strange), ((0, 0, "inf", 1), strange)]
    got = ask(*(("judge", 30, 40, *box) for box, _ in cases))
    check([int(value) for value in got] == [want for _, want in cases], "verdicts %s" % got)
    # Middles on the four edges of a window, and one just inside.
    edges = torch.tensor([[5., 10, 15, 30], [25, 10, 35, 30], [15, 0, 25, 10], [15, 25, 25, 35], [5.5, 10, 15.5, 30]])
    check(shown(ask(begin(edges, 40, 40), ("outside", 10, 5, 30, 30), ("show",)))[0].tolist() == [4], "middles on edges")


# ---- masks -----------------------------------------------------------------------------------------------------------

def by_pycocotools(polygon, rows, cols):
    """rleFrPoly, then decode."""
    xy = numpy.asarray(polygon, float).reshape(-1, 2)
    grid = numpy.trunc(5 * xy + .5).astype(int)
    u, v = [], []
    for (xs, ys), (xe, ye) in zip(grid, numpy.roll(grid, -1, 0)):
        dx, dy = abs(xe - xs), abs(ye - ys)
        if dx == dy == 0:
            u.append([xs])
            v.append([ys])
            continue
        turned = (dx >= dy and xs > xe) or (dx < dy and ys > ye)
        if turned:
            xs, xe, ys, ye = xe, xs, ye, ys
        t = numpy.arange(max(dx, dy) + 1)
        t = t[::-1] if turned else t
        if dx >= dy:
            u.append(t + xs)
            v.append(numpy.trunc(ys + (ye - ys) / dx * t + .5).astype(int))
        else:
            v.append(t + ys)
            u.append(numpy.trunc(xs + (xe - xs) / dy * t + .5).astype(int))
    u, v = numpy.concatenate(u), numpy.concatenate(v)
    j = numpy.flatnonzero(u[1:] != u[:-1]) + 1
    x = (numpy.where(u[j] < u[j - 1], u[j], u[j] - 1) + .5) / 5 - .5
    y = (numpy.minimum(v[j], v[j - 1]) + .5) / 5 - .5
    good = (numpy.floor(x) == x) & (x >= 0) & (x <= cols - 1)
    x, y = x[good].astype(int), numpy.ceil(numpy.clip(y[good], 0, rows)).astype(int)
    changes = numpy.sort(numpy.append(x * rows + y, rows * cols))
    mask, value, last = numpy.zeros(rows * cols, numpy.uint8), 0, 0
    for at in changes:
        mask[last:at] = value
        value, last = 1 - value, at
    return mask.reshape(cols, rows).T


def lines_to_mask(lines, rows, cols):
    return numpy.array([[int(c) for c in line] for line in lines], numpy.uint8).reshape(rows, cols)


def draw_polygon(rng, rows, cols):
    kind = rng.integers(0, 5)
    count = int(rng.integers(3, 40))
    if kind == 0:  # anything, over the edges too
        points = rng.uniform(-0.5, 1.5, (count, 2)) * [cols, rows]
    elif kind == 1:  # a blob, as people draw them
        turn = numpy.sort(rng.uniform(0, 2 * numpy.pi, count))
        reach = rng.uniform(0.2, 0.5, (count, 1)) * [cols, rows]
        points = rng.uniform(0.3, 0.7, 2) * [cols, rows] + reach * numpy.stack([numpy.cos(turn), numpy.sin(turn)], 1)
    elif kind == 2:  # whole and half pixels, points twice
        points = rng.integers(0, 2 * max(rows, cols), (count, 2)) / 2
        points[1:][rng.random(count - 1) < 0.3] = points[0]
    elif kind == 3:  # smaller than a pixel
        points = rng.uniform(0, 1, (count, 2)) * 0.9 + rng.uniform(0, 1, 2) * [cols, rows]
    else:  # thin
        points = rng.uniform(0, 1, (3, 2)) * [cols, rows]
        points[2] = points[0] + 0.3
    return points.round(2) if rng.random() < 0.7 else points


def masks_of_polygons(rng):
    commands, wants = [], []
    for _ in range(600):
        rows, cols = (int(side) for side in rng.integers(1, 60, 2))
        polygons = [draw_polygon(rng, rows, cols) for _ in range(int(rng.integers(1, 4)))]
        scale, shift = (1, 0) if rng.random() < 0.5 else (rng.uniform(0.3, 2.5), rng.uniform(-9, 9))
        flip = rng.random() < 0.3
        matrix = (-scale if flip else scale, 0, cols + shift if flip else shift, 0, scale, shift)
        command = ["polygons", len(polygons), rows, cols, *("%.17g" % value for value in matrix)]
        want = numpy.zeros((rows, cols), numpy.uint8)
        for points in polygons:
            command += [len(points), *("%.17g" % value for value in points.flatten())]
            moved = numpy.stack([matrix[0] * points[:, 0] + matrix[1] * points[:, 1] + matrix[2],
                                 matrix[3] * points[:, 0] + matrix[4] * points[:, 1] + matrix[5]], 1)
            want |= by_pycocotools(moved, rows, cols)
        commands.append(command)
        wants.append(want)
    lines, at, ones = ask(*commands), 0, 0
    for command, want in zip(commands, wants):
        got = lines_to_mask(lines[at:at + len(want)], *want.shape)
        at += len(want)
        ones += got.sum()
        check((got == want).all(), "%s\n%s\n%s" % (command, got, want))
    check(ones > 50000, "the masks are not all empty")


def masks_of_runs(rng):
    for _ in range(60):
        rows, cols = (int(side) for side in rng.integers(1, 30, 2))
        mask = (rng.random((rows, cols)) < 0.4).astype(numpy.uint8)
        flat = mask.T.flatten()
        edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], flat])))
        runs = numpy.diff(numpy.concatenate([[0], edges, [len(flat)]]))
        command = ("runs", rows, cols, len(runs))
        got = lines_to_mask(ask((*command, rows, cols, *SAME, *runs)), rows, cols)
        check((got == mask).all(), "runs")
        got = lines_to_mask(ask((*command, rows, cols, -1, 0, cols, 0, 1, 0, *runs)), rows, cols)
        check((got == mask[:, ::-1]).all(), "runs, flipped")
        got = lines_to_mask(ask((*command, rows + 2, cols + 3, 1, 0, 1, 0, 1, 2, *runs)), rows + 2, cols + 3)
        check((got == numpy.pad(mask, ((2, 0), (1, 2)))).all(), "runs, shifted")
        got = lines_to_mask(ask((*command, 2 * rows, 2 * cols, 2, 0, 0, 0, 2, 0, *runs)), 2 * rows, 2 * cols)
        want = F.resize(torch.tensor(mask)[None], [2 * rows, 2 * cols], F.InterpolationMode.NEAREST)[0].numpy()
        check((got == want).all(), "runs, twice the size")


def absurd_shapes_are_refused():
    for value in ("nan", "inf", "-inf", "1e30", "5e6"):
        lines = ask(("polygons", 1, 4, 4, *SAME, 3, 0, 0, 4, value, 4, 4))
        check(len(lines) == 1 and "nowhere near" in lines[0], lines)
    lines = ask(("polygons", 1, 2, 4, *SAME, 3, -4e6, -4e6, 4e6, -4e6, 0, 4e6))
    check(lines == ["1111", "1111"], lines)  # far away, but no absurdity: at once
    check(ask(("polygons", 0, 2, 2, *SAME)) == ["00", "00"], "a shape of nothing")
    check(ask(("runs", 2, 2, 2, 1, 1, *SAME, 1, 2))[0].startswith("error"), "runs that are too short")


def main():
    rng = numpy.random.default_rng(11)
    for part in (boxes_follow, affine_bounds_the_corners, overlaps):
        part(rng)
    verdicts()
    masks_of_polygons(rng)
    masks_of_runs(rng)
    absurd_shapes_are_refused()
    print("%d checks" % checks)


if __name__ == "__main__":
    main()
