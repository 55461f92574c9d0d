"""Looms of models without their cells, and what a wiring computes, followed row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.contracts.model import Model
from harness.values.graph import MiniBatch
from systems.on_tensorflow.loom import OWN, Call, Loom, LoomOp, LoomTables
from systems.on_tensorflow.weaver import Wiring


class Value(NamedTuple):
    """What a call of a vertex gives, or a row of the initial state, of one type shape."""

    vertex: int
    shape: int
    is_row: bool


class Followed(NamedTuple):
    """What a wiring computes.

    calls: vertices by depth and op. copies: how often each value is passed through at each depth.
    outputs: what leaves the loom.
    """

    calls: Mapping[tuple[int, int], list[int]]
    copies: Counter[tuple[int, Value]]
    outputs: list[Value]


def _no_cell(*_: object) -> tuple[Any, ...]:
    raise AssertionError("the weaver calls no cell")


def op(name: str, arguments: tuple[str, ...], outputs: tuple[str, ...]) -> LoomOp:
    return LoomOp(name, arguments, outputs, _no_cell)


def tree_loom() -> Loom:
    """Leaves read a word; logits and states leave every vertex."""
    both = ("state", "logits")
    return Loom(
        {"logits": 2, "state": 6, "word": 5},
        [op("leaf", ("word",), both), op("internal", ("state", "state"), both)],
        (None, Call("leaf", (OWN,)), Call("internal", (0, 1))),
    )


def tree_loom_of_rows() -> Loom:
    """Leaves are rows of the initial state."""
    call = Call("internal", (0, 1))
    return Loom(
        {"state": 6}, [op("internal", ("state", "state"), ("state",))], (None, "state", call)
    )


def chain_loom(model: Model) -> Loom:
    """As VarLSTM of systems.on_tensorflow.models.looms."""
    ops, vertices = [], []
    for k in range(1, len(model.vertex_types) // 2 + 1):
        below, first, source = ("word", OWN, OWN) if k == 1 else ("h", 0, 1)
        ops.append(op(f"step_{k}", (below, "h", "c"), ("h", "c")))
        vertices += [Call(f"step_{k}", (first, OWN, OWN)), Call(f"step_{k}", (source, 0, 0))]
    return Loom({"c": 3, "h": 3, "word": 5}, ops, (None, *vertices))


def arguments_of(mini_batch: MiniBatch, tables: LoomTables) -> dict[tuple[Any, ...], int]:
    """The vertex by its op and the values that it reads, from the graph alone."""
    graph, found = mini_batch.graph, {}
    for v, type_id in enumerate(graph.types):
        of = int(tables.op_of_type[type_id])
        if of < 0:
            continue
        slots = range(tables.slot_start[of], tables.slot_start[of + 1])
        values = []
        for slot, source in zip(slots, tables.sources[type_id], strict=False):
            owner = v if source == OWN else int(graph.args_of(v)[source])
            is_row = source == OWN or tables.op_of_type[graph.types[owner]] < 0
            values.append(Value(owner, int(tables.slot_shape[slot]), bool(is_row)))
        assert (of, *values) not in found
        found[of, *values] = v
    return found


def follow(wiring: Wiring, mini_batch: MiniBatch, tables: LoomTables, output: int) -> Followed:
    """Execute the wiring as the loop does, on values instead of numbers."""
    vertex_of = arguments_of(mini_batch, tables)
    states = _initial(mini_batch, tables, vertex_of)
    calls: dict[tuple[int, int], list[int]] = {}
    copies: Counter[tuple[int, Value]] = Counter()
    indices = iter(wiring.indices.tolist())
    for depth in range(1, wiring.max_depth + 1):
        taken = [
            [states[tables.slot_shape[slot]][next(indices)] for _ in range(size)]
            for slot, size in enumerate(wiring.sizes[depth - 1])
        ]
        states = [list(taken[shape]) for shape in range(tables.n_shapes)]
        copies.update((depth, value) for passed in states for value in passed)
        for of in range(tables.n_shapes, tables.n_ops):
            read = taken[tables.slot_start[of] : tables.slot_start[of + 1]]
            vertices = [vertex_of[of, *values] for values in zip(*read, strict=True)]
            calls[depth, of] = vertices
            for shape in range(tables.n_shapes):
                if tables.gives[of, shape]:
                    states[shape] += [Value(v, shape, False) for v in vertices]
    assert next(indices, None) is None
    return Followed(calls, copies, [states[output][row] for row in wiring.outputs])


def _initial(
    mini_batch: MiniBatch, tables: LoomTables, vertex_of: Mapping[tuple[Any, ...], int]
) -> list[list[Value]]:
    """Rows of the initial states: those that calls read, and vertices that are rows, in order."""
    rows = {value for _, *values in vertex_of for value in values if value.is_row}
    for v, type_id in enumerate(mini_batch.graph.types):
        if tables.row_of_type[type_id] >= 0:
            rows.add(Value(v, int(tables.row_of_type[type_id]), True))
    return [sorted(r for r in rows if r.shape == shape) for shape in range(tables.n_shapes)]
