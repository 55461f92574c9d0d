"""Memory layout of vertex states, and detection of gathers that need no copy.

Vertices are renumbered in the order of execution, so that each batch writes one contiguous block of
rows and a scatter costs nothing. Inside a batch, vertices are ordered as their consumers will read
them. A gather is then a view wherever its rows are consecutive, and only the other rows are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dynbatch.harness.engine.lowering.plan import Slots
from dynbatch.harness.engine.rows import fields as parts
from dynbatch.harness.engine.rows.fields import OUTPUT, Fields, Gather, Index, TypeGeometry
from dynbatch.harness.engine.rows.filling import FILLED, NO_VERTEX, fill
from dynbatch.harness.engine.rows.row_order import FOLLOWS, N_BATCHES, N, Outputs, Source
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import Schedule

NOTHING: IntArray = as_int_array([])
_NO_PULLS: IntArray = np.zeros((0, 0), dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Layout(Mapping[int, TypeGeometry]):
    """Memory layout of one mini-batch: a mapping from function ids to geometries.

    Only functions that have rows are in it. The id of the function of outputs is OUTPUT. Geometries
    are views that are created on first access.

    Attributes:
        numbers: All arrays, concatenated.
        bounds: (n_fields + 1, 2), the start and length of each array in `numbers`.
        counts: (n_functions, N_COUNTS), see row_order.py.
        batches: (k, 2), type id and position among the batches of that type, in the order of
            execution.
        row: (n,), the row of each vertex among the states of its type's space.
        n_rows: The number of rows of each space; 0 after the last space.
        present: The functions that have rows, as bytes that can be compared.
        in_order: (2 (k + r), 2), `forth` followed by `back`; r is 1 if outputs are read, else 0.
    """

    fields: Fields
    numbers: Index
    bounds: Index
    counts: Index
    batches: IntArray
    row: IntArray
    n_rows: Index
    present: bytes
    in_order: IntArray
    _made: dict[int, TypeGeometry] = field(default_factory=dict)

    def select_array(self, number: int) -> Index:
        """Return the array with this number, see Fields."""
        begin, n = self.bounds[number].tolist()
        return self.numbers[begin : begin + n]

    @property
    def forth(self) -> IntArray:
        """The batches in the order of execution, then the first batch of outputs."""
        return self.in_order[: len(self.in_order) // 2]

    @property
    def back(self) -> IntArray:
        """The first batch of outputs, then the batches in reverse order."""
        return self.in_order[len(self.in_order) // 2 :]

    @property
    def room_wanted(self) -> Index:
        """(n_functions, 3), the numbers of rows, of rows per stage call, and of edges."""
        return self.counts[:, :3]

    @property
    def scattered(self) -> list[int]:
        """Functions whose batches are not consecutive among the rows of states."""
        follows = self.counts[:, FOLLOWS]
        return [self.fields.type_id(f) for f in (follows == 0).nonzero()[0].tolist()]

    def count_batches(self, type_id: int) -> int:
        """Return the number of batches of a function."""
        return int(self.counts[self.fields.index_function(type_id), N_BATCHES])

    def count_rows(self, type_id: int) -> int:
        """Return the number of rows of a function, which may be zero."""
        return int(self.counts[self.fields.index_function(type_id), N])

    def select_pulled(self, type_id: int, name: str) -> Index:
        """Return the numbers that the rows of a function, if it has any, pull by this name."""
        return self.select_array(self.fields.index_pull_array(type_id, name))

    def select_gathered(self, type_id: int, slots: Slots, part: int) -> Index:
        """Return the array INDEX, RUNS, ... of a function's gather, empty if it has no rows."""
        return self.select_array(self.fields.index_gather_array(type_id, slots, part))

    @property
    def output_order(self) -> Index:
        """The index of the output that each row of the output function computes."""
        return self.select_array(self.fields.index_function_array(OUTPUT, parts.ORDER))

    @property
    def output_segments(self) -> Index:
        """The graph segment of each batch of the output function."""
        return self.select_array(self.fields.index_function_array(OUTPUT, parts.SEGMENTS))

    def select_starts(self, type_id: int) -> Index:
        """Return the batch boundaries of a function, see TypeGeometry."""
        return self.select_array(self.fields.index_function_array(type_id, parts.STARTS))

    def __iter__(self) -> Iterator[int]:
        return (self.fields.type_id(f) for f in self.counts[:, N].nonzero()[0].tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.counts[:, N]))

    def __contains__(self, type_id: object) -> bool:
        known = self.fields.reads
        return type_id in known and self.count_rows(type_id) > 0  # type: ignore[arg-type]

    def __getitem__(self, type_id: int) -> TypeGeometry:
        geometry = self._made.get(type_id)
        if geometry is None:
            if type_id not in self:
                raise KeyError(type_id)
            geometry = self._made[type_id] = self._make_geometry(type_id)
        return geometry

    def _make_geometry(self, type_id: int) -> TypeGeometry:
        fields, counts = self.fields, self.counts[self.fields.index_function(type_id)]
        reads = fields.reads[type_id]

        def select(part: int) -> Index:
            return self.select_array(fields.index_function_array(type_id, part))

        of_gather = (parts.INDEX, parts.RUNS, parts.EDGE_START)
        return TypeGeometry(
            vertices=select(parts.VERTICES),
            starts=select(parts.STARTS),
            first_row=select(parts.FIRST_ROW),
            gathers={
                slots: Gather(*(self.select_gathered(type_id, slots, part) for part in of_gather))
                for slots in reads.slots
            },
            pulls={name: self.select_pulled(type_id, name) for name in reads.pulls},
            contiguous=bool(counts[FOLLOWS]),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Before:
    """Vertices and rows that earlier graph segments occupy.

    Attributes:
        n_vertices: The number of vertices of all earlier segments.
        row: The rows of these vertices, followed by space for those of the new segment.
        used: The number of occupied rows of each space.
    """

    n_vertices: int
    row: IntArray
    used: Index


@dataclass(frozen=True, eq=False, slots=True)
class RowRules:
    """Rules by which the rows of every mini-batch are chosen.

    A "type" here means a vertex function, which unbatchable vertices have as well.

    Attributes:
        spaces: (n_types,), the space of each type; types that write the same states share a space,
            in which rows are numbered together.
        space_of_state: The space of each state that is written.
        reorder: Order each batch as its consumers in the same graph segment read it; otherwise keep
            the order of the policy.
    """

    fields: Fields
    spaces: IntArray
    space_of_state: Mapping[str, int]
    reorder: bool

    def count_state_rows(self, n_rows: Index) -> dict[str, int]:
        """Return the number of rows of every state, which is that of its space."""
        of_spaces = n_rows.tolist()
        return {state: of_spaces[space] for state, space in self.space_of_state.items()}


def plan_layout(
    mini_batch: MiniBatch, schedule: Schedule, rules: RowRules, before: Before | None = None
) -> Layout:
    """Choose a row for every vertex, and compute the indices of everything that functions read.

    Args:
        before: The earlier graph segments, if the mini-batch is a segment after others. Its
            arguments then count their vertices, too.

    Raises:
        ScheduleError: A vertex has no child in a slot that its function gathers, an output reads a
            vertex that does not exist, or a function pulls a name that the mini-batch does not
            provide.
    """
    graph, functions = mini_batch.graph, as_int_array(mini_batch.functions)
    n, fields = len(functions), rules.fields
    if before is None:
        used = np.zeros(len(rules.spaces), dtype=np.int64)  # a type has one space at most
        before = Before(0, np.empty(n, dtype=np.int32), used)
    used = before.used.copy()
    outputs, own = as_int_array(mini_batch.outputs), mini_batch.output_pulls
    source = Source(
        schedule.order, schedule.starts, graph.arg_start, graph.args,
        NOTHING if graph.segments is None else graph.segments, functions, rules.spaces,
        before.n_vertices, before.row, used,
    )  # fmt: skip
    read = Outputs(
        outputs,
        _NO_PULLS if own is None else _stack_pulls(fields.names, own, len(outputs)),
    )
    pulled = _stack_pulls(fields.names, mini_batch.pulls, n)
    numbers, bounds, counts, present, in_order, lacking = fill(
        source, pulled, read, fields.arrays, rules.reorder
    )
    if lacking != FILLED:
        raise _make_error(mini_batch, fields, lacking, before.n_vertices + n)
    batches = in_order[: schedule.n_batches]
    layout = Layout(
        fields, numbers, bounds, counts, batches, before.row, used, present.tobytes(), in_order
    )
    _check_pulls(mini_batch, layout)
    return layout


def _stack_pulls(names: Sequence[str], pulls: Mapping[str, IntArray], n: int) -> IntArray:
    """Stack the pulled numbers of all names (n_names, n); a name without numbers has zeros.

    Raises:
        ScheduleError: A name does not have one number for each of n.
    """
    if not names:
        return _NO_PULLS
    arrays = [pulls[name] if name in pulls else np.zeros(n, np.int32) for name in names]
    stacked = np.concatenate(arrays, dtype=np.int32)
    if len(stacked) != n * len(names):
        raise ScheduleError(f"pulls {', '.join(names)}: expected {n} numbers for each name")
    return stacked.reshape(len(names), n)


def _check_pulls(mini_batch: MiniBatch, layout: Layout) -> None:
    """Check that the mini-batch provides every name that a function with rows pulls.

    Raises:
        ScheduleError: A name is missing.
    """
    fields, own = layout.fields, mini_batch.output_pulls
    for names, is_output in ((mini_batch.pulls, False), (own, True)):
        if names is None or names.keys() >= {*fields.names}:
            continue
        for type_id, reads in fields.reads.items():
            missing = set(reads.pulls) - set(names)
            if (
                missing
                and type_id in layout
                and is_output == (type_id == OUTPUT and own is not None)
            ):
                raise ScheduleError(f"the mini-batch has no pull {min(missing)!r}")


def _make_error(
    mini_batch: MiniBatch, fields: Fields, lacking: int, n_vertices: int
) -> ScheduleError:
    if lacking == NO_VERTEX:
        unknown = (mini_batch.outputs < 0) | (mini_batch.outputs >= n_vertices)
        first = mini_batch.outputs[unknown][0]
        return ScheduleError(
            f"an output reads vertex {first}, but the graph has {n_vertices} vertices"
        )
    graph = mini_batch.graph
    slots = fields.reads[int(mini_batch.functions[lacking])].slots
    most = max(slot for group in slots if group is not None for slot in group)
    return ScheduleError(
        f"a {graph.type_names[graph.types[lacking]]} vertex gathers slot {most} but has"
        f" {len(graph.select_args(lacking))} children; fix the model's mini_batch"
    )
