# SPDX-License-Identifier: Apache-2.0
"""lightning's Trainer: the batches of a penstock.torch.DataLoader are still Penstock's."""

import pytest
import torch
import torch.utils.data
from frameworks_tools import folder, labels_of

from penstock.torch import DataLoader

lightning = pytest.importorskip("lightning")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.seen, self.loaders = [], set()

    def training_step(self, batch, number):
        x, y = batch
        self.seen += y.tolist()
        self.loaders.add(type(self.trainer.train_dataloader))
        return torch.nn.functional.cross_entropy(self.layer(x.mean((2, 3))), y)

    def validation_step(self, batch, number):
        self.loaders.add(type(self.trainer.val_dataloaders))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(train, validate=None, **options):
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, **options
    )
    trainer.fit(model, train, validate)
    return model


@pytest.mark.parametrize("workers", [0, 2])
def test_fit(photos, workers):
    train = DataLoader(folder(photos), 8, shuffle=True, num_workers=workers)
    validate = DataLoader(folder(photos), 8, num_workers=workers)
    model = fit(train, validate, num_sanity_val_steps=1)
    assert model.loaders == {DataLoader} and sorted(model.seen) == sorted(train.dataset.targets)
    assert train.stats()["path"] == validate.stats()["path"] == "native"


def test_the_order_is_torchs(photos):
    def seen(kind):
        torch.manual_seed(3)
        return fit(kind(folder(photos), 8, shuffle=True)).seen

    assert seen(DataLoader) == seen(torch.utils.data.DataLoader)


def test_a_distributed_strategy_makes_a_loader_of_the_same_class(photos):
    """One process of two, as the strategy prepares it: with a DistributedSampler, and still ours."""
    from lightning.pytorch.utilities.data import _update_dataloader
    from torch.utils.data.distributed import DistributedSampler

    loader = DataLoader(folder(photos), 8, shuffle=True, num_workers=1, cache=1 << 20, memory=1 << 28, native=True)
    sampler = DistributedSampler(loader.dataset, 2, 1, shuffle=True)
    made = _update_dataloader(loader, sampler)
    assert type(made) is DataLoader and made.sampler is sampler
    assert (made.cache, made.memory, made.native, made.num_workers) == (1 << 20, 1 << 28, True, 1)
    assert len(labels_of(made)) == 30 and made.stats()["path"] == "native"
