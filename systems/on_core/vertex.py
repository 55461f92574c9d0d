"""The shared core as a system: one engine, whose switches make every strategy a preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from harness.contracts.model import Model, Weights
from harness.contracts.policy import (
    Policy,
    compile_policy,
    is_learned,
    learn_policy,
    load_policy,
    workload_name,
)
from harness.contracts.system import Clock, Counters, Result, RunSettings, System
from harness.engine.cpu_kernels.blas import set_threads
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.errors import ConfigError, ScheduleError
from harness.granularity.operators import OperatorModel
from harness.granularity.vertices import VertexModel
from harness.values.graph import MiniBatch
from harness.values.schedule import check_schedule

DEFAULT_POLICY = "frontier"


class Adapter(System):
    """Executes the model's own vertex functions under a batching policy.

    Options are the engine's switches (harness.engine.switches.Switches) and `policy`, the preset's
    own, which RunSettings.policy overrides.
    """

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        options = dict(settings.options)
        self.policy_name = settings.policy or str(options.pop("policy", DEFAULT_POLICY))
        options.pop("policy", None)
        self.switches = _switches(options)
        self.learns = is_learned(self.policy_name) and settings.learning.file is None
        if not is_learned(self.policy_name):
            self.policy: Policy = load_policy(self.policy_name)
        torch.set_num_threads(settings.threads)
        set_threads(settings.threads)
        torch.backends.cuda.matmul.allow_tf32 = False

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """CUDA has to be there when it is asked for."""
        if settings.device == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA device here"
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        """Trace, differentiate, lower and compile."""
        operators = self.switches.granularity == "operator"
        self.model = (
            OperatorModel(model)
            if operators
            else VertexModel(
                model,
                share_equal_inputs=self.switches.share_equal_inputs,
                outputs=self.switches.outputs,
            )
        )
        self.engine = Engine(
            self.model.functions,
            self.model.output,
            weights,
            self.switches,
            device=self.settings.device,
            train=self.settings.mode == "train",
        )
        switches, learning = self.switches, self.settings.learning
        self.workload = workload_name(model.name, switches.granularity, switches.outputs)
        if self.learns:
            compile_policy(self.policy_name)
        elif is_learned(self.policy_name):
            self.policy = learn_policy(self.policy_name, [], learning, self.workload)

    def learn(self, instances: Sequence[Any]) -> None:
        """Learn the policy on the graph of one mini-batch."""
        graph = self.model.mini_batch(instances).graph
        settings = self.settings.learning
        self.policy = learn_policy(self.policy_name, [graph], settings, self.workload)

    def load(self, instances: Sequence[Any]) -> None:
        """Take the instances as they are."""
        self.instances = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Construct, schedule (policy and memory layout), forward, backward, update."""
        self.mini_batch: MiniBatch = self.model.mini_batch(self.instances)
        clock.mark("construct")
        self.schedule = self.policy(self.mini_batch.graph)
        self.engine.arrange(self.mini_batch, self.schedule)
        clock.mark("schedule")
        self.loss = self.engine.forward()
        clock.mark("forward")
        if self.settings.mode == "train":
            self.engine.backward()
            clock.mark("backward")
            if update:
                self.engine.update(self.settings.learning_rate)
                clock.mark("update")

    def result(self) -> Result:
        """Loss, outputs, gradients and counters of the last run, whose schedule is proved valid.

        Raises ScheduleError where it is not.
        """
        try:
            check_schedule(self.mini_batch.graph, self.schedule)
        except ScheduleError as error:
            raise ScheduleError(f"policy {self.policy_name}: {error}") from error
        gradients = self.engine.parameters.gradients() if self.settings.mode == "train" else {}
        return Result(self.loss, self.engine.outputs(), gradients, self.counters())

    def counters(self) -> Counters:
        """Batches, kernels and copied bytes of the last run."""
        tally = self.engine.tally
        return Counters(self.schedule.n_batches, tally.n_launches, tally.bytes_copied)

    def synchronize(self) -> None:
        """Wait for CUDA."""
        if self.settings.device == "cuda":
            torch.cuda.synchronize()

    def versions(self) -> dict[str, str]:
        """Build facts of torch, which does the arithmetic, and numba, which compiles the rest."""
        return {"torch": torch.__version__, "torch_threads": str(torch.get_num_threads())}

    def peak_memory_bytes(self) -> int | None:
        """Peak of CUDA memory; None on the CPU, where the process's own peak counts."""
        if self.settings.device == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return None


def _switches(options: dict[str, Any]) -> Switches:
    known = [field.name for field in fields(Switches)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(
            f"system.options.{unknown[0]} is not a switch of the engine;"
            f" known: policy, {', '.join(known)}"
        )
    return Switches(**options)
