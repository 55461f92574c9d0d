"""Programs of a mini-batch that run round by round on the engine: what waits gets real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.contracts.policy import Policy
from harness.contracts.system import Clock
from harness.engine.live import LiveEngine
from harness.programs.fibers import Fibers, Waiting
from harness.programs.pieces import Pieces, Restart
from harness.programs.recording import FAULTS, Decisions, Recording, outputs_of
from harness.values.arrays import int_array


class LiveRun:
    """All that one model's mini-batches need; `run` is one of them."""

    def __init__(self, recording: Recording, engine: LiveEngine) -> None:
        self.recording, self.engine = recording, engine

    def run(self, instances: Sequence[Any], policy: Policy, clock: Clock) -> None:
        """Run all programs to their end, and the output function on what they return.

        Where something is wrong they are run once more, so that the error names the line.
        """
        try:
            self._run(instances, policy, clock, is_checked=False)
        except FAULTS:
            self._run(instances, policy, clock, is_checked=True)

    def _run(
        self, instances: Sequence[Any], policy: Policy, clock: Clock, *, is_checked: bool
    ) -> None:
        recording, states = self.recording, self.recording.states_of(instances)
        while True:
            recorder = recording.recorder(len(instances), is_checked=is_checked)
            pieces = Pieces(recording, recorder)
            self.engine.begin()
            rounds = _Rounds(self, pieces, Decisions(states), policy, clock)
            try:
                results = Fibers(recorder, rounds).run(recording.program, instances)
            except Restart:
                continue
            except FAULTS:
                if not recording.learns(recorder):
                    raise
                continue
            outputs = int_array(outputs_of(results, pieces.n))
            pulls = {name: pieces.numbers_of(name, outputs) for name in recording.output_pulls}
            clock.mark("construct")
            self.engine.finish(outputs, pulls)
            clock.mark("forward")
            return


class _Rounds:
    """Computes each round as it ends; see harness.programs.fibers.Answers."""

    def __init__(
        self, run: LiveRun, pieces: Pieces, decisions: Decisions, policy: Policy, clock: Clock
    ) -> None:
        self._run, self._pieces, self._decisions = run, pieces, decisions
        self._policy, self._clock = policy, clock

    def end_round(self) -> None:
        """Schedule and run what was recorded."""
        piece, engine = self._pieces.cut(), self._run.engine
        self._clock.mark("construct")
        if piece is not None:
            names = self._run.recording.type_names
            engine.arrange_round(piece, names, self._policy)
            self._clock.mark("schedule")
            engine.run_round()
            self._clock.mark("forward")

    def numbers(self, waiting: Sequence[Waiting]) -> Sequence[float]:
        """Drawn, or read from states: all of one state at once."""
        if all(wait.key is not None for _, wait in waiting):
            return self._decisions.numbers(waiting)
        found = [0.0] * len(waiting)
        by_state: dict[str, list[int]] = {}
        for k, (fiber, wait) in enumerate(waiting):
            if wait.key is not None:
                (found[k],) = self._decisions.numbers([(fiber, wait)])
            else:
                by_state.setdefault(wait.state, []).append(k)
        for state, places in by_state.items():
            waits = [waiting[k][1] for k in places]
            vertices, columns = [wait.of for wait in waits], [wait.column for wait in waits]
            numbers = self._run.engine.numbers(state, vertices, columns)
            for k, number in zip(places, numbers, strict=True):
                found[k] = number
        return found
