"""Claims with what was measured for each, and the verdict to which its own rule comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import ConfigError
from harness.planning.claim_points import Comparison, comparisons
from harness.planning.claims import ANY_DEVICE, BATCHES, BOUND, Claim
from harness.planning.grid import EXPERIMENT, Settings
from harness.records.count_row import AnyCount, CountRow
from harness.records.stats import Summary
from plots.numbers.artefact import Artefact
from plots.numbers.points import QUANTITIES, Measured, Point, measure_of, speedup_of
from plots.numbers.published import FOLDER
from plots.numbers.verdicts import NOT_MEASURABLE, NOT_SHOWN, decide

HOLDS_THRESHOLD = "the interval holds the threshold"
NEEDS_SIZES = "needs the paper's sizes"
NEEDS = {"cuda": "needs CUDA", "cpu": "needs a CPU"}
# Quantities are divided by each other, so an epoch may have one instance.
N_INSTANCES = 1


@dataclass(frozen=True, slots=True)
class PointOfClaim:
    """One point: what both sides share, their number, and on which device it was measured.

    device: None where nothing was timed. weak: a build slower than its project's best on any side,
    as the warning that names it.
    """

    at: Settings
    measured: Measured
    device: str | None = None
    weak: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict; `why` completes it in words, or is empty.

    deciding: the number that decides, or why there is none; points: all of them.
    """

    claim: Claim
    verdict: str
    why: str
    points: tuple[PointOfClaim, ...]
    deciding: Measured


def check_shown(claims: Sequence[Claim], folder: Path = FOLDER) -> None:
    """Raise ConfigError where a claim names an unknown quantity or published table."""
    known = {path.stem for path in folder.glob("*.yaml")}
    quantities = (*sorted(QUANTITIES), BATCHES)
    for claim in claims:
        if claim.table is not None and claim.table not in known:
            raise ConfigError(
                f"claims/{claim.name}.yaml: published has table {claim.table}, which is no file of"
                f" plots/published; choose one of {', '.join(sorted(known))}"
            )
        if claim.answer is not None and claim.answer.quantity not in quantities:
            raise ConfigError(
                f"claims/{claim.name}.yaml: answer has quantity {claim.answer.quantity}; choose one"
                f" of {', '.join(quantities)}"
            )


def judged(claim: Claim, artefact: Artefact) -> Judged:
    """Come to a verdict on one claim by the records and counts of an artefact of claims."""
    if claim.unanswerable is not None or claim.answer is None or claim.rule is None:
        return _unmeasured(claim, claim.unanswerable or "")
    if not claim.is_answered_at(artefact.scale):
        return _unmeasured(claim, f"not in the grid of {artefact.scale} scale")
    counted = claim.answer.counts_batches
    points = _counted(claim, artefact) if counted else _timed(claim, artefact)
    if not points:
        return _unmeasured(claim, "not measured yet")
    deciding, verdict = decide(claim.rule, [point.measured for point in points])
    obstacle = _obstacle(claim, points, artefact.scale)
    if obstacle:
        return Judged(claim, NOT_MEASURABLE, obstacle, points, deciding)
    whys = {NOT_MEASURABLE: deciding.status, NOT_SHOWN: HOLDS_THRESHOLD}
    return Judged(claim, verdict, whys.get(verdict, ""), points, deciding)


def _unmeasured(claim: Claim, why: str) -> Judged:
    return Judged(claim, NOT_MEASURABLE, why, (), Measured(NOT_MEASURABLE))


def _obstacle(claim: Claim, points: Sequence[PointOfClaim], scale: str) -> str:
    """Why these numbers cannot decide, whatever they are; empty where they can."""
    devices = {point.device for point in points if point.device is not None}
    if claim.device != ANY_DEVICE and devices and devices != {claim.device}:
        return NEEDS[claim.device]
    if not claim.is_decided_at(scale):
        return NEEDS_SIZES
    weak = next((point.weak for point in points if point.weak), None)
    return f"needs the project's best build: {weak}" if weak else ""


def _timed(claim: Claim, artefact: Artefact) -> tuple[PointOfClaim, ...]:
    """A number for each point of the claim's own experiment."""
    answer = claim.answer
    assert answer is not None  # asked before
    points = [p for p in artefact.points if p.settings.get(EXPERIMENT) == answer.experiment]
    pairs = comparisons(answer, [point.settings for point in points])
    return tuple(_timed_point(answer.quantity, pair, points) for pair in pairs)


def _timed_point(quantity: str, pair: Comparison, points: Sequence[Point]) -> PointOfClaim:
    of = _fastest([points[place] for place in pair.of])
    over = _fastest([points[place] for place in pair.over]) if pair.over else None
    if over is None:
        measured = measure_of(of, quantity, N_INSTANCES)
    else:
        measured = speedup_of(of, over, quantity, N_INSTANCES)
    records = [r for p in (of, over) if p is not None for r in p.records if r is not None]
    device = records[0].trial.device if records else None
    return PointOfClaim(pair.at, _named(measured, of, over), device, _weak(of, over))


def _fastest(points: Sequence[Point]) -> Point:
    """The one with most instances per second; the first where none has a number."""
    speeds = [measure_of(point, "throughput").summary for point in points]
    ranked = [speed.median if speed is not None else -1.0 for speed in speeds]
    return points[ranked.index(max(ranked))]


def _named(measured: Measured, *sides: Point | None) -> Measured:
    """Without a number, with the name of the system that has none."""
    if measured.summary is not None:
        return measured
    failed = (side for side in sides if side is not None and side.status == measured.status)
    system = next((str(side.settings["system"]) for side in failed), "")
    return replace(measured, status=f"{system} {measured.status}".strip())


def _weak(*sides: Point | None) -> str | None:
    """The build that is slower than its project's best, if a side has one."""
    told = (set(s.ratio_warnings) - set(s.warnings) for s in sides if s is not None)
    return min(set().union(*told), default=None)


def _counted(claim: Claim, artefact: Artefact) -> tuple[PointOfClaim, ...]:
    """Batches of ED-Batch's graph for each mini-batch, of one policy over another or the bound."""
    answer = claim.answer
    assert answer is not None  # asked before
    rows = {row.count_id: row for row in artefact.counts}.values()
    found = [(_settings_of(row), row) for row in rows]
    with_bounds = [*found, *(({**s, "policy": BOUND}, row) for s, row in found)]
    points = []
    for pair in comparisons(answer, [settings for settings, _ in with_bounds]):
        sides = [
            _fewest([_batches(*with_bounds[place]) for place in places])
            for places in (pair.of, pair.over)
            if places
        ]
        points.append(PointOfClaim(pair.at, _quotient(sides)))
    return tuple(points)


def _settings_of(row: AnyCount) -> Settings:
    keys = ("model", "split", "batch_size", "granularity", "policy")
    return {key: getattr(row, key) for key in keys}


def _batches(settings: Settings, row: AnyCount) -> Measured:
    if not isinstance(row, CountRow):
        return Measured(f"{row.policy} {row.status}")
    number = row.lower_bound_ed if settings["policy"] == BOUND else row.n_batches_ed
    if number is None:
        return Measured(f"{row.policy} {row.status_ed}")
    return Measured("ok", Summary(number, None, None, 1))


def _fewest(measured: Sequence[Measured]) -> Measured:
    """A bound is counted once for every policy: all are equal."""
    told = [one for one in measured if one.summary is not None]
    return min(
        told, key=lambda one: one.summary.median if one.summary else 0.0, default=measured[0]
    )


def _quotient(sides: Sequence[Measured]) -> Measured:
    failed = next((side for side in sides if side.summary is None), None)
    numbers = [side.summary.median for side in sides if side.summary is not None]
    if failed is not None:
        return failed
    value = numbers[0] / numbers[1] if len(numbers) == 2 else numbers[0]
    return Measured("ok", Summary(value, value, value, 1))


Values = Mapping[str, tuple[object, ...]]


def shared_values(points: Sequence[PointOfClaim]) -> Values:
    """Every value that the points give a key, in their order."""
    keys = dict.fromkeys(key for point in points for key in point.at)
    return {
        key: tuple(dict.fromkeys(point.at[key] for point in points if key in point.at))
        for key in keys
    }
