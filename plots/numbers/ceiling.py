"""The ceiling of a workload: what its matrix products take alone, and how much of it is reached.

A calibration is a system of kind `calibration` (conf/system); the fastest of a workload's is the
ceiling. None is a peer of anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from harness.planning.kinds import read_systems
from plots.numbers.artefact import Artefact
from plots.numbers.fastest import TIME, TIMED_INSTANCES, fastest_first
from plots.numbers.points import Measured, Point, speedup_of

CALIBRATION_KIND = "calibration"
# Settings of a trial that are no part of its workload, and all that begin with them.
HOW_IT_IS_RUN = ("system", "policy", "timing.", "learning.")


def calibration_names(conf_dir: Path) -> frozenset[str]:
    """Names of all systems that measure a ceiling."""
    return frozenset(one.name for one in read_systems(conf_dir) if one.kind == CALIBRATION_KIND)


def calibrations_of(artefact: Artefact) -> tuple[str, ...]:
    """Calibrations of this scale, in the order of the grid; none where they are not shown."""
    if not artefact.presentation.shows_ceiling:
        return ()
    names = calibration_names(artefact.conf_dir)
    systems = dict.fromkeys(str(point.settings["system"]) for point in artefact.points)
    return tuple(system for system in systems if system in names)


def ceiling_of(points: Iterable[Point], calibrations: Collection[str]) -> Point | None:
    """The fastest calibration of one workload's points; None where none was planned.

    Where none has a number it is the first, whose status says why.
    """
    planned = [point for point in points if point.settings["system"] in calibrations]
    ranked = [point for point, _ in fastest_first(planned, calibrations)]
    return next(iter([*ranked, *planned]), None)


def ceiling_beside(artefact: Artefact, point: Point | None) -> Point | None:
    """The ceiling of a trial's workload; None where it was not planned, or is not shown."""
    if point is None:
        return None
    alike = [one for one in artefact.points if _workload(one) == _workload(point)]
    return ceiling_of(alike, calibrations_of(artefact))


def _workload(point: Point) -> dict[str, object]:
    return {k: v for k, v in point.settings.items() if not k.startswith(HOW_IT_IS_RUN)}


def share_of(ceiling: Point | None, point: Point | None) -> Measured:
    """The speed of a trial over the ceiling's, in percent: of both in each round, then over rounds.

    What leaves products out, or multiplies with another library, may come to more than 100.
    """
    share = speedup_of(ceiling, point, TIME, TIMED_INSTANCES)
    summary = share.summary
    if summary is None:
        return share
    low, high = (None if end is None else 100 * end for end in (summary.low, summary.high))
    return replace(share, summary=replace(summary, median=100 * summary.median, low=low, high=high))
