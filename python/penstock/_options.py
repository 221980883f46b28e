# SPDX-License-Identifier: Apache-2.0
"""A Loader's arguments in the words of the engine's job."""

from __future__ import annotations

import operator
from array import array
from typing import Any, Iterable, Mapping, Sequence

from ._penstock import SettingError

_SAMPLER_NAMES = ("shuffle", "sequential", "weighted", "weighted_once")


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number within the bounds of the engine's own; what the number means is checked there."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r:.60} is not a whole number") from None
    if not low <= number <= high:
        raise SettingError(f"{name}={number} is out of range; it is {low}..{high}")
    return number


def fields_text(fields: str | Sequence[str] | Mapping[str, str] | None) -> str | None:
    if fields is None or isinstance(fields, str):
        return fields
    if isinstance(fields, Mapping):
        return ",".join(f"{name}={packing}" if packing else name for name, packing in fields.items())
    return ",".join(fields)


def ends_word(ends: str | None, drop_last: bool | None, train: bool) -> str:
    """Evaluation pads, so that ranks and batches are equal and the mask says what counts."""
    if drop_last is None or ends is not None:
        if drop_last and ends != "drop":
            raise SettingError(f"drop_last=True and ends={ends!r} contradict each other; give one of them")
        return ends or ("default" if train else "pad")
    return "drop" if drop_last else ("default" if train else "pad")


def sampling_options(
    shuffle: bool,
    sampler: str | Iterable[int] | None,
    subset: Iterable[int] | None,
    weights: Iterable[float] | None,
) -> dict[str, Any]:
    """The sampler's name, and its arrays in the machine's own form."""
    if sampler is not None and not isinstance(sampler, str):
        if subset is not None or weights is not None:
            raise SettingError("a sampler given as ids is the order itself; subset and weights do not go with it")
        return {"sampler": "given", "ids": array("q", sampler)}
    name = sampler or ("weighted" if weights is not None else "shuffle" if shuffle else "sequential")
    if name not in _SAMPLER_NAMES:
        raise SettingError(f"sampler={name!r} is not known; use one of {', '.join(_SAMPLER_NAMES)}, or a list of ids")
    if name.startswith("weighted") != (weights is not None):
        raise SettingError("weights and a weighted sampler go together; one of them is missing")
    chosen: dict[str, Any] = {"sampler": name}
    if subset is not None:
        chosen["ids"] = array("q", subset)
    if weights is not None:
        chosen["weights"] = array("d", weights)
    return chosen


def bucket_options(buckets: str | Iterable[int] | None) -> dict[str, Any]:
    """By what buckets are made, or the buckets themselves in the machine's own form."""
    if buckets is None or isinstance(buckets, str):
        return {"bucket_by": buckets}
    return {"buckets": array("i", buckets)}


def on_error_options(policy: str) -> dict[str, Any]:
    """"skip:10,retry:2" -> the job's options."""
    options: dict[str, Any] = {"on_error": "raise"}
    for part in policy.split(","):
        word, colon, number = part.strip().partition(":")
        if word == "raise" and not colon:
            continue
        if word not in ("skip", "retry") or not number.isdecimal():
            raise SettingError(f"on_error={policy!r} is not known; use 'raise', 'skip:N', 'retry:N' or 'skip:N,retry:M'")
        if word == "skip":
            options.update(on_error="skip", skip=int(number))
        else:
            options["retries"] = int(number)
    return options


def as_forms(forms: Sequence[float] | None) -> tuple[float, float, float]:
    """Shares of the cache for encoded, decoded and augmented samples; none means as it pays."""
    if forms is None:
        return (0.0, 0.0, 0.0)
    shares = tuple(float(share) for share in forms)
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or not any(shares):
        raise SettingError(
            f"forms={forms!r}: three shares from 0 to 1 are needed, for encoded, decoded and augmented samples"
        )
    return shares


_PARTS = ("lanes", "prediction", "early", "past", "tuner")


def without_bits(parts: Iterable[str]) -> int:
    """Parts of the schedule that are left out, as the engine counts them."""
    names = [parts] if isinstance(parts, str) else list(parts)
    unknown = [name for name in names if name not in _PARTS]
    if unknown:
        raise SettingError(f"without={unknown[0]!r}: the parts of the schedule are {', '.join(_PARTS)}")
    return sum(1 << _PARTS.index(name) for name in set(names))
