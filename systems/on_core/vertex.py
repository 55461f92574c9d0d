"""The shared engine as a system. Its switches express the strategies of all presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dynbatch.harness.contracts.model import Model, Weights, explain_untrainable
from dynbatch.harness.contracts.policy import (
    Policy,
    check_policy_name,
    compile_policy,
    format_workload_name,
    is_learned,
    learn_policy,
    load_policy,
)
from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)
from dynbatch.harness.engine.backend import Backend, choose_backend, list_backends
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.engine.work import compute_arranged_work
from dynbatch.harness.errors import ConfigError, ScheduleError, UnsupportedTrial
from dynbatch.harness.granularity.operators import OperatorModel
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.segments import schedule_in_segments, select_first_segment
from dynbatch.harness.programs.model import (
    describe_program_execution,
    translate_programs,
    uses_arrays,
)
from dynbatch.harness.values.schedule import check_schedule

DEFAULT_POLICY = "frontier"


@dataclass(frozen=True, slots=True)
class CoreOptions(Switches):
    """The engine's switches and `policy`, which RunSettings.policy overrides.

    Attributes:
        policy: default batching policy of the preset.
    """

    policy: str = DEFAULT_POLICY

    def __post_init__(self) -> None:
        Switches.__post_init__(self)  # super() fails in dataclasses with slots
        check_policy_name(self.policy)
        if self.backend not in (known := ("auto", *list_backends())):
            raise ConfigError(
                f"backend={self.backend} is unknown; choose one of {', '.join(known)}"
            )

    @property
    def switches(self) -> Switches:
        return Switches(**{item.name: getattr(self, item.name) for item in fields(Switches)})


class NoClock:
    """Clock that ignores the marks of a run that is not measured."""

    def mark(self, phase: str) -> None:
        """Ignore the end of a phase."""

    def divide(self, shares: Mapping[str, float]) -> None:
        """Ignore the fractions of phases."""


class Adapter(System):
    """System that executes the model's vertex functions under a batching policy."""

    option_type = CoreOptions
    options: CoreOptions
    engine_type: type[Engine] = Engine

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.policy_name = settings.policy or self.options.policy
        self.learns = is_learned(self.policy_name) and settings.learning.file is None
        if not is_learned(self.policy_name):
            self.policy: Policy = load_policy(self.policy_name)
        self._backend: Backend | None = None
        self._n_programs: int | None = None  # before the last run

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the backend cannot run the trial or the model cannot be trained."""
        try:
            choose_backend(cls.options_of(settings).switches, settings.device)
        except UnsupportedTrial as error:
            return str(error)
        return explain_untrainable(model, settings.mode)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Trace, differentiate, lower and compile.

        Raises:
            UnsupportedTrial: As for Engine.
        """
        switches, settings = self.options.switches, self.settings
        translate_programs(model)
        self.model = (
            OperatorModel(model)
            if switches.granularity == "operator"
            else VertexModel(
                model, deduplicate_inputs=switches.deduplicate_inputs, outputs=switches.outputs
            )
        )
        self.engine = self.engine_type(
            self.model.functions,
            self.model.output,
            weights,
            switches,
            settings.device,
            train=settings.mode == "train",
            threads=settings.threads,
        )
        self._backend = self.engine.backend
        self.workload = format_workload_name(model.name, switches.granularity, switches.outputs)
        if self.learns:
            compile_policy(self.policy_name)
        elif is_learned(self.policy_name):
            self.policy = learn_policy(self.policy_name, [], settings.learning, self.workload)

    def learn(self, instances: Sequence[Any]) -> None:
        """Learn the policy on the graph of one mini-batch, or on its first segment."""
        graph = select_first_segment(self.model.mini_batch(instances).graph)
        settings = self.settings.learning
        self.policy = learn_policy(self.policy_name, [graph], settings, self.workload)

    def compile_for(self, instances: Sequence[Any]) -> None:
        """Run without an update: code is generated and compiled when a stage first runs.

        After a run that compiled nothing, further mini-batches are not run, except on CUDA, where
        each size of a mini-batch may need a graph of its own.
        """
        n_before = self.n_compilations()
        if n_before != self._n_programs or self.settings.device != "cpu":
            self._n_programs = n_before  # a subclass may run in another way
            self.load(instances)
            self.run(NoClock(), update=False)

    def n_compilations(self) -> int | None:
        return self.engine.backend.count_programs()

    def load(self, instances: Sequence[Any]) -> None:
        self.instances = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Construct, schedule (policy and memory layout), forward, backward, update."""
        self._n_programs = self.n_compilations()
        mini_batch = self.model.mini_batch(self.instances)
        clock.mark("construct")
        schedule = schedule_in_segments(self.policy, mini_batch.graph)
        self.engine.arrange(mini_batch, schedule)
        clock.mark("schedule")
        self.mini_batch, self.schedule = mini_batch, schedule
        self.engine.forward()
        clock.mark("forward")
        if self.settings.mode != "train":
            return
        self.engine.backward()
        clock.mark("backward")
        if update:
            self.engine.update(self.settings.learning_rate)
            clock.mark("update")

    def result(self) -> Result:
        """Return loss, outputs, gradients and counters of the last run, and check its schedule."""
        try:
            check_schedule(self.mini_batch.graph, self.schedule)
        except ScheduleError as error:
            raise ScheduleError(f"policy {self.policy_name}: {error}") from error
        gradients = self.engine.backend.gradients() if self.settings.mode == "train" else {}
        return Result(self.engine.loss(), self.engine.outputs(), gradients, self.counters())

    def last_loss(self) -> float:
        """Return the loss of the last run without checking its schedule."""
        return self.engine.loss()

    def parameters(self) -> Parameters:
        return self.engine.backend.read_weights()

    def counters(self) -> Counters:
        """Return batches and their lower bound, kernels, copied bytes and work of the last run."""
        tally = self.engine.backend.tally
        work = compute_arranged_work(self.engine.plans, self.engine.arrangement)
        return Counters(
            self.schedule.n_batches,
            tally.n_launches,
            tally.bytes_copied,
            lower_bound=compute_lower_bound(self.mini_batch.graph),
            n_flop=work.n_flop,
            bytes_touched=work.n_bytes,
        )

    def data_movement_fraction(self) -> float | None:
        """Return the fraction of cycles that moved data since the last call.

        It needs the switch `profile`; see dynbatch.harness.engine.backend.Tally.
        """
        tally = self.engine.backend.tally
        share = tally.n_moving_cycles / tally.n_cycles if tally.n_cycles else None
        tally.n_moving_cycles = tally.n_cycles = 0
        return share

    def synchronize(self) -> None:
        """Wait for the backend's device; return immediately before a backend exists."""
        if self._backend is not None:
            self._backend.synchronize()

    def versions(self) -> dict[str, str]:
        return self.engine.backend.list_versions()

    def effective_options(self) -> dict[str, str]:
        """Return the switches that the backend honors, and facts about the run."""
        return self.engine.facts() | self.describe_program_runner()

    def describe_program_runner(self) -> dict[str, str]:
        """Return whether compiled code or Python runs the model's programs, and why.

        The result is empty if arrays make the mini-batches.
        """
        model = self.model.model
        return {} if uses_arrays(model) else describe_program_execution(model)

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of the device's own memory; None on the CPU."""
        return self.engine.backend.read_peak_memory()

    def reset_peak_memory(self) -> None:
        self.engine.backend.reset_peak_memory()
