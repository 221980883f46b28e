# SPDX-License-Identifier: Apache-2.0
"""What every contender's script shares: the windows, the figures, and the comparison with Pillow.

A contender is a module with two functions. `batches(args)` gives an endless iterator of training batches: random resized crop to
224, flip, normalised f32 nchw (or as near to that as the library gets; `NOTE` says where it differs). `fixed(args, paths)` gives the
same files in order through resize 256 and centre crop 224 as u8 [n, 224, 224, 3], for parity. `prepare(args)`, if there, runs before
anything is timed.
"""
import argparse
import json
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PeakMemory(threading.Thread):
    """Looks four times a second: smaps is slow to make."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.stop = 0, threading.Event()

    def run(self):
        while not self.stop.wait(0.25):
            self.peak = max(self.peak, common.memory_bytes()["Pss"])


def paths_in(folder):
    """Every picture below the folder with its label, in the order of their names."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [(os.path.join(folder, name, file), label) for label, name in enumerate(classes)
            for file in sorted(os.listdir(os.path.join(folder, name)))]


def reference(paths):
    """Pillow's own pixels: the shorter side to 256, the middle 224."""
    import numpy
    from PIL import Image

    pictures = []
    for path in paths:
        with Image.open(path) as picture:
            picture = picture.convert("RGB")
            width, height = picture.size
            size = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
            picture = picture.resize(size, Image.BILINEAR)
            left, top = int(round((size[0] - 224) / 2)), int(round((size[1] - 224) / 2))
            pictures.append(numpy.asarray(picture.crop((left, top, left + 224, top + 224))))
    return numpy.stack(pictures)


def parity(module, args):
    """Largest and mean difference from Pillow over some pictures, in steps of 1/255."""
    import numpy

    paths = [path for path, _ in paths_in(args.data)][:48]
    ours = numpy.asarray(module.fixed(args, paths)).astype(int)
    difference = numpy.abs(ours - reference(paths).astype(int))
    return {"max": int(difference.max()), "mean": float(difference.mean())}


def measure(module, args):
    getattr(module, "prepare", lambda args: None)(args)
    begin = time.perf_counter()
    batches = iter(module.batches(args))
    next(batches)
    first = time.perf_counter() - begin
    memory = PeakMemory()
    for _ in range(args.skip):
        next(batches)
    cpu, begin, count = common.cpu_seconds(), time.perf_counter(), 0
    while time.perf_counter() - begin < args.seconds:
        next(batches)
        count += args.batch
    took, cpu = time.perf_counter() - begin, common.cpu_seconds() - cpu
    memory.start()  # after the timed window: reading smaps costs the contender CPU
    for _ in range(max(2, args.skip // 2)):
        next(batches)
    memory.stop.set()
    memory.join()
    return {"rate": count / took, "cpu_per_1000": cpu / count * 1000, "first_batch_s": first,
            "peak_pss": max(memory.peak, common.memory_bytes()["Pss"])}


def main(module):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--skip", type=int, default=24)
    parser.add_argument("--parity", action="store_true")
    args = parser.parse_args()
    result = parity(module, args) if args.parity else measure(module, args)
    result.update(version=module.version(), note=getattr(module, "NOTE", ""))
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)  # endless loaders would be torn down at length
