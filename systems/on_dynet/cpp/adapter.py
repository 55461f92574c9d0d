"""Real DyNet without Python between operators: a program in C++ builds each mini-batch's graph.

Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation Graphs",
NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import explain_binary_only
from dynbatch.harness.contracts.system import Clock, Counters, Parameters, Result, RunSettings
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import Lattice, Tree
from dynbatch.systems.on_dynet.build import (
    AUTOBATCH,
    SOURCE_BUILDS,
    explain_missing_build,
    format_memory,
    read_built_hash,
    read_source_facts,
)
from dynbatch.systems.on_dynet.cpp.library import Columns, DynetError, DynetLibrary, DynetProgram
from dynbatch.systems.on_dynet.segments import DynetSystem

Array = NDArray[np.float32]
TABLES = {
    "tree_lstm": ("embedding",),
    "tree_lstm_child_sum": ("embedding",),
    "lattice_lstm": ("characters", "words"),
}
N_GATES = {
    "tree_lstm": {"W": 3, "b_leaf": 3, "U": 3, "b": 3},
    "tree_lstm_child_sum": {"W": 3, "U": 3, "b": 3},
    "lattice_lstm": {f"{letter}_{arc}": 4 for letter in "WUb" for arc in ("char", "word")},
}


@dataclass(frozen=True, slots=True)
class CppOptions:
    """Options of batching.

    Attributes:
        autobatch: DyNet's scheduling algorithm.
    """

    autobatch: Literal["off", "agenda", "depth"] = "agenda"


class Adapter(DynetSystem):
    """Adapter that builds the graphs of dynbatch.systems.on_dynet.autobatch in C++.

    DyNet schedules in its forward call.
    """

    phases = ("construct", "forward", "backward", "update")
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
        if model.name not in N_GATES:
            known = ", ".join(sorted(N_GATES))
            return f"model {model.name} is not written for DyNet in C++; it runs {known}"
        reason = explain_binary_only(model) or explain_missing_build(settings.device)
        return reason or cls.explain_missing_device(settings)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Start DyNet with the settings of the trial, and pass the weights to it."""
        self._model, self._weights = model, weights
        mode = AUTOBATCH[self.options.autobatch]
        self._open_device()
        folder = SOURCE_BUILDS[self.settings.device]
        self._library = DynetLibrary(format_memory(weights), self.settings.seed + 1, mode, folder)
        self._program = DynetProgram(self._library, model.name)
        for piece in split_weights(weights, N_GATES[model.name]):
            is_table = piece.name in TABLES[model.name]
            add = self._program.add_table if is_table else self._program.add_parameter
            add(*piece)
        self._program.add_trainer(self.settings.learning_rate)

    def load(self, instances: Sequence[Any]) -> None:
        """Concatenate the instances' arrays, which a program in C++ would hold."""
        self._columns = COLUMNS[self._model.instance_kind](instances)

    def _clear_gradients(self) -> None:
        self._program.clear_gradients()

    def _evaluate(self, clock: Clock) -> None:
        self._program.construct(self._columns)
        clock.mark("construct")
        self._loss = self._program.forward()
        clock.mark("forward")

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

        return join_pieces(self._weights, N_GATES[self._model.name], read)

    def parameters(self) -> Parameters:
        """Return the current values of all parameters, by the model's names and in its shapes."""

        def read(piece: WeightPiece) -> Any:
            return self._program.read_values(*piece)

        return join_pieces(self._weights, N_GATES[self._model.name], read)

    def last_loss(self) -> float:
        """Return the loss of the last forward pass."""
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


class WeightPiece(NamedTuple):
    """Parameter of a program: its name there, and its values, a vector or a matrix (in, out).

    DyNet stores matrices (out, in) in column-major order, which is the same sequence of numbers.
    """

    name: str
    values: Array


def split_weights(weights: Weights, n_gates: Mapping[str, int]) -> Iterator[WeightPiece]:
    """Yield every weight, cut into equal pieces of columns NAME.0, NAME.1, ... if it has gates."""
    for name, values in weights.items():
        n = n_gates.get(name)
        if n is None:
            yield WeightPiece(name, np.ascontiguousarray(values))
            continue
        for k, part in enumerate(np.split(values, n, axis=-1)):
            yield WeightPiece(f"{name}.{k}", np.ascontiguousarray(part))


def join_pieces(
    weights: Weights, n_gates: Mapping[str, int], read: Callable[[WeightPiece], Array]
) -> dict[str, Array]:
    """Join the arrays that `read` returns for the pieces to arrays in the shapes of `weights`."""
    arrays: dict[str, list[Array]] = {}
    for piece in split_weights(weights, n_gates):
        arrays.setdefault(piece.name.partition(".")[0], []).append(read(piece))
    return {name: np.concatenate(parts, axis=-1) for name, parts in arrays.items()}


def build_tree_columns(trees: Sequence[Tree]) -> Columns:
    """Return sizes of the trees, and words, labels and children of all their vertices.

    Children are numbered within their tree. Sizes have the shape (n_trees,), all others
    (n_vertices,).
    """
    sizes = [tree.n_vertices for tree in trees]
    return as_int_array(sizes), *np.concatenate([tree.table for tree in trees], axis=1)


def build_lattice_columns(lattices: Sequence[Lattice]) -> Columns:
    """Return the columns of lattices: numbers of states, tags, arc counts, sources and tokens.

    Sources are numbered within their lattice. Shapes: numbers of states (n_lattices,), tags and
    numbers of arcs (n_states,), sources and tokens (n_arcs,). The first arc into a state is its
    character.
    """
    names = ("tags", "arc_counts", "sources", "tokens")
    joined = (np.concatenate([getattr(lattice, name) for lattice in lattices]) for name in names)
    return as_int_array([lattice.n_states for lattice in lattices]), *joined


COLUMNS: Mapping[str, Callable[[Sequence[Any]], Columns]] = {
    "tree": build_tree_columns,
    "lattice": build_lattice_columns,
}
