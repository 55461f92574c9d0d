"""Where `policy=auto` measures its candidates: on the engine itself, by the harness's stopwatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from harness.contracts.choice import Candidate, Stopwatch
from harness.contracts.model import Model, Weights
from harness.contracts.policy import Policy, compile_policy, load_policy
from harness.contracts.system import RunSettings
from harness.engine.switches import Switches
from harness.errors import UnsupportedTrial
from harness.values.schedule import Schedule
from systems.on_core.batch_costs import batches_by_type, costs_of
from systems.on_core.choosing import Batches
from systems.on_core.prepared import NoClock, Prepared, prepared

N_READINGS = 3  # of which the least counts
NO_CLOCK = NoClock()


class EngineLaboratory:
    """Runs candidates on engines of their granularity, which it makes when they are first needed.

    No weight is changed: there are forward and backward, and no step.
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
        self._make = partial(prepared, model, weights, settings=settings)
        self._switches, self._mini_batches = switches, mini_batches
        self._stopwatch = stopwatch
        self._prepared: dict[str, Prepared | UnsupportedTrial] = {}
        self._policies: dict[str, Policy] = {}
        self._schedules: dict[Candidate, Schedule] = {}

    def prepared_at(self, granularity: str) -> Prepared:
        """The engine of a granularity; raises UnsupportedTrial where it cannot be run here."""
        if granularity not in self._prepared:
            switches = replace(self._switches, granularity=granularity)
            try:
                self._prepared[granularity] = self._make(switches)
            except UnsupportedTrial as error:
                self._prepared[granularity] = error
        found = self._prepared[granularity]
        if isinstance(found, UnsupportedTrial):
            raise found
        return found

    def policy(self, name: str) -> Policy:
        """A policy, compiled."""
        if name not in self._policies:
            compile_policy(name)
            self._policies[name] = load_policy(name)
        return self._policies[name]

    def schedule(self, candidate: Candidate) -> tuple[float, Batches]:
        """Least seconds of construct and schedule, once it has run; batches by type."""
        here, policy = self.prepared_at(candidate.granularity), self.policy(candidate.policy)
        instances = self._mini_batches[0]
        mini_batch, schedule = here.scheduled(instances, policy, NO_CLOCK)
        self._schedules[_plain(candidate)] = schedule
        seconds = self._least(partial(here.scheduled, instances, policy, NO_CLOCK))
        return seconds, batches_by_type(mini_batch.graph, schedule)

    def cost(self, granularity: str, fewest: Candidate) -> tuple[float, Mapping[int, float]]:
        """By cutting the batches of the schedule that has the fewest."""
        here = self.prepared_at(granularity)
        mini_batch = here.model.mini_batch(self._mini_batches[0])

        def time(schedule: Schedule) -> float:
            readings = []
            for _ in range(1 + N_READINGS):  # the first may compile
                here.engine.arrange(mini_batch, schedule)
                readings.append(self._stopwatch(partial(here.compute, NO_CLOCK)))
            return min(readings[1:])

        return costs_of(mini_batch.graph, self._schedules[_plain(fewest)], time)

    def run(self, candidate: Candidate, k: int) -> float:
        """One mini-batch, whole but for the step."""
        here, policy = self.prepared_at(candidate.granularity), self.policy(candidate.policy)

        def work() -> None:
            here.scheduled(self._mini_batches[k], policy, NO_CLOCK)
            here.compute(NO_CLOCK)

        return self._stopwatch(work)

    def _least(self, work: partial[Any]) -> float:
        return min(self._stopwatch(work) for _ in range(N_READINGS))


def _plain(candidate: Candidate) -> Candidate:
    """Its name alone, whatever is known of it by now."""
    return Candidate(policy=candidate.policy, granularity=candidate.granularity)
