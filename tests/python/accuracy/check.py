# SPDX-License-Identifier: Apache-2.0
"""The check itself: do nets trained through a loader come out as those trained through the baseline's?

Two questions, over seeds in pairs. All in all: is the 90 % confidence interval of the difference in accuracy within one
percentage point? Class by class: is there a difference at 1 %, after Holm's correction over classes and loaders?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

from student import Difference, holm, paired

BOUND, CONFIDENCE = 1.0, 0.90  # percentage points
LEVEL = 0.01


@dataclass(frozen=True)
class Score:
    """Accuracy of one net in percent: of all pictures, and of each class."""

    accuracy: float
    by_class: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    """One loader against the baseline. `chances`: p of each class, adjusted."""

    overall: Difference
    classes: tuple[Difference, ...]
    chances: tuple[float, ...]

    @property
    def close(self) -> bool:
        return self.overall.inside(BOUND)

    @property
    def apart(self) -> list[int]:
        """Classes with a difference."""
        return [label for label, p in enumerate(self.chances) if p < LEVEL]


def overall(ours: Sequence[Score], baseline: Sequence[Score]) -> Difference:
    """A loader may have been run with fewer seeds than the baseline: the first ones are compared."""
    return paired([s.accuracy for s in ours], [s.accuracy for s in baseline[: len(ours)]], CONFIDENCE)


def compare(loaders: Mapping[str, Sequence[Score]], baseline: Sequence[Score]) -> dict[str, Finding]:
    """All loaders at once: the correction is over all of them."""
    differences = {}
    for name, scores in loaders.items():
        columns = zip(zip(*(s.by_class for s in scores)), zip(*(s.by_class for s in baseline[: len(scores)])))
        differences[name] = tuple(paired(ours, theirs, CONFIDENCE) for ours, theirs in columns)
    adjusted = iter(holm([one.p for row in differences.values() for one in row]))
    return {
        name: Finding(overall(loaders[name], baseline), row, tuple(next(adjusted) for _ in row))
        for name, row in differences.items()
    }


def complaints(findings: Mapping[str, Finding]) -> list[str]:
    """Why the check fails; empty where it does not."""
    found = []
    for name, finding in findings.items():
        gap = finding.overall
        if not finding.close:
            found.append(
                f"{name}: accuracy differs by {gap.mean - gap.half:+.2f} to {gap.mean + gap.half:+.2f} points with "
                f"{CONFIDENCE:.0%} confidence; all of it should be within {BOUND:g}"
            )
        for label in finding.apart:
            found.append(
                f"{name}: accuracy of class {label} differs by {finding.classes[label].mean:+.2f} points, "
                f"p = {finding.chances[label]:.2g} after correction; below {LEVEL:g} is a difference"
            )
    return found
