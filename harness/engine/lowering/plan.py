"""Execution plan of a vertex function as data: buffers, columns of values, and steps by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dynbatch.harness.vertex.folding import FoldedTable
from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.subgraph.columns import Pack

Slots = tuple[int, ...] | None  # slots of children; None: any number, one row per edge
FORWARD = ("eager", "batch", "lazy")  # stages, in order
STAGES = (*FORWARD, "backward", "backward_lazy")
WHOLE_STAGES = ("eager", "lazy", "backward_lazy")  # run once on all rows of a function
SHARED = 0  # type id of buffers that all functions share
GROWTH = 1.25  # factor of new allocations, so that slightly larger mini-batches do not reallocate


def count_slots(slots: Slots) -> int:
    """Return the number of children per row: the number of slots, or one if each edge has a row."""
    return 1 if slots is None else len(slots)


class MemoryKind(StrEnum):
    """Rows of a buffer, and how long they are valid."""

    STATE = "state"  # one row per vertex of the space, for the mini-batch; read by parents
    GRADIENT = "gradient"  # the gradients of STATE rows; added to by parents
    SAVED = "saved"  # one row per vertex (or edge) of the type, for the mini-batch
    SCRATCH = "scratch"  # one row per vertex (or edge) of the batch
    CHILDREN = "children"  # the children's rows of a STATE buffer, without a copy


class Role(StrEnum):
    """Content of a buffer."""

    STATE = "state"  # scattered values; one buffer for all functions
    GRADIENT = "gradient"  # gradients of a state; one buffer for all functions
    GATHER = "gather"  # children's states, slots in adjacent columns
    GATHER_EACH = "gather_each"  # children's states, one row per edge
    LOG_SUM = "log_sum"  # logarithms of a softmax's sums
    AREA = "area"  # values that a layout of the vertex function puts in adjacent columns
    NODE = "node"  # value of one node, and of nodes that overwrite it


@dataclass(frozen=True, slots=True)
class BufferName:
    """Name of a buffer by its content.

    Attributes:
        of: The state, the area, or the number of the node.
    """

    role: Role
    of: str

    @property
    def is_shared(self) -> bool:
        """True if all vertex functions share this buffer."""
        return self.role in (Role.STATE, Role.GRADIENT)

    @property
    def is_gathered(self) -> bool:
        """True if the buffer holds copies of children's states."""
        return self.role in (Role.GATHER, Role.GATHER_EACH)


def name_state_buffer(state: str) -> BufferName:
    """Return the name of a state's buffer."""
    return BufferName(Role.STATE, state)


def name_gradient_buffer(state: str) -> BufferName:
    """Return the name of the buffer of a state's gradients."""
    return BufferName(Role.GRADIENT, state)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A matrix of rows.

    Attributes:
        domain: Whether a row is a vertex or an edge.
    """

    name: BufferName
    memory: MemoryKind
    width: int
    domain: str


@dataclass(frozen=True, slots=True)
class Ref:
    """Columns start to start + width of a buffer."""

    buffer: BufferName
    start: int
    width: int

    def slice_columns(self, start: int, width: int) -> Ref:
        """Return a part of these columns."""
        return Ref(self.buffer, self.start + start, width)

    def take_next(self, width: int) -> Ref:
        """Return the columns after these."""
        return self.slice_columns(self.width, width)

    @property
    def end(self) -> int:
        """First column after these."""
        return self.start + self.width

    def has_overlap(self, other: Ref) -> bool:
        """Return whether both have columns in common."""
        apart = self.end <= other.start or other.end <= self.start
        return self.buffer == other.buffer and not apart

    def is_inside(self, other: Ref) -> bool:
        """Return whether all of these are columns of the other one."""
        return self.buffer == other.buffer and other.start <= self.start and self.end <= other.end

    def extend(self, width: int) -> Ref:
        """Return these columns extended by the next ones."""
        return Ref(self.buffer, self.start, self.width + width)


@dataclass(frozen=True, slots=True)
class GatherStep:
    """Copy of the children's states in `slots` to adjacent columns.

    Attributes:
        slots: None: one row per edge.
    """

    buffer: BufferName
    state: str
    slots: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """Matmul out = x W, or x W^T; optionally + bias, optionally added to the values in `out`."""

    x: Ref
    parameter: str
    out: Ref
    transposed: bool = False
    bias: str | None = None
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class ElementwiseStep:
    """One or more elementwise operators over the same columns, in order of evaluation.

    Attributes:
        added_to: (node, state, slot) of results that the kernel adds to a child's gradient.
    """

    nodes: tuple[int, ...]
    added_to: tuple[tuple[int, str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """Any other single operator."""

    node: int


@dataclass(frozen=True, slots=True)
class SoftmaxLossStep:
    """Softmax loss: logits += bias; loss = log_sum - logits[label].

    Attributes:
        log_sum: The logarithm of the sum of exponentials of the logits.
        leaves_gradient: Softmax minus one-hot then replaces the logits.
    """

    logits: Ref
    bias: str | None
    label: str
    loss: Ref
    log_sum: Ref
    leaves_gradient: bool


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copy out = source."""

    source: Ref
    out: Ref


@dataclass(frozen=True, slots=True)
class PackStep:
    """Copy of parameter columns to adjacent columns."""

    pack: Pack


@dataclass(frozen=True, slots=True)
class ScatterAddStep:
    """Addition of gradients to those of the children in `slots`.

    Attributes:
        slots: None: one row per edge.
    """

    source: Ref
    state: str
    slots: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class SinkStep:
    """Sum over vertices that is added to a parameter's gradient."""

    node: int


@dataclass(frozen=True, slots=True)
class RowSum:
    """Gradient of a table's looked-up rows.

    Attributes:
        pulled: The name of the pulled row numbers.
        gradient: The columns with the gradients of the rows.
    """

    table: str
    pulled: str
    gradient: Ref


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
    """One lowered vertex function.

    Attributes:
        nodes: Forward, then backward; a bias that reads only part of its parameter starts at the
            node's index.
        refs: The columns of each stored node.
        slots: The gathered slots of each state, in the order of the gather's columns.
        steps: The steps of each of STAGES: "eager" before the first batch, "batch" in each batch,
            "lazy" after the last one; "backward" in each batch, with batches in reverse order, and
            "backward_lazy" after the last one.
        pushes: Nodes that are outputs of the function.
        packs: Parameters that consist of adjacent columns of others.
        tables: Parameters that are products of others.
    """

    name: str
    nodes: tuple[Node, ...]
    buffers: Mapping[BufferName, Buffer]
    refs: Mapping[int, Ref]
    slots: Mapping[str, tuple[int, ...]]
    steps: Mapping[str, tuple[Step, ...]]
    pushes: tuple[int, ...]
    loss: int | None
    packs: tuple[Pack, ...] = ()
    tables: tuple[FoldedTable, ...] = ()

    @property
    def states(self) -> tuple[str, ...]:
        """States that the function scatters, in order."""
        return tuple(name.of for name in self.buffers if name.role is Role.STATE)

    def read_states(self) -> dict[BufferName, int]:
        """Return the buffers of the gathered states, and their widths."""
        return {
            name_state_buffer(node.name): node.width
            for node in self.nodes
            if node.op in ("gather", "gather_each")
        }

    def find_state_ref(self, state: str) -> Ref:
        """Return the columns of a scattered state."""
        name = name_state_buffer(state)
        return Ref(name, 0, self.buffers[name].width)

    def has_state_access(self, stage: str) -> bool:
        """Return whether a stage's steps access rows of states or their gradients directly."""
        return any(
            self.buffers[ref.buffer].memory in (MemoryKind.STATE, MemoryKind.GRADIENT)
            for step in self.steps[stage]
            for ref in (*self.list_reads(step), *self._list_writes(step))
        )

    def list_reads(self, step: Step) -> list[Ref]:
        """Return the columns that a step reads from memory."""
        nodes: tuple[int, ...] = ()
        if isinstance(step, ElementwiseStep):
            nodes = tuple(
                k for i in step.nodes for k in self.nodes[i].inputs if k not in step.nodes
            )
        elif isinstance(step, OperatorStep | SinkStep):
            nodes = self.nodes[step.node].inputs
        elif isinstance(step, MatmulStep):
            return [step.x, step.out] if step.accumulate else [step.x]
        elif isinstance(step, CopyStep | ScatterAddStep):
            return [step.source]
        elif isinstance(step, SoftmaxLossStep):
            return [step.logits]
        return [self.refs[k] for k in nodes if k in self.refs]

    def _list_writes(self, step: Step) -> list[Ref]:
        if isinstance(step, MatmulStep | CopyStep):
            return [step.out]
        if isinstance(step, SoftmaxLossStep):
            return [step.logits, step.loss, step.log_sum]
        nodes: tuple[int, ...] = ()
        if isinstance(step, ElementwiseStep):
            nodes = step.nodes
        elif isinstance(step, OperatorStep):
            nodes = (step.node,)
        return [self.refs[i] for i in nodes if i in self.refs]

    def list_shown_refs(self) -> list[Ref]:
        """Return the values that are read after all stages: pushed values and the loss."""
        shown = self.pushes if self.loss is None else (*self.pushes, self.loss)
        return [self.refs[i] for i in shown if i in self.refs]

    def find_gathered_slots(self, buffer: BufferName) -> Slots:
        """Return the slots of a gather's buffer, in the order of its columns; None: any number."""
        return None if buffer.role is Role.GATHER_EACH else self.slots[buffer.of]

    def find_overwriting_step(self, ref: Ref) -> SoftmaxLossStep | None:
        """Return the step that replaces these logits by their gradient, or None."""
        for step in (*self.steps["batch"], *self.steps["lazy"]):
            if isinstance(step, SoftmaxLossStep) and step.leaves_gradient and step.logits == ref:
                return step
        return None

    def list_row_sums(self) -> list[RowSum]:
        """Return the gradients of lookups, which have no buffer."""
        row_sums = []
        for node in self.nodes:
            if node.op == "row_sum":
                rows, dy = node.inputs
                row_sums.append(RowSum(node.name, self.nodes[rows].name, self.refs[dy]))
        return row_sums


# Operators that only name values, or that have kinds of steps of their own, in every backend.
OPERATORS_OF_STEPS = (
    *("gather", "gather_each", "pull", "parameter", "state_gradient", "slice", "concat"),
    *("matmul", "matmul_transposed", "outer_sum", "vertex_sum", "row_sum"),
)


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of one backend.

    Attributes:
        operators: Operators of dynbatch.harness.vertex.operators that the backend has kernels for.
        fuses: Several elementwise operators become one kernel, whose inner values need no memory.
            A softmax loss and its gradient are one kernel, too
            (dynbatch.harness.engine.lowering.absorption).
        reads_children: A fused kernel reads children's states in place, without a gather.
        adds_to_children: A fused kernel adds gradients to those of children in place.
        narrows: A fused kernel can start at any of several joined gates
            (dynbatch.harness.engine.lowering.fusion).
        gives_back_parts: The gradient of a child may be several values, which the backend adds up.
        largest_in_place: The number of elements of the largest parameter by which children's
            matrices are multiplied in place, one vertex after the other; 0: these matrices are
            gathered.
        reuses_places: A result may overwrite an operand that is not needed again
            (dynbatch.harness.engine.lowering.placement); impossible if kernels of other columns
            still read the operand.
        reads_row_blocks: Rows of a matrix may be a parameter of their own
            (dynbatch.harness.vertex.shared_products).
        starts_from_biases: A matmul adds a bias at no cost. Without fused kernels, every matmul
            that a bias follows adds it.
        streams: Operators that need no child can run on a second stream.
    """

    operators: frozenset[str]
    fuses: bool = False
    reads_children: bool = False
    adds_to_children: bool = False
    narrows: bool = False
    gives_back_parts: bool = False
    largest_in_place: int = 0
    reuses_places: bool = True
    reads_row_blocks: bool = False
    starts_from_biases: bool = False
    streams: bool = False

    def __post_init__(self) -> None:
        if not self.fuses and (self.reads_children or self.adds_to_children):
            raise ValueError("only fused kernels can read children or add to them")


@dataclass(frozen=True, slots=True)
class Operation:
    """A value of an elementwise kernel: x0, x1, ... are inputs, v0, v1, ... are earlier values.

    Attributes:
        constant: The number that `scale` and `shift` use.
    """

    name: str
    operator: str
    operands: tuple[str, ...]
    constant: float = 0.0
