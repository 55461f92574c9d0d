"""Trials of one workload by their speed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harness.records.stats import Summary
from plots.numbers.points import Point, measure_of

TIME, TIMED_INSTANCES = "epoch_s", 1  # times are only divided by each other


def speed_of(point: Point) -> Summary | None:
    """Instances per second; None without a number."""
    return measure_of(point, "throughput").summary


def fastest_first(points: Iterable[Point], systems: Collection[str]) -> list[tuple[Point, Summary]]:
    """Those points of these systems that have a number, with their instances per second."""
    measured = [(p, s) for p in points if p.settings["system"] in systems and (s := speed_of(p))]
    return sorted(measured, key=lambda pair: -pair[1].median)
