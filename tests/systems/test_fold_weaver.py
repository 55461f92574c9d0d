"""Fold's weaver: the batches of policy `depth`, with as many copies of each value as in Fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.policies.levels import schedule_by_depth
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_tensorflow.examples import Preprocessing
from dynbatch.systems.on_tensorflow.loom import OWN, Loom, LoomCall, LoomOp, LoomTables
from dynbatch.systems.on_tensorflow.weaver import Wiring, finalize_weaving, weave
from tests.support.engine_models import tree
from tests.support.instances import build
from tests.support.processes import run_python
from tests.support.random_graphs import trees
from tests.support.sketch_models import SIZES


class Value(NamedTuple):
    """Output of a vertex's call, or a row of the initial state, of one type shape."""

    vertex: int
    shape: int
    is_row: bool


class Followed(NamedTuple):
    """Result of executing a wiring."""

    calls: Mapping[tuple[int, int], list[int]]  # vertices by depth and op
    copies: Counter[tuple[int, Value]]  # pass-throughs of each value at each depth
    outputs: list[Value]  # that leave the loom


def op(name: str, arguments: tuple[str, ...], outputs: tuple[str, ...]) -> LoomOp:
    """Return an op without a cell, because the weaver calls none."""
    return LoomOp(name, arguments, outputs, None)  # type: ignore[arg-type]


def tree_loom() -> Loom:
    """Build a loom whose leaves read a word; logits and states leave every vertex."""
    both = ("state", "logits")
    return Loom(
        {"logits": 2, "state": 6, "word": 5},
        [op("internal", ("state", "state"), both), op("leaf", ("word",), both)],
        (None, LoomCall("leaf", (OWN,)), LoomCall("internal", (0, 1))),
    )


def tree_loom_of_rows() -> Loom:
    """Build a loom whose leaves are rows of the initial state."""
    call = LoomCall("internal", (0, 1))
    return Loom(
        {"state": 6}, [op("internal", ("state", "state"), ("state",))], (None, "state", call)
    )


def chain_loom(model: Model) -> Loom:
    """Build the loom of VarLSTM in dynbatch.systems.on_tensorflow.models.looms."""
    ops, vertices = [], []
    for k in range(1, len(model.vertex_types) // 2 + 1):
        below, first, source = ("word", OWN, OWN) if k == 1 else ("h", 0, 1)
        ops.append(op(f"step_{k}", (below, "h", "c"), ("h", "c")))
        vertices += [
            LoomCall(f"step_{k}", (first, OWN, OWN)),
            LoomCall(f"step_{k}", (source, 0, 0)),
        ]
    return Loom({"c": 3, "h": 3, "word": 5}, ops, (None, *vertices))


def arguments_of(mini_batch: MiniBatch, tables: LoomTables) -> dict[tuple[Any, ...], int]:
    """Return the vertex for each op and the values that it reads, derived only from the graph."""
    graph, found = mini_batch.graph, {}
    for v, type_id in enumerate(graph.types):
        of = int(tables.op_of_type[type_id])
        if of < 0:
            continue
        slots = range(tables.slot_start[of], tables.slot_start[of + 1])
        values = []
        for slot, source in zip(slots, tables.sources[type_id], strict=False):
            owner = v if source == OWN else int(graph.select_args(v)[source])
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
    """Return rows of the initial states in order: those that calls read, and row vertices."""
    rows = {value for _, *values in vertex_of for value in values if value.is_row}
    for v, type_id in enumerate(mini_batch.graph.types):
        if tables.row_of_type[type_id] >= 0:
            rows.add(Value(v, int(tables.row_of_type[type_id]), True))
    return [sorted(r for r in rows if r.shape == shape) for shape in range(tables.n_shapes)]


TREES = build("tree_lstm", SIZES)
CHAINS = build("var_lstm", SIZES, layers=2)
Case = tuple[Model, Loom, str, list[Any]]  # the string is the type shape of the outputs


def chain(n: int) -> Chain:
    return Chain(as_int_array(np.arange(n) % 3), as_int_array(np.zeros(n)))


CASES = st.one_of(
    st.lists(trees(), min_size=1, max_size=5).map(lambda t: (TREES, tree_loom(), "logits", t)),
    st.lists(trees(), min_size=1, max_size=5).map(
        lambda t: (TREES, tree_loom_of_rows(), "state", t)
    ),
    st.lists(st.integers(1, 5).map(chain), min_size=1, max_size=4).map(
        lambda c: (CHAINS, chain_loom(CHAINS), "h", c)
    ),
)


@settings(deadline=None)  # the first example compiles
@given(CASES)
def test_a_wiring(case: Case) -> None:
    """Ops are the batches of policy `depth`, copies are minimal, and all outputs leave the loom.

    A value is copied once per level up to its last use. Outputs leave in the order of the
    mini-batch.
    """
    model, loom, output_shape, instances = case
    mini_batch, tables, shape = model.mini_batch(instances), loom.tables, loom.number(output_shape)
    wiring = finalize_weaving(weave(mini_batch, tables, shape), tables, shape)
    followed = follow(wiring, mini_batch, tables, shape)
    ops = tables.op_of_type[mini_batch.graph.types]
    assert calls_by_op(followed) == batches_by_op(mini_batch, ops)
    outputs = mini_batch.outputs.tolist()
    assert followed.outputs == [Value(v, shape, bool(ops[v] < 0)) for v in outputs]
    own_depth = {v: depth for (depth, _), vertices in followed.calls.items() for v in vertices}
    last_use: dict[Value, int] = {}
    for (_, *values), v in arguments_of(mini_batch, tables).items():
        for value in values:
            last_use[value] = max(last_use.get(value, 0), own_depth[v])
    for value in followed.outputs:
        last_use[value] = wiring.max_depth + 1
    assert set(followed.copies) == {
        (depth, value)
        for value, use in last_use.items()
        for depth in range(1 + (0 if value.is_row else own_depth[value.vertex]), use)
    }
    assert set(followed.copies.values()) <= {1}


Batches = dict[int, list[tuple[int, ...]]]  # batches by op, in the order of execution


def calls_by_op(followed: Followed) -> Batches:
    found: Batches = {}
    for (_, of), vertices in sorted(followed.calls.items()):
        if vertices:
            found.setdefault(of, []).append(tuple(sorted(vertices)))
    return found


def batches_by_op(mini_batch: MiniBatch, ops: np.ndarray) -> Batches:
    schedule, found = schedule_by_depth(mini_batch.graph), {}
    for vertices in np.split(schedule.order, schedule.starts[1:-1]):
        if ops[vertices[0]] >= 0:
            found.setdefault(int(ops[vertices[0]]), []).append(tuple(sorted(vertices.tolist())))
    return found


@settings(deadline=None)
@given(CASES, st.data())
def test_examples_woven_apart_and_merged_are_as_if_woven_at_once(
    case: Case, data: st.DataObject
) -> None:
    model, loom, output_shape, instances = case
    cut = data.draw(st.integers(0, len(instances)))
    preprocessing = Preprocessing(model, loom.tables, loom.number(output_shape))
    parts = [part for part in (instances[:cut], instances[cut:]) if part]
    found = preprocessing.join_parts([preprocessing.weave_examples(part) for part in parts])
    expected = preprocessing.weave_examples(instances)
    assert found.words.tolist() == expected.words.tolist()
    assert found.labels.tolist() == expected.labels.tolist()
    first, second = (
        finalize_weaving(e.weaving, preprocessing.tables, preprocessing.output_shape)
        for e in (found, expected)
    )
    for name in ("indices", "starts", "sizes", "outputs", "counts"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist(), name


def test_work_is_counted_as_the_loop_does_it() -> None:
    loom = tree_loom()
    preprocessing = Preprocessing(TREES, loom.tables, loom.number("logits"))
    comb = tree([1, 1, 1, -1, -1], [-1, -1, -1, 0, 3], [-1, -1, -1, 1, 2])
    wiring = finalize_weaving(preprocessing.weave_examples([comb]).weaving, loom.tables, 0)
    # Depth 1: three leaves; 2: (0 1), leaf 2 passed through; 3: the root.
    assert wiring.counts.tolist() == [
        [0, 0, 3, 0, 0],
        [0, 0, 0, 0, 3],
        [3, 1, 0, 1, 0],
        [4, 0, 0, 1, 0],
    ]
    logits, state, word = 2, 6, 5
    gathered = (3 * word) + (3 * logits + state + 2 * state) + (4 * logits + 2 * state)
    joined = 3 * (state + logits) + (4 * logits + 2 * state) + (5 * logits + state)
    counters = wiring.count_work(loom.tables, 0, 1)
    assert counters.bytes_copied == 4 * (gathered + joined + 5 * logits)
    assert counters.n_batches == 3
    assert counters.n_copies == 3 * (6 + 3) + 1  # six slots, three type shapes; the outputs
    assert wiring.count_work(loom.tables, 0, 2).bytes_copied == 2 * counters.bytes_copied


def test_a_worker_loads_no_tensorflow() -> None:
    code = "import sys, dynbatch.systems.on_tensorflow.examples; print('tensorflow' in sys.modules)"
    assert run_python("-c", code) == "False\n"
