"""Whether every id that a model pulls is inside the table or the layer that it indexes.

Kernels that are compiled check no bounds: an id outside would read, or write, other memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.contracts.model import Model, traced_functions
from harness.errors import DataError
from harness.values.arrays import IntArray
from harness.values.graph import MiniBatch
from harness.vertex.program import VertexFunction

OUTPUT = "output"  # the function that reads outputs, not vertices


@dataclass(frozen=True, slots=True)
class Use:
    """A vertex function takes entry `pull` of something that has n_entries, `what` in words."""

    function: str
    pull: str
    what: str
    n_entries: int


def check_ids(model: Model, mini_batches: Sequence[Sequence[Any]]) -> None:
    """Raise DataError for the first id that is below 0 or too large for what it indexes."""
    functions = traced_functions(model)
    uses = [use for function in functions.values() for use in _uses_in(function)]
    for instances in mini_batches if uses else ():
        mini_batch = model.mini_batch(instances)
        for use in uses:
            _check(model, use, _ids(mini_batch, use))


def n_lookups(model: Model, instances: Sequence[Any]) -> dict[str, NDArray[np.intp]]:
    """How often each row of each table is looked up in a mini-batch, by the table's name."""
    mini_batch = model.mini_batch(instances)
    found: dict[str, NDArray[np.intp]] = {}
    for function in traced_functions(model).values():
        for node in function.nodes:
            if node.op == "lookup":
                table, row = (function.nodes[i] for i in node.inputs)
                use = Use(function.name, row.name, table.name, table.shape[0])
                counts = np.bincount(_ids(mini_batch, use), minlength=use.n_entries)
                found[table.name] = found[table.name] + counts if table.name in found else counts
    return found


def _uses_in(function: VertexFunction) -> Iterator[Use]:
    """Yield what a function indexes: rows of tables, and the scores that a loss picks from."""
    for node in function.nodes:
        operands = [function.nodes[i] for i in node.inputs]
        if node.op == "lookup":
            table, row = operands
            yield Use(function.name, row.name, f"row of the table {table.name}", table.shape[0])
        elif node.op == "pick_neg_log_softmax":
            logits, label = operands
            yield Use(function.name, label.name, "score of the layer under the loss", logits.width)


def _ids(mini_batch: MiniBatch, use: Use) -> IntArray:
    """What the vertices of a function pull; the output function may have pulls of its own."""
    if use.function == OUTPUT:
        if mini_batch.output_pulls is not None:
            return mini_batch.output_pulls[use.pull]
        return mini_batch.pulls[use.pull][mini_batch.outputs]
    names = mini_batch.graph.type_names
    if use.function not in names:
        return mini_batch.pulls[use.pull][:0]
    ids: IntArray = mini_batch.pulls[use.pull][mini_batch.functions == names.index(use.function)]
    return ids


def _check(model: Model, use: Use, ids: IntArray) -> None:
    outside = np.flatnonzero((ids < 0) | (ids >= use.n_entries))
    if len(outside):
        raise DataError(
            f"{use.pull}={ids[outside[0]]} found, which is no {use.what} of {model.name}: allowed"
            f" are 0 to {use.n_entries - 1}; check the ids and the sizes that"
            f" dataset={model.sizes.dataset} brings"
        )
