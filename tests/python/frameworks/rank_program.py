# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run with lightning or accelerate, on the CPU with gloo: which samples its steps were given.

    rank_program.py lightning|accelerate FOLDER RESULT

Started by torchrun. The label of a sample is its number in the folder. RESULT.<rank> gets the numbers, step by step,
and what the loader says of itself, as JSON.
"""

import json
import os
import sys

import torch
from torchvision import datasets, transforms

import penstock.torch
from penstock.torch import DataLoader

EPOCHS = 2


def loader_of(root):
    steps = [transforms.Resize(20), transforms.CenterCrop(16), transforms.ToTensor()]
    dataset = datasets.ImageFolder(root, transforms.Compose(steps))
    dataset.samples = [(path, number) for number, (path, _) in enumerate(dataset.samples)]
    return DataLoader(dataset, 8, shuffle=True, num_workers=1)


def loss_of(layer, x):
    return layer(x.mean((2, 3))).square().mean()


def with_lightning(root):
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(3, 3), []

        def on_train_epoch_start(self):
            self.seen.append([])

        def training_step(self, batch, number):
            self.seen[-1].append(batch[1].tolist())
            return loss_of(self.layer, batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    model = Model()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(model, loader_of(root))
    return model.seen, trainer.train_dataloader


def with_accelerate(root):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    accelerate.utils.set_seed(3)
    layer = torch.nn.Linear(3, 3)
    loader = penstock.torch.prepare(accelerator, loader_of(root))
    layer, optimizer, loader = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.01), loader)
    seen = []
    for _ in range(EPOCHS):
        seen.append([])
        for x, y in loader:
            seen[-1].append(y.tolist())
            accelerator.backward(loss_of(layer, x))
            optimizer.step()
            optimizer.zero_grad()
    return seen, loader


def main():
    framework, root, result = sys.argv[1:]
    torch.set_num_threads(1)
    seen, loader = {"lightning": with_lightning, "accelerate": with_accelerate}[framework](root)
    told = {
        "seen": seen,
        "ours": isinstance(loader, DataLoader),
        "path": loader.stats()["path"],
        "ranks": torch.distributed.get_world_size(),
        "backend": torch.distributed.get_backend(),
    }
    with open(f"{result}.{os.environ['RANK']}", "w") as file:
        json.dump(told, file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
