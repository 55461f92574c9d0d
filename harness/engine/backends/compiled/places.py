"""Where the rows of a batch are, written as expressions of generated code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from harness.engine.backends.compiled.arguments import (
    ApartOf,
    Argument,
    BufferOf,
    EdgeBoundsOf,
    EdgeStartOf,
    FilledOf,
    FirstRowOf,
    IndexOf,
    ParameterOf,
    PullOf,
    RunsOf,
    StartsOf,
)
from harness.engine.backends.compiled.memory import SHARED
from harness.engine.lowering.plan import (
    Buffer,
    BufferName,
    Memory,
    Plan,
    Ref,
    Slots,
    state_buffer,
)
from harness.vertex.operators import EDGE

BLAS = "sizes, letters, factors"
MEET = "if not meet(context): return"  # which another thread's error ends


class Rows(StrEnum):
    """Which rows of a batch a thread takes in a step.

    Steps that work row by row need no other thread's rows. Who adds to the rows of children does,
    where two vertices of the batch have one in common: then one thread takes all. Who sums over
    vertices takes all of them, for a part of the sum.
    """

    SHARE = "share"
    UNLESS_APART = "unless apart"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows begin: an array, the element of the first row, and elements between rows."""

    array: str
    at: str
    stride: int


@dataclass(slots=True)
class Places:
    """Finds the operands of one vertex function's steps; collects the arrays that they are in.

    arguments: of all functions, to be added to. whole: whether the stage also runs over all rows of
    the function at once. lines: what is written so far. profile: whether to count the ticks of what
    moves data. half: whether factors of products are rounded to bfloat16.
    """

    type_id: int
    plan: Plan
    arguments: list[Argument]
    whole: bool = False
    profile: bool = False
    half: bool = False
    lines: list[str] = field(default_factory=list)
    rows: Rows = Rows.SHARE
    _checked: set[BufferName] = field(default_factory=set)

    # --- arrays ---

    def name_of(self, argument: Argument) -> str:
        """What an array is called in the text."""
        if argument not in self.arguments:
            self.arguments.append(argument)
        return f"a{self.arguments.index(argument)}"

    def array_of(self, name: BufferName) -> str:
        """The array of a buffer."""
        return self.name_of(BufferOf(SHARED if name.is_shared else self.type_id, name))

    def parameter(self, name: str) -> str:
        """The array of a parameter."""
        return self.name_of(ParameterOf(name))

    def index(self, slots: Slots) -> str:
        """The rows of the children in these slots."""
        return self.name_of(IndexOf(self.type_id, slots))

    def edge_start(self) -> str:
        """Where the edges of every row begin."""
        return self.name_of(EdgeStartOf(self.type_id))

    def first_of(self, slots: Slots) -> str:
        """The first of the rows that a gather reads if they need no copy, else less than 0."""
        return f"{self.name_of(RunsOf(self.type_id, slots))}[b]"

    def apart(self, slots: Slots) -> str:
        """Whether the children in these slots are different rows, for all vertices of the batch."""
        return f"{self.name_of(ApartOf(self.type_id, slots))}[b] != 0"

    def own(self, word: str) -> str:
        """A name that no other line gives to anything."""
        return f"{word}{self.type_id}_{len(self.lines)}".replace("-", "o")

    # --- rows ---

    def head(self) -> list[str]:
        """Lines that find the rows of batch `b` (below 0: all rows) of this function, and of these
        the share of this thread.
        """
        starts = self.name_of(StartsOf(self.type_id))
        first_row = self.name_of(FirstRowOf(self.type_id))
        if not self.whole:
            lines = [
                f"all_start = {starts}[b]",
                f"all_n = {starts}[b + 1] - all_start",
                f"all_state_row = {first_row}[b]",
            ]
        else:
            lines = [
                "whole = b < 0",
                f"b = len({first_row}) if whole else b",
                f"all_start = 0 if whole else {starts}[b]",
                f"all_n = ({starts}[b] if whole else {starts}[b + 1]) - all_start",
                f"all_state_row = {first_row}[0 if whole else b]",
            ]
        lines += ["own_at, own_n = share(all_n, ROWS, thread, n_threads)", "alone = False"]
        return [*lines, *self._rows_from("own_at, own_n")]

    def _rows_from(self, rows: str) -> list[str]:
        """Lines that take rows of the batch: from which on, and how many."""
        lines = [f"at, n = {rows}", "start, state_row = all_start + at, all_state_row + at"]
        if any(node.op == "gather_each" for node in self.plan.nodes):
            edges = self.edge_start()
            lines += [
                f"edge_start = {edges}[start]",
                f"edge_at = edge_start - {edges}[all_start]",
                f"n_edges = {edges}[start + n] - edge_start",
            ]
        return lines

    def take(self, rows: Rows, apart: str = "") -> None:
        """Go over to other rows; threads meet, since these may be another thread's.

        apart: for UNLESS_APART, when to stay with the share.
        """
        if rows is Rows.UNLESS_APART:
            if self.rows is Rows.ALL:
                self.take(Rows.SHARE)
            self.lines.append(f"if n_threads > 1 and not ({apart}):")
            self._meet_for("0, all_n if thread == 0 else 0", alone=True, inside="    ")
        elif rows is self.rows:
            return
        elif rows is Rows.ALL:
            self._meet_for("0, all_n", alone=False)
        elif self.rows is Rows.ALL:
            self._meet_for("own_at, own_n", alone=False)
        else:
            self.lines.append("if alone:")
            self._meet_for("own_at, own_n", alone=False, inside="    ")
        self.rows = rows

    def _meet_for(self, rows: str, *, alone: bool, inside: str = "") -> None:
        lines = [MEET, f"alone = {alone}", *self._rows_from(rows)]
        self.lines += [inside + line for line in lines]

    def buffer(self, ref: Ref) -> Buffer:
        """The buffer of a ref."""
        return self.plan.buffers[ref.buffer]

    def row(self, buffer: Buffer) -> str:
        """The first row in a buffer."""
        if buffer.memory is Memory.SCRATCH:
            return "edge_at" if buffer.domain == EDGE else "at"
        if buffer.memory is Memory.SAVED:
            return "edge_start" if buffer.domain == EDGE else "start"
        return "state_row"

    def n(self, domain: str) -> str:
        """The number of rows."""
        return "n_edges" if domain == EDGE else "n"

    def place(self, ref: Ref) -> Place:
        """Where the columns of a ref begin."""
        if ref.buffer.is_gathered:
            return self._gathered(ref)
        buffer = self.buffer(ref)
        at = plus(f"{self.row(buffer)} * {buffer.width}", ref.start)
        return Place(self.array_of(ref.buffer), at, buffer.width)

    def in_place(self, ref: Ref) -> bool:
        """Whether these are the children's rows themselves."""
        return self.buffer(ref).memory is Memory.CHILDREN

    def place_of_one(self, ref: Ref) -> Place:
        """Where the columns of vertex `m` of those that are taken begin."""
        if not self.in_place(ref):
            return of_one(self.place(ref))
        row, column = self.child_row(ref)
        states = state_buffer(ref.buffer.of)
        width = self.buffer(ref).width // self._n_slots(ref)
        return Place(self.array_of(states), plus(f"{row} * {width}", column), width)

    def child_row(self, ref: Ref) -> tuple[str, int]:
        """The row of a child of vertex `m`, and the first of its columns."""
        slots, n_slots = self.plan.gathered(ref.buffer), self._n_slots(ref)
        slot, column = divmod(ref.start, self.buffer(ref).width // n_slots)
        return f"{self.index(slots)}[{plus(f'(start + m) * {n_slots}', slot)}]", column

    def _check_memory(self, ref: Ref) -> None:
        if self.in_place(ref):
            raise ValueError(f"{ref.buffer} has no memory; its rows are read one by one")

    def _n_slots(self, ref: Ref) -> int:
        slots = self.plan.gathered(ref.buffer)
        return 1 if slots is None else len(slots)

    def _gathered(self, ref: Ref) -> Place:
        """The children's rows themselves where they follow one another."""
        self._check_memory(ref)
        slots, width = self.plan.gathered(ref.buffer), self.buffer(ref).width
        n_slots = 1 if slots is None else len(slots)
        self._fill(ref.buffer)
        states, buffer = self.array_of(state_buffer(ref.buffer.of)), self.array_of(ref.buffer)
        first = self.first_of(slots)
        row, behind = ("edge_start", "edge_at") if slots is None else ("start", "at")
        x, at = self.own("x"), self.own("at")
        in_place = f"{first} * {width // n_slots} + {behind} * {width}"
        self.lines += [
            f"{x} = {buffer} if {first} < 0 else {states}",
            f"{at} = {row} * {width} if {first} < 0 else {in_place}",
        ]
        return Place(x, plus(at, ref.start), width)

    def rows_of(self, ref: Ref) -> str:
        """The columns of a ref as a matrix.

        All columns are not cut: the compiler then knows that elements follow one another, without
        which no loop over a row is vectorised.
        """
        is_whole = ref.start == 0 and ref.width == self.buffer(ref).width
        columns = "" if is_whole else f", {ref.start}:{ref.start + ref.width}"
        if not ref.buffer.is_gathered:
            buffer = self.buffer(ref)
            row, n = self.row(buffer), self.n(buffer.domain)
            rows = f"part({self.array_of(ref.buffer)}, {row}, {n})"
            return rows if is_whole else f"array_of({rows})[:{columns}]"
        self._check_memory(ref)
        slots, width = self.plan.gathered(ref.buffer), self.buffer(ref).width
        n_slots = 1 if slots is None else len(slots)
        self._fill(ref.buffer)
        row, n = ("edge_start", "n_edges") if slots is None else ("start", "n")
        states, array = self.array_of(state_buffer(ref.buffer.of)), self.array_of(ref.buffer)
        first, rows = self.first_of(slots), self.own("rows")
        begin = f"{first} + edge_at" if slots is None else f"{first} + at * {n_slots}"
        self.lines += [
            f"{rows} = part({array}, {row}, {n})",
            f"if {first} >= 0:",
            f"    {rows} = reshaped(part({states}, {begin}, {n} * {n_slots}), {n}, {width})",
        ]
        return rows if is_whole else f"array_of({rows})[:{columns}]"

    def _fill(self, name: BufferName) -> None:
        """Before all rows of a gather are read at once: copy those that batches read in place."""
        if not self.whole or name in self._checked:
            return
        self._checked.add(name)
        slots = self.plan.gathered(name)
        n_slots = 1 if slots is None else len(slots)
        filled = self.name_of(FilledOf(self.type_id, name))
        states, buffer = self.array_of(state_buffer(name.of)), self.array_of(name)
        runs = self.name_of(RunsOf(self.type_id, slots))
        bounds = self.name_of((EdgeBoundsOf if slots is None else StartsOf)(self.type_id))
        self.lines += [
            f"if whole and {self.first_of(slots)} < 0 and {filled}[thread] == 0:",
            f"    {filled}[thread] = 1",
            f"    fill_viewed({states}, {self.index(slots)}, {runs}, {bounds}, {buffer}, {n_slots},"
            " tally, thread, n_threads)",
            f"    {MEET}",
        ]

    def operand(self, i: int) -> str:
        """The rows of a node as a matrix, what is pulled for them, or a parameter."""
        node = self.plan.nodes[i]
        if node.op == "parameter":
            return self.parameter(node.name)
        if node.op == "pull":
            return f"part({self.name_of(PullOf(self.type_id, node.name))}, start, n)"
        return self.rows_of(self.plan.refs[i])


def plus(expression: str, n: int) -> str:
    """A sum, but for nothing: every operator takes numba half a millisecond."""
    return f"{expression} + {n}" if n else expression


def of(place: Place) -> str:
    """A place as three arguments of a call."""
    return f"{place.array}, {place.at}, {place.stride}"


def of_one(place: Place) -> Place:
    """The row of vertex `m` of those that begin at a place."""
    return Place(place.array, f"{place.at} + m * {place.stride}", place.stride)
