# SPDX-License-Identifier: Apache-2.0
"""What a run tells about itself: figures, one sentence on what holds it up, and what is done where."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._loader import Loader


class Clock:
    """The loop's own time: how long it ran and how long it waited, without each epoch's first batch, which is start-up."""

    __slots__ = ("_last", "_asked", "_starting", "elapsed", "waited", "starting")

    def __init__(self) -> None:
        self._last = self._asked = self.elapsed = self.waited = self.starting = 0.0
        self._starting = True

    def begin(self) -> None:
        self._last = time.perf_counter()
        self._starting = True

    def ask(self) -> None:
        self._asked = time.perf_counter()

    def got(self) -> None:
        now = time.perf_counter()
        if self._starting:
            self.starting += now - self._last
        else:
            self.elapsed += now - self._last
            self.waited += now - self._asked
        self._last, self._starting = now, False

    def figures(self) -> dict[str, float]:
        return {"elapsed_s": self.elapsed, "loop_wait_s": self.waited, "start_s": self.starting}


def full_stats(stats: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The job's figures, the shares that follow from them, and the sentence."""
    elapsed = stats["elapsed_s"]
    away = stats["read_away_s"]  # in the source's or the reader's threads: no time of a worker's
    work = max(0.0, sum(seconds for _, _, seconds in stats["stages"]) - away)
    stats["wait_share"] = stats["loop_wait_s"] / elapsed if elapsed else 0.0
    # Work begins with the epoch, before its first batch, so that time counts too.
    stats["worker_share"] = work / ((elapsed + stats["start_s"]) * settings["workers"]) if elapsed else 0.0
    stats["reads_at_once"] = away / (elapsed + stats["start_s"]) if elapsed else 0.0
    stats["bound"] = stats["verdict"]["text"]
    return stats


def explain_text(loader: Loader) -> str:
    """The run in lines: data, pipeline with each stage's cost, memory, ranks, and what bounds it."""
    stats, settings = loader.stats(), loader.engine.settings
    lines = [
        f"data      {loader.dataset.path}: {len(loader.dataset):,} samples, {loader.dataset.kind}",
        f"pipeline  {loader.pipeline.text}",
        *(_stage_line(stage) for stage in stats["stages"]),
        f"batches   {len(loader):,} of {loader.batch_size} an epoch, order {loader._options['order']}",
        f"rank      {loader.ranks.rank} of {loader.ranks.world} ({loader.ranks.source})",
        f"engine    {settings['workers']} workers, {settings['memory'] >> 20:,} MiB, kernels {settings['cpu']}",
        _cache_line(stats),
        _disk_line(stats),
        _remote_line(stats),
        f"so far    {stats['samples']:,} samples in {stats['batches']:,} batches",
        stats["bound"],
    ]
    return "\n".join(line for line in lines if line)


def _stage_line(stage: tuple[str, int, float]) -> str:
    name, runs, seconds = stage
    return f"          {name:<22} {seconds / runs * 1e6:>8.1f} us x {runs:,}" if runs else f"          {name}"


def _cache_line(stats: dict[str, Any]) -> str:
    if not stats.get("cache_bytes"):
        return ""
    hits = {form: stats[f"{form}_hits"] for form in ("encoded", "decoded", "augmented")}
    met = stats["preparations"] + stats["augmented_hits"]
    found = ", ".join(f"{count / met:.0%} {form}" for form, count in hits.items() if count and met)
    share = f"; found there: {found}" if found else ""
    return f"cache     {stats['cache_entries']:,} samples in {stats['cache_bytes'] >> 20:,} MiB{share}"


def _disk_line(stats: dict[str, Any]) -> str:
    met = stats.get("disk_hits", 0) + stats.get("disk_misses", 0)
    if not met:
        return ""
    state = "; it is off" if stats["disk_off"] else ""
    share = f"; found there: {stats['disk_hits'] / met:.0%}"
    return f"disk      {stats['disk_entries']:,} entries in {stats['disk_bytes'] >> 20:,} MiB{share}{state}"


def _remote_line(stats: dict[str, Any]) -> str:
    met = stats.get("remote_hits", 0) + stats.get("remote_misses", 0)
    if not met:
        return ""
    rate = f", at {stats['remote_bytes_s'] / 1e6:,.0f} MB/s" if stats["remote_bytes_s"] else ""
    left = "; decoded samples are dearer to get than to make, so they are made" if stats["remote_left"] else ""
    return f"remote    found there: {stats['remote_hits'] / met:.0%}{rate}{left}"
