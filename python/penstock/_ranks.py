# SPDX-License-Identifier: Apache-2.0
"""Which share of the samples this process takes, and which share of the machine."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from ._penstock import SettingError


class Ranks(NamedTuple):
    """rank of world, how many of them share this machine, and who said so."""

    rank: int
    world: int
    local: int
    source: str


def find_ranks(rank: int | None, world: int | None) -> Ranks:
    """From the arguments, else from torch.distributed, else from the environment (RANK, WORLD_SIZE), else one rank."""
    if (rank is None) != (world is None):
        raise SettingError("rank and world go together; one of them is missing")
    if rank is not None and world is not None:
        if not 0 <= rank < world:
            raise SettingError(f"rank={rank} is not below world={world}")
        return Ranks(rank, world, _local(world), "arguments")
    found = _from_torch() or _from_environment()
    return found or Ranks(0, 1, 1, "one process")


def local_rank(ranks: Ranks) -> int | None:
    """Which of this machine's ranks this one is, if that can be known."""
    if "LOCAL_RANK" in os.environ:
        return _number("LOCAL_RANK")
    return ranks.rank if ranks.local == ranks.world else None


def _from_torch() -> Ranks | None:
    """torch.distributed, if the program has set it up; torch is not imported for this."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    world = distributed.get_world_size()
    return Ranks(distributed.get_rank(), world, _local(world), "torch.distributed")


def _from_environment() -> Ranks | None:
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < world:
        raise SettingError(f"the environment says RANK={rank} of WORLD_SIZE={world}, which cannot be")
    return Ranks(rank, world, _local(world), "environment")


def _local(world: int) -> int:
    """Ranks on this machine: as the launcher says; without its word all, if they meet at this machine's own address."""
    if "LOCAL_WORLD_SIZE" in os.environ:
        return max(1, min(world, _number("LOCAL_WORLD_SIZE")))
    return world if os.environ.get("MASTER_ADDR") in ("localhost", "127.0.0.1", "::1") else 1


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise SettingError(f"the environment says {name}={os.environ[name]!r}, which is not a whole number") from None
