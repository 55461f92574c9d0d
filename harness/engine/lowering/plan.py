"""How one vertex function is executed, as data: buffers, where values live, and steps by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.vertex.folding import FoldedTable
from harness.vertex.operators import Node
from harness.vertex.subgraph.columns import Pack

Slots = tuple[int, ...] | None  # which children; None: any number, one row an edge
FORWARD = ("eager", "batch", "lazy")  # stages, in order
STAGES = (*FORWARD, "backward", "backward_lazy")
WHOLE_STAGES = ("eager", "lazy", "backward_lazy")  # of all rows of a function at once
SHARED = 0  # the type id under which backends keep buffers of all functions
GROWTH = 1.25  # of memory, so that slightly larger mini-batches do not reallocate each time


def count_slots(slots: Slots) -> int:
    """Rows of children side by side; one where each edge has a row of its own."""
    return 1 if slots is None else len(slots)


class Memory(StrEnum):
    """Which rows a buffer has."""

    STATE = "state"  # one row a vertex of the space, kept for the mini-batch; read by parents
    GRADIENT = "gradient"  # the gradients of STATE rows; added to by parents
    SAVED = "saved"  # one row a vertex (or edge) of the type, kept for the mini-batch
    SCRATCH = "scratch"  # one row a vertex (or edge) of the batch
    CHILDREN = "children"  # of STATE rows those of the children: no memory of its own


class Role(StrEnum):
    """What a buffer is for."""

    STATE = "state"  # what vertices scatter; one for all functions
    GRADIENT = "gradient"  # of a state; one for all functions
    GATHER = "gather"  # children's states, slots side by side
    GATHER_EACH = "gather_each"  # children's states, one row an edge
    LOG_SUM = "log_sum"  # logarithms of a softmax's sums
    AREA = "area"  # values that a layout of the vertex function brings together
    NODE = "node"  # the value of one node, and of those that take its place


@dataclass(frozen=True, slots=True)
class BufferName:
    """Names a buffer by what it is for; of: the state, the area, or the number of the node."""

    role: Role
    of: str

    @property
    def is_shared(self) -> bool:
        """Whether all vertex functions have this buffer in common."""
        return self.role in (Role.STATE, Role.GRADIENT)

    @property
    def is_gathered(self) -> bool:
        """Whether it holds copies of children's states."""
        return self.role in (Role.GATHER, Role.GATHER_EACH)


def state_buffer(state: str) -> BufferName:
    """The rows of a state."""
    return BufferName(Role.STATE, state)


def gradient_buffer(state: str) -> BufferName:
    """The gradients of a state's rows."""
    return BufferName(Role.GRADIENT, state)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A matrix of rows; domain says whether a row is a vertex or an edge."""

    name: BufferName
    memory: Memory
    width: int
    domain: str


@dataclass(frozen=True, slots=True)
class Ref:
    """Columns start to start + width of a buffer."""

    buffer: BufferName
    start: int
    width: int

    def columns(self, start: int, width: int) -> Ref:
        """A part of these columns."""
        return Ref(self.buffer, self.start + start, width)

    def next(self, width: int) -> Ref:
        """The columns behind these."""
        return self.columns(self.width, width)

    def overlaps(self, other: Ref) -> bool:
        """Whether both have columns in common."""
        apart = self.start + self.width <= other.start or other.start + other.width <= self.start
        return self.buffer == other.buffer and not apart

    def grown(self, width: int) -> Ref:
        """These columns and those behind them."""
        return Ref(self.buffer, self.start, self.width + width)


@dataclass(frozen=True, slots=True)
class GatherStep:
    """Bring the states of the children in `slots` side by side (slots None: one row an edge)."""

    buffer: BufferName
    state: str
    slots: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """out = x W, or x W^T; optionally + bias, optionally added to what out holds."""

    x: Ref
    parameter: str
    out: Ref
    transposed: bool = False
    bias: str | None = None
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class ElementwiseStep:
    """One or more elementwise operators over the same columns, in order of evaluation.

    added_to: (node, state, slot) of results that are added to a child's gradient on the spot.
    """

    nodes: tuple[int, ...]
    added_to: tuple[tuple[int, str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """Any other single operator."""

    node: int


@dataclass(frozen=True, slots=True)
class SoftmaxLossStep:
    """logits += bias; loss = log_sum - logits[label], log_sum the log of the sum of exponentials.

    leaves_gradient: softmax minus one-hot then takes the place of the logits.
    """

    logits: Ref
    bias: str | None
    label: str
    loss: Ref
    log_sum: Ref
    leaves_gradient: bool


@dataclass(frozen=True, slots=True)
class CopyStep:
    """out = source."""

    source: Ref
    out: Ref


@dataclass(frozen=True, slots=True)
class PackStep:
    """Bring columns of parameters side by side."""

    pack: Pack


@dataclass(frozen=True, slots=True)
class ScatterAddStep:
    """Add gradients to the children in `slots` (None: one row an edge)."""

    source: Ref
    state: str
    slots: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class SinkStep:
    """Sum over vertices into a parameter's gradient."""

    node: int


Step = (
    GatherStep
    | MatmulStep
    | ElementwiseStep
    | OperatorStep
    | SoftmaxLossStep
    | CopyStep
    | PackStep
    | ScatterAddStep
    | SinkStep
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One vertex function, lowered.

    nodes: forward then backward; a bias that reads only part of its parameter starts at the node's
    index. refs: where each stored node lives.
    eager, batch, lazy: forward steps before the first batch, in each batch, after the last one.
    backward: in each batch, batches in reverse. backward_lazy: after the last of them.
    slots: the gathered slots of each state, in the order of the gather's columns.
    pushes: nodes that the outside sees.
    packs: parameters that are columns of others side by side. tables: parameters that are products
    of others.
    """

    name: str
    nodes: tuple[Node, ...]
    buffers: Mapping[BufferName, Buffer]
    refs: Mapping[int, Ref]
    slots: Mapping[str, tuple[int, ...]]
    eager: tuple[Step, ...]
    batch: tuple[Step, ...]
    lazy: tuple[Step, ...]
    backward: tuple[Step, ...]
    backward_lazy: tuple[Step, ...]
    pushes: tuple[int, ...]
    loss: int | None
    packs: tuple[Pack, ...] = ()
    tables: tuple[FoldedTable, ...] = ()

    @property
    def states(self) -> tuple[str, ...]:
        """States that the function scatters, in order."""
        return tuple(name.of for name in self.buffers if name.role is Role.STATE)

    def read_states(self) -> dict[BufferName, int]:
        """Buffers of the states that are gathered, and their widths."""
        return {
            state_buffer(node.name): node.width
            for node in self.nodes
            if node.op in ("gather", "gather_each")
        }

    def state_ref(self, state: str) -> Ref:
        """Where a scattered state lies."""
        name = state_buffer(state)
        return Ref(name, 0, self.buffers[name].width)

    def addresses_states(self, stage: str) -> bool:
        """Whether a stage's steps address rows of states, by where these lie."""
        return any(
            self.buffers[ref.buffer].memory in (Memory.STATE, Memory.GRADIENT)
            for step in self.steps(stage)
            for ref in self._refs_of(step)
        )

    def steps(self, stage: str) -> tuple[Step, ...]:
        """The steps of one of STAGES."""
        found: tuple[Step, ...] = getattr(self, stage)
        return found

    def _refs_of(self, step: Step) -> Iterator[Ref]:
        nodes: tuple[int, ...] = ()
        if isinstance(step, ElementwiseStep):
            nodes = step.nodes
        elif isinstance(step, OperatorStep | SinkStep):
            nodes = (step.node,)
        elif isinstance(step, MatmulStep):
            yield from (step.x, step.out)
        elif isinstance(step, CopyStep):
            yield from (step.source, step.out)
        elif isinstance(step, SoftmaxLossStep):
            yield from (step.logits, step.loss, step.log_sum)
        for i in nodes:
            yield from (self.refs[k] for k in (i, *self.nodes[i].inputs) if k in self.refs)

    def gathered(self, buffer: BufferName) -> Slots:
        """The slots whose states lie side by side in a gather's buffer; None: any number."""
        return None if buffer.role is Role.GATHER_EACH else self.slots[buffer.of]

    def overwritten(self, ref: Ref) -> SoftmaxLossStep | None:
        """The step that leaves a gradient in the place of these logits, if one does."""
        for step in (*self.batch, *self.lazy):
            if isinstance(step, SoftmaxLossStep) and step.leaves_gradient and step.logits == ref:
                return step
        return None

    def row_sums(self) -> tuple[Node, ...]:
        """Gradients of looked-up rows, which have no place: rows and values in pairs."""
        return tuple(node for node in self.nodes if node.op == "row_sum")


@dataclass(frozen=True, slots=True)
class Abilities:
    """Of one backend.

    operators: those of harness.vertex.operators that it runs.
    fuses: several elementwise operators become one kernel, whose values need no memory.
    reads_children: such a kernel reads children's states where they are, without a gather.
    adds_to_children: such a kernel adds gradients to children's where they are.
    fuses_losses: a softmax loss and its gradient are one kernel (harness.engine.lowering.analysis).
    narrows: such a kernel's columns may be those of one of several joined gates
    (harness.engine.lowering.fusion).
    gives_back_parts: gradients that are given back to a child may be several values, which whoever
    takes them adds up.
    largest_in_place: elements of the largest parameter by which children's matrices are multiplied
    where these lie, one vertex after the other; 0: such matrices are gathered.
    reuses_places: a result may take the place of an operand that dies
    (harness.engine.lowering.placement); not where kernels of other columns still read it.
    """

    operators: frozenset[str]
    fuses: bool = False
    reads_children: bool = False
    adds_to_children: bool = False
    fuses_losses: bool = False
    narrows: bool = False
    gives_back_parts: bool = False
    largest_in_place: int = 0
    reuses_places: bool = True

    def __post_init__(self) -> None:
        if not self.fuses and any((self.reads_children, self.adds_to_children, self.fuses_losses)):
            raise ValueError("only fused kernels read children, add to them, or do losses")

    def without_fusion(self) -> Abilities:
        """What is left where every operator is a kernel of its own."""
        return Abilities(self.operators, reuses_places=self.reuses_places)


@dataclass(frozen=True, slots=True)
class Operation:
    """A value computed position by position: x0, x1, ... are inputs, v0, v1, ... earlier values.

    constant: the number that `scale` and `shift` take.
    """

    name: str
    operator: str
    operands: tuple[str, ...]
    constant: float = 0.0
