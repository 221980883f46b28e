# SPDX-License-Identifier: Apache-2.0
"""Loaders of one engine that share preparations."""

import collections
import threading

import pytest

import penstock

PIPELINE = "decode | random_resized_crop(32) | hflip | normalize(imagenet)"


def collect(loader, epochs, out):
    for epoch in range(epochs):
        for batch in loader:
            out.extend(zip([epoch] * batch.size, batch.ids.tolist(), batch["preparation"].tolist()))


def test_each_sample_once_and_no_preparation_twice(photos):
    with penstock.Engine(workers=2, cache=8 << 20, forms=(0, 0, 1)) as engine:
        loaders = [penstock.Loader(photos, PIPELINE, 8, engine=engine, seed=s, sampling="opportunistic") for s in range(3)]
        got = [[] for _ in loaders]
        threads = [threading.Thread(target=collect, args=(loader, 3, out)) for loader, out in zip(loaders, got)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = len(loaders[0].dataset)
        for loader, lines in zip(loaders, got):
            assert collections.Counter((epoch, sample) for epoch, sample, _ in lines) == {
                (epoch, sample): 1 for epoch in range(3) for sample in range(count)
            }
            numbers = [number for _, _, number in lines]
            assert len(set(numbers)) == len(numbers)
        stats = [loader.stats() for loader in loaders]
        assert sum(s["augmented_hits"] for s in stats) > 0
        assert "augmented" in max((loader.explain() for loader in loaders), key=len)
        by_number = collections.defaultdict(set)
        for lines in got:
            for _, sample, number in lines:
                by_number[number].add(sample)
        assert all(len(samples) == 1 for samples in by_number.values())


def test_groups_of_other_names_share_nothing(photos):
    with penstock.Engine(workers=2, cache=8 << 20) as engine:
        one, two = (
            penstock.Loader(photos, PIPELINE, 8, engine=engine, sampling="opportunistic", group=name) for name in "ab"
        )
        for loader in (one, two):
            collect(loader, 1, [])
            assert loader.stats()["augmented_hits"] == 0


def test_order_follows_sampling_and_wrong_settings_are_told(photos):
    with penstock.Loader(photos, PIPELINE, 8, sampling="opportunistic", cache=4 << 20) as loader:
        assert "order ready" in loader.explain()
    with pytest.raises(penstock.SettingError, match="order=ready"):
        penstock.Loader(photos, PIPELINE, 8, sampling="opportunistic", order="strict", cache=4 << 20)
    with pytest.raises(penstock.SettingError, match="three shares"):
        penstock.Loader(photos, PIPELINE, 8, forms=(1, 2))
    with pytest.raises(ValueError, match="sampling"):
        penstock.Loader(photos, PIPELINE, 8, sampling="greedy")
