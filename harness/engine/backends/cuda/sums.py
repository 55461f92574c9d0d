"""Gradients of parameters: blocks of matrices, each the sum over the rows of all functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.engine.backends.cuda.arrays import (
    CountOf,
    GradientOf,
    ParameterOf,
    PullOf,
    StateRowOf,
    WordArray,
)
from harness.engine.backends.cuda.kinds import (
    Base,
    Columns,
    Row,
    RowList,
    SumKind,
    Summand,
    TableStepKind,
)
from harness.engine.backends.cuda.places import Piece, Places
from harness.engine.backends.cuda.readers import LookupsOf, LookupsStartOf, WordsOf
from harness.engine.lowering.plan import Ref, SinkStep
from harness.errors import UnsupportedTrial


@dataclass(frozen=True, slots=True)
class Block:
    """Elements (row, column) on of a gradient, height (0: of a vector) x width.

    leading: elements between rows of the gradient.
    """

    name: str
    leading: int
    row: int
    column: int
    height: int
    width: int

    def meets(self, other: Block) -> bool:
        """Whether they have elements in common."""
        rows = _meet(self.row, max(1, self.height), other.row, max(1, other.height))
        return self.name == other.name and rows and _meet(
            self.column, self.width, other.column, other.width
        )  # fmt: skip


def _meet(start: int, size: int, other_start: int, other_size: int) -> bool:
    return start < other_start + other_size and other_start < start + size


def sums_of_step(places: Places, step: SinkStep, *, whole: bool) -> list[SumKind]:
    """Kinds of one sink, which add to its gradient.

    whole: over all rows of the function, not those of an instruction.
    """
    return [_kind(block, [one], adds=True) for block, one in _summands(places, step, whole)]


def sums_of_all(all_places: Iterable[Places]) -> tuple[list[SumKind], frozenset[str]]:
    """Kinds of all sinks behind the batches, and the parameters whose gradients they add to.

    Other gradients they write: one kind for every block, whichever functions add to it.
    """
    found: dict[Block, list[Summand]] = {}
    shapes: dict[str, Sequence[int]] = {}
    for places in all_places:
        for step in places.plan.steps("backward_lazy"):
            if isinstance(step, SinkStep) and places.plan.nodes[step.node].op != "row_sum":
                node = places.plan.nodes[step.node]
                shapes[node.name] = node.shape
                for block, summand in _summands(places, step, whole=True):
                    found.setdefault(block, []).append(summand)
    added_to = frozenset(
        name
        for name, shape in shapes.items()
        if not _covers([block for block in found if block.name == name], shape)
    )
    kinds = [
        _kind(block, summands, adds=block.name in added_to) for block, summands in found.items()
    ]
    return kinds, added_to


def _covers(blocks: Sequence[Block], shape: Sequence[int]) -> bool:
    """Whether blocks fill a gradient, no two of them the same element."""
    apart = not any(a.meets(b) for k, a in enumerate(blocks) for b in blocks[:k])
    n_elements = sum(max(1, block.height) * block.width for block in blocks)
    size = 1
    for length in shape:
        size *= length
    return apart and n_elements == size


def _kind(block: Block, summands: Sequence[Summand], *, adds: bool) -> SumKind:
    return SumKind(
        GradientOf(block.name), block.leading, block.row, block.column, block.height, block.width,
        tuple(summands), adds,
    )  # fmt: skip


def _summands(places: Places, step: SinkStep, whole: bool) -> list[tuple[Block, Summand]]:
    """Of one sink: a block for every pair of places that its operands lie in."""
    plan = places.plan
    node = plan.nodes[step.node]
    *inputs, dy = (plan.refs[k] for k in node.inputs)
    on_edges = places.on_edges(node.inputs[-1])
    count = CountOf(places.type_id, on_edges) if whole else None
    leading = node.shape[-1]
    per_row = dy.width // leading

    def of_rows(columns: Columns) -> Columns:
        return places.whole(columns) if whole else columns

    found = []
    for dy_columns, width, column in _with_starts(places, dy, per_row, leading):
        if node.op == "vertex_sum":
            block = Block(node.name, leading, 0, column, 0, width)
            found.append((block, Summand(of_rows(dy_columns), None, count, per_row)))
            continue
        for x_columns, height, row in _with_starts(places, inputs[0], per_row, node.shape[0]):
            block = Block(node.name, leading, row, column, height, width)
            summand = Summand(of_rows(dy_columns), of_rows(x_columns), count, per_row)
            found.append((block, summand))
    return found


def _with_starts(
    places: Places, ref: Ref, per_row: int, width: int
) -> Iterable[tuple[Columns, int, int]]:
    """Where an operand lies: columns, how many, and the first of them in the operand."""
    pieces: list[Piece] = places.pieces(ref)
    if per_row > 1:
        if len(pieces) > 1:
            raise UnsupportedTrial("a matrix that lies in several places is summed up")
        return [(pieces[0][0], width, 0)]
    found, at = [], 0
    for columns, n in pieces:
        found.append((columns, n, at))
        at += n
    return found


def table_steps(places: Places) -> list[TableStepKind]:
    """Steps of SGD on the rows that one function looks up."""
    plan, found = places.plan, []
    for node in plan.row_sums():
        rows, dy = node.inputs
        pull = PullOf(places.type_id, plan.nodes[rows].name)
        columns = places.piece(plan.refs[dy])
        if columns is None or not isinstance(columns.row, Row):
            raise UnsupportedTrial("the gradient of a looked-up row lies in several places")
        through: WordArray | None = columns.row.through
        if columns.row.base is Base.STATES:
            through = StateRowOf(places.type_id)
        listed = RowList(LookupsStartOf(pull), LookupsOf(pull, through))
        dy_columns = replace(columns, row=listed)
        words = WordsOf(pull)
        found.append(TableStepKind(ParameterOf(node.name), node.shape[-1], words, dy_columns))
    return found
