"""Measurements for `policy=auto`: runs candidates on the engine, timed by the harness's stopwatch.

The cost of one more batch of a type is measured by cutting the batches of this type into pieces.
The additional time of forward and backward, divided by the number of additional batches, is the
cost of one batch of its operators at the batch sizes of this workload. Rows and operators are the
same, so all other costs of a mini-batch are unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dynbatch.harness.contracts.choice import Candidate, Stopwatch
from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.policy import Policy, compile_policy, load_policy
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule
from dynbatch.systems.on_core.prepared import NoClock, PreparedModel, prepare_model

PIECES = 4  # per batch that is cut
MAX_CUT_ALONE = 6  # types that are cut separately; the others are cut together and share a cost
N_READINGS = 3  # the minimum counts
NO_CLOCK = NoClock()

Batches = Mapping[int, int]  # number of batches of each type
Time = Callable[[Schedule], float]  # seconds of forward and backward under a schedule


def count_batches_by_type(graph: Graph, schedule: Schedule) -> Counter[int]:
    types: list[int] = graph.types[schedule.order[schedule.starts[:-1]]].tolist()
    return Counter(types)


def cut(graph: Graph, schedule: Schedule, types: Collection[int]) -> Schedule:
    """Cut every batch of the given types into PIECES pieces, or into rows if it has fewer."""
    kinds = graph.types[schedule.order[schedule.starts[:-1]]]
    sizes = np.diff(schedule.starts)
    n_pieces = np.where(np.isin(kinds, list(types)), np.minimum(sizes, PIECES), 1)
    ends = [
        first + size * np.arange(1, n + 1) // n
        for first, size, n in zip(schedule.starts[:-1], sizes, n_pieces, strict=True)
    ]
    starts = np.concatenate([[0], *ends]).astype(np.int32)
    if schedule.segment_starts is None:
        return replace(schedule, starts=starts)
    before = np.concatenate([[0], np.cumsum(n_pieces)]).astype(np.int32)
    return replace(schedule, starts=starts, segment_starts=before[schedule.segment_starts])


def measure_costs(
    graph: Graph, schedule: Schedule, time: Time
) -> tuple[float, Mapping[int, float]]:
    """Return the seconds without batches, and the seconds per batch of each type, never below 0.

    Types whose batches have one row each cannot be cut: they cost the average of the others.

    Args:
        time: measures forward and backward under a schedule.
    """
    whole_s = time(schedule)
    n_of_type = count_batches_by_type(graph, schedule)
    known: dict[int, float] = {}
    for types in _group_types(n_of_type):
        pieces = cut(graph, schedule, types)
        n_more = pieces.n_batches - schedule.n_batches
        if n_more:
            cost_s = max(0.0, (time(pieces) - whole_s) / n_more)
            known |= dict.fromkeys(types, cost_s)
    n_known = sum(n_of_type[t] for t in known)
    mean_s = sum(n_of_type[t] * s for t, s in known.items()) / n_known if n_known else 0.0
    costs = {t: known.get(t, mean_s) for t in range(graph.n_types)}
    batches_s = sum(n * costs[t] for t, n in n_of_type.items())
    return max(0.0, whole_s - batches_s), costs


def _group_types(n_of_type: Counter[int]) -> Sequence[Collection[int]]:
    """Return groups of types: those with the most batches separately, then all others together."""
    ordered = [t for t, _ in sorted(n_of_type.items(), key=lambda item: (-item[1], item[0]))]
    others = ordered[MAX_CUT_ALONE:]
    return [*([t] for t in ordered[:MAX_CUT_ALONE]), *([others] if others else [])]


class Laboratory:
    """Runs candidates on engines of their granularity, which are built when they are first needed.

    Weights do not change: there are forward and backward, but no update. All seconds are per
    mini-batch.

    Raises:
        UnsupportedTrial: If a granularity cannot run here.
    """

    def __init__(
        self,
        model: Model,
        weights: Weights,
        switches: Switches,
        settings: RunSettings,
        mini_batches: Sequence[Sequence[Any]],
        stopwatch: Stopwatch,
    ) -> None:
        self._make = partial(prepare_model, model, weights, settings=settings)
        self._switches, self._mini_batches = switches, mini_batches
        self._stopwatch = stopwatch
        self._prepared: dict[str, PreparedModel | UnsupportedTrial] = {}
        self._policies: dict[str, Policy] = {}
        self._schedules: dict[Candidate, Schedule] = {}

    def prepare_granularity(self, granularity: str) -> PreparedModel:
        """Return the engine of a granularity."""
        if granularity not in self._prepared:
            switches = replace(self._switches, granularity=granularity)
            try:
                self._prepared[granularity] = self._make(switches)
            except UnsupportedTrial as error:
                self._prepared[granularity] = error
        result = self._prepared[granularity]
        if isinstance(result, UnsupportedTrial):
            raise result
        return result

    def prepare_policy(self, name: str) -> Policy:
        if name not in self._policies:
            compile_policy(name)
            self._policies[name] = load_policy(name)
        return self._policies[name]

    def schedule(self, candidate: Candidate) -> tuple[float, Batches]:
        """Return the minimum seconds of construct and schedule, and the batches by type.

        The first run, which may compile, does not count.
        """
        here, policy = (
            self.prepare_granularity(candidate.granularity),
            self.prepare_policy(candidate.policy),
        )
        instances = self._mini_batches[0]
        arrange = partial(here.arrange_mini_batch, instances, policy, NO_CLOCK)
        mini_batch, schedule = arrange()
        self._schedules[_strip_measurements(candidate)] = schedule
        seconds = min(self._stopwatch(arrange) for _ in range(N_READINGS))
        return seconds, count_batches_by_type(mini_batch.graph, schedule)

    def measure_cost(
        self, granularity: str, fewest: Candidate
    ) -> tuple[float, Mapping[int, float]]:
        """Return the seconds of forward and backward without batches, and per batch of each type.

        Args:
            fewest: the candidate of this granularity with the fewest batches, which are cut.
        """
        here = self.prepare_granularity(granularity)
        mini_batch = here.model.mini_batch(self._mini_batches[0])

        def time(schedule: Schedule) -> float:
            readings = []
            for _ in range(1 + N_READINGS):  # the first may compile
                here.engine.arrange(mini_batch, schedule)
                readings.append(self._stopwatch(partial(here.compute, NO_CLOCK)))
            return min(readings[1:])

        return measure_costs(mini_batch.graph, self._schedules[_strip_measurements(fewest)], time)

    def run(self, candidate: Candidate, k: int) -> float:
        """Return the seconds of mini-batch k, with all phases except the update."""
        here, policy = (
            self.prepare_granularity(candidate.granularity),
            self.prepare_policy(candidate.policy),
        )

        def run_once() -> None:
            here.arrange_mini_batch(self._mini_batches[k], policy, NO_CLOCK)
            here.compute(NO_CLOCK)

        return self._stopwatch(run_once)


def _strip_measurements(candidate: Candidate) -> Candidate:
    """Return a candidate with its name only, without measured values."""
    return Candidate(policy=candidate.policy, granularity=candidate.granularity)
