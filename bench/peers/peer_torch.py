# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DataLoader over ImageFolder with Pillow and torchvision's transforms, persistent workers."""
import sys

import harness


def version():
    import torch
    import torchvision

    return f"{torch.__version__}, torchvision {torchvision.__version__}"


def endless(count):
    import torch

    class Endless(torch.utils.data.Sampler):
        def __init__(self):
            pass

        def __iter__(self):
            while True:
                yield from torch.randperm(count).tolist()

        def __len__(self):
            return 1 << 40

    return Endless()


def batches(args):
    import torch
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
             transforms.Normalize(harness.MEAN, harness.STD)]
    data = datasets.ImageFolder(args.data, transforms.Compose(steps))
    return torch.utils.data.DataLoader(data, args.batch, sampler=endless(len(data)), num_workers=args.workers,
                                       persistent_workers=True, prefetch_factor=4, drop_last=True)


def fixed(args, paths):
    import torch
    from torchvision import datasets, transforms

    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()]
    data = datasets.ImageFolder(args.data, transforms.Compose(steps))
    images, _ = next(iter(torch.utils.data.DataLoader(data, len(paths))))
    return images.permute(0, 2, 3, 1).numpy()


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
