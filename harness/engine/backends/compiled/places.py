"""Where the rows of a batch are, written as expressions of generated code."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.engine.lowering.plan import Buffer, Memory, Plan, Ref
from harness.vertex.operators import EDGE

Slots = tuple[int, ...] | None
BLAS = "sizes, letters, factors"


@dataclass(frozen=True, slots=True)
class Argument:
    """One array of the loop, by type id (0: shared by all types), kind and name.

    kind: "buffer", "parameter", "pull"; "index" or "first" of a gather, by slots; "starts",
    "first_row", and "edge_start" of the gather of any number of children.
    """

    type: int
    kind: str
    name: str | Slots = ""


@dataclass(slots=True)
class Place:
    """Where rows begin: an array, the element of the first row, and elements between rows."""

    array: str
    at: str
    stride: int


@dataclass(slots=True)
class Places:
    """Finds the operands of one vertex function's steps; collects the arrays that they are in.

    arguments: of all types, to be added to. lines: what is written so far.
    """

    type_id: int
    plan: Plan
    arguments: list[Argument]
    lines: list[str] = field(default_factory=list)

    def _has_edges(self) -> bool:
        return any(node.op == "gather_each" for node in self.plan.nodes)

    def _array(self, kind: str, name: str | Slots = "") -> str:
        shared = kind == "parameter" or (
            kind == "buffer" and str(name).startswith(("state:", "gradient:"))
        )
        argument = Argument(0 if shared else self.type_id, kind, name)
        if argument not in self.arguments:
            self.arguments.append(argument)
        return f"a{self.arguments.index(argument)}"

    def _own(self, word: str) -> str:
        """A name that no other line gives to anything."""
        return f"{word}{self.type_id}_{len(self.lines)}"

    # --- places ---

    def _buffer(self, ref: Ref) -> Buffer:
        return self.plan.buffers[ref.buffer]

    def _row(self, buffer: Buffer) -> str:
        if buffer.memory is Memory.SCRATCH:
            return "0"
        if buffer.memory is Memory.SAVED:
            return "edge_start" if buffer.domain == EDGE else "start"
        return "state_row"

    def _place(self, ref: Ref) -> Place:
        if ref.buffer.startswith("gather"):
            return self._gathered(ref)
        buffer = self._buffer(ref)
        array = self._array("buffer", ref.buffer)
        return Place(array, f"{self._row(buffer)} * {buffer.width} + {ref.start}", buffer.width)

    def _gathered(self, ref: Ref) -> Place:
        """The children's rows themselves where they follow one another."""
        state, slots, width = self._gather(ref.buffer)
        n_slots = 1 if slots is None else len(slots)
        states, buffer = self._array("buffer", f"state:{state}"), self._array("buffer", ref.buffer)
        first = f"{self._array('first', slots)}[b]"
        row = "edge_start" if slots is None else "start"
        x, at = self._own("x"), self._own("at")
        self.lines += [
            f"{x} = {buffer} if {first} < 0 else {states}",
            f"{at} = {row} * {width} if {first} < 0 else {first} * {width // n_slots}",
        ]
        return Place(x, f"{at} + {ref.start}", width)

    def _gather(self, buffer: str) -> tuple[str, Slots, int]:
        kind, state = buffer.split(":")
        slots = None if kind == "gather_each" else self.plan.slots[state]
        return state, slots, self.plan.buffers[buffer].width

    def _n(self, domain: str) -> str:
        return "n_edges" if domain == EDGE else "n"

    def _rows(self, i: int) -> str:
        """The rows of a node as a matrix."""
        ref = self.plan.refs[i]
        columns = f"{ref.start}:{ref.start + ref.width}"
        if not ref.buffer.startswith("gather"):
            buffer = self._buffer(ref)
            row = self._row(buffer)
            array, n = self._array("buffer", ref.buffer), self._n(buffer.domain)
            return f"{array}[{row}:{row} + {n}, {columns}]"
        state, slots, width = self._gather(ref.buffer)
        n_slots = 1 if slots is None else len(slots)
        row, n = ("edge_start", "n_edges") if slots is None else ("start", "n")
        states, array = self._array("buffer", f"state:{state}"), self._array("buffer", ref.buffer)
        first = f"{self._array('first', slots)}[b]"
        rows = self._own("rows")
        self.lines += [
            f"{rows} = {array}[{row}:{row} + {n}]",
            f"if {first} >= 0:",
            f"    {rows} = {states}[{first}:{first} + {n} * {n_slots}].reshape({n}, {width})",
        ]
        return f"{rows}[:, {columns}]"

    def _operand(self, i: int) -> str:
        node = self.plan.nodes[i]
        if node.op == "pull":
            return f"{self._array('pull', node.name)}[start:start + n]"
        return self._rows(i)


def of(place: Place) -> str:
    """A place as three arguments of a call."""
    return f"{place.array}, {place.at}, {place.stride}"
