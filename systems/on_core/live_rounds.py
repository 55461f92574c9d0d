"""Programs of a mini-batch that run round by round on the engine: what waits gets real numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from harness.contracts.policy import Policy
from harness.contracts.system import Clock
from harness.engine.kept_rounds import KeptRounds
from harness.engine.live import LiveEngine
from harness.programs.compiling.programs import CompiledPrograms
from harness.programs.compiling.written import DONE
from harness.programs.decoder import Decoder
from harness.programs.fibers import Fibers, Waiting
from harness.programs.logged import inside
from harness.programs.quick import QuickRecorders, quicken
from harness.programs.recorder import Recorder
from harness.programs.recording import FAULTS, Decisions, Recording, outputs_of
from harness.programs.writer import Wait
from harness.values.arrays import int_array


class Restart(Exception):  # noqa: N818 - no fault: the programs are run once more
    """A round shows that a block which was taken for untainted is not."""


class LiveRun:
    """All that one model's mini-batches need; `run` is one of them.

    by_depth: whether the policy is inline_depth, which compiled code may do in its place.
    translate: whether it may run the programs, too.
    """

    def __init__(
        self, recording: Recording, engine: LiveEngine, *, by_depth: bool, translate: bool = True
    ) -> None:
        self.recording, self.engine, self._by_depth = recording, engine, by_depth
        self._decoder: Decoder | None = None
        quicken(recording, translate=translate)
        assert isinstance(recording.quick, QuickRecorders)
        self.quick = recording.quick

    @property
    def run_by(self) -> str:
        """What runs the programs, and why."""
        if self.programs is None and self.quick.programs is not None:
            return "Python, since compiled code plans no rounds with this policy and these switches"
        return self.quick.run_by

    @property
    def programs(self) -> CompiledPrograms | None:
        """Those that compiled code runs, whose rounds it must be able to plan, too."""
        return self.quick.programs if self._by_depth and self.engine.can_keep() else None

    def run(self, instances: Sequence[Any], policy: Policy, clock: Clock) -> None:
        """Run all programs to their end, and the output function on what they return.

        Where something is wrong they are run once more, so that the error names the line.
        """
        programs = self.programs
        try:
            if programs is not None:
                self._run_compiled(programs, instances, clock)
            else:
                self._run(instances, policy, clock, is_checked=False)
        except FAULTS as fault:
            self._run(instances, policy, clock, is_checked=True)
            self.quick.give_up(fault)

    def _run_compiled(
        self, programs: CompiledPrograms, instances: Sequence[Any], clock: Clock
    ) -> None:
        """Programs, policy, layout and loops by compiled code: Python comes by where room lacks."""
        recording, drawn = self.recording, self.recording.drawn(instances)
        while True:
            rules = recording.rules
            self._decoder = decoder = self.quick.decoder(rules, len(instances), self._decoder)
            rounds = self.engine.begin_kept(decoder, recording.feeds, recording.type_names)
            programs.begin(
                instances,
                drawn,
                recording.options,
                self.engine.numbers,
                rounds.by_itself(),
                rounds.take_log,
            )
            try:
                self._run_rounds(programs, rounds, clock)
            except Restart:
                continue
            except FAULTS:
                if not recording.widens(rounds.feeds):
                    raise
                continue
            outputs = programs.outputs()
            places = [rules.names.index(name) for name in recording.output_pulls]
            pulls = [int_array(decoder.pulls[place, outputs]) for place in places]
            clock.mark("construct")
            self.engine.finish(outputs, dict(zip(recording.output_pulls, pulls, strict=True)))
            clock.mark("forward")
            return

    def _run_rounds(self, programs: CompiledPrograms, rounds: KeptRounds, clock: Clock) -> None:
        has_ended = False
        while not has_ended:
            clock.mark("construct")
            rounds.watch()
            has_ended = programs.go_on()
            clock.divide(rounds.catch_up())
            if programs.left == DONE:
                programs.next_round()
                continue
            is_new = rounds.take_over(programs.n_log, programs.left)
            if is_new and self.recording.widens(rounds.feeds):
                raise Restart
            programs.clear()
            clock.mark("construct")
            if rounds.plan():
                clock.mark("schedule")
                rounds.run()
                clock.mark("forward")
            programs.next_round()

    def _run(
        self, instances: Sequence[Any], policy: Policy, clock: Clock, *, is_checked: bool
    ) -> None:
        recording, decisions = self.recording, Decisions(self.recording.drawn(instances))
        while True:
            recorder: Recorder
            rounds: _Rounds
            if self._by_depth and not is_checked and self.engine.can_keep():
                recorder, rounds = self._kept(len(instances), decisions, clock)
            else:
                recorder = recording.recorder(len(instances), is_checked=is_checked)
                self.engine.begin()
                rounds = _ByPolicy(self, recorder, decisions, policy, clock)
            try:
                results = Fibers(recorder, rounds).run(recording.program, instances)
            except Restart:
                continue
            except FAULTS:
                if not recording.widens(recorder.feeds()):
                    raise
                continue
            outputs = outputs_of(results, recorder.n)
            of_outputs = {
                name: int_array(recorder.numbers_of(name, outputs.tolist()))
                for name in recording.output_pulls
            }
            clock.mark("construct")
            self.engine.finish(outputs, of_outputs)
            clock.mark("forward")
            return

    def _kept(
        self, n_instances: int, decisions: Decisions, clock: Clock
    ) -> tuple[Recorder, _Rounds]:
        """A recorder whose memory is used again, and rounds that compiled code plans."""
        recording = self.recording
        recorder = self.quick.again(recording.rules, n_instances, self._decoder)
        log, self._decoder = inside(recorder)
        known, names = recording.feeds, recording.type_names
        rounds = self.engine.begin_kept(self._decoder, known, names)
        return recorder, _ByDepth(self, log, rounds, decisions, clock)


class _Rounds(ABC):
    """Computes each round as it ends; see harness.programs.fibers.Answers."""

    def __init__(self, run: LiveRun, decisions: Decisions, clock: Clock) -> None:
        self._run, self._decisions, self._clock = run, decisions, clock

    @abstractmethod
    def end_round(self) -> None:
        """Schedule and run what was recorded.

        Raises ProgramError for a call that does not fit, Restart where depths have to be others.
        """

    def numbers(self, instances: Sequence[int], waits: Sequence[Waiting]) -> Sequence[float]:
        """Drawn, or read from states: all of one state at once."""
        if all(wait[1] is not None for wait in waits):
            return self._decisions.numbers(instances, waits)
        found = [0.0] * len(waits)
        by_state: dict[str, list[int]] = {}
        for k, wait in enumerate(waits):
            if isinstance(wait, Wait) and wait.key is None:
                by_state.setdefault(wait.state, []).append(k)
            else:
                (found[k],) = self._decisions.numbers([instances[k]], [wait])
        for state, places in by_state.items():
            asked = [wait for k in places if isinstance(wait := waits[k], Wait)]
            vertices, columns = [wait.of for wait in asked], [wait.column for wait in asked]
            numbers = self._run.engine.numbers(state, vertices, columns)
            for k, number in zip(places, numbers, strict=True):
                found[k] = number
        return found


class _ByPolicy(_Rounds):
    """By any policy."""

    def __init__(
        self, run: LiveRun, recorder: Recorder, decisions: Decisions, policy: Policy, clock: Clock
    ) -> None:
        super().__init__(run, decisions, clock)
        self._recorder, self._policy = recorder, policy

    def end_round(self) -> None:
        """See _Rounds."""
        piece, engine, recording = self._recorder.cut(), self._run.engine, self._run.recording
        if recording.widens(self._recorder.feeds()):
            raise Restart
        self._clock.mark("construct")
        if piece.n:
            engine.arrange_round(piece, recording.type_names, self._policy)
            self._clock.mark("schedule")
            engine.run_round()
            self._clock.mark("forward")


class _ByDepth(_Rounds):
    """As the policy inline_depth does it, in compiled code."""

    def __init__(
        self, run: LiveRun, log: list[int], rounds: KeptRounds, decisions: Decisions, clock: Clock
    ) -> None:
        super().__init__(run, decisions, clock)
        self._log, self._rounds = log, rounds

    def end_round(self) -> None:
        """See _Rounds."""
        rounds, mark = self._rounds, self._clock.mark
        if rounds.decode(self._log) and self._run.recording.widens(rounds.feeds):
            raise Restart
        mark("construct")
        if rounds.plan():
            mark("schedule")
            rounds.run()
            mark("forward")
