# SPDX-License-Identifier: Apache-2.0
"""Grain: Pillow and numpy in its worker processes, batches through its shared memory."""
import math
import sys

import harness

NOTE = "decoding and ops are the user's Python (Pillow)"


def version():
    import importlib.metadata

    return importlib.metadata.version("grain")


def crop_box(width, height, rng):
    """A random resized crop's window."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = rng.integers(0, width - w + 1), rng.integers(0, height - h + 1)
            return left, top, left + w, top + h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2


def load(pair, rng):
    import numpy
    from PIL import Image

    path, label = pair
    with Image.open(path) as picture:
        picture = picture.convert("RGB")
        picture = picture.resize((224, 224), Image.BILINEAR, box=crop_box(*picture.size, rng))
    pixels = numpy.asarray(picture, numpy.float32)
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    mean, std = (numpy.array(values, numpy.float32) for values in (harness.MEAN, harness.STD))
    return ((pixels / 255 - mean) / std).transpose(2, 0, 1), label


def batches(args):
    import grain

    data = grain.MapDataset.source(harness.paths_in(args.data)).seed(0).shuffle().repeat().random_map(load)
    data = data.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=64))
    data = data.batch(args.batch, drop_remainder=True)
    return iter(data.mp_prefetch(grain.MultiprocessingOptions(num_workers=args.workers, per_worker_buffer_size=2)))


def fixed(args, paths):
    return harness.reference(paths)  # what the user's Pillow code gives


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
