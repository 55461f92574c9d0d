"""Interleaved execution of programs: each graph segment runs on the engine once all programs wait.

The programs then continue with the computed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynbatch.harness.contracts.policy import Policy
from dynbatch.harness.contracts.system import Clock
from dynbatch.harness.engine.backend import LiveSegments
from dynbatch.harness.engine.live import LiveEngine
from dynbatch.harness.errors import ProgramError
from dynbatch.harness.programs.blocks import Feeds
from dynbatch.harness.programs.compiling.programs import CompiledPrograms
from dynbatch.harness.programs.decoder import Decoder
from dynbatch.harness.programs.fibers import Fibers, Waiting
from dynbatch.harness.programs.log import UNDONE
from dynbatch.harness.programs.recorder import Recorder
from dynbatch.harness.programs.recording import FAULTS, Decisions, Recording, collect_outputs
from dynbatch.harness.programs.writer import Wait
from dynbatch.harness.values.arrays import IntArray, as_int_array


class Restart(Exception):  # noqa: N818 - not an error: the programs are run once more
    """Exception raised when a segment shows that a block assumed to be untainted is tainted."""


class LiveRun:
    """Memory and settings for the mini-batches of one model; `run` runs one of them.

    Args:
        by_depth: True if the policy is inline_depth, which compiled code can do itself.
    """

    def __init__(self, recording: Recording, engine: LiveEngine, *, by_depth: bool) -> None:
        self.recording, self.engine, self._by_depth = recording, engine, by_depth
        self._decoder: Decoder | None = None

    @property
    def run_by(self) -> str:
        """The runner of the programs, and the reason for it."""
        if self.programs is None and self.recording.programs is not None:
            return (
                "Python, since compiled code cannot plan graph segments with this policy and these"
                " switches"
            )
        return self.recording.run_by

    @property
    def programs(self) -> CompiledPrograms | None:
        """The programs that compiled code runs; None unless it can plan their segments, too."""
        return self.recording.programs if self._by_depth and self.engine.can_keep() else None

    def run(self, instances: Sequence[Any], policy: Policy, clock: Clock) -> None:
        """Run all programs to their end, and the output function on their results.

        After an error they run once more with checks, so that the error names the line.
        """
        by_python = partial(self._run_in_python, instances, policy, clock)
        try:
            if self.programs is not None:
                self._run(instances, clock, partial(self._run_compiled, instances, clock))
            else:
                self._run(instances, clock, partial(by_python, is_checked=False))
        except FAULTS as fault:
            self._run(instances, clock, partial(by_python, is_checked=True))
            self.recording.give_up(fault)

    def _run(
        self, instances: Sequence[Any], clock: Clock, way: Callable[[Decoder], IntArray]
    ) -> None:
        """Run the programs and compute the outputs.

        The programs run again while blocks feed each other in new ways.
        """
        recording = self.recording
        while True:
            self._decoder = decoder = recording.make_decoder(len(instances), self._decoder)
            try:
                outputs = way(decoder)
            except Restart:
                continue
            except FAULTS:
                if not recording.update_feeds(decoder.feeds):
                    raise
                continue
            pulls = {
                name: as_int_array(decoder.arrays.pulled[recording.pulls.index(name), outputs])
                for name in recording.output_pulls
            }
            clock.mark("construct")
            self.engine.finish(outputs, pulls)
            clock.mark("forward")
            return

    def _run_compiled(self, instances: Sequence[Any], clock: Clock, decoder: Decoder) -> IntArray:
        """Run programs, policy, layout and loops in compiled code.

        Python is entered only to enlarge a buffer that is full.
        """
        recording, engine, programs = self.recording, self.engine, self.programs
        if programs is None:  # new edges between blocks changed the program
            raise ProgramError("a changed program cannot be compiled")
        segments = engine.begin_kept(decoder, recording.feeds, recording.type_names)
        programs.begin(
            instances,
            recording.draw_decisions(instances),
            recording.options,
            segments.maker,
            segments.take_log,
        )
        has_ended = False
        while not has_ended:
            clock.mark("construct")
            segments.watch()
            has_ended = programs.go_on()
            segments.run(programs.n_log, programs.left, self._take_feeds)
            clock.divide(segments.catch_up())
            programs.clear()
            programs.start_next_segment()
        return programs.outputs()

    def _take_feeds(self, feeds: Feeds) -> None:
        """Raise Restart if new dependencies between block types change the static depths."""
        if self.recording.update_feeds(feeds):
            raise Restart

    def _run_in_python(
        self,
        instances: Sequence[Any],
        policy: Policy,
        clock: Clock,
        decoder: Decoder,
        *,
        is_checked: bool,
    ) -> IntArray:
        """Run programs in Python; compiled code runs their segments for policy inline_depth."""
        recording, engine = self.recording, self.engine
        recorder = recording.make_recorder(len(instances), decoder, is_checked=is_checked)
        if self._by_depth and not is_checked and engine.can_keep():
            segments = engine.begin_kept(decoder, recording.feeds, recording.type_names)
            end_segment = partial(self._end_kept, recorder, segments, clock)
        else:
            engine.begin()
            end_segment = partial(self._end_by_policy, recorder, policy, clock)
        answers = _Answers(end_segment, Decisions(recording.draw_decisions(instances)), engine)
        results = Fibers(recorder, answers).run(recording.program, instances)
        return collect_outputs(results, recorder.n)

    def _end_kept(self, recorder: Recorder, segments: LiveSegments, clock: Clock) -> None:
        """Schedule and run a recorded segment in compiled code, as inline_depth does."""
        n = segments.pack(recorder.log)
        clock.mark("construct")
        segments.watch()
        segments.run(n, UNDONE, self._take_feeds)
        clock.divide(segments.catch_up())

    def _end_by_policy(self, recorder: Recorder, policy: Policy, clock: Clock) -> None:
        """Schedule and run a recorded segment by the given policy.

        Raises:
            ProgramError: If a call does not match its block.
            Restart: If new dependencies change the static depths.
        """
        piece = recorder.cut()
        self._take_feeds(recorder.feeds)
        clock.mark("construct")
        if piece.n:
            self.engine.arrange_segment(piece, self.recording.type_names, policy)
            clock.mark("schedule")
            self.engine.run_segment()
            clock.mark("forward")


class _Answers:
    """Numbers that waiting programs receive; each segment is computed when it ends.

    See dynbatch.harness.programs.fibers.NumberSource.
    """

    def __init__(
        self, end_segment: Callable[[], None], decisions: Decisions, engine: LiveEngine
    ) -> None:
        self.end_segment, self._decisions, self._engine = end_segment, decisions, engine

    def read_numbers(self, instances: Sequence[int], waits: Sequence[Waiting]) -> Sequence[float]:
        """Return numbers that are drawn, or read from states, with one read per state."""
        if all(wait[1] is not None for wait in waits):
            return self._decisions.read_numbers(instances, waits)
        values = [0.0] * len(waits)
        by_state: dict[str, list[int]] = {}
        for k, wait in enumerate(waits):
            if isinstance(wait, Wait) and wait.key is None:
                by_state.setdefault(wait.state, []).append(k)
            else:
                (values[k],) = self._decisions.read_numbers([instances[k]], [wait])
        for state, places in by_state.items():
            asked = [wait for k in places if isinstance(wait := waits[k], Wait)]
            vertices, columns = [wait.of for wait in asked], [wait.column for wait in asked]
            numbers = self._engine.read_numbers(state, vertices, columns)
            for k, number in zip(places, numbers, strict=True):
                values[k] = number
        return values
