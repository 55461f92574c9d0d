"""Description of a loom: type shapes, and ops that map batches of them to batches of them.

This module does not import TensorFlow, because the weaver does not need it.

Source: Looks et al., "Deep Learning with Dynamic Computation Graphs", ICLR 2017, and its release,
tensorflow_fold/loom/loom.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dynbatch.harness.values.arrays import IntArray, IntTable, as_int_array

NONE = -1  # no op, no type shape
OWN = -1  # source of an argument: the vertex's own row of the initial state
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class LoomOp:
    """A whole cell as a function of batches.

    Attributes:
        arguments: type shapes of the arguments.
        outputs: type shapes of the outputs, each at most once.
        function: maps the weights and one tensor (B, width) per argument to a tuple with one tensor
            per output; B may be 0.
    """

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    function: Callable[..., tuple[Any, ...]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoomCall:
    """Call of an op by the vertices of some type.

    Attributes:
        op: name of the op.
        sources: for each argument of the op, the index of the vertex's argument that provides it,
            or OWN.
    """

    op: str
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loom:
    """Loom with numbered type shapes and ops.

    Every type shape has a pass-through op. These come first, in the order of the type shapes,
    followed by the other ops.

    Attributes:
        type_shapes: widths by name.
        ops: ops other than pass-throughs.
        vertices: for each vertex type of the graph, its call; or the type shape, for vertices that
            are rows of the initial state; or None if there are no such vertices.
    """

    type_shapes: Mapping[str, int]
    ops: Sequence[LoomOp]
    vertices: Sequence[LoomCall | str | None]

    def number(self, type_shape: str) -> int:
        return list(self.type_shapes).index(type_shape)

    @property
    def n_slots(self) -> int:
        """Number of arguments of all ops, including pass-throughs."""
        return len(self.type_shapes) + sum(len(op.arguments) for op in self.ops)

    @property
    def tables(self) -> LoomTables:
        """The loom as integers, for the weaver."""
        n_shapes, n_types = len(self.type_shapes), len(self.vertices)
        places = {op.name: n_shapes + index for index, op in enumerate(self.ops)}
        gives = np.eye(n_shapes + len(self.ops), n_shapes, dtype=np.int32)
        for op in self.ops:
            gives[places[op.name], [self.number(name) for name in op.outputs]] = 1
        op_of_type, row_of_type = np.full(n_types, NONE), np.full(n_types, NONE)
        sources = np.full((n_types, max(len(op.arguments) for op in self.ops)), OWN)
        for type_id, vertex in enumerate(self.vertices):
            if isinstance(vertex, LoomCall):
                op_of_type[type_id] = places[vertex.op]
                sources[type_id, : len(vertex.sources)] = vertex.sources
            elif vertex is not None:
                row_of_type[type_id] = self.number(vertex)
        slots = [self.number(name) for op in self.ops for name in op.arguments]
        counts = [1] * n_shapes + [len(op.arguments) for op in self.ops]
        return LoomTables(
            op_of_type=as_int_array(op_of_type),
            row_of_type=as_int_array(row_of_type),
            sources=as_int_array(sources),
            slot_start=as_int_array(np.concatenate([[0], np.cumsum(counts)])),
            slot_shape=as_int_array([*range(n_shapes), *slots]),
            gives=as_int_array(gives),
            widths=as_int_array(list(self.type_shapes.values())),
        )


class LoomTables(NamedTuple):
    """A loom as integers. Ops count from 0, pass-throughs first; a slot is an argument of an op.

    Attributes:
        op_of_type: (n_types,), op that a vertex of the type calls, or NONE.
        row_of_type: (n_types,), type shape of a vertex that is a row of the initial state, or NONE.
        sources: (n_types, a), see LoomCall.
        slot_start: (n_ops + 1,), first slot of each op.
        slot_shape: (n_slots,), type shape of each slot.
        gives: (n_ops, n_shapes), 1 if an op has an output of the type shape.
        widths: (n_shapes,), number of floats per row.
    """

    op_of_type: IntArray
    row_of_type: IntArray
    sources: IntTable
    slot_start: IntArray
    slot_shape: IntArray
    gives: IntTable
    widths: IntArray

    @property
    def n_shapes(self) -> int:
        """Number of type shapes, which is that of pass-through ops."""
        return len(self.widths)

    @property
    def n_ops(self) -> int:
        """Number of ops, including pass-throughs."""
        return len(self.gives)

    @property
    def n_slots(self) -> int:
        """Number of arguments of all ops, which is that of gathers at each depth."""
        return len(self.slot_shape)
