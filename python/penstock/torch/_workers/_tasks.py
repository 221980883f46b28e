# SPDX-License-Identifier: Apache-2.0
"""The words that trainer and workers share about a batch: what to do, how far it is, where the result lies.

A task is a chunk in the trainer's region: the fields below, one row of four words for each sample, then the indices.
The trainer writes it, then sends one token for each sample (or one for the whole batch) down a pipe from which every
worker reads; so a free worker takes the next sample, and a dead trainer is an end of file. Whoever brings `LEFT` to 0
finishes the batch and sends a record back.

A task is used again when it is `CLOSED`, which is the last thing its finisher does with it; the serial tells a reader
which use it is looking at. With regrouping a sample of one task is placed in another: its own task counts it in
`UNPLACED` until it is placed (before the other's `LEFT`, so where nothing is left nothing is unplaced) and in `UNREAD`
until its worker has left both, which is when their memory may be used again.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from typing import Any

from . import _codec
from ._arena import Arena, Region

# Words of the control page.
STOP, EPOCH, FILLED, MODE, BATCH_SIZE, SHARED_SEED = range(6)
# Lanes. The trainer's: samples handed over in this epoch; how many the consumer takes in 1000 s; samples that may be
# ready; those that may overtake one; whether tokens come when some are handed over; whether a worker asked for more.
TAKEN, PACE, ROOM, WINDOW, MORE, NUDGED = range(8, 14)
# The workers': the position last begun; when there last was slack; the time from which a sample is slow (0: none
# is); means of a slow sample's steps and of what others take; samples aside, and slow ones being worked at.
NEWEST, FULL_NS, CUTOFF, SLICE_NS, FAST_NS, ASIDE, SLOW_RUNNING = range(14, 21)
RING = 24  # regrouping: the tasks of the epoch by number, modulo the ring's size; workers' counters follow, then costs
BUSY_NS, SAMPLES, INIT_ERROR, SLOW, PARKED, WHY, COUNTERS = 0, 1, 2, 3, 4, 5, 8  # words of a worker

# Words of a task.
SERIAL, TASK_EPOCH, COUNT, LEFT, STATE, BLOCK, LAYOUT, POSITION, SEED = range(9)
RESULT, RESULT_AT, HINT_BLOCK, HINT_LAYOUT, KIND, INDEX_BYTES, ODD, CLOSED, UNREAD, UNPLACED = range(9, 19)
ROWS = 24
ROW = 4  # words: how the sample came, where, its position in the epoch, its layout

# MODE: whether samples are spread over workers; never again after one that could not be pickled
SPREAD, TOGETHER, NEVER_SPREAD = range(3)
# STATE: who chose the layout of the block
UNCHOSEN, CHOOSING, OWN, HINTED = range(4)
# RESULT
DIRECT, DIRECT_TEXT, OBJECT, ERROR = range(1, 5)
# how a sample came
IN_SLOT, IN_SLOT_TEXT, LOOSE, LOOSE_LAYOUT, FAILED, AGAIN = range(1, 7)
# KIND of the indices
NUMBERS, PICKLED, SINGLE = range(3)

WHOLE = (1 << 24) - 1  # the sample number in a token that stands for the whole batch
MOST_SAMPLES = WHOLE - 1
TOKEN = struct.Struct("<q")
RECORD = struct.Struct("<qq")  # the task's offset and serial; offset 0: worker `serial` could not start
NUDGE = -1  # the offset in a record that asks for more tokens
FILLED_BITS = 40  # FILLED is (epoch << 40) + samples placed


def token(offset: int, number: int) -> int:
    return (offset >> 6 << 24) | number


def write_task(
    region: Region, serial: int, epoch: int, indices: Any, single: bool, position: int, seed: int
) -> tuple[int, int]:
    """A task for these indices: its offset and the number of its samples. Tokens may be sent once it is complete."""
    if single:
        count, kind, payload = 1, SINGLE, pickle.dumps(indices)
    else:
        count = len(indices)
        kind, payload = _packed(indices)
    if count > MOST_SAMPLES:
        raise ValueError(f"a batch of {count} samples; the most is {MOST_SAMPLES}")
    offset = region.allocate((ROWS + ROW * count) * 8 + len(payload))
    words, w = region.arena.words, offset >> 3
    fields = array("q", bytes(8 * ROWS))
    fields[SERIAL], fields[TASK_EPOCH], fields[COUNT], fields[LEFT] = serial, epoch, count, max(count, 1)
    fields[POSITION], fields[SEED], fields[KIND], fields[INDEX_BYTES] = position, seed, kind, len(payload)
    fields[UNREAD] = fields[UNPLACED] = count
    words[w : w + ROWS] = memoryview(fields)
    start = offset + (ROWS + ROW * count) * 8
    region.arena.map[offset + 8 * ROWS : start] = bytes(start - offset - 8 * ROWS)
    region.arena.map[start : start + len(payload)] = payload
    return offset, count


def _packed(indices: Any) -> tuple[int, bytes]:
    try:
        if set(map(type, indices)) <= {int}:
            return NUMBERS, array("q", indices).tobytes()
    except OverflowError:
        pass
    return PICKLED, pickle.dumps(list(indices) if not isinstance(indices, (list, tuple)) else indices)


def discard(arena: Arena, offset: int) -> None:
    """Gives back what a batch that nobody wants any more holds."""
    words, w = arena.words, offset >> 3
    discard_samples(arena, offset, 0)
    if words[w + STATE] == OWN:
        arena.release(words[w + BLOCK])


def discard_samples(arena: Arena, offset: int, first: int) -> None:
    """Gives back what its samples from number `first` on hold."""
    words, w = arena.words, offset >> 3
    for row in range(w + ROWS + ROW * first, w + ROWS + ROW * words[w + COUNT], ROW):
        how, where = words[row], words[row + 1]
        if how == LOOSE:
            _codec.discard(arena, where)
        elif where:
            arena.release(where)


class Task:
    """A worker's own notes of a task."""

    __slots__ = ("offset", "w", "serial", "epoch", "count", "position", "seed", "indices", "layout", "rows")

    def __init__(self, arena: Arena, offset: int) -> None:
        words = arena.words
        self.offset = offset
        self.w = w = offset >> 3
        self.serial, self.epoch, self.count = words[w], words[w + TASK_EPOCH], words[w + COUNT]
        self.position, self.seed = words[w + POSITION], words[w + SEED]
        start = offset + (ROWS + ROW * self.count) * 8
        payload = arena.map[start : start + words[w + INDEX_BYTES]]
        numbers = words[w + KIND] == NUMBERS
        self.indices: Any = memoryview(payload).cast("q").tolist() if numbers else pickle.loads(payload)
        self.layout: Any = None
        self.rows: Any = None
