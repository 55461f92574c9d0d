"""Blocks: what one job on a cluster's node measures, all rounds of all systems of some points.

On one machine a job is a sitting: a round of a point. On a cluster each job may land on another
node, waits in a queue, and starts Snakemake twice there: so a job has all that is compared at its
points, on one node, with rounds that interleave as they do on one machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.planning.budget import Step
from harness.planning.durations import usual_s
from harness.planning.ordering import point_of
from harness.planning.sittings import Sitting
from harness.records.measured import sitting_path
from harness.records.record import path_of
from harness.trials.spec import TrialSpec

# Of a block there is one part, where of a sitting there is one for each round.
ONLY_PART = 0
COUNTING_MIN = 24 * 60  # after which a job that counts is held to hang


@dataclass(frozen=True, slots=True)
class Block:
    """Sittings in the order of measuring: all first rounds of its points, then all second ones.

    name: path-safe, and the same as long as the same is asked for.
    """

    name: str
    sittings: tuple[Sitting, ...]

    @property
    def round(self) -> int:
        return ONLY_PART

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for sitting in self.sittings for step in sitting.steps)

    @property
    def artefacts(self) -> frozenset[str]:
        return frozenset().union(*(sitting.artefacts for sitting in self.sittings))

    def file(self, results_dir: Path) -> Path:
        """What says that it is over."""
        return sitting_path(results_dir, self.name, self.round)

    def records(self, results_dir: Path) -> tuple[Path, ...]:
        return tuple(path_of(results_dir, *step) for step in self.steps)


def blocks_of(
    sittings: Iterable[Sitting],
    block_s: float,
    seconds_of: Callable[[TrialSpec], float] | None = None,
) -> tuple[Block, ...]:
    """All sittings in blocks that take about `block_s` seconds each, or as long as a point takes.

    Points that share an artefact may share a block. seconds_of: a round of a trial; by rule where
    it is None, so that what was measured since changes no block.
    """
    takes_s = seconds_of or (lambda spec: usual_s(spec.adapter, spec.timing.min_seconds))
    points: dict[str, list[Sitting]] = {}
    for sitting in sittings:
        points.setdefault(point_of(sitting.trials[0].spec), []).append(sitting)
    together = sorted(points.values(), key=_wanted_by)
    return tuple(_block(members) for members in _filled(together, block_s, takes_s))


def _wanted_by(members: Sequence[Sitting]) -> tuple[str, ...]:
    return tuple(sorted(frozenset().union(*(one.artefacts for one in members))))


def _filled(
    points: Iterable[Sequence[Sitting]], block_s: float, takes_s: Callable[[TrialSpec], float]
) -> Iterator[list[Sitting]]:
    """Points one after the other, as many as fit; what no artefact shares stands apart."""
    block: list[Sitting] = []
    left_s, wanted_by = block_s, frozenset[str]()
    for members in points:
        seconds = sum(takes_s(trial.spec) for one in members for trial in one.trials)
        theirs = frozenset(_wanted_by(members))
        if block and (seconds > left_s or wanted_by.isdisjoint(theirs)):
            yield block
            block, left_s, wanted_by = [], block_s, frozenset()
        block += members
        left_s -= seconds
        wanted_by |= theirs
    if block:
        yield block


def _block(members: Sequence[Sitting]) -> Block:
    """In rounds; in each of them points as they come."""
    in_order = tuple(sorted(members, key=lambda one: one.round))
    first = in_order[0]
    names = [(one.name, one.round) for one in in_order]
    digest = hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()[:8]
    n_points = len({point_of(one.trials[0].spec) for one in in_order})
    words = first.name.rpartition("-")[0]
    more = f"-and_{n_points - 1}_more" if n_points > 1 else ""
    return Block(f"block-{words}{more}-{digest}", in_order)


def runtime_min(
    trials: Iterable[TrialSpec], seconds_of: Callable[[TrialSpec], float] | None = None
) -> int:
    """Minutes after which a job is held to hang: as long as its trials may take, at the longest.

    Three times as long as planned, and one trial up to its limit.
    """
    takes_s = seconds_of or (lambda spec: usual_s(spec.adapter, spec.timing.min_seconds))
    planned = list(trials)
    most_s = max((spec.limits.time_s for spec in planned), default=0.0)
    return 5 + round((3 * sum(map(takes_s, planned)) + most_s) / 60)
