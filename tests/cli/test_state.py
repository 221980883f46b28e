# SPDX-License-Identifier: Apache-2.0
"""Stopping and going on: the joined ledgers are those of one uninterrupted run."""
import random
import shutil

import pytest

from conftest import read_ledger


def rows_of(feed, photos, path, *args, **kwargs):
    feed(photos, "--ledger", path, *args, **kwargs)
    return read_ledger(path)


@pytest.mark.parametrize("sampler", ["shuffle", "shuffle:5", "weighted:balanced", "shuffle+repeat:2"])
def test_strict_resume_continues_exactly(feed, photos, tmp_path, sampler):
    common = ["--epochs", 3, "--sampler", sampler, "--seed", 2]
    whole = rows_of(feed, photos, tmp_path / "whole.tsv", *common)
    for k in random.Random(1).sample(range(1, len(whole) // 8), 4):
        first = rows_of(feed, photos, tmp_path / "a.tsv", *common, "--max-batches", k, "--save-state", tmp_path / "s", "--workers", 1)
        second = rows_of(feed, photos, tmp_path / "b.tsv", *common, "--load-state", tmp_path / "s", "--workers", 3)
        assert first + second == whole, f"stopped after {k}"


def test_ready_resume_delivers_each_sample_once(feed, photos, tmp_path):
    common = ["--epochs", 2, "--order", "ready"]
    first = rows_of(feed, photos, tmp_path / "a.tsv", *common, "--max-batches", 4, "--save-state", tmp_path / "s")
    second = rows_of(feed, photos, tmp_path / "b.tsv", *common, "--load-state", tmp_path / "s", "--workers", 2)
    assert sorted((row[0], row[4]) for row in first + second) == sorted((e, i) for e in range(2) for i in range(48))


def test_states_of_several_ranks_are_joined(feed, photos, tmp_path):
    delivered = []
    for rank in range(2):
        delivered += rows_of(feed, photos, tmp_path / "a.tsv", "--rank", f"{rank}/2", "--order", "ready", "--max-batches", 2,
                             "--save-state", tmp_path / f"s{rank}", batch=4)
    states = f"{tmp_path / 's0'},{tmp_path / 's1'}"
    delivered += rows_of(feed, photos, tmp_path / "b.tsv", "--order", "ready", "--load-state", states, batch=4)
    assert sorted(row[4] for row in delivered) == list(range(48))


def test_a_finished_run_has_nothing_left(feed, photos, tmp_path):
    feed(photos, "--save-state", tmp_path / "s")
    assert feed(photos, "--load-state", tmp_path / "s").report["samples"] == 0


@pytest.fixture
def state(feed, photos, tmp_path):
    feed(photos, "--max-batches", 2, "--save-state", tmp_path / "s")
    return tmp_path / "s"


def refused(penstock, data, state, *args, pipeline="decode | random_resized_crop(32) | hflip"):
    done = penstock("feed", data, "--pipeline", pipeline, "--batch", 8, "--load-state", state, *args, check=False)
    assert done.code == 1, done.err
    return done.err


def test_another_pipeline_is_refused(penstock, photos, state):
    assert "pipeline" in refused(penstock, photos, state, pipeline="decode | random_resized_crop(48)")


def test_another_seed_is_refused_with_both_values(penstock, photos, state):
    message = refused(penstock, photos, state, "--seed", 77)
    assert "77" in message and "seed" in message


def test_changed_data_is_refused(penstock, photos, state, tmp_path):
    shutil.copytree(photos, tmp_path / "p")
    next((tmp_path / "p").rglob("*.jpg")).unlink()
    refused(penstock, tmp_path / "p", state)


def test_damaged_state_is_refused(penstock, photos, state):
    good = state.read_bytes()
    for bad in (good[:-1], good[:10], b"", good[:20] + bytes([good[20] ^ 1]) + good[21:]):
        state.write_bytes(bad)
        refused(penstock, photos, state)


def test_missing_state(penstock, photos, tmp_path):
    assert "nothing-here" in refused(penstock, photos, tmp_path / "nothing-here")
