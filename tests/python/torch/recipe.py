# SPDX-License-Identifier: Apache-2.0
"""A classification run in the shape of the common reference recipes: crops, flips, auto-augment, random erasing, mixing
of batches, a sampler with repeated augmentation, evaluation every epoch. Only the loader's import is ours.

    python recipe.py FOLDER [--loader torch.utils.data] [--epochs 2] …
"""

import argparse
import importlib

import torch
import torch.utils.data
from torch.utils.data.dataloader import default_collate
from torchvision import datasets, transforms


class TrainPreset:
    def __init__(self, size, auto=None, erase=0.0):
        steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]
        steps += {"ta_wide": [transforms.TrivialAugmentWide()], "ra": [transforms.RandAugment()], None: []}[auto]
        steps += [transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float)]
        steps += [transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
        steps += [transforms.RandomErasing(p=erase)] if erase else []
        self.transforms = transforms.Compose(steps)

    def __call__(self, img):
        return self.transforms(img)


class EvalPreset:
    def __init__(self, size):
        self.transforms = transforms.Compose(
            [
                transforms.Resize(size + 2),
                transforms.CenterCrop(size),
                transforms.PILToTensor(),
                transforms.ConvertImageDtype(torch.float),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __call__(self, img):
        return self.transforms(img)


class RepeatedSampler(torch.utils.data.Sampler):
    def __init__(self, dataset, repetitions=3, seed=0):
        self.dataset, self.repetitions, self.seed, self.epoch = dataset, repetitions, seed, 0

    def __len__(self):
        return len(self.dataset)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        return iter([index for index in order for _ in range(self.repetitions)][: len(self)])


class Mixing(torch.nn.Module):
    """Mixes each batch with itself, turned by one."""

    def __init__(self, classes, alpha=0.2):
        super().__init__()
        self.classes, self.alpha = classes, alpha

    def forward(self, batch, target):
        weight = float(torch._sample_dirichlet(torch.tensor([self.alpha, self.alpha]))[0])
        target = torch.nn.functional.one_hot(target, self.classes).to(batch.dtype)
        batch = batch.roll(1, 0).mul_(1 - weight).add_(batch.mul(weight))
        return batch, target.roll(1, 0).mul_(1 - weight).add_(target.mul(weight))


def load_data(options, loader_module):
    DataLoader = importlib.import_module(loader_module).DataLoader
    train = datasets.ImageFolder(options.folder, TrainPreset(options.size, options.auto, options.erase))
    test = datasets.ImageFolder(options.folder, EvalPreset(options.size))
    sampler = RepeatedSampler(train) if options.repeated else torch.utils.data.RandomSampler(train)
    collate_fn = None
    if options.mix:
        mixing = transforms.RandomChoice([Mixing(len(train.classes)), Mixing(len(train.classes), 1.0)])

        def collate_fn(batch):
            return mixing(*default_collate(batch))

    first = DataLoader(
        train, batch_size=8, sampler=sampler, num_workers=options.workers, pin_memory=True, collate_fn=collate_fn
    )
    return first, DataLoader(test, 8, sampler=torch.utils.data.SequentialSampler(test), num_workers=options.workers)


def train_one_epoch(model, optimizer, loader):
    model.train()
    for image, target in loader:
        loss = torch.nn.functional.cross_entropy(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def evaluate(model, loader):
    model.eval()
    right = count = 0
    with torch.inference_mode():
        for image, target in loader:
            right += (model(image).argmax(1) == target).sum().item()
            count += len(target)
    assert count == len(loader.dataset)
    return right / count


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--loader", default="penstock.torch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--auto", choices=["ta_wide", "ra"])
    parser.add_argument("--erase", type=float, default=0.0)
    parser.add_argument("--repeated", action="store_true")
    parser.add_argument("--mix", action="store_true")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    train, test = load_data(options, options.loader)
    classes = len(train.dataset.classes)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * options.size**2, classes))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(options.epochs):
        if hasattr(train.sampler, "set_epoch"):
            train.sampler.set_epoch(epoch)
        loss = train_one_epoch(model, optimizer, train)
        print(f"epoch {epoch}: loss {loss:.3f}, right {evaluate(model, test):.3f}")
    return train, test


if __name__ == "__main__":
    main()
