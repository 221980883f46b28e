# SPDX-License-Identifier: Apache-2.0
"""The statistics behind accuracy.py against tables, and its check against made-up scores."""

import random

import check
import pytest
import student
from check import Score

CLASSES = 4


def column(seeds: int, first: int, shift: float = 0.0, classes=(), spread: float = 0.5) -> list[Score]:
    """Scores around 85; `shift` points on the classes named, or on all."""
    rng = random.Random(first)
    out = []
    for _ in range(seeds):
        values = [85 + rng.gauss(0, spread) + (shift if not classes or c in classes else 0) for c in range(CLASSES)]
        out.append(Score(sum(values) / CLASSES, tuple(values)))
    return out


@pytest.mark.parametrize(
    "confidence, freedom, t",
    [(0.9, 1, 6.3138), (0.9, 4, 2.1318), (0.9, 29, 1.6991), (0.99, 4, 4.6041), (0.99, 10, 3.1693)],
)
def test_quantiles_are_those_of_the_tables(confidence, freedom, t):
    assert student.quantile(confidence, freedom) == pytest.approx(t, abs=1e-4)
    assert student.two_sided_p(t, freedom) == pytest.approx(1 - confidence, abs=1e-5)


def test_far_tails_keep_their_size():
    # freedom 2 has a closed form: p = 1 - t / sqrt(t^2 + 2)
    for t in (0.1, 1.0, 10.0, 1000.0):
        assert student.two_sided_p(t, 2) == pytest.approx(2 / ((t * t + 2) + t * (t * t + 2) ** 0.5), rel=1e-9)


def test_paired_difference():
    # differences 1, 2, 3: mean 2, deviation 1, t = 2 sqrt(3)
    found = student.paired([11, 22, 33], [10, 20, 30], 0.9)
    assert found.mean == pytest.approx(2)
    assert found.half == pytest.approx(2.91999 / 3**0.5, abs=1e-4)
    assert found.p == pytest.approx(0.07418, abs=1e-5)


def test_equal_runs_have_no_difference_and_equal_gaps_are_one():
    same, gap = student.paired([1, 2], [1, 2], 0.9), student.paired([2, 3], [1, 2], 0.9)
    assert (same.mean, same.half, same.p) == (0, 0, 1)
    assert (gap.mean, gap.half, gap.p) == (1, 0, 0)


def test_pairs_are_needed():
    for ours, theirs in (([1], [1]), ([1, 2], [1, 2, 3])):
        with pytest.raises(ValueError, match="pairs"):
            student.paired(ours, theirs, 0.9)


def test_holm():
    assert student.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert student.holm([0.5, 0.9]) == [1, 1]


def test_the_same_accuracy_passes():
    findings = check.compare({"a": column(10, 1), "b": column(5, 2)}, column(10, 3))
    assert check.complaints(findings) == []


def test_two_points_less_fail():
    findings = check.compare({"a": column(10, 1), "b": column(10, 2, shift=-2.0)}, column(10, 3))
    found = check.complaints(findings)
    assert found and all(line.startswith("b: ") for line in found) and "within 1" in found[0]


def test_an_interval_that_is_too_wide_fails():
    findings = check.compare({"a": column(5, 1, spread=6.0)}, column(5, 3, spread=6.0))
    assert not findings["a"].close


def test_a_class_that_suffers_is_named_where_the_whole_hides_it():
    ours = column(10, 1, shift=-3.5, classes=(2,))
    lifted = [Score(s.accuracy + 3.5 / CLASSES, s.by_class) for s in ours]
    findings = check.compare({"a": lifted, "b": column(10, 2)}, column(10, 3))
    assert findings["a"].close and findings["a"].apart == [2]
    assert ["class 2" in line for line in check.complaints(findings)] == [True]


def test_false_alarms_are_as_rare_as_the_level_says():
    alarms = sum(
        bool(check.compare({"a": column(6, 3 * k), "b": column(6, 3 * k + 1)}, column(6, 3 * k + 2))["a"].apart)
        for k in range(1000, 1300)
    )
    assert alarms <= 9  # 1 % of 300 is 3; more than 9 comes once in a thousand times
