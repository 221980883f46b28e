# SPDX-License-Identifier: Apache-2.0
"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from ._penstock import SettingError

AUTO = (1 << 64) - 1
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def as_bytes(value: int | str, name: str) -> int:
    """4096, "512M", "1.5G" -> bytes."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise SettingError(f"{name}={value!r} is not an amount of memory; write 512 << 20 or '512M'")
    if isinstance(value, int):
        if value < 0:
            raise SettingError(f"{name}={value} is negative; 0 lets it be chosen here")
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", value.lower())
    if not found:
        raise SettingError(f"{name}={value!r} is not an amount of memory; write a number and K, M, G or T, as in '512M'")
    return int(float(found[1]) * _UNITS[found[2]])


def cache_bytes(value: int | str | None) -> int:
    """None and "auto" stand for what the budget leaves; 0 and "off" for no cache."""
    if value is None or value == "auto":
        return AUTO
    return 0 if value == "off" else as_bytes(value, "cache")
