# SPDX-License-Identifier: Apache-2.0
"""The statistics that the accuracy check needs, by hand: Student's t, paired differences, Holm's correction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

_TINY = 1e-300


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated from the front (Lentz's way)."""
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), _TINY)
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + term / c
            c = c if abs(c) > _TINY else _TINY
            step = c * d
            value *= step
        if abs(step - 1.0) < 1e-14:
            return value
    raise ArithmeticError(f"the incomplete beta function does not settle at a={a}, b={b}, x={x}")


def beta_share(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def two_sided_p(t: float, freedom: int) -> float:
    """The chance of a |t| at least this large where there is no difference."""
    if math.isinf(t):
        return 0.0
    return beta_share(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def quantile(confidence: float, freedom: int) -> float:
    """The t that |t| stays below with this confidence: quantile(0.9, 4) = 2.132."""
    low, high = 0.0, 1e6
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > 1.0 - confidence else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, half the width of its confidence interval, and p for "there is none"."""

    mean: float
    half: float
    p: float
    pairs: int

    def inside(self, bound: float) -> bool:
        """Whether the whole interval lies within -bound..bound: with 90 % confidence, two one-sided tests at 5 %."""
        return abs(self.mean) + self.half < bound


def paired(ours: Sequence[float], theirs: Sequence[float], confidence: float) -> Difference:
    """ours - theirs, seed by seed."""
    if len(ours) != len(theirs) or len(ours) < 2:
        raise ValueError(f"{len(ours)} values against {len(theirs)}: pairs are needed, at least two")
    gaps = [one - other for one, other in zip(ours, theirs)]
    mean = math.fsum(gaps) / len(gaps)
    error = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1) / len(gaps))
    freedom = len(gaps) - 1
    if error == 0.0:  # the same runs, or the same gap each time
        return Difference(mean, 0.0, 1.0 if mean == 0.0 else 0.0, len(gaps))
    return Difference(mean, quantile(confidence, freedom) * error, two_sided_p(mean / error, freedom), len(gaps))


def holm(chances: Sequence[float]) -> list[float]:
    """Each p adjusted for all of them being looked at, in the order given: below 1 % is a difference at 1 %."""
    adjusted, least = [0.0] * len(chances), 0.0
    for place, index in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        least = max(least, min(1.0, (len(chances) - place) * chances[index]))
        adjusted[index] = least
    return adjusted
