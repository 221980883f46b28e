# SPDX-License-Identifier: Apache-2.0
"""Which samples a loop gets, and when."""

import collections
import json
import subprocess
import sys

import numpy
import penstock
import pytest
from conftest import CLASSES, CROP, PER_CLASS

COUNT = len(CLASSES) * PER_CLASS


def ids_of(loader) -> list[int]:
    return [int(i) for batch in loader for i in batch.ids[batch.valid]]


def contents(loader) -> list[tuple[list[int], bytes]]:
    return [(batch.ids.tolist(), batch.image.tobytes()) for batch in loader]


@pytest.mark.parametrize("order", ["strict", "ready"])
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_every_sample_once_an_epoch(photos, order, workers):
    with penstock.Loader(photos, CROP, 7, order=order, workers=workers) as loader:
        for epoch in range(3):
            assert sorted(ids_of(loader)) == list(range(COUNT))


def test_len_is_the_number_of_steps(photos):
    loader = penstock.Loader(photos, CROP, 7)
    assert len(loader) == 9 == len(list(loader))
    assert len(penstock.Loader(photos, CROP, 7, drop_last=True)) == 8


def test_steps_and_epochs_are_counted(photos):
    loader = penstock.Loader(photos, CROP, 20)
    seen = [(batch.epoch, batch.step) for _ in range(2) for batch in loader]
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_epochs_differ_and_the_same_seed_repeats_them(photos):
    one, two = (penstock.Loader(photos, CROP, 8, seed=5, workers=n) for n in (1, 3))
    first, second = contents(one), contents(one)
    assert first != second
    assert [contents(two), contents(two)] == [first, second]
    assert contents(penstock.Loader(photos, CROP, 8, seed=6)) != first


def test_set_epoch_goes_anywhere(photos):
    loader = penstock.Loader(photos, CROP, 8)
    epochs = [contents(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert contents(loader) == epochs[1]
    assert contents(loader) == epochs[2]
    loader.set_epoch(0)
    assert contents(loader) == epochs[0]


def test_break_drops_the_rest_and_starts_the_next_epoch(photos):
    whole = penstock.Loader(photos, CROP, 8)
    epochs = [contents(whole) for _ in range(2)]
    loader = penstock.Loader(photos, CROP, 8)
    for batch in loader:
        if batch.step == 2:
            break
    assert contents(loader) == epochs[1]


def test_an_iterator_ends_for_good(photos):
    turn = iter(penstock.Loader(photos, CROP, 60))
    next(turn)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(turn)


def test_a_newer_pass_ends_an_older_one_loudly(photos):
    loader = penstock.Loader(photos, CROP, 8)
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(penstock.Error, match="newer pass"):
        next(old)
    assert next(new).epoch == 1


def test_without_shuffle_ids_come_in_order(photos):
    assert ids_of(penstock.Loader(photos, CROP, 8, shuffle=False)) == list(range(COUNT))


@pytest.mark.parametrize("make", [list, tuple, numpy.array, lambda ids: numpy.array(ids, numpy.int32)])
def test_a_list_of_ids_is_the_order(photos, make):
    wanted = [3, 1, 4, 1, 5, 9, 2, 6]
    loader = penstock.Loader(photos, CROP, 3, sampler=make(wanted))
    assert ids_of(loader) == wanted == ids_of(loader)


def test_an_id_drawn_often_is_cropped_differently_each_time(photos):
    loader = penstock.Loader(photos, CROP, 50, sampler=[7] * 50)
    (batch,) = loader
    assert len({image.tobytes() for image in batch.image}) > 45


def test_subset_draws_from_the_ids_given(photos):
    loader = penstock.Loader(photos, CROP, 4, subset=range(10, 20))
    assert sorted(ids_of(loader)) == list(range(10, 20))


def test_weights_choose(photos):
    weights = [0.0] * COUNT
    weights[4], weights[8] = 1.0, 3.0
    drawn = collections.Counter(ids_of(penstock.Loader(photos, CROP, 16, weights=weights, draws=400)))
    assert set(drawn) == {4, 8} and drawn.total() == 400
    assert 2.0 < drawn[8] / drawn[4] < 4.5


def test_weighted_once_gives_each_at_most_once(photos):
    loader = penstock.Loader(photos, CROP, 8, sampler="weighted_once", weights=numpy.ones(COUNT, numpy.float32))
    assert sorted(ids_of(loader)) == list(range(COUNT))


def test_repeat_gives_each_so_often_in_a_row(photos):
    ids = ids_of(penstock.Loader(photos, CROP, 8, repeat=3))
    assert ids[0::3] == ids[1::3] == ids[2::3] and sorted(ids[::3]) == list(range(COUNT))


def test_runs_of_neighbours_stay_together(photos):
    ids = ids_of(penstock.Loader(photos, CROP, 8, run=5, seed=3))
    heads = [i for i in ids if i % 5 == 0]
    assert [j for i in heads for j in range(i, min(i + 5, COUNT))] == ids and heads != sorted(heads)


@pytest.mark.parametrize("ends", ["pad", "short", "drop"])
def test_ranks_share_an_epoch(photos, ends):
    loaders = [penstock.Loader(photos, CROP, 7, rank=rank, world=3, ends=ends, workers=1) for rank in range(3)]
    ids = [ids_of(loader) for loader in loaders]
    together = sorted(sum(ids, []))
    if ends == "drop":
        assert [len(part) for part in ids] == [14, 14, 14] and len(set(together)) == 42
    else:
        assert together == list(range(COUNT))
    if ends == "pad":
        assert len({len(loader) for loader in loaders}) == 1


def test_padding_is_marked(photos):
    with penstock.Loader(photos, CROP, 7, ends="pad") as loader:
        last = list(loader)[-1]
    assert last.size == 7 == len(last.image) == len(last.ids) == len(last.keys)
    assert last.valid.sum() == COUNT - 8 * 7 == last.raw.valid_count


def test_epochs_end(photos):
    loader = penstock.Loader(photos, CROP, 30, epochs=2)
    assert [len(list(loader)) for _ in range(4)] == [2, 2, 0, 0]


def test_loaders_share_an_engine_and_a_dataset(photos):
    data = penstock.Dataset(photos)
    with penstock.Engine(workers=2) as engine:
        train = penstock.Loader(data, CROP, 8, engine=engine)
        val = penstock.Loader(data, "decode | center_crop(16)", 8, shuffle=False, engine=engine)
        for _ in range(2):
            pairs = list(zip(train, val))
            assert len(pairs) == 8
        assert engine.settings["workers"] == 2
        assert sorted(ids_of(train)) == ids_of(val)
    assert engine.closed
    with pytest.raises(penstock.Error):
        next(iter(train))


def test_stats_count_what_was_delivered(photos):
    loader = penstock.Loader(photos, CROP, 10)
    list(loader)
    stats = loader.stats()
    assert stats["batches"] == 6 and stats["samples"] == COUNT
    assert stats["bytes_read"] > 0 and stats["first_batch_s"] > 0
    assert "decode" in [name for name, _, _ in stats["stages"]]


def test_a_closed_loader_says_so(photos):
    with penstock.Loader(photos, CROP, 8) as loader:
        turn = iter(loader)
        kept = next(turn)
    loader.close()
    for use in (lambda: next(turn), lambda: iter(loader), lambda: len(loader), loader.stats, loader.state_dict):
        with pytest.raises(penstock.Error) as caught:
            use()
        assert caught.value.code == penstock.CODES["ECLOSED"]
    assert kept.image.shape == (8, 16, 16, 3)


def test_a_dataset_tells_what_it_holds(photos):
    data = penstock.Dataset(str(photos))
    assert len(data) == len(data.keys) == COUNT and data.kind == "folder"
    assert data.classes == CLASSES
    assert data.fields["image"].format == "jpeg" and data.fields["label"].dtype == "i64"
    assert len(data.revision) == 32 and data.revision == penstock.Dataset(photos, refresh=True).revision
    for id in (0, COUNT - 1):
        assert data.read(id, "image") == (photos / data.keys[id]).read_bytes()
        assert CLASSES[data.label(id)] in data.keys[id]
    assert data.keys[-1] == data.keys[COUNT - 1] and data.keys[:3] == [data.keys[i] for i in range(3)]
    with pytest.raises(IndexError):
        data.keys[COUNT]
    with pytest.raises(KeyError):
        data.split("nowhere")


def test_a_trace_has_every_sample(photos, tmp_path):
    with penstock.Loader(photos, CROP, 7, trace=tmp_path / "t.json") as loader:
        assert sorted(ids_of(loader)) == list(range(COUNT))
    events = json.loads((tmp_path / "t.json").read_text())
    placed = {event["args"]["id"] for event in events if event["name"] == "sample" and event["args"]["then"] == "placed"}
    assert set(range(COUNT)) <= placed and events[-1]["name"] == "penstock_trace_end"
    with penstock.Engine(1) as engine, pytest.raises(penstock.SettingError, match="trace"):
        penstock.Loader(photos, CROP, 7, engine=engine, trace=tmp_path / "t.json")


def test_a_script_that_just_ends_has_a_whole_trace(photos, tmp_path):
    script = f"""
import os, penstock
from penstock import ops
def same(picture):
    return picture
loader = penstock.Loader({str(photos)!r}, ops.decode() | ops.resize(8) | ops.center_crop(8) | penstock.python(same), 7,
                         trace={str(tmp_path / "t.json")!r})
next(iter(loader))
if os.fork() == 0:
    raise SystemExit  # ends neither the trace nor in a hang
os.wait()
list(loader)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    events = json.loads((tmp_path / "t.json").read_text())
    assert [event["name"] for event in events if event["name"] == "penstock_trace_end"] == ["penstock_trace_end"]
    assert events[-1]["name"] == "penstock_trace_end" and {event["args"]["id"] for event in events if event["name"] == "finish"}
