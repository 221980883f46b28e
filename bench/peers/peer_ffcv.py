# SPDX-License-Identifier: Apache-2.0
"""FFCV: the photos written to its own file first (JPEG kept, longest side 500), then its compiled pipeline."""
import os
import sys
import tempfile
import time

import harness

NOTE = "reads a file of its own"


def version():
    import importlib.metadata

    return importlib.metadata.version("ffcv")


def written(args, name="photos.beton", **field):
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    path = os.path.join(tempfile.mkdtemp(), name)
    begin = time.perf_counter()
    writer = DatasetWriter(path, {"image": RGBImageField(**field), "label": IntField()}, num_workers=args.workers)
    writer.from_indexed_dataset(ImageFolder(args.data))
    global NOTE
    NOTE = f"reads a file of its own, written in {time.perf_counter() - begin:.1f} s"
    return path


def prepare(args):
    args.beton = written(args, write_mode="jpg", max_resolution=500, jpeg_quality=90)


def batches(args):
    import numpy
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    mean, std = (numpy.array(values) * 255 for values in (harness.MEAN, harness.STD))
    image = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(), ToTensor(), ToTorchImage(),
             NormalizeImage(mean, std, numpy.float32)]
    loader = Loader(args.beton, batch_size=args.batch, num_workers=args.workers, order=OrderOption.RANDOM, os_cache=True,
                    drop_last=True, pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]})
    while True:
        yield from loader


def fixed(args, paths):
    from ffcv.fields.rgb_image import CenterCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import ToTensor

    path = written(args, write_mode="jpg", jpeg_quality=100)
    loader = Loader(path, batch_size=len(paths), num_workers=args.workers, order=OrderOption.SEQUENTIAL,
                    pipelines={"image": [CenterCropRGBImageDecoder((224, 224), 224 / 256), ToTensor()]})
    return next(iter(loader))[0].numpy()


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
