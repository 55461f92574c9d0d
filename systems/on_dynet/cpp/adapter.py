"""Real DyNet without Python between operators: a program in C++ builds each mini-batch's graph.

A program is a file of `programs/`, or a class in one, and an entry of PROGRAMS, or of MANUAL if it
batches manually. It is registered by the name of its model, which then ends with "_manual".

Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation Graphs",
NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import explain_unrunnable, load_network
from dynbatch.harness.contracts.system import Clock, Parameters, RunSettings
from dynbatch.systems.on_dynet.build import (
    AUTOBATCH,
    SOURCE_BUILDS,
    explain_missing_build,
    explain_missing_clock,
    format_memory,
    read_built_hash,
    read_source_facts,
)
from dynbatch.systems.on_dynet.cpp.library import DynetError, DynetLibrary, DynetProgram
from dynbatch.systems.on_dynet.lstm_gates import MAX_FUSED, swap_first_gates, swap_last_gates
from dynbatch.systems.on_dynet.segments import DynetSystem
from dynbatch.systems.plans.columns import (
    Columns,
    build_chain_columns,
    build_lattice_columns,
    build_pair_columns,
    build_parsed_columns,
    build_tree_columns,
)

Array = NDArray[np.float32]


class Pieces(NamedTuple):
    """Number of equal pieces of a weight, and the axis along which it is cut."""

    n: int
    axis: int = -1


@dataclass(frozen=True, slots=True)
class CppInputs:
    """Inputs of a program.

    Attributes:
        build_columns: builds the columns of a mini-batch of the model.
        tables: weights whose rows are looked up, if the model has them.
        cuts: weights that are cut into pieces, NAME.0, NAME.1, ...
        fused: weights of gates f, i, o and g, which one operator computes up to MAX_FUSED: they
            stay whole then, with the gates in the order of DyNet, whether or not they have cuts.
        has_lstms: every U has the suffix of an LSTM, DyNet's own, with weights W, U and b.
    """

    build_columns: Callable[[Any, Sequence[Any]], Columns]
    tables: Sequence[str]
    cuts: Mapping[str, Pieces] = field(default_factory=dict)
    fused: Collection[str] = ()
    has_lstms: bool = False

    def is_fused(self, name: str, values: Array) -> bool:
        return name in self.fused and values.shape[-1] <= 4 * MAX_FUSED

    def list_lstm_weights(self, names: Iterable[str]) -> set[str]:
        """Return the weights of DyNet's own LSTMs."""
        if not self.has_lstms:
            return set()
        return {f"{letter}{name[1:]}" for name in names if name[0] == "U" for letter in "WUb"}


class WeightPiece(NamedTuple):
    """Parameter of a program: its name there, and its values, a vector or a matrix (in, out).

    DyNet stores matrices (out, in) in column-major order, which is the same sequence of numbers.
    """

    name: str
    values: Array


def split_weights(weights: Weights, inputs: CppInputs) -> Iterator[WeightPiece]:
    """Yield every weight, in pieces if the program cuts it, with gates in the order of DyNet."""
    of_lstms = inputs.list_lstm_weights(weights)
    for name, values in weights.items():
        if name in of_lstms:
            yield WeightPiece(name, swap_last_gates(values))
        elif inputs.is_fused(name, values):
            yield WeightPiece(name, swap_first_gates(values))
        elif name not in inputs.cuts:
            yield WeightPiece(name, np.ascontiguousarray(values))
        else:
            n, axis = inputs.cuts[name]
            for k, part in enumerate(np.split(values, n, axis=axis)):
                yield WeightPiece(f"{name}.{k}", np.ascontiguousarray(part))


def join_pieces(
    weights: Weights, inputs: CppInputs, read: Callable[[WeightPiece], Array]
) -> dict[str, Array]:
    """Join the arrays that `read` returns for the pieces to arrays in the shapes of `weights`."""
    pieces: dict[str, list[Array]] = {}
    for piece in split_weights(weights, inputs):
        pieces.setdefault(piece.name.partition(".")[0], []).append(read(piece))
    axes = {name: cut.axis for name, cut in inputs.cuts.items()}
    joined = {
        name: np.concatenate(parts, axis=axes.get(name, -1)) for name, parts in pieces.items()
    }
    joined |= {name: swap_last_gates(joined[name]) for name in inputs.list_lstm_weights(weights)}
    fused = [name for name, values in weights.items() if inputs.is_fused(name, values)]
    return joined | {name: swap_first_gates(joined[name]) for name in fused}


TAGGER = {"W_tag": Pieces(2, axis=0)}
PAIRS = CppInputs(build_pair_columns, ("source_embedding", "target_embedding"), has_lstms=True)
PROGRAMS = {
    "tree_lstm": CppInputs(
        build_tree_columns, ("embedding",), {name: Pieces(3) for name in ("W", "b_leaf", "U", "b")}
    ),
    "tree_lstm_child_sum": CppInputs(
        build_tree_columns, ("embedding",), {name: Pieces(3) for name in "WUb"}
    ),
    "tree_fc": CppInputs(build_tree_columns, ("embedding",), {"W": Pieces(2, axis=0)}),
    "lattice_lstm": CppInputs(
        build_lattice_columns,
        ("characters", "words"),
        {f"{letter}_{arc}": Pieces(4) for letter in "WUb" for arc in ("char", "word")},
        fused=("W_char", "U_char", "W_word", "U_word"),
    ),
    "var_lstm": CppInputs(build_chain_columns, ("embedding",), has_lstms=True),
    "bilstm": CppInputs(build_chain_columns, ("embedding",), TAGGER, has_lstms=True),
    "bilstm_char": CppInputs(
        build_chain_columns, ("embedding", "characters"), TAGGER, has_lstms=True
    ),
    "seq2seq": PAIRS,
    "seq2seq_at_once": PAIRS,
    "parser": CppInputs(build_parsed_columns, ("embedding", "tags"), has_lstms=True),
}
MANUAL = {
    "bilstm": PROGRAMS["bilstm"],
}


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
        explain = explain_missing_clock if options.profile else explain_missing_build
        return (
            explain_unrunnable(model, TABLES[options.batching])
            or explain(settings.device)
            or cls.explain_missing_device(settings)
        )

    def prepare(self, model: Model, weights: Weights) -> None:
        """Start DyNet with the settings of the trial, and pass the weights to it."""
        self._model, self._weights = model, weights
        mode = AUTOBATCH[self.options.autobatch]
        self._open_device()
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

    def _read_outputs(self) -> Array:
        return self._program.outputs()

    def _read_gradients(self) -> Weights:
        read = self._program.read_gradient
        return join_pieces(self._weights, self._inputs, lambda piece: read(*piece))

    def parameters(self) -> Parameters:
        """Return the current values of all parameters, by the model's names and in its shapes."""
        read = self._program.read_values
        return join_pieces(self._weights, self._inputs, lambda piece: read(*piece))

    def last_loss(self) -> float:
        return self._loss

    def versions(self) -> dict[str, str]:
        """Return facts about this build of DyNet, and the hash of the sources of its programs."""
        folder = SOURCE_BUILDS[self.settings.device]
        return read_source_facts(folder) | {
            "dynet_autobatch": self.options.autobatch,
            "dynet_programs": read_built_hash(folder)[:12],
        }
