"""Arrays that describe the rows of a mini-batch, numbered once for all functions.

One compiled call can thus fill all of them (filling.py), and readers address each by its number.
Types that write the same states number their rows together, in one space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.engine.lowering.plan import Plan, Slots
from dynbatch.harness.values.arrays import IntArray, IntTable, as_int_array

Index = NDArray[np.int64]
NOT_CONTIGUOUS = -1


@dataclass(frozen=True, eq=False, slots=True)
class Gather:
    """Rows of children that one type reads, ordered by row of the type and then by slot.

    Attributes:
        index: (n * n_slots,), rows of the children's state.
        runs: (n_batches + 1,), for every batch the first row if all its rows are consecutive, else
            NOT_CONTIGUOUS; the last entry is the same for all batches together.
        edge_start: (n + 1,), the first edge of each vertex, for gathers of any number of children
            (empty for gathers by slot).
    """

    index: Index
    runs: Index
    edge_start: Index


@dataclass(frozen=True, eq=False, slots=True)
class TypeGeometry:
    """Rows, gathers and pulls of one type in one mini-batch.

    Attributes:
        vertices: (n_rows,), in the order of execution.
        starts: (n_batches + 1,), batch boundaries.
        first_row: (n_batches,), the first row of each batch among the rows of the states that the
            type writes.
        gathers: By slots (None: every child).
        pulls: By name, one number per row of the type.
        contiguous: All batches of the type are consecutive among the rows of states.
    """

    vertices: Index
    starts: Index
    first_row: Index
    gathers: Mapping[Slots, Gather]
    pulls: Mapping[str, Index]
    contiguous: bool

    @property
    def n_rows(self) -> int:
        """Number of vertices of this type."""
        return len(self.vertices)

    @property
    def n_edges(self) -> int:
        """Number of incoming edges, if the type gathers any number of children, else 0."""
        return int(self.gathers[None].edge_start[-1]) if None in self.gathers else 0


def space_of_type(states_of_type: Sequence[frozenset[str]]) -> list[int]:
    """Assign types to numbered spaces; types that write a common state share one (transitively)."""
    spaces: list[set[str]] = []
    for states in states_of_type:
        joined = set(states)
        for space in [space for space in spaces if space & states]:
            joined |= space
            spaces.remove(space)
        if joined:
            spaces.append(joined)
    nowhere = len(spaces)  # types that write no state get their own number
    return [
        next((k for k, space in enumerate(spaces) if space & states), nowhere)
        for states in states_of_type
    ]


OUTPUT = -1  # id of the function of outputs, which runs after the last batch
# Fields of a function: see TypeGeometry; ROWS is the number of its rows; only outputs have ORDER
# and SEGMENTS.
VERTICES, STARTS, FIRST_ROW, ROWS, ORDER, SEGMENTS = range(6)
N_OF_FUNCTION = 6
# Fields of a gather: see Gather. EDGE_BOUNDS: the boundaries of the batches' edges.
INDEX, RUNS, EDGE_START, EDGE_BOUNDS = range(4)
N_OF_GATHER = 4
EVERY_CHILD = -1  # instead of a number of slots


@dataclass(frozen=True, slots=True)
class Reads:
    """Values that a plan reads.

    Attributes:
        slots: The groups of slots that it gathers (None: every child).
    """

    slots: tuple[Slots, ...]
    pulls: tuple[str, ...]


def reads_of(plan: Plan) -> Reads:
    """Collect the gathers and pulls of a plan, once and not for every mini-batch."""
    slots: set[Slots] = set(plan.slots.values())
    if any(node.op == "gather_each" for node in plan.nodes):
        slots.add(None)
    pulls = {node.name for node in plan.nodes if node.op == "pull"}
    return Reads(tuple(sorted(slots, key=str)), tuple(sorted(pulls)))


class FieldArrays(NamedTuple):
    """Gathers and pulls of all functions, in the form that compiled code reads.

    Attributes:
        gathers: (k, 3), function, first slot in `slots`, and number of slots or EVERY_CHILD.
        pulls: (k, 2), function, and index of the pulled name in Fields.names.
    """

    gathers: IntTable
    slots: IntArray
    pulls: IntTable
    has_output: bool


@dataclass(frozen=True, eq=False, slots=True)
class Fields:
    """Numbers of all arrays of a layout.

    Functions are numbered, too: vertex functions by their ids, then the function of outputs.

    Attributes:
        names: Names that functions pull.
    """

    n_types: int
    reads: Mapping[int, Reads]
    names: tuple[str, ...]
    arrays: FieldArrays
    _gather_numbers: Mapping[tuple[int, Slots], int]
    _pull_numbers: Mapping[tuple[int, str], int]

    @property
    def n_functions(self) -> int:
        """Number of vertex functions, plus one for outputs if they are read."""
        return self.n_types + self.arrays.has_output

    def index_function(self, type_id: int) -> int:
        """Return the number of a function."""
        return self.n_types if type_id == OUTPUT else type_id

    def type_id(self, function: int) -> int:
        """Return the id of a function."""
        return OUTPUT if function == self.n_types else function

    @property
    def n_fields(self) -> int:
        """Number of arrays of a layout."""
        n_of_gathers = N_OF_GATHER * len(self.arrays.gathers)
        return N_OF_FUNCTION * self.n_functions + n_of_gathers + len(self.arrays.pulls)

    def index_function_array(self, type_id: int, part: int) -> int:
        """Return the number of a function's array VERTICES, STARTS, ...."""
        return N_OF_FUNCTION * self.index_function(type_id) + part

    def index_gather_array(self, type_id: int, slots: Slots, part: int) -> int:
        """Return the number of a gather's array INDEX, RUNS, ...."""
        gather = self._gather_numbers[type_id, slots]
        return N_OF_FUNCTION * self.n_functions + N_OF_GATHER * gather + part

    def index_pull_array(self, type_id: int, name: str) -> int:
        """Return the number of the array that a function pulls by this name."""
        first = N_OF_FUNCTION * self.n_functions + N_OF_GATHER * len(self.arrays.gathers)
        return first + self._pull_numbers[type_id, name]


def number_fields(reads: Mapping[int, Reads], n_types: int) -> Fields:
    """Assign numbers to all arrays that these functions read.

    Args:
        reads: By function id.
        n_types: The number of vertex functions; their ids are smaller.
    """
    names = tuple(sorted({name for read in reads.values() for name in read.pulls}))
    gathers, slots, pulls = list[tuple[int, int, int]](), list[int](), list[tuple[int, int]]()
    gather_numbers, pull_numbers = {}, {}
    for type_id, read in reads.items():
        function = n_types if type_id == OUTPUT else type_id
        for group in read.slots:
            gather_numbers[type_id, group] = len(gathers)
            n_slots = EVERY_CHILD if group is None else len(group)
            gathers.append((function, len(slots), n_slots))
            slots += group or ()
        for name in read.pulls:
            pull_numbers[type_id, name] = len(pulls)
            pulls.append((function, names.index(name)))
    return Fields(
        n_types=n_types,
        reads=reads,
        names=names,
        arrays=FieldArrays(
            _make_table(gathers, 3), as_int_array(slots), _make_table(pulls, 2), OUTPUT in reads
        ),
        _gather_numbers=gather_numbers,
        _pull_numbers=pull_numbers,
    )


def _make_table(rows: Sequence[tuple[int, ...]], width: int) -> IntArray:
    return as_int_array(rows).reshape(-1, width)
