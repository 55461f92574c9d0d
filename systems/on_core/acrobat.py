"""ACRoBat's strategy on the shared engine: programs, recorded with inline depths.

Fegade, Chen, Gibbons and Mowry, MLSys 2024. Values of earlier rounds stay in memory; a round begins
when the losses of the one before, and so all values that it waits for, are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.contracts.model import Model, Weights
from harness.contracts.policy import AUTO
from harness.contracts.system import Clock, Counters, Result, RunSettings
from harness.engine.live import LiveEngine
from harness.engine.work import arranged_work
from harness.policies.parts.bound import lower_bound
from harness.programs.blocks import RecordingOptions
from harness.programs.model import (
    ProgramModel,
    makes_arrays,
    programs_run_by,
    recorded,
    recording_of,
)
from harness.values.schedule import check_schedule
from systems.on_core import vertex
from systems.on_core.live_rounds import LiveRun
from systems.on_core.vertex import CoreOptions

BY_DEPTH = "inline_depth"  # the policy that compiled code may do in its place


@dataclass(frozen=True, slots=True)
class AcrobatOptions(CoreOptions):
    """The engine's switches, and how a program is recorded (harness.programs.recorder).

    recording: "program" runs the model's program for every instance; "auto" makes the same graph of
    arrays where the model can, as compiled code would, and nothing else is switched off.
    static_depths: blocks that no recurrent value reaches have a depth of their own, before all.
    rounds: "ahead" records all rounds before the first one runs, which only decisions that are
    drawn allow, and evaluates them one by one; "live" runs each before the next one is recorded;
    "auto" is live where a program is run and compiled code can plan its rounds, else ahead. Arrays
    make graphs that wait for nothing: a mini-batch is one round, and runs so under all three.
    programs: "compiled" translates those that wait, where that is possible; "python" never does.

    Raises ConfigError as CoreOptions does.
    """

    policy: str = BY_DEPTH
    recording: Literal["auto", "program"] = "auto"
    phases: bool = True
    ghosts: bool = True
    static_depths: bool = True
    restart_depths: bool = True
    rounds: Literal["auto", "ahead", "live"] = "auto"
    programs: Literal["compiled", "python"] = "compiled"

    @property
    def how(self) -> RecordingOptions:
        """The options of its recording."""
        return RecordingOptions(self.phases, self.ghosts, self.static_depths, self.restart_depths)

    @property
    def records(self) -> bool:
        """Return whether the model's program makes the graphs, and not arrays."""
        return self.recording == "program" or self.how != RecordingOptions()

    @property
    def is_live(self) -> bool:
        """Return whether each round runs before the next one is recorded."""
        return self.rounds == "live"


class Adapter(vertex.Adapter):
    """As every preset of the engine, but for how graphs are made."""

    option_type = AcrobatOptions
    options: AcrobatOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.why_ahead = _why_ahead(settings, self.options)
        if self.why_ahead is None:
            self.engine_type = LiveEngine
        self.live: LiveRun | None = None
        self.of_arrays = True

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Also a model without the program that is asked for, and what live rounds cannot do."""
        options = cls.options_of(settings)
        if (options.records or options.is_live) and not hasattr(model, "program"):
            return (
                f"model {model.name} has no program, which recording, phases, ghosts, depths and"
                " rounds are options of; leave these out, or choose a model that has one"
            )
        reason = _why_not_live(settings, options) if options.is_live else None
        return reason or super().skip(model, settings)

    def prepare(self, model: Model, weights: Weights) -> None:
        """As the engine; a program is recorded where that is asked for."""
        options = self.options
        model = recorded(model, options.how) if options.records else model
        if isinstance(model, ProgramModel):
            model.recording.translate(is_wanted=options.programs == "compiled")
        super().prepare(model, weights)
        self.of_arrays = makes_arrays(model) and not options.records
        if self.why_ahead is None and not options.is_live:
            self.why_ahead = self._why_not_planned(model)
        if self.why_ahead is None:
            assert isinstance(self.engine, LiveEngine)
            recording = getattr(model, "recording", None) or recording_of(model, options.how)
            recording.translate(is_wanted=options.programs == "compiled")
            self.live = LiveRun(recording, self.engine, by_depth=self.policy_name == BY_DEPTH)

    def _why_not_planned(self, model: Model) -> str | None:
        if not hasattr(model, "program"):
            return f"model {model.name} has no program"
        is_planned = isinstance(self.engine, LiveEngine) and self.engine.can_keep()
        return None if is_planned else "compiled code plans no rounds with these switches"

    @property
    def running(self) -> LiveRun | None:
        """The runner of rounds; None if a mini-batch is made as a whole."""
        return None if self.of_arrays else self.live

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Construct, schedule and run round after round, where rounds are live."""
        if self.running is None:
            super().run(clock, update=update)
            if self.live is not None and self.mini_batch.rounds is not None:
                self.of_arrays = False  # a model's own arrays have what waits: its program is run
        if self.running is not None:
            self.running.run(self.instances, self.policy, clock)

    def result(self) -> Result:
        """As the engine's; live rounds are proved each by itself."""
        if self.running is None:
            return super().result()
        for one in self.running.engine.seen:
            check_schedule(one.graph, one.schedule)
        return Result(self.engine.loss(), self.engine.outputs(), {}, self.counters())

    def counters(self) -> Counters:
        """Count all rounds together."""
        if self.running is None:
            return super().counters()
        engine, tally = self.running.engine, self.engine.backend.tally
        work = [arranged_work(engine.plans, one) for one in engine.arrangements()]
        return Counters(
            sum(one.schedule.n_batches for one in engine.seen),
            tally.n_launches,
            tally.bytes_copied,
            lower_bound=sum(lower_bound(one.graph) for one in engine.seen),
            n_flop=sum(one.n_flop for one in work),
            bytes_touched=sum(one.n_bytes for one in work),
        )

    def in_force(self) -> dict[str, str]:
        """Also how graphs were made, and why rounds were not live where they might have been."""
        options, names = self.options, ("phases", "ghosts", "static_depths", "restart_depths")
        how = {name: str(getattr(options, name)).lower() for name in names}
        how["recording"] = "arrays" if self.of_arrays else "program"
        how["rounds"] = options.rounds
        if options.rounds == "auto":
            how["rounds"] = "ahead" if self.running is None else "live"
        if options.rounds == "auto" and self.running is None:
            how["rounds ahead since"] = self.why_ahead or "nothing is waited for"
        return super().in_force() | how

    def who_runs_programs(self) -> dict[str, str]:
        """As the engine; live rounds have a recording of their own."""
        if self.of_arrays:
            return {}
        if self.running is not None:
            return {"programs run by": self.running.run_by}
        return programs_run_by(self.model.model)


def _why_ahead(settings: RunSettings, options: AcrobatOptions) -> str | None:
    """Return the reason to record all rounds first, as far as settings tell."""
    if options.rounds != "auto":
        return None if options.is_live else "rounds=ahead"
    policy = settings.policy or options.policy
    if policy not in (BY_DEPTH, AUTO):
        return f"compiled code plans rounds by policy={BY_DEPTH}, not by policy={policy}"
    return _why_not_live(settings, options)


def _why_not_live(settings: RunSettings, options: AcrobatOptions) -> str | None:
    """Return the setting that keeps rounds from running live."""
    wanted = {
        "mode": (settings.mode, "infer"),
        "granularity": (options.granularity, "vertex"),
        "outputs": (options.outputs, "stage"),
        "device": (settings.device, "cpu"),
        "share_equal_inputs": (str(options.share_equal_inputs).lower(), "false"),
    }
    for name, (found, needed) in wanted.items():
        if found != needed:
            return f"rounds=live runs with {name}={needed} only, not with {name}={found}"
    if (settings.policy or options.policy) == AUTO:
        return "rounds=live runs with a policy that is named, not with policy=auto"
    return None
