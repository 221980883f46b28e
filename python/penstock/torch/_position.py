# SPDX-License-Identifier: Apache-2.0
"""Places a fresh job at a position of its epoch, through a state that says so.

A job's state is a documented, frozen layout: a header, tagged sections, a checksum. A fresh job's own state with
another prefix is the state of that job after so many samples.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct("<8sII")
_SECTION = struct.Struct("<4sI")
_PREFIX_AT = 3 * 8 + 6 * 4  # in BASE: seed, epoch, length, then six words


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def moved(state: bytes, prefix: int) -> bytes:
    """The state of a fresh strict job, moved on by `prefix` positions."""
    magic, version, count = _HEAD.unpack_from(state)
    if magic != b"PSTSTATE" or version != 1:
        raise ValueError("this is no state of version 1")
    kept, at = [], _HEAD.size
    for _ in range(count):
        tag, size = _SECTION.unpack_from(state, at)
        body = bytearray(state[at + _SECTION.size : at + _SECTION.size + size])
        at += _SECTION.size + size
        if tag == b"BASE":
            struct.pack_into("<Q", body, _PREFIX_AT, prefix)
        if tag in (b"IDEN", b"BASE"):
            kept.append(_SECTION.pack(tag, len(body)) + body)
    blob = _HEAD.pack(magic, version, len(kept)) + b"".join(kept)
    return blob + struct.pack("<I", crc32c(blob))
