# SPDX-License-Identifier: Apache-2.0
"""SPDL: FFmpeg decoding in threads, each picture cropped and scaled by a filter that is drawn from its size."""
import concurrent.futures
import random
import sys

import harness
from peer_grain import crop_box

NOTE = "FFmpeg's decoder and scaler"


class Draw:
    """random.Random with the two calls that crop_box makes."""

    def __init__(self):
        self.uniform = random.uniform

    @staticmethod
    def integers(low, high):
        return random.randrange(low, high)


def version():
    import importlib.metadata

    return importlib.metadata.version("spdl-io")


def decode(path, filters):
    import spdl.io

    packets = spdl.io.demux_image(path)
    one = spdl.io.decode_config(decoder_options={"threads": "1"})  # the pipeline has threads of its own
    return spdl.io.decode_packets(packets, filter_desc=filters(packets.width, packets.height), decode_config=one)


def train_filter(width, height):
    left, top, right, bottom = crop_box(width, height, Draw())
    flip = ",hflip" if random.random() < 0.5 else ""
    return f"crop={right - left}:{bottom - top}:{left}:{top},scale=224:224:flags=bilinear{flip},format=pix_fmts=rgb24"


def eval_filter(width, height):
    size = f"256:{int(256 * height / width)}" if width <= height else f"{int(256 * width / height)}:256"
    return f"scale={size}:flags=bilinear,crop=224:224,format=pix_fmts=rgb24"


def to_array(frames):
    import spdl.io

    return spdl.io.to_numpy(spdl.io.convert_frames(frames))


def batches(args):
    import numpy
    from spdl.pipeline import PipelineBuilder

    paths = [path for path, _ in harness.paths_in(args.data)]
    mean, std = (numpy.array(values, numpy.float32) * 255 for values in (harness.MEAN, harness.STD))

    def source():
        while True:
            yield from random.sample(paths, len(paths))

    def together(frames):
        pixels = to_array(frames).astype(numpy.float32)
        return ((pixels - mean) / std).transpose(0, 3, 1, 2)

    built = (PipelineBuilder().add_source(source()).pipe(lambda path: decode(path, train_filter), concurrency=args.workers)
             .aggregate(args.batch, drop_last=True).pipe(together, concurrency=1).add_sink(3)
             .build(num_threads=args.workers + 1))
    with built.auto_stop():
        yield from built.get_iterator()


def fixed(args, paths):
    with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        return to_array(list(pool.map(lambda path: decode(path, eval_filter), paths)))


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
