"""Rewriting of a vertex function so that every batch of its operators is one wide operator.

An engine computes many vertices at the same time, one per row, so a batch of operators is an
operator on adjacent columns. Matmuls of one value become one matmul with concatenated matrices.
Values that are contiguous in the layout become views; others need a copy, a concat.

Before that, gates are separated: a matmul with joined columns becomes one matmul for every part
that is used. Models join the matrices of their gates; ED-Batch's release has separate ones and
leaves joining to the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dynbatch.harness.vertex.operators import OPERATORS, PARAMETER, Node
from dynbatch.harness.vertex.program import Builder, VertexFunction, find_ancestors, find_stages
from dynbatch.harness.vertex.subgraph.block import OperatorBatch, OperatorBlock
from dynbatch.harness.vertex.subgraph.plan import plan_block

Columns = tuple[int, int]  # first column, width
WHOLE: Columns | None = None


@dataclass(frozen=True, slots=True)
class ParameterPart:
    """Columns of a parameter (of a vector: elements)."""

    parameter: str
    start: int
    width: int

    @property
    def name(self) -> str:
        """Name of the part as a separate parameter."""
        return f"{self.parameter}[{self.start}:{self.start + self.width}]"

    def make_next(self, width: int) -> ParameterPart:
        """Return the next columns."""
        return ParameterPart(self.parameter, self.start + self.width, width)


@dataclass(frozen=True)
class Unjoined:
    """Function without joined gates.

    Attributes:
        parts: its parameters, by name, as parts of the model's.
        widths: numbers of columns of the model's parameters.
    """

    function: VertexFunction
    parts: Mapping[str, ParameterPart]
    widths: Mapping[str, int]


def split_gates(function: VertexFunction) -> Unjoined:
    """Split every matmul, bias and elementwise operator that is only read in disjoint slices.

    Unused operators, except gathers, are removed.
    """
    return _Unjoiner(function).run()


@dataclass
class _Unjoiner:
    function: VertexFunction
    builder: Builder = field(default_factory=Builder)
    parts: dict[str, ParameterPart] = field(default_factory=dict)
    made: dict[tuple[int, Columns | None], int] = field(default_factory=dict)

    def run(self) -> Unjoined:
        old = self.function
        results = [*dict(old.scatter).values(), *old.shown]
        self._find_cuts([*results, *old.find_gathers()])
        for i, node in enumerate(old.nodes):  # in the order in which they were written
            if node.op not in ("slice", PARAMETER):
                for columns in sorted(self.wanted.get(i, ()), key=lambda c: c or (0, 0)):
                    self._make(i, columns)
        new = {i: self._make(i, WHOLE) for i in results}
        function = old.replace_nodes(self.builder.nodes, new.__getitem__)
        widths = {n.name: n.shape[-1] for n in old.nodes if n.op == PARAMETER}
        return Unjoined(function, self.parts, widths)

    def _find_cuts(self, results: Iterable[int]) -> None:
        """Find the columns of each node that are read; {WHOLE} if it cannot be split."""
        nodes, results = self.function.nodes, list(results)
        used = find_ancestors(nodes, results)
        self.wanted: dict[int, set[Columns | None]] = {i: {WHOLE} for i in results}
        for i in reversed(range(len(nodes))):
            if i not in used:
                continue
            node, wanted = nodes[i], self.wanted[i]
            if node.op != "slice" and not (_can_be_cut(node) and _are_disjoint(wanted)):
                wanted = self.wanted[i] = {WHOLE}
            for k in node.inputs:
                cut = OPERATORS[node.op].elementwise and nodes[k].op != PARAMETER
                mine = (
                    {_map_columns(node, c) for c in wanted}
                    if cut or node.op == "slice"
                    else {WHOLE}
                )
                self.wanted.setdefault(k, set()).update(mine)

    def _make(self, i: int, columns: Columns | None) -> int:
        """Return the new node that computes these columns of a node."""
        if (i, columns) not in self.made:
            self.made[i, columns] = self._build_node(i, columns)
        return self.made[i, columns]

    def _build_node(self, i: int, columns: Columns | None) -> int:
        node = self.function.nodes[i]
        if node.op == "slice":
            return self._make(node.inputs[0], _map_columns(node, columns))
        if columns is None:
            return self._copy(node, [self._make(k, WHOLE) for k in node.inputs])
        if columns not in self.wanted[i]:
            return self.builder.slice(self._make(i, WHOLE), *columns)
        return self._copy(node, [self._make_operand(node, k, columns) for k in node.inputs])

    def _make_operand(self, node: Node, k: int, columns: Columns) -> int:
        operand = self.function.nodes[k]
        if operand.op == PARAMETER:
            part = ParameterPart(operand.name, *columns)
            self.parts[part.name] = part
            shape = (*operand.shape[:-1], part.width)
            return self.builder.add(PARAMETER, shape=shape, name=part.name)
        return self._make(k, columns if OPERATORS[node.op].elementwise else WHOLE)

    def _copy(self, node: Node, inputs: list[int]) -> int:
        if node.op == PARAMETER:
            self.parts[node.name] = ParameterPart(node.name, 0, node.shape[-1])
        given = not inputs or OPERATORS[node.op].shape is None
        return self.builder.copy(node, inputs, node.shape if given or len(node.shape) > 1 else None)


def _map_columns(node: Node, columns: Columns | None) -> Columns | None:
    """Return the columns of a slice's operand, or of an elementwise operator's."""
    if node.op != "slice":
        return columns
    first, width = columns or (0, node.width)
    return node.index + first, width


def _can_be_cut(node: Node) -> bool:
    by_columns = OPERATORS[node.op].elementwise or node.op == "matmul"
    return by_columns and len(node.shape) == 1


def _are_disjoint(wanted: set[Columns | None]) -> bool:
    if WHOLE in wanted:
        return False
    end = 0
    for first, width in sorted(c for c in wanted if c is not None):
        if first < end:
            return False
        end = first + width
    return True


Piece = tuple[int, int, int]  # node, first column, width
Place = tuple[str, int]  # area, first column


@dataclass(frozen=True, slots=True)
class Pack:
    """Parameter that consists of concatenated columns of others."""

    parts: tuple[ParameterPart, ...]

    @property
    def name(self) -> str:
        """Name as a parameter."""
        return "|".join(part.name for part in self.parts)

    def iterate_parts(self) -> Iterator[tuple[ParameterPart, int]]:
        """Yield every part with its first column."""
        start = 0
        for part in self.parts:
            yield part, start
            start += part.width


@dataclass(frozen=True, slots=True)
class LaidOutFunction:
    """Rewritten function, with its packed parameters and the positions of its values.

    Attributes:
        columns: area and first column of computed nodes; nodes of one area share a buffer.
    """

    function: VertexFunction
    packs: tuple[Pack, ...]
    columns: Mapping[int, Place]


def lay_out(
    function: VertexFunction, layout: str, *, apart: Sequence[str], joined: bool = True
) -> LaidOutFunction:
    """Rewrite a function for the layout "pq" or "dynet" (dynbatch.harness.vertex.subgraph.plan).

    Args:
        apart: stages that run at another time than the rest, so their operators are not batched
            with others.
        joined: parameters that the model has joined can be read as they are; otherwise every gate
            counts as having a separate matrix, as in ED-Batch's release.
    """
    unjoined = split_gates(function)
    block = ColumnBlock(unjoined.function, apart=tuple(apart))
    return _ColumnWriter(block, layout, unjoined, joined=joined).write()


@dataclass(frozen=True)
class ColumnBlock(OperatorBlock):
    """Block whose batches consist of columns: only matmuls of the same value are batched.

    Values of one area share a buffer: they are computed in the same stage, for vertices or for
    edges.
    """

    apart: tuple[str, ...] = ()

    @cached_property
    def areas(self) -> tuple[str, ...]:
        """Area of every node."""
        function = self.function
        scattered = [i for _, i in function.scatter]
        stages = find_stages(function.nodes, function.find_gathers(), scattered, function.shown)
        apart = self.apart if function.find_gathers() else ()
        return tuple(
            f"{stage.value if stage in apart else 'batch'}:{node.domain}"
            for stage, node in zip(stages, function.nodes, strict=True)
        )

    def is_wide(self, i: int) -> bool:
        """Return True if an operator works column by column, so that several can become one."""
        node = self.nodes[i]
        return len(node.shape) == 1 and (OPERATORS[node.op].elementwise or node.op == "matmul")

    def is_shared(self, batch: OperatorBatch, k: int) -> bool:
        """Return True if operand k is a single value read in place; a matmul's value is, too."""
        product = self.nodes[batch.members[0]].op == "matmul"
        return (product and k == 0) or super().is_shared(batch, k)

    def _make_signature(self, i: int) -> object:
        node = self.nodes[i]
        if not self.is_wide(i):
            return i
        factor = None
        if node.op == "matmul":
            factor = node.inputs[0]
        elif node.op == "bias" and self.nodes[node.inputs[0]].op == "matmul":
            factor = self.nodes[node.inputs[0]].inputs[0]  # a matmul adds its bias itself
        return (super()._make_signature(i), self.areas[i], factor)


class _ColumnWriter:
    def __init__(
        self, block: ColumnBlock, layout: str, unjoined: Unjoined, *, joined: bool
    ) -> None:
        self.block, self.layout, self.unjoined, self.joined = block, layout, unjoined, joined
        self.plan = plan_block(block, layout, pre_gather=True)
        self.builder = Builder()
        self.at: dict[int, Piece] = {}  # old node -> position of its value
        self.packs: dict[str, Pack] = {}
        self.columns: dict[int, Place] = {}
        self.place = self._assign_places()

    def write(self) -> LaidOutFunction:
        old = self.block.function
        for i in old.find_gathers():  # they define the number of children, even if unused
            self._find_piece(i)
        for batch in self.plan.layout.batches:
            for run in self._split_runs(batch):
                self._write(run)
        new = {i: self._build_node((i,)) for i in (*dict(old.scatter).values(), *old.shown)}
        function = old.replace_nodes(self.builder.nodes, new.__getitem__)
        return LaidOutFunction(function, tuple(self.packs.values()), self.columns)

    def _assign_places(self) -> dict[int, Place]:
        """Return area and column of every value that can be adjacent to others."""
        ends: dict[str, int] = {}
        places = {}
        for i in self.plan.layout.order:
            if i not in self.block.outputs and self.block.is_wide(i):
                area = self.block.areas[i]
                places[i] = (area, ends.get(area, 0))
                ends[area] = places[i][1] + self.block.nodes[i].width
        return places

    # --- batches ---

    def _split_runs(self, batch: OperatorBatch) -> Iterator[OperatorBatch]:
        """Split a batch where an operand is not contiguous, which saves its copy.

        A copy is one kernel per contiguous piece here, and there are as many pieces as resulting
        batches. DyNet copies.
        """
        first = 0
        for k in range(1, len(batch.members)):
            if self.layout != "dynet" and not self._go_together(batch, k):
                yield _cut(batch, first, k)
                first = k
        yield _cut(batch, first, len(batch.members))

    def _go_together(self, batch: OperatorBatch, k: int) -> bool:
        """Return True if all operands of members k - 1 and k are adjacent."""
        return all(
            self.block.is_shared(batch, j)
            or self.block.is_parameter(operand[k])
            or self._are_adjacent(operand[k - 1], operand[k])
            for j, operand in enumerate(batch.operands)
        )

    def _are_adjacent(self, a: int, b: int) -> bool:
        node, start, width = self._find_piece(a)
        if self._find_piece(b)[:2] == (node, start + width):
            return True
        if a not in self.place or b not in self.place:
            return False
        area, column = self.place[a]
        return self.place[b] == (area, column + width)

    def _write(self, batch: OperatorBatch) -> None:
        first = batch.members[0]
        node = self.block.nodes[first]
        if not self.block.is_wide(first):
            self._find_piece(first)
            return
        inputs = [
            self._pack_parameter(operand)
            if self.block.is_parameter(operand[0])
            else self._build_node(operand[:1] if self.block.is_shared(batch, k) else operand)
            for k, operand in enumerate(batch.operands)
        ]
        new = self.builder.add(node.op, *inputs, index=node.index, value=node.value)
        start = 0
        for i in batch.members:
            self.at[i] = (new, start, self.block.nodes[i].width)
            start += self.block.nodes[i].width
        if first in self.place:
            self.columns[new] = self.place[first]

    def _pack_parameter(self, operand: Sequence[int]) -> int:
        """Return a parameter with these concatenated; a whole one as it is, others as a pack."""
        nodes = self.block.nodes
        parts: list[ParameterPart] = []
        for i in operand:
            part = self.unjoined.parts[nodes[i].name]
            if self.joined and parts and part == parts[-1].make_next(part.width):
                last = parts.pop()
                part = replace(last, width=last.width + part.width)
            parts.append(part)
        pack = Pack(tuple(parts))
        whole = ParameterPart(parts[0].parameter, 0, self.unjoined.widths[parts[0].parameter])
        name = whole.parameter if parts == [whole] else pack.name
        if name == pack.name:
            self.packs[name] = pack
        shape = (*nodes[operand[0]].shape[:-1], sum(part.width for part in parts))
        return self.builder.add(PARAMETER, shape=shape, name=name)

    # --- values ---

    def _find_piece(self, i: int) -> Piece:
        """Return the position of a value; values outside batches are written at their first use."""
        if i not in self.at:
            node = self.block.nodes[i]
            if node.op == "slice":
                base, start, _ = self._find_piece(node.inputs[0])
                self.at[i] = (base, start + node.index, node.width)
            else:
                inputs = [self._build_node((k,)) for k in node.inputs]
                self.at[i] = (self.builder.copy(node, inputs, node.shape), 0, node.width)
        return self.at[i]

    def _build_node(self, values: Sequence[int]) -> int:
        """Return values in adjacent columns: columns of a node, or a concat of such."""
        pieces: list[Piece] = []
        for i in values:
            node, start, width = self._find_piece(i)
            if pieces and pieces[-1][0] == node and sum(pieces[-1][1:]) == start:
                _, start, before = pieces.pop()
                width += before
            pieces.append((node, start, width))
        nodes = [self._slice_columns(*piece) for piece in pieces]
        return nodes[0] if len(nodes) == 1 else self.builder.add("concat", *nodes)

    def _slice_columns(self, node: int, start: int, width: int) -> int:
        is_whole = width == self.builder[node].width
        return node if is_whole else self.builder.slice(node, start, width)


def _cut(batch: OperatorBatch, first: int, end: int) -> OperatorBatch:
    operands = tuple(operand[first:end] for operand in batch.operands)
    return OperatorBatch(batch.members[first:end], operands)
