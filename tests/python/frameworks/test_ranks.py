# SPDX-License-Identifier: Apache-2.0
"""lightning and accelerate with two real processes: each sample once over both, every batch from Penstock."""

import json
import pathlib

import pytest
from frameworks_tools import torchrun

PROGRAM = pathlib.Path(__file__).with_name("rank_program.py")


@pytest.mark.parametrize("framework", ["lightning", "accelerate"])
def test_two_processes(photos, tmp_path, framework):
    pytest.importorskip(framework)
    torchrun(2, [str(PROGRAM), framework, str(photos), str(tmp_path / "told")])
    told = [json.loads((tmp_path / f"told.{rank}").read_text()) for rank in range(2)]
    for one in told:
        assert one["ours"] and one["path"] == "native" and (one["ranks"], one["backend"]) == (2, "gloo")
    epochs = []
    for epoch in range(2):
        steps = [one["seen"][epoch] for one in told]
        assert len(steps[0]) == len(steps[1]) == 4
        epochs.append([number for rank in steps for batch in rank for number in batch])
        every = sorted(epochs[-1])
        # 60 samples are 8 batches of 8: accelerate fills the last one up from the beginning, lightning's ranks have 30 each.
        assert sorted(set(every)) == list(range(60)) and len(every) <= 64
        assert len(every) == 60 or framework == "accelerate"
    assert epochs[0] != epochs[1]
