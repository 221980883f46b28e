# SPDX-License-Identifier: Apache-2.0
"""Saving where a loop stands and going on from there."""

import base64
import json
import penstock
import pytest
from conftest import CROP
from test_loader import COUNT, contents, ids_of


def take(loader, count: int) -> list:
    """The first batches of a pass; the rest stays where it is."""
    turn = iter(loader)
    return [(batch.ids.tolist(), batch.image.tobytes()) for batch in (next(turn) for _ in range(count))]


@pytest.mark.parametrize("done", [0, 1, 3, 7])
def test_resume_goes_on_where_the_state_was_taken(photos, done):
    whole = penstock.Loader(photos, CROP, 8, seed=3)
    expected = contents(whole) + contents(whole)
    loader = penstock.Loader(photos, CROP, 8, seed=3, workers=1)
    head = take(loader, done)
    state = loader.state_dict()
    loader.close()
    again = penstock.Loader(photos, CROP, 8, seed=3, workers=2)
    again.load_state_dict(state)
    assert head + contents(again) + contents(again) == expected


def test_resume_in_a_later_epoch(photos):
    loader = penstock.Loader(photos, CROP, 8)
    first = contents(loader)
    head = take(loader, 2)
    again = penstock.Loader(photos, CROP, 8)
    again.load_state_dict(loader.state_dict())
    tail = contents(again)
    whole = penstock.Loader(photos, CROP, 8)
    assert [contents(whole), contents(whole)] == [first, head + tail]


def test_resume_in_ready_order_completes_the_epoch(photos):
    loader = penstock.Loader(photos, CROP, 8, order="ready")
    turn = iter(loader)
    got = [int(i) for _ in range(3) for i in next(turn).ids]
    again = penstock.Loader(photos, CROP, 8, order="ready")
    again.load_state_dict(loader.state_dict())
    assert sorted(got + ids_of(again)) == list(range(COUNT))


def test_a_finished_epoch_resumes_with_the_next(photos):
    loader = penstock.Loader(photos, CROP, 8)
    list(loader)
    state = loader.state_dict()
    expected = contents(loader)
    again = penstock.Loader(photos, CROP, 8)
    again.load_state_dict(state)
    assert contents(again) == expected


def test_a_used_loader_can_load_a_state(photos):
    loader = penstock.Loader(photos, CROP, 8)
    turn = iter(loader)
    next(turn)
    state = loader.state_dict()
    rest = contents(turn)
    loader.load_state_dict(state)
    assert contents(loader) == rest


def test_set_epoch_of_the_resumed_epoch_keeps_the_place(photos):
    loader = penstock.Loader(photos, CROP, 8)
    turn = iter(loader)
    next(turn)
    state = loader.state_dict()
    rest = contents(turn)
    again = penstock.Loader(photos, CROP, 8)
    again.load_state_dict(state)
    again.set_epoch(0)
    assert contents(again) == rest
    again.load_state_dict(state)
    again.set_epoch(1)
    assert contents(again) == contents(loader)


def test_batch_size_and_world_may_change(photos):
    loader = penstock.Loader(photos, CROP, 8)
    got = [i for ids, _ in take(loader, 3) for i in ids]
    state = loader.state_dict()
    for rank in range(2):
        part = penstock.Loader(photos, CROP, 5, rank=rank, world=2)
        part.load_state_dict(state)
        got += ids_of(part)
    assert sorted(got) == list(range(COUNT))


def test_the_state_is_plain_data(photos):
    state = penstock.Loader(photos, CROP, 8).state_dict()
    assert list(state) == ["penstock"] and json.loads(json.dumps(state)) == state
    assert len(base64.b64decode(state["penstock"])) <= COUNT // 8 + 1 + 8192


def test_a_state_that_does_not_fit_is_refused(photos, own_photos):
    state = penstock.Loader(photos, CROP, 8).state_dict()
    others = [
        penstock.Loader(photos, CROP, 8, seed=1),
        penstock.Loader(photos, CROP + " | vflip", 8),
        penstock.Loader(photos, CROP, 8, shuffle=False),
        penstock.Loader(photos, CROP, 8, order="ready"),
        penstock.Loader(own_photos, CROP, 8),
    ]
    for other in others:
        with pytest.raises(penstock.StateError) as caught:
            other.load_state_dict(state)
        assert caught.value.code == penstock.CODES["ESTATE"]


def test_damaged_states_are_refused(photos):
    loader = penstock.Loader(photos, CROP, 8)
    text = loader.state_dict()["penstock"]
    blob = base64.b64decode(text)
    flipped = bytes([blob[0], blob[1] ^ 1]) + blob[2:]
    for bad in (b"", blob[:-1], flipped, blob + b"\0"):
        with pytest.raises(penstock.StateError):
            loader.load_state_dict({"penstock": base64.b64encode(bad).decode()})
    with pytest.raises(penstock.StateError, match="damaged"):
        loader.load_state_dict({"penstock": text[:-1] + "!"})
    for no_state in (None, {}, {"penstock": blob}, [blob]):
        with pytest.raises(penstock.StateError, match="no state"):
            loader.load_state_dict(no_state)


def test_states_of_ranks_merge(photos):
    options = dict(order="ready", world=2, ends="short", workers=1)
    loaders = [penstock.Loader(photos, CROP, 5, rank=rank, **options) for rank in range(2)]
    got = []
    for loader, steps in zip(loaders, (1, 3)):
        turn = iter(loader)
        got += [int(i) for _ in range(steps) for i in next(turn).ids]
    states = [loader.state_dict() for loader in loaders]
    merged = penstock.merge_states(states)
    for rank in range(2):
        again = penstock.Loader(photos, CROP, 5, rank=rank, **options)
        again.load_state_dict(merged)
        got += ids_of(again)
    assert sorted(got) == list(range(COUNT))
    with pytest.raises(penstock.StateError):
        penstock.merge_states(states[:1])
    with pytest.raises(penstock.Error):
        penstock.merge_states([])
