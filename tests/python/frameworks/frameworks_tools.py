# SPDX-License-Identifier: Apache-2.0
"""What the tests with real frameworks share."""

from torchvision import datasets, transforms


def folder(root):
    steps = [transforms.Resize(20), transforms.CenterCrop(16), transforms.ToTensor()]
    return datasets.ImageFolder(str(root), transforms.Compose(steps))


def labels_of(loader):
    return [label for _, labels in loader for label in labels.tolist()]
