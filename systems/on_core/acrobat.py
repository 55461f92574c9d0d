"""ACRoBat's strategy on the shared engine: programs, recorded with inline depths.

Values of earlier graph segments stay in memory. A segment starts when the losses of the previous
one are computed, and with them all values that it depends on.

Source: Fegade, Chen, Gibbons and Mowry, "ACRoBat", MLSys 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.policy import Policy
from dynbatch.harness.contracts.system import Clock, Counters, Result, RunSettings
from dynbatch.harness.engine.backend import LiveSegments
from dynbatch.harness.engine.live import LiveEngine
from dynbatch.harness.engine.work import compute_arranged_work
from dynbatch.harness.errors import ProgramError
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.programs.blocks import Feeds, RecordingOptions
from dynbatch.harness.programs.compiling.programs import CompiledPrograms
from dynbatch.harness.programs.decoder import Decoder
from dynbatch.harness.programs.fibers import Fibers, Waiting
from dynbatch.harness.programs.log import UNDONE
from dynbatch.harness.programs.model import (
    ProgramModel,
    describe_program_execution,
    make_recorded_model,
    make_recording,
    uses_arrays,
)
from dynbatch.harness.programs.recorder import Recorder
from dynbatch.harness.programs.recording import FAULTS, Decisions, Recording, collect_outputs
from dynbatch.harness.programs.writer import Wait
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.schedule import check_schedule
from dynbatch.systems.on_core import vertex
from dynbatch.systems.on_core.vertex import CoreOptions


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


BY_DEPTH = "inline_depth"  # the only policy that compiled code implements for graph segments


@dataclass(frozen=True, slots=True)
class AcrobatOptions(CoreOptions):
    """The engine's switches, and options of program recording (dynbatch.harness.programs.recorder).

    Attributes:
        policy: default batching policy.
        recording: "program" runs the model's program for every instance. "auto" builds the same
            graph from arrays if the model can, as compiled code would, and if no recording option
            is off.
        static_depths: give blocks without recurrent inputs a static depth; they run first.
        restart_depths: restart depths in every graph segment.
        execution: "deferred" records all graph segments before the first one runs, which
            requires decisions that are drawn in advance, and evaluates them one by one.
            "interleaved" runs each segment before the next one is recorded. "auto" is interleaved
            if a program is run and compiled code can plan its segments, and deferred otherwise.
            Graphs made from arrays do not wait for computed values: such a mini-batch is one
            segment with any of the three.
        programs: "compiled" translates programs that wait for values if possible; "python" never
            does.
    """

    policy: str = BY_DEPTH
    recording: Literal["auto", "program"] = "auto"
    program_phases: bool = True
    ghost_operators: bool = True
    static_depths: bool = True
    restart_depths: bool = True
    execution: Literal["auto", "deferred", "interleaved"] = "auto"
    programs: Literal["compiled", "python"] = "compiled"

    @property
    def how(self) -> RecordingOptions:
        return RecordingOptions(
            self.program_phases, self.ghost_operators, self.static_depths, self.restart_depths
        )

    @property
    def records(self) -> bool:
        """True if the model's program makes the graphs instead of arrays."""
        return self.recording == "program" or self.how != RecordingOptions()

    @property
    def is_live(self) -> bool:
        """True if each graph segment runs before the next one is recorded."""
        return self.execution == "interleaved"


class Adapter(vertex.Adapter):
    """Preset of the engine whose graphs are recorded from programs."""

    option_type = AcrobatOptions
    options: AcrobatOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.deferred_reason = _explain_deferral(settings, self.options)
        if self.deferred_reason is None:
            self.engine_type = LiveEngine
        self.live: LiveRun | None = None
        self.of_arrays = True

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason also for a missing program, and for settings without live segments."""
        options = cls.options_of(settings)
        if (options.records or options.is_live) and not hasattr(model, "program"):
            return (
                f"model {model.name} has no program for recording, program_phases,"
                " ghost_operators, depths and execution; remove these options or choose a model"
                " with a program"
            )
        reason = _explain_not_live(settings, options) if options.is_live else None
        return reason or super().skip(model, settings)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Prepare the engine; record the program if the options require it."""
        options = self.options
        model = make_recorded_model(model, options.how) if options.records else model
        if isinstance(model, ProgramModel):
            model.recording.translate(is_wanted=options.programs == "compiled")
        super().prepare(model, weights)
        self.of_arrays = uses_arrays(model) and not options.records
        if self.deferred_reason is None and not options.is_live:
            self.deferred_reason = self._explain_not_planned(model)
        if self.deferred_reason is None:
            assert isinstance(self.engine, LiveEngine)
            recording = getattr(model, "recording", None) or make_recording(model, options.how)
            recording.translate(is_wanted=options.programs == "compiled")
            self.live = LiveRun(recording, self.engine, by_depth=self.policy_name == BY_DEPTH)

    def _explain_not_planned(self, model: Model) -> str | None:
        if not hasattr(model, "program"):
            return f"model {model.name} has no program"
        is_planned = isinstance(self.engine, LiveEngine) and self.engine.can_keep()
        return (
            None if is_planned else "compiled code cannot plan graph segments with these switches"
        )

    @property
    def running(self) -> LiveRun | None:
        """The runner of interleaved graph segments; None if a mini-batch is made as a whole."""
        return None if self.of_arrays else self.live

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Construct, schedule and run: segment by segment if execution is interleaved."""
        if self.running is None:
            super().run(clock, update=update)
            if self.live is not None and self.mini_batch.segments is not None:
                self.of_arrays = False  # the model's arrays wait for values: run its program
        if self.running is not None:
            self.running.run(self.instances, self.policy, clock)

    def result(self) -> Result:
        """Return the engine's result; the schedule of each live segment is checked separately."""
        if self.running is None:
            return super().result()
        for segment in self.running.engine.seen:
            check_schedule(segment.graph, segment.schedule)
        return Result(self.engine.loss(), self.engine.outputs(), {}, self.counters())

    def counters(self) -> Counters:
        """Return the total over all graph segments."""
        if self.running is None:
            return super().counters()
        engine, tally = self.running.engine, self.engine.backend.tally
        work = [compute_arranged_work(engine.plans, item) for item in engine.list_arrangements()]
        return Counters(
            sum(item.schedule.n_batches for item in engine.seen),
            tally.n_launches,
            tally.bytes_copied,
            lower_bound=sum(compute_lower_bound(item.graph) for item in engine.seen),
            n_flop=sum(item.n_flop for item in work),
            bytes_touched=sum(item.n_bytes for item in work),
        )

    def effective_options(self) -> dict[str, str]:
        """Return also the way graphs were made, and why `execution=auto` deferred segments."""
        options = self.options
        names = ("program_phases", "ghost_operators", "static_depths", "restart_depths")
        how = {name: str(getattr(options, name)).lower() for name in names}
        how["recording"] = "arrays" if self.of_arrays else "program"
        how["execution"] = options.execution
        if options.execution == "auto":
            how["execution"] = "deferred" if self.running is None else "interleaved"
        if options.execution == "auto" and self.running is None:
            how["deferred_reason"] = self.deferred_reason or "no step waits for a value"
        return super().effective_options() | how

    def describe_program_runner(self) -> dict[str, str]:
        """Return the runner of programs; live segments have a recording of their own."""
        if self.of_arrays:
            return {}
        if self.running is not None:
            return {"program_execution": self.running.run_by}
        return describe_program_execution(self.model.model)


def _explain_deferral(settings: RunSettings, options: AcrobatOptions) -> str | None:
    """Return the reason to record all segments first, as far as the settings decide it."""
    if options.execution != "auto":
        return None if options.is_live else "execution=deferred"
    policy = settings.policy or options.policy
    if policy != BY_DEPTH:
        return f"compiled code plans graph segments by policy={BY_DEPTH} only, got policy={policy}"
    return _explain_not_live(settings, options)


def _explain_not_live(settings: RunSettings, options: AcrobatOptions) -> str | None:
    """Return the setting that prevents interleaved execution, or None."""
    wanted = {
        "mode": (settings.mode, "infer"),
        "granularity": (options.granularity, "vertex"),
        "outputs": (options.outputs, "stage"),
        "device": (settings.device, "cpu"),
        "deduplicate_inputs": (str(options.deduplicate_inputs).lower(), "false"),
    }
    for name, (value, needed) in wanted.items():
        if value != needed:
            got = f"expected {name}={needed}, got {name}={value}"
            return f"execution=interleaved is not allowed: {got}"
    return None
