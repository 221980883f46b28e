# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the set resized offline: every photo's shorter side brought to 256 px and saved again, once, before the run."""
import concurrent.futures
import os
import sys
import tempfile
import time

import harness
import peer_torch

NOTE = ""
version = peer_torch.version


def shrink(job):
    from PIL import Image

    path, target = job
    with Image.open(path) as picture:
        picture = picture.convert("RGB")
        width, height = picture.size
        size = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
        picture.resize(size, Image.BILINEAR).save(target, quality=90)


def prepare(args):
    """The smaller copies, with the time they take."""
    folder = tempfile.mkdtemp()
    pairs = harness.paths_in(args.data)
    jobs = []
    for path, label in pairs:
        os.makedirs(os.path.join(folder, f"{label:04}"), exist_ok=True)
        jobs.append((path, os.path.join(folder, f"{label:04}", os.path.basename(path))))
    begin = time.perf_counter()
    with concurrent.futures.ProcessPoolExecutor(args.workers) as pool:
        list(pool.map(shrink, jobs, chunksize=16))
    global NOTE
    NOTE = f"conversion {(time.perf_counter() - begin) / len(pairs) * 1000:.1f} s per 1,000 photos"
    args.data = folder


def batches(args):
    return peer_torch.batches(args)


def fixed(args, paths):
    prepare(args)
    return peer_torch.fixed(args, paths)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
