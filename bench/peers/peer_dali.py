# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DALI on the CPU: crop decode, resize, crop_mirror_normalize in its own threads."""
import sys

import harness

NOTE = "CPU operators"


def version():
    import nvidia.dali

    return nvidia.dali.__version__


def batches(args):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=args.batch, num_threads=args.workers, device_id=None, prefetch_queue_depth=2)
    def train():
        files, labels = fn.readers.file(file_root=args.data, random_shuffle=True, initial_fill=4096)
        images = fn.decoders.image_random_crop(files, device="cpu", random_area=[0.08, 1.0],
                                               random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
        images = fn.resize(images, resize_x=224, resize_y=224, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                        mean=[255 * m for m in harness.MEAN], std=[255 * s for s in harness.STD]), labels

    pipe = train()
    pipe.build()
    while True:
        images, labels = pipe.run()
        yield images.as_array(), labels.as_array()


def fixed(args, paths):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=len(paths), num_threads=args.workers, device_id=None)
    def evaluate():
        files, _ = fn.readers.file(files=paths)
        images = fn.resize(fn.decoders.image(files, device="cpu"), resize_shorter=256, interp_type=types.INTERP_LINEAR)
        return fn.crop(images, crop=(224, 224), dtype=types.UINT8)

    pipe = evaluate()
    pipe.build()
    return pipe.run()[0].as_array()


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
