"""What `bench` says behind a sweep over systems, policies or options: which is how much faster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.records.record import Record
from plots.numbers.best_peer import ratio_words
from plots.numbers.fastest import TIME, TIMED_INSTANCES, fastest_first
from plots.numbers.points import Point, speedup_of
from plots.numbers.table import DAGGER
from plots.words.workloads import by_workload


def lines_of(records: Iterable[Record]) -> Iterator[str]:
    """A line for each workload at which several have a number; ratios are paired by round.

    What computes nothing, and so is not checked, is no rival.
    """
    rivals = [one for one in records if one.check is None or one.check.status != "skipped"]
    for workload, points in by_workload(rivals):
        ranked = fastest_first(points, {str(point.settings["system"]) for point in points})
        if len(ranked) < 2:
            continue
        (fastest, speed), *slower = ranked
        gains = [speedup_of(point, fastest, TIME, TIMED_INSTANCES) for point, _ in slower]
        over = [
            f"{ratio_words(gain)} x {_name(point)}"
            for gain, (point, _) in zip(gains, slower, strict=True)
        ]
        warnings = sorted({warning for gain in gains for warning in gain.warnings})
        why = f" ({DAGGER} {', '.join(warnings)})" if warnings else ""
        first = f"{_name(fastest)} is the fastest with {speed.median:,.0f} instances/s"
        yield f"{workload}: {first}: {', '.join(over)}{why}"


def _name(point: Point) -> str:
    system, policy, options = (point.settings.get(key) for key in ("system", "policy", "options"))
    name = f"{system}:{policy}" if policy else str(system)
    return f"{name} {options}" if options else name
