"""Which arrays say where the rows of a mini-batch are, numbered once for all functions.

So one compiled call can fill all of them (filling.py), and whoever needs one knows its number.
Types that write the same states number their rows together, in one space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.engine.lowering.plan import Plan, Slots
from harness.values.arrays import IntArray, IntTable, int_array

Index = NDArray[np.int64]
NOT_CONTIGUOUS = -1


@dataclass(frozen=True, eq=False, slots=True)
class Gather:
    """The child rows that one type reads, row by row of the type, slots side by side.

    index (n * n_slots,): rows of the children's state. runs (n_batches + 1,): of every batch the
    first row where all its rows follow one another, else NOT_CONTIGUOUS; the last: the same for all
    batches at once.
    edge_start (n + 1,): where each vertex's edges begin, for gathers of any number of children
    (empty for gathers by slot).
    """

    index: Index
    runs: Index
    edge_start: Index


@dataclass(frozen=True, eq=False, slots=True)
class TypeRows:
    """The vertices of one type in execution order.

    vertices (n,), starts (n_batches + 1,): batch boundaries. first_row (n_batches,): where each
    batch begins among the rows of the states that this type writes.
    """

    vertices: Index
    starts: Index
    first_row: Index

    @property
    def n(self) -> int:
        """Vertices of this type."""
        return len(self.vertices)


@dataclass(frozen=True, eq=False, slots=True)
class TypeGeometry:
    """One type in one mini-batch.

    gathers: by slots (None: every child). pulls: by name, one int64 a row of the type.
    largest: rows of the largest batch. contiguous: all batches of the type follow one another among
    the state rows.
    goes_back_at_once: whether the backward stage may take all rows, as that of outputs does.
    """

    rows: TypeRows
    gathers: Mapping[Slots, Gather]
    pulls: Mapping[str, Index]
    largest: int
    contiguous: bool
    goes_back_at_once: bool = False

    @property
    def n_at_once(self) -> int:
        """The most rows that a stage which takes batch by batch gets."""
        return self.rows.n if self.goes_back_at_once else self.largest

    @property
    def n_edges(self) -> int:
        """Incoming edges of all vertices, where the type gathers any number of children."""
        return int(self.gathers[None].edge_start[-1]) if None in self.gathers else 0


def space_of_type(states_of_type: Sequence[frozenset[str]]) -> list[int]:
    """Number the row spaces: types that write a common state share one (transitively)."""
    spaces: list[set[str]] = []
    for states in states_of_type:
        joined = set(states)
        for space in [space for space in spaces if space & states]:
            joined |= space
            spaces.remove(space)
        if joined:
            spaces.append(joined)
    nowhere = len(spaces)  # types that write no state are numbered apart
    return [
        next((k for k, space in enumerate(spaces) if space & states), nowhere)
        for states in states_of_type
    ]


OUTPUT = -1  # the id of the function that is read behind the last batch
# Of a function: see TypeRows; ROWS holds how many it has; ORDER and ROUNDS are of outputs.
VERTICES, STARTS, FIRST_ROW, ROWS, ORDER, ROUNDS = range(6)
N_OF_FUNCTION = 6
# Of a gather: see Gather. EDGE_BOUNDS: where the edges of every batch begin, and the last ones end.
INDEX, RUNS, EDGE_START, EDGE_BOUNDS = range(4)
N_OF_GATHER = 4
EVERY_CHILD = -1  # in place of a number of slots


@dataclass(frozen=True, slots=True)
class Reads:
    """What a plan reads: the groups of slots that it gathers (None: every child), and pulls."""

    slots: tuple[Slots, ...]
    pulls: tuple[str, ...]


def reads_of(plan: Plan) -> Reads:
    """Find them, once and not with every mini-batch."""
    slots: set[Slots] = set(plan.slots.values())
    if any(node.op == "gather_each" for node in plan.nodes):
        slots.add(None)
    pulls = {node.name for node in plan.nodes if node.op == "pull"}
    return Reads(tuple(sorted(slots, key=str)), tuple(sorted(pulls)))


class FieldArrays(NamedTuple):
    """What functions read, as compiled code reads it.

    gathers (k, 3): function, its first slot in `slots`, and how many it has or EVERY_CHILD.
    pulls (k, 2): function, and which of Fields.names it pulls. has_output: see Fields.
    """

    gathers: IntTable
    slots: IntArray
    pulls: IntTable
    has_output: bool


@dataclass(frozen=True, eq=False, slots=True)
class Fields:
    """Functions are numbered, too: vertex functions by their ids, and that of outputs behind them.

    n_types: vertex functions. has_output: whether there is a function of outputs.
    names (all_names: as a set): what they pull.
    """

    n_types: int
    has_output: bool
    reads: Mapping[int, Reads]
    names: tuple[str, ...]
    arrays: FieldArrays
    all_names: frozenset[str]
    _gather_numbers: Mapping[tuple[int, Slots], int]
    _pull_numbers: Mapping[tuple[int, str], int]

    @property
    def n_functions(self) -> int:
        """Of vertices and of outputs."""
        return self.n_types + self.has_output

    def function(self, type_id: int) -> int:
        """The number of a function."""
        return self.n_types if type_id == OUTPUT else type_id

    def type_id(self, function: int) -> int:
        """The id of a function."""
        return OUTPUT if function == self.n_types else function

    @property
    def n_fields(self) -> int:
        """Arrays of a layout."""
        n_of_gathers = N_OF_GATHER * len(self.arrays.gathers)
        return N_OF_FUNCTION * self.n_functions + n_of_gathers + len(self.arrays.pulls)

    def of_function(self, type_id: int, part: int) -> int:
        """The number of VERTICES, STARTS, ... of a function."""
        return N_OF_FUNCTION * self.function(type_id) + part

    def of_gather(self, type_id: int, slots: Slots, part: int) -> int:
        """The number of INDEX, RUNS, ... of a gather."""
        gather = self._gather_numbers[type_id, slots]
        return N_OF_FUNCTION * self.n_functions + N_OF_GATHER * gather + part

    def of_pull(self, type_id: int, name: str) -> int:
        """The number of what a function pulls."""
        first = N_OF_FUNCTION * self.n_functions + N_OF_GATHER * len(self.arrays.gathers)
        return first + self._pull_numbers[type_id, name]


def fields_of(reads: Mapping[int, Reads], n_types: int) -> Fields:
    """Number all that these functions read; n_types: ids of vertex functions are below."""
    names = tuple(sorted({name for one in reads.values() for name in one.pulls}))
    gathers, slots, pulls = list[tuple[int, int, int]](), list[int](), list[tuple[int, int]]()
    gather_numbers, pull_numbers = {}, {}
    for type_id, one in reads.items():
        function = n_types if type_id == OUTPUT else type_id
        for group in one.slots:
            gather_numbers[type_id, group] = len(gathers)
            n_slots = EVERY_CHILD if group is None else len(group)
            gathers.append((function, len(slots), n_slots))
            slots += group or ()
        for name in one.pulls:
            pull_numbers[type_id, name] = len(pulls)
            pulls.append((function, names.index(name)))
    return Fields(
        n_types=n_types,
        has_output=OUTPUT in reads,
        reads=reads,
        names=names,
        all_names=frozenset(names),
        arrays=FieldArrays(_table(gathers, 3), int_array(slots), _table(pulls, 2), OUTPUT in reads),
        _gather_numbers=gather_numbers,
        _pull_numbers=pull_numbers,
    )


def _table(rows: Sequence[tuple[int, ...]], width: int) -> IntArray:
    return int_array(rows).reshape(-1, width)
