# SPDX-License-Identifier: Apache-2.0
"""The Python path: the dataset as the user wrote it, in the caller's thread or in worker processes."""

from __future__ import annotations

from typing import Any, Iterator

import torch

from ._samplers import Order


class TorchRunner:
    """Batches through torch's own iterators, for an order that is drawn already."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self._iterator: Any = None

    def start_epoch(self, batches: Iterator[Any], epoch_seed: int, *, position: int = 0) -> None:
        loader = self.loader
        generator = torch.Generator()
        generator.manual_seed(epoch_seed & ((1 << 63) - 1))
        options: dict[str, Any] = {}
        if loader.num_workers > 0:
            options["prefetch_factor"] = loader.prefetch_factor
            options["multiprocessing_context"] = loader.multiprocessing_context
        chosen = {"batch_sampler": _Given(batches)} if loader._auto_collation else {"sampler": _Given(batches)}
        if not loader._auto_collation:
            chosen["batch_size"] = None  # type: ignore[assignment]
        plain = torch.utils.data.DataLoader(
            loader.dataset,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            generator=generator,
            **chosen,
            **options,
        )
        self._iterator = iter(plain)

    def next(self) -> Any:
        return next(self._iterator)

    def shutdown(self) -> None:
        self._iterator = None

    def stats(self) -> dict[str, Any]:
        return {}


class _Given:
    """An iterable over what an iterator still gives; torch asks for it more than once before it begins."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self._batches


class PythonEpoch:
    """Batches of one epoch from step `start` on; `order` is a list, or an iterator where the sampler has no end."""

    def __init__(self, loader: Any, runner: Any, order: Order | Iterator[Any], seed: int, start: int = 0) -> None:
        self.loader, self.runner, self.order, self.seed, self.step = loader, runner, order, seed, start
        if isinstance(order, Order):
            sizes = order.sizes()
            batches = (order.batch(step) for step in range(start, len(order)))
            runner.start_epoch(batches, seed, position=sum(sizes[:start]))
        else:
            runner.start_epoch(order, seed, position=0)

    def next(self) -> Any:
        batch = self.runner.next()
        self.step += 1
        return batch

    def close(self) -> None:
        self.runner.shutdown()

    def stats(self) -> dict[str, Any]:
        return self.runner.stats()
