# SPDX-License-Identifier: Apache-2.0
"""IterableRunner: batches of an IterableDataset, each worker going through its own copy."""

from __future__ import annotations

from typing import Any, Callable


class IterableRunner:
    """Batches of an IterableDataset; arguments as MapRunner's where they have the same name.

    Batches are made by one worker each and come in turn from those that are not at their end, as in torch.
    batch_size: None is no collation: collate_fn (default_convert) gets single samples. drop_last: each worker's last,
    short batch is left out. Workers keep torch's seeds (base_seed + worker's number), drawn once for their life.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        num_workers: int,
        collate_fn: Callable[[Any], Any],
        batch_size: int | None,
        drop_last: bool = False,
        context: Any = None,
        worker_init_fn: Callable[[int], None] | None = None,
        generator: Any = None,
        base_seed: int = 0,
        timeout: float = 0,
        prefetch_factor: int | None = 2,
        persistent: bool = False,
        in_order: bool = True,
        pin_memory: bool | str = False,
        shared_seed: int | None = None,
    ) -> None:
        raise NotImplementedError

    def start_epoch(self, shared_seed: int | None = None) -> None:
        """Begins an epoch: each worker takes a new iterator. shared_seed: for torch's IterDataPipe, drawn by the caller."""
        raise NotImplementedError

    def next(self) -> Any:
        """The next batch. StopIteration when every worker is at its end."""
        raise NotImplementedError

    def delivered(self) -> int:
        """The number, from 0, of the batch that the last `next` gave."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Ends the workers. Batches that were handed out stay valid. May be called again."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Of the running or last epoch: seconds waited, batches, busy share of each worker."""
        raise NotImplementedError
