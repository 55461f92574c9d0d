"""Where every vertex's state lives, and which gathers need no copy.

Vertices are renumbered in execution order, so that a batch writes one contiguous block of rows
(scatter is free). Inside a batch, vertices are ordered as their consumers will read them, so that a
gather is a view wherever its rows follow one another; only the rest is copied.

What runs between two looks at the loss is a round of a mini-batch, or all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from numpy.typing import NDArray

from harness.engine.lowering.plan import FORWARD, Plan, Ref
from harness.engine.rows import fields as parts
from harness.engine.rows.fields import OUTPUT, Fields, Gather, Index, TypeGeometry, TypeRows
from harness.engine.rows.filling import FILLED, NO_VERTEX, fill
from harness.engine.rows.row_order import FOLLOWS, LARGEST, N_BATCHES, N, Outputs, Source
from harness.errors import ScheduleError
from harness.values.arrays import IntArray, int_array
from harness.values.graph import MiniBatch
from harness.values.schedule import Schedule

NOTHING: IntArray = int_array([])
_NO_PULLS: IntArray = np.zeros((0, 0), dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Layout(Mapping[int, TypeGeometry]):
    """Rows of one mini-batch: the geometry of every function that has some, by id.

    That of outputs is OUTPUT. Geometries are views that are made when one asks for them.

    numbers: all arrays one behind the other. bounds (n_fields + 1, 2): where each begins, and its
    length. counts (n_functions, N_COUNTS): see filling.py. batches: in order, as (type id,
    position among the type's batches) (k, 2). row (n,): of each vertex among the states of its own
    type's space. n_rows: of each space, 0 behind them. present: which functions have rows,
    to compare. in_order (2 (k + r), 2): `forth` and, behind it, `back`; r: 1 where outputs are
    read, else 0.
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

    def array(self, number: int) -> Index:
        """One of all arrays: see Fields."""
        begin, n = self.bounds[number].tolist()
        return self.numbers[begin : begin + n]

    @property
    def forth(self) -> IntArray:
        """The batches, behind them the first of outputs."""
        return self.in_order[: len(self.in_order) // 2]

    @property
    def back(self) -> IntArray:
        """The first of outputs, behind it the batches from the last one on."""
        return self.in_order[len(self.in_order) // 2 :]

    @property
    def room_wanted(self) -> Index:
        """Rows of every function, those at once, and edges (n_functions, 3)."""
        return self.counts[:, :3]

    @property
    def scattered(self) -> list[int]:
        """Functions whose batches do not follow one another among the rows of states."""
        follows = self.counts[:, FOLLOWS]
        return [self.fields.type_id(f) for f in (follows == 0).nonzero()[0].tolist()]

    def n_batches(self, type_id: int) -> int:
        """Batches of a function."""
        return int(self.counts[self.fields.function(type_id), N_BATCHES])

    def n_of(self, type_id: int) -> int:
        """Rows of a function, which may be none."""
        return int(self.counts[self.fields.function(type_id), N])

    def pulled(self, type_id: int, name: str) -> Index:
        """What the rows of a function pull."""
        return self.array(self.fields.of_pull(type_id, name))

    @property
    def output_order(self) -> Index:
        """Which output each row of the output function is."""
        return self.array(self.fields.of_function(OUTPUT, parts.ORDER))

    @property
    def output_rounds(self) -> Index:
        """The round of each batch of the output function."""
        return self.array(self.fields.of_function(OUTPUT, parts.ROUNDS))

    def starts(self, type_id: int) -> Index:
        """Where batches of a function begin: see TypeRows."""
        return self.array(self.fields.of_function(type_id, parts.STARTS))

    def __iter__(self) -> Iterator[int]:
        return (self.fields.type_id(f) for f in self.counts[:, N].nonzero()[0].tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self.counts[:, N]))

    def __contains__(self, type_id: object) -> bool:
        known = self.fields.reads
        return type_id in known and self.n_of(type_id) > 0  # type: ignore[arg-type]

    def __getitem__(self, type_id: int) -> TypeGeometry:
        found = self._made.get(type_id)
        if found is None:
            if type_id not in self:
                raise KeyError(type_id)
            found = self._made[type_id] = self._geometry(type_id)
        return found

    def _geometry(self, type_id: int) -> TypeGeometry:
        fields, counts = self.fields, self.counts[self.fields.function(type_id)]
        reads = fields.reads[type_id]
        of_rows = (parts.VERTICES, parts.STARTS, parts.FIRST_ROW)
        of_gather = (parts.INDEX, parts.RUNS, parts.EDGE_START)
        return TypeGeometry(
            TypeRows(*(self.array(fields.of_function(type_id, part)) for part in of_rows)),
            {
                slots: Gather(*(self.array(fields.of_gather(type_id, slots, p)) for p in of_gather))
                for slots in reads.slots
            },
            {name: self.pulled(type_id, name) for name in reads.pulls},
            int(counts[LARGEST]),
            bool(counts[FOLLOWS]),
            goes_back_at_once=type_id == OUTPUT,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Before:
    """What earlier rounds have taken: their number of vertices, and rows of each space.

    row: of their vertices, and room for those to come, which are written behind them.
    """

    n_vertices: int
    row: IntArray
    used: Index


@dataclass(frozen=True, eq=False, slots=True)
class RowRules:
    """What says where rows go: see plan_layout.

    space_of_state: of every state that is written.
    """

    fields: Fields
    spaces: IntArray
    space_of_state: Mapping[str, int]
    reorder: bool


def plan_layout(
    mini_batch: MiniBatch,
    schedule: Schedule,
    fields: Fields,
    space_of_type: IntArray,
    *,
    reorder: bool,
    before: Before | None = None,
) -> Layout:
    """Choose rows for every vertex, and find what every function reads.

    "Type" means vertex function from here on: an unbatchable vertex has one too.
    space_of_type (n_types,): types that write the same states share a space, in which rows are
    counted.
    reorder: order each batch as its consumers of the same round read it; otherwise keep the
    policy's order.
    before: where the mini-batch is one round behind others, which its arguments count, too.

    Raises ScheduleError for a vertex that lacks a child that its function gathers, and for outputs
    of vertices that are not there.
    """
    graph, functions = mini_batch.graph, int_array(mini_batch.functions)
    n = len(functions)
    if before is None:
        used = np.zeros(len(space_of_type), dtype=np.int64)  # a type has one space at most
        before = Before(0, np.empty(n, dtype=np.int32), used)
    used = before.used.copy()
    outputs, own = int_array(mini_batch.outputs), mini_batch.output_pulls
    source = Source(
        schedule.order, schedule.starts, graph.arg_start, graph.args,
        NOTHING if graph.rounds is None else graph.rounds, functions, space_of_type,
        before.n_vertices, before.row, used,
    )  # fmt: skip
    read = Outputs(
        outputs,
        _NO_PULLS if own is None else _side_by_side(fields.names, own, len(outputs)),
    )
    pulled = _side_by_side(fields.names, mini_batch.pulls, n)
    numbers, bounds, counts, present, in_order, lacking = fill(
        source, pulled, read, fields.arrays, reorder
    )
    if lacking != FILLED:
        raise _error(mini_batch, fields, lacking, before.n_vertices + n)
    batches = in_order[: schedule.n_batches]
    layout = Layout(
        fields, numbers, bounds, counts, batches, before.row, used, present.tobytes(), in_order
    )
    _check_pulls(mini_batch, layout)
    return layout


def _side_by_side(names: Sequence[str], pulls: Mapping[str, IntArray], n: int) -> IntArray:
    """What is pulled by each name (n_names, n); zeros where there is none."""
    if not names:
        return _NO_PULLS
    arrays = [pulls[name] if name in pulls else np.zeros(n, np.int32) for name in names]
    found = np.concatenate(arrays, dtype=np.int32)
    if len(found) != n * len(names):
        raise ScheduleError(f"pulls {', '.join(names)} need a number for each of {n}")
    return found.reshape(len(names), n)


def _check_pulls(mini_batch: MiniBatch, layout: Layout) -> None:
    """Raise ScheduleError where a function pulls what is not there."""
    fields, own = layout.fields, mini_batch.output_pulls
    for names, is_output in ((mini_batch.pulls, False), (own, True)):
        if names is None or names.keys() >= fields.all_names:
            continue
        for type_id, reads in fields.reads.items():
            missing = set(reads.pulls) - set(names)
            if (
                missing
                and type_id in layout
                and is_output == (type_id == OUTPUT and own is not None)
            ):
                raise ScheduleError(f"nothing is pulled by the name {min(missing)}")


def _error(mini_batch: MiniBatch, fields: Fields, lacking: int, n_vertices: int) -> ScheduleError:
    if lacking == NO_VERTEX:
        unknown = (mini_batch.outputs < 0) | (mini_batch.outputs >= n_vertices)
        first = mini_batch.outputs[unknown][0]
        return ScheduleError(f"an output reads vertex {first}, but there are {n_vertices}")
    graph = mini_batch.graph
    slots = fields.reads[int(mini_batch.functions[lacking])].slots
    most = max(slot for group in slots if group is not None for slot in group)
    return ScheduleError(
        f"a {graph.type_names[graph.types[lacking]]} vertex gathers slot {most} but has"
        f" {len(graph.args_of(lacking))} children; let the model's mini_batch give it as many as"
        " its vertex function gathers"
    )


ALL_ROWS = -1  # the position of a batch that is all rows of a function at once
Run = tuple[str, IntArray]  # a stage, and its batches (type id, position) (k, 2)
Loss = tuple[int, Ref, slice]  # of a function, where it is, and which of its rows count


@dataclass(frozen=True, eq=False, slots=True)
class Round:
    """Batches (type id, position) (k, 2) in order of execution.

    eager, lazy: before and behind the others, each type's rows of the round at once where they are
    all that it has. losses: of the functions with a loss, where it is and which rows are new.
    """

    eager: IntArray
    batches: IntArray
    lazy: IntArray
    losses: tuple[Loss, ...]

    @property
    def runs(self) -> list[Run]:
        """What it runs, in order."""
        stages = zip(FORWARD, (self.eager, self.batches, self.lazy), strict=True)
        return [(stage, batches) for stage, batches in stages if len(batches)]


@dataclass(frozen=True, eq=False, slots=True)
class LossRows:
    """Where the loss of a function is, and where its rows of each round begin (n_rounds + 1,)."""

    type_id: int
    ref: Ref
    starts: IntArray


@dataclass(frozen=True, eq=False)
class Rounds(Sequence[Round]):
    """All rounds of a mini-batch, planned together: there may be a hundred of a few batches each.

    batches: of each of FORWARD, those of all rounds (k, 2), round after round. starts: of each
    stage, where those of each round begin (n_rounds + 1,). losses: of each function that has one.
    """

    batches: Mapping[str, IntArray]
    starts: Mapping[str, NDArray[np.integer]]
    losses: Sequence[LossRows]

    def __len__(self) -> int:
        return len(self.starts["batch"]) - 1

    @overload
    def __getitem__(self, r: int) -> Round: ...
    @overload
    def __getitem__(self, r: slice) -> list[Round]: ...
    def __getitem__(self, r: int | slice) -> Round | list[Round]:
        if isinstance(r, slice):
            return [self[k] for k in range(len(self))[r]]
        r = range(len(self))[r]
        eager, batches, lazy = (
            self.batches[stage][self.starts[stage][r] : self.starts[stage][r + 1]]
            for stage in FORWARD
        )
        rows = ((one, one.starts[r : r + 2].tolist()) for one in self.losses)
        losses = [(one.type_id, one.ref, slice(*ends)) for one, ends in rows if ends[0] < ends[1]]
        return Round(eager, batches, lazy, tuple(losses))


@dataclass(frozen=True, eq=False, slots=True)
class Around:
    """What mini-batches without rounds that have the same functions run around their batches.

    eager, lazy, losses: as in Round. whole: all rows of every function at once.
    """

    eager: IntArray
    lazy: IntArray
    whole: IntArray
    losses: tuple[Loss, ...]

    def round_of(self, batches: IntArray) -> Round:
        """What a mini-batch runs that has these batches, that of outputs at the end."""
        return Round(self.eager, batches, self.lazy, self.losses)


def around(plans: Mapping[int, Plan], types: tuple[int, ...]) -> Around:
    """What is run once, of these functions; types: of outputs, too."""
    losses = [(t, plans[t].loss) for t in types]
    return Around(
        eager=_pairs([(t, ALL_ROWS) for t in types if plans[t].steps("eager")]),
        lazy=_pairs([(t, ALL_ROWS) for t in types if plans[t].steps("lazy")]),
        whole=_pairs([(t, ALL_ROWS) for t in types]),
        losses=tuple(
            (t, plans[t].refs[loss], slice(None)) for t, loss in losses if loss is not None
        ),
    )


def _pairs(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def plan_rounds(plans: Mapping[int, Plan], layout: Layout, round_starts: IntArray) -> Rounds:
    """Put together what each round runs: its batches, and then its outputs."""
    numbers = np.arange(len(round_starts), dtype=np.int32)  # of rounds, and behind the last one
    in_round: list[IntArray] = [numbers[:-1].repeat(round_starts[1:] - round_starts[:-1])]
    found = [layout.batches]
    if OUTPUT in layout:
        of_output = layout.output_rounds.astype(np.int32)
        positions = np.arange(len(of_output), dtype=np.int32)
        found.append(np.stack([np.full_like(positions, OUTPUT), positions], axis=1))
        in_round.append(of_output)
    batches, rounds = np.concatenate(found), np.concatenate(in_round)
    if len(found) > 1:
        order = rounds.argsort(kind="stable")
        batches, rounds = batches[order], rounds[order]
    at_once, their_rounds = _at_once(batches, rounds)
    of_stage = {"batch": batches}
    starts = {"batch": rounds.searchsorted(numbers)}
    for stage in ("eager", "lazy"):
        has_steps = np.zeros(layout.fields.n_functions, dtype=np.bool_)  # outputs from its end on
        has_steps[[type_id for type_id in layout if plans[type_id].steps(stage)]] = True
        mine = has_steps[at_once[:, 0]]
        of_stage[stage] = at_once[mine]
        starts[stage] = their_rounds[mine].searchsorted(numbers)
    losses = _losses(plans, layout, batches, rounds, numbers)
    return Rounds(of_stage, starts, losses)


def _at_once(batches: IntArray, rounds: IntArray) -> tuple[IntArray, IntArray]:
    """The batches, those of a type that is in one round only as one, and their rounds."""
    types, positions = batches[:, 0] - batches[:, 0].min(initial=0), batches[:, 1]
    first, last = (np.zeros(types.max(initial=0) + 1, dtype=np.int64) for _ in range(2))
    last[types] = rounds  # the last one written stays
    first[types[::-1]] = rounds[::-1]
    is_one = (first == last)[types]
    merged = batches.copy()
    merged[is_one, 1] = ALL_ROWS
    kept = ~is_one | (positions == 0)
    return merged[kept], rounds[kept]


def _losses(
    plans: Mapping[int, Plan],
    layout: Layout,
    batches: IntArray,
    rounds: IntArray,
    numbers: IntArray,
) -> list[LossRows]:
    found = []
    for type_id in layout:
        plan = plans[type_id]
        if plan.loss is not None:
            mine = rounds[batches[:, 0] == type_id]
            rows = layout.starts(type_id)[mine.searchsorted(numbers)].astype(np.int32)
            found.append(LossRows(type_id, plan.refs[plan.loss], rows))
    return found
