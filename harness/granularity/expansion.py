"""Expansion of a mini-batch's vertices to their operators, in one compiled pass over the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.granularity.operator_functions import Template, ValueSource
from dynbatch.harness.values.arrays import IntArray, Ints, IntTable, as_int_array

NOTHING = -1
OUTPUT_KIND = 0  # kind of the outputs
TYPE, FUNCTION, PULL = range(3)  # columns of VertexKinds.operators
LOCAL, SLOT, STATE = range(3)  # columns of VertexKinds.values
VALUE, CHILD, N_CHILDREN = range(3)  # entries of Expanded.missing
Value = tuple[Template, ValueSource]  # a value that the operators or parents of a vertex read


class VertexKinds(NamedTuple):
    """Operators of all kinds of vertices; a kind is a Template.

    Attributes:
        by_type: (n_types,), kind of the vertices of each type; NOTHING if their number of children
            decides.
        by_arity: (n_types, most + 1), kind by the number of children.
        starts: (n_kinds + 1,), first of each kind's `operators`.
        operators: (n, 3), type, function and number of the pulled name, or NOTHING.
        operand_starts: (n + 1,), first of each operator's `values`.
        values: (m, 3), the number of an operator of the same vertex, or NOTHING and a child's slot
            and state.
        states: (n_kinds, n_states), row in `values` of each state that a kind has, or NOTHING.
        pushed: Row in `values` of the value that outputs push.
    """

    by_type: Ints
    by_arity: IntTable
    starts: Ints
    operators: IntTable
    operand_starts: Ints
    values: IntTable
    states: IntTable
    pushed: int


class Expanded(NamedTuple):
    """Operators of a mini-batch, vertex by vertex and then output by output.

    Attributes:
        first: (n_vertices + 1,), first operator of each vertex, and of the outputs.
        pulled: Number that each operator pulls, or NOTHING.
        pushed: (n_outputs,), operator that computes each output.
        missing: Empty; or, if a value does not exist: its row in VertexKinds.values, the child
            that does not have it or NOTHING, and the number of children. Other arrays are
            incomplete then.
    """

    first: Ints
    types: Ints
    functions: Ints
    pulled: Ints
    arg_start: Ints
    args: Ints
    pushed: Ints
    missing: Ints


def list_values(templates: Sequence[Template]) -> list[Value]:
    """Return all values that operators and parents read; the pushed value of outputs is last."""
    operands = [(t, source) for t in templates for a in t.applications for source in a.arguments]
    states = [(t, source) for t in templates for source in t.states.values()]
    pushed = templates[OUTPUT_KIND].pushed
    assert pushed is not None
    return [*operands, *states, (templates[OUTPUT_KIND], pushed)]


def make_kinds(
    templates: Sequence[Template], pulls: Sequence[str], by_type: object, by_arity: object
) -> VertexKinds:
    """Return the operators of templates as arrays; the first template is that of outputs.

    Args:
        pulls: Names that operators pull.
        by_type, by_arity: As in VertexKinds.
    """
    names = list(dict.fromkeys(state for template in templates for state in template.states))
    applications = [application for template in templates for application in template.applications]
    operand_starts = _count_up([len(application.arguments) for application in applications])
    states = np.full((len(templates), len(names)), NOTHING)
    row = int(operand_starts[-1])
    for kind, template in enumerate(templates):
        for state in template.states:
            states[kind, names.index(state)] = row
            row += 1
    return VertexKinds(
        as_int_array(by_type),
        as_int_array(by_arity),
        _count_up([len(template.applications) for template in templates]),
        _make_table(
            [(a.type, a.function, pulls.index(a.pull) if a.pull else NOTHING) for a in applications]
        ),
        operand_starts,
        _make_table([_encode(source, names) for _, source in list_values(templates)]),
        as_int_array(states),
        row,
    )


def _encode(source: ValueSource, names: Sequence[str]) -> tuple[int, int, int]:
    local = NOTHING if source.local is None else source.local
    return local, source.slot, names.index(source.state) if source.state in names else NOTHING


def _make_table(rows: Sequence[tuple[int, int, int]]) -> IntArray:
    return as_int_array(rows).reshape(-1, 3)


def _count_up(sizes: Sequence[int]) -> IntArray:
    return as_int_array(np.cumsum([0, *sizes]))


@compiled
def expand(
    types: Ints, arg_start: Ints, args: Ints, outputs: Ints, kinds: VertexKinds, pulled: IntTable
) -> Expanded:
    """Replace every vertex, and every output, by its operators.

    Args:
        pulled: (n_names, n), the numbers that vertices pull.
    """
    n, n_states = len(types), kinds.states.shape[1]
    kind_of, first = np.empty(n, np.int32), np.empty(n + 1, np.int32)
    n_args = len(outputs) * _count_operands(kinds, OUTPUT_KIND)
    first[0] = 0
    for v in range(n):
        kind = kinds.by_type[types[v]]
        if kind == NOTHING:
            kind = kinds.by_arity[types[v], arg_start[v + 1] - arg_start[v]]
        kind_of[v] = kind
        first[v + 1] = first[v] + _count_operators(kinds, kind)
        n_args += _count_operands(kinds, kind)
    size = _count_operators(kinds, OUTPUT_KIND)
    out = _allocate(first, n_args, len(outputs), first[n] + len(outputs) * size)
    at = np.full((n, n_states), NOTHING, np.int32)  # operator of each vertex's states
    end = 0
    for v in range(n):
        begin, after, kind = arg_start[v], arg_start[v + 1], kind_of[v]
        for state in range(n_states):
            row = kinds.states[kind, state]
            if row != NOTHING:
                at[v, state] = _find(out, kinds, row, first[v], args, begin, after, at, False)
        end = _write(out, end, kinds, kind, first[v], args, begin, after, at, pulled, v)
    for k in range(len(outputs)):
        base, v = first[n] + k * size, outputs[k]
        end = _write(out, end, kinds, OUTPUT_KIND, base, outputs, k, k + 1, at, pulled, v)
        out.pushed[k] = _find(out, kinds, kinds.pushed, base, outputs, k, k + 1, at, True)
    if out.missing[VALUE] != NOTHING:
        return out
    return Expanded(
        first, out.types, out.functions, out.pulled, out.arg_start, out.args, out.pushed,
        out.missing[:0],
    )  # fmt: skip


@helper
def _count_operators(kinds: VertexKinds, kind: int) -> int:
    n: int = kinds.starts[kind + 1] - kinds.starts[kind]
    return n


@helper
def _count_operands(kinds: VertexKinds, kind: int) -> int:
    begin, end = kinds.starts[kind], kinds.starts[kind + 1]
    n: int = kinds.operand_starts[end] - kinds.operand_starts[begin]
    return n


@helper
def _allocate(first: Ints, n_args: int, n_outputs: int, n_operators: int) -> Expanded:
    """Return arrays to be filled."""
    return Expanded(
        first, np.empty(n_operators, np.int32), np.empty(n_operators, np.int32),
        np.empty(n_operators, np.int32), np.zeros(n_operators + 1, np.int32),
        np.empty(n_args, np.int32), np.empty(n_outputs, np.int32), np.full(3, NOTHING, np.int32),
    )  # fmt: skip


@helper
def _find(
    out: Expanded, kinds: VertexKinds, row: int, base: int, children: Ints, begin: int, end: int,
    at: IntTable, is_read: bool,
) -> int:  # fmt: skip
    """Return the operator that computes a value; record it in `missing` if there is none.

    A state that is only passed on may be missing.

    Args:
        row: Row of the value in VertexKinds.values.
        base: First operator of the vertex.
        begin, end: The vertex's children are children[begin:end].
    """
    local, slot, state = kinds.values[row, LOCAL], kinds.values[row, SLOT], kinds.values[row, STATE]
    if local != NOTHING:
        return int(base + local)
    child = children[begin + slot] if begin + slot < end else NOTHING
    operator = NOTHING
    if child != NOTHING and state != NOTHING:
        operator = at[child, state]
    is_missing = operator == NOTHING and (is_read or child == NOTHING)
    if is_missing and out.missing[VALUE] == NOTHING:
        out.missing[VALUE], out.missing[CHILD], out.missing[N_CHILDREN] = row, child, end - begin
    return int(operator)


@helper
def _write(
    out: Expanded, n_args: int, kinds: VertexKinds, kind: int, base: int, children: Ints,
    begin: int, end: int, at: IntTable, pulled: IntTable, v: int,
) -> int:  # fmt: skip
    """Write the operators of a vertex; return the number of all arguments so far.

    Args:
        v: The vertex whose numbers the operators pull; the others as for _find.
    """
    for k in range(kinds.starts[kind], kinds.starts[kind + 1]):
        operator, pull = base + k - kinds.starts[kind], kinds.operators[k, PULL]
        out.types[operator] = kinds.operators[k, TYPE]
        out.functions[operator] = kinds.operators[k, FUNCTION]
        out.pulled[operator] = NOTHING if pull == NOTHING else pulled[pull, v]
        for row in range(kinds.operand_starts[k], kinds.operand_starts[k + 1]):
            out.args[n_args] = _find(out, kinds, row, base, children, begin, end, at, True)
            n_args += 1
        out.arg_start[operator + 1] = n_args
    return n_args
