# SPDX-License-Identifier: Apache-2.0
"""WebDataset: the same photos as tar shards of 100, decoded with Pillow in PyTorch workers, as its documentation shows."""
import os
import sys
import tarfile
import tempfile
import io

import harness

NOTE = "shuffles within a buffer of 1,000"


def version():
    import webdataset

    return webdataset.__version__


def shards(args, each=25):
    """Writes the photos as tar shards, before anything is timed."""
    folder = tempfile.mkdtemp()
    pairs = harness.paths_in(args.data)
    for number in range(0, len(pairs), each):
        with tarfile.open(os.path.join(folder, f"shard-{number // each:04}.tar"), "w") as out:
            for place, (path, label) in enumerate(pairs[number:number + each], number):
                out.add(path, f"{place:06}.jpg")
                text = str(label).encode()
                info = tarfile.TarInfo(f"{place:06}.cls")
                info.size = len(text)
                out.addfile(info, io.BytesIO(text))
    return sorted(os.path.join(folder, name) for name in os.listdir(folder))


def make(args, urls, steps, shuffle):
    import webdataset as wds
    from torchvision import transforms

    data = wds.WebDataset(urls, shardshuffle=100 if shuffle else False, resampled=shuffle)
    if shuffle:
        data = data.shuffle(1000, initial=200)
    return data.decode("pil").to_tuple("jpg", "cls").map_tuple(transforms.Compose(steps), int)


def batches(args):
    import webdataset as wds
    from torchvision import transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
             transforms.Normalize(harness.MEAN, harness.STD)]
    data = make(args, args.shards, steps, True).batched(args.batch)
    return wds.WebLoader(data, batch_size=None, num_workers=args.workers, persistent_workers=True, prefetch_factor=4)


def fixed(args, paths):
    import numpy
    from torchvision import transforms

    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()]
    data = iter(make(args, shards(args), steps, False))
    return numpy.stack([next(data)[0].permute(1, 2, 0).numpy() for _ in paths])


def prepare(args):
    args.shards = shards(args)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
