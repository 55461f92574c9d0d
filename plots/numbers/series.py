"""What a figure draws: panels of series of marks; plain values without any drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.stats import Summary

STRATEGIES, SYSTEMS, PUBLISHED = "strategies", "systems", "published"
GROUP_TITLES = {
    STRATEGIES: "Strategy against strategy (one engine)",
    SYSTEMS: "System against system",
    PUBLISHED: "As published",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One point of a series; without a summary, `status` says why (never a blank)."""

    x: float
    status: str
    summary: Summary | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """The marks of one system, by ascending x."""

    system: str
    label: str
    marks: tuple[Mark, ...]

    @property
    def drawn(self) -> tuple[Mark, ...]:
        return tuple(mark for mark in self.marks if mark.summary is not None)

    @property
    def missing(self) -> tuple[Mark, ...]:
        return tuple(mark for mark in self.marks if mark.summary is None)


@dataclass(frozen=True, slots=True)
class Panel:
    """Series that may be compared with each other: one group, one machine."""

    group: str
    title: str
    series: tuple[Series, ...]


def all_x(panels: Sequence[Panel]) -> tuple[float, ...]:
    """Every x at which something was measured or published, ascending."""
    return tuple(sorted({m.x for p in panels for s in p.series for m in s.marks}))
