"""Where the rows of a batch are: operands of the values of one vertex function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.engine.backends.compiled.arguments import (
    Argument,
    BufferOf,
    EdgeStartOf,
    IndexOf,
    ParameterOf,
    PullOf,
    RunsOf,
)
from harness.engine.backends.compiled.instructions import (
    FLOAT_BYTES,
    INDEX_BYTES,
    Operand,
    Register,
    Run,
)
from harness.engine.backends.compiled.memory import SHARED
from harness.engine.lowering.plan import (
    Buffer,
    BufferName,
    Memory,
    Plan,
    Ref,
    Slots,
    gradient_buffer,
    state_buffer,
)
from harness.vertex.operators import EDGE, Shape


@dataclass(frozen=True, slots=True)
class Places:
    """Of one vertex function; shapes: of parameters."""

    type_id: int
    plan: Plan
    shapes: Mapping[str, Shape]

    def array(self, name: BufferName) -> Argument:
        """The array of a buffer."""
        return BufferOf(SHARED if name.is_shared else self.type_id, name)

    def buffer(self, ref: Ref) -> Buffer:
        """The buffer of a ref."""
        return self.plan.buffers[ref.buffer]

    def state_width(self, state: str) -> int:
        """Floats of a state that children hold."""
        return self.plan.read_states()[state_buffer(state)]

    def index(self, slots: Slots) -> Argument:
        """The rows of the children in these slots."""
        return IndexOf(self.type_id, slots)

    def index_operand(self, slots: Slots, slot: int = 0) -> Operand:
        """The rows of the children of a batch; slot: which of several."""
        n_slots = 1 if slots is None else len(slots)
        row = Register.EDGE_START if slots is None else Register.START
        return Operand(self.index(slots), row, INDEX_BYTES * n_slots, INDEX_BYTES * slot)

    def edges(self) -> Operand:
        """Where the edges of each row begin."""
        return Operand(EdgeStartOf(self.type_id), Register.START, INDEX_BYTES)

    def pulled(self, name: str) -> Operand:
        """What each row pulls from outside."""
        return Operand(PullOf(self.type_id, name), Register.START, INDEX_BYTES)

    def parameter(self, name: str, start: int = 0) -> Operand:
        """A parameter, from an element on."""
        return Operand(ParameterOf(name), offset=FLOAT_BYTES * start)

    def columns_of_parameter(self, name: str, row_width: int, start: int, width: int) -> Operand:
        """Columns of a parameter's rows."""
        pitch, offset = FLOAT_BYTES * row_width, FLOAT_BYTES * start
        return Operand(ParameterOf(name), Register.ZERO, pitch, offset, FLOAT_BYTES * width)

    def operand(self, ref: Ref) -> Operand:
        """The columns of a ref.

        Raises ValueError for children's rows of which no copies are made.
        """
        buffer = self.buffer(ref)
        pitch, offset = FLOAT_BYTES * buffer.width, FLOAT_BYTES * ref.start
        width = FLOAT_BYTES * ref.width
        if not ref.buffer.is_gathered:
            return Operand(self.array(ref.buffer), self._row(buffer), pitch, offset, width)
        if buffer.memory is Memory.CHILDREN:
            raise ValueError(f"{ref.buffer} has no memory; its rows are read one by one")
        slots = self.plan.gathered(ref.buffer)
        on_edges = slots is None
        run = Run(
            RunsOf(self.type_id, slots),
            self.array(state_buffer(ref.buffer.of)),
            pitch // (1 if slots is None else len(slots)),
            Register.EDGE_AT if on_edges else Register.AT,
        )
        row = Register.EDGE_START if on_edges else Register.START
        return Operand(self.array(ref.buffer), row, pitch, offset, width, run)

    def _row(self, buffer: Buffer) -> Register:
        on_edges = buffer.domain == EDGE
        if buffer.memory is Memory.SCRATCH:
            return Register.EDGE_AT if on_edges else Register.AT
        if buffer.memory is Memory.SAVED:
            return Register.EDGE_START if on_edges else Register.START
        return Register.STATE_ROW

    def row_operands(self, ref: Ref) -> tuple[Operand, ...]:
        """Return a ref's columns; of children's rows without copies, these and which they are."""
        if self.buffer(ref).memory is not Memory.CHILDREN:
            return (self.operand(ref),)
        slots, n_slots = self.plan.gathered(ref.buffer), self._n_slots(ref)
        slot, column = divmod(ref.start, self.buffer(ref).width // n_slots)
        return self.child(ref.buffer.of, slots, slot, column)

    def child(
        self, state: str, slots: Slots, slot: int, column: int = 0, *, gradient: bool = False
    ) -> tuple[Operand, Operand]:
        """Columns of a child's state, or of its gradient, and the rows of the children."""
        name = gradient_buffer(state) if gradient else state_buffer(state)
        pitch, offset = FLOAT_BYTES * self.state_width(state), FLOAT_BYTES * column
        states = Operand(self.array(name), Register.ZERO, pitch, offset)
        return states, self.index_operand(slots, slot)

    def _n_slots(self, ref: Ref) -> int:
        slots = self.plan.gathered(ref.buffer)
        return 1 if slots is None else len(slots)
