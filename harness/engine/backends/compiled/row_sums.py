"""Gradients of looked-up rows, which stay where the backward pass left them until the update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.memory import Memory
from harness.engine.lowering.plan import Plan, Ref
from harness.engine.rows.geometry import Index


@dataclass(frozen=True, slots=True)
class RowSum:
    """Of one function: of which table, what it pulls, and where the gradients of its rows are."""

    type_id: int
    table: str
    pulled: str
    gradient: Ref


def row_sums_of(plans: Mapping[int, Plan]) -> list[RowSum]:
    """Find them, once and not with every mini-batch."""
    found = []
    for type_id, plan in plans.items():
        for node in plan.row_sums():
            rows, dy = node.inputs
            found.append(RowSum(type_id, node.name, plan.nodes[rows].name, plan.refs[dy]))
    return found


def looked_up(
    row_sums: Iterable[RowSum], memory: Memory
) -> Iterator[tuple[str, Index, NDArray[np.float32]]]:
    """Tables, which of their rows were looked up, and the gradients of these."""
    layout = memory.layout
    for one in row_sums:
        if one.type_id in layout:
            index, done = layout.pulled(one.type_id, one.pulled), 0
            for values in memory.rows_of(one.type_id, one.gradient):
                yield one.table, index[done : done + len(values)], values
                done += len(values)
