"""Real DyNet without Python between operators: a program in C++ builds each mini-batch's graph.

Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation Graphs",
NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import (
    explain_binary_only,
    find_network_modules,
    load_network,
)
from dynbatch.harness.contracts.system import Clock, Counters, Parameters, Result, RunSettings
from dynbatch.systems.on_dynet.build import (
    AUTOBATCH,
    SOURCE_BUILDS,
    explain_missing_build,
    explain_missing_clock,
    format_memory,
    read_built_hash,
    read_source_facts,
)
from dynbatch.systems.on_dynet.cpp.inputs import CppInputs, WeightPiece, join_pieces, split_weights
from dynbatch.systems.on_dynet.cpp.library import DynetError, DynetLibrary, DynetProgram
from dynbatch.systems.on_dynet.segments import DynetSystem
from dynbatch.systems.plans.columns import Columns

TABLES = {
    "instance": "dynbatch.systems.on_dynet.cpp:PROGRAMS",
    "manual": "dynbatch.systems.on_dynet.cpp:MANUAL",
}


@dataclass(frozen=True, slots=True)
class CppOptions:
    """Options of batching.

    Attributes:
        autobatch: DyNet's scheduling algorithm.
        batching: "instance" runs programs for one instance; "manual" builds mini-batched
            expressions, whose remaining operators DyNet batches.
        profile: time the copies of operands into batches (CPU only).
    """

    autobatch: Literal["off", "agenda", "depth"] = "agenda"
    batching: Literal["instance", "manual"] = "instance"
    profile: bool = False


class Adapter(DynetSystem):
    """Adapter that builds the graphs of dynbatch.systems.on_dynet.autobatch in C++.

    DyNet schedules in its forward call, before the first operator. Scheduling also includes the
    allocation of memory for all batches.
    """

    phases = ("construct", "schedule", "forward", "backward", "update")
    fault = DynetError
    option_type = CppOptions
    options: CppOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._columns: Columns = ()
        self._loss = 0.0

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the model or the build for the device is missing."""
        options = cls.options_of(settings)
        batching = options.batching
        known = find_network_modules(TABLES[batching])
        if model.name not in known:
            how = "batched manually" if batching == "manual" else "written for DyNet"
            return f"model {model.name} is not {how} in C++; it runs {', '.join(sorted(known))}"
        explain = explain_missing_clock if options.profile else explain_missing_build
        reason = explain_binary_only(model) or explain(settings.device)
        return reason or cls.explain_missing_device(settings)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Start DyNet with the settings of the trial, and pass the weights to it."""
        self._model, self._weights = model, weights
        mode = AUTOBATCH[self.options.autobatch]
        self._open_device()
        if self.options.profile:
            self._open_gather_clock()
        folder = SOURCE_BUILDS[self.settings.device]
        self._library = DynetLibrary(format_memory(weights), self.settings.seed + 1, mode, folder)
        suffix = "_manual" if self.options.batching == "manual" else ""
        self._program = DynetProgram(self._library, f"{model.name}{suffix}")
        self._inputs: CppInputs = load_network(TABLES[self.options.batching], model.name)
        for piece in split_weights(weights, self._inputs):
            is_table = piece.name in self._inputs.tables
            add = self._program.add_table if is_table else self._program.add_parameter
            add(*piece)
        self._program.add_trainer(self.settings.learning_rate)

    def load(self, instances: Sequence[Any]) -> None:
        """Concatenate the instances' arrays, which a program in C++ would hold."""
        self._columns = self._inputs.build_columns(self._model, instances)

    def _clear_gradients(self) -> None:
        self._program.clear_gradients()

    def _evaluate(self, clock: Clock) -> None:
        """Build and evaluate one graph segment after the other, then the sum of their losses."""
        self._program.construct(self._columns)
        is_extended = True
        while is_extended:
            clock.mark("construct")
            self._loss, scheduling = self._program.forward()
            clock.divide({"schedule": scheduling})
            clock.mark("forward")
            is_extended = self._program.extend()

    def _backward(self) -> None:
        self._program.backward()

    def _update(self) -> None:
        self._program.update()

    def result(self) -> Result:
        """Return the last result.

        It has gradients only after run(update=False), because DyNet's update clears them.
        """
        return Result(
            loss=self._loss,
            outputs=self._program.outputs(self._model.parameters["W_out"].shape[-1]),
            gradients=self._gradients() if self._gradients_pending else {},
            counters=Counters(),
        )

    def _gradients(self) -> dict[str, Any]:
        def read(piece: WeightPiece) -> Any:
            return self._program.read_gradient(*piece)

        return join_pieces(self._weights, self._inputs, read)

    def parameters(self) -> Parameters:
        """Return the current values of all parameters, by the model's names and in its shapes."""

        def read(piece: WeightPiece) -> Any:
            return self._program.read_values(*piece)

        return join_pieces(self._weights, self._inputs, read)

    def last_loss(self) -> float:
        return self._loss

    def counters(self) -> Counters:
        """Return no counters, because DyNet reports none."""
        return Counters()

    def versions(self) -> dict[str, str]:
        """Return facts about this build of DyNet, and the hash of the sources of its programs."""
        folder = SOURCE_BUILDS[self.settings.device]
        return read_source_facts(folder) | {
            "dynet_autobatch": self.options.autobatch,
            "dynet_programs": read_built_hash(folder)[:12],
        }
