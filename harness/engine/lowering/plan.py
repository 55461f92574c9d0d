"""How one vertex function is executed, as data: buffers, where values live, and steps by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.vertex.operators import Node
from harness.vertex.subgraph.columns import Pack


class Memory(StrEnum):
    """Which rows a buffer has."""

    STATE = "state"  # one row a vertex of the space, kept for the mini-batch; read by parents
    GRADIENT = "gradient"  # the gradients of STATE rows; added to by parents
    SAVED = "saved"  # one row a vertex (or edge) of the type, kept for the mini-batch
    SCRATCH = "scratch"  # one row a vertex (or edge) of the batch


@dataclass(frozen=True, slots=True)
class Buffer:
    """A matrix of rows; domain says whether a row is a vertex or an edge."""

    name: str
    memory: Memory
    width: int
    domain: str


@dataclass(frozen=True, slots=True)
class Ref:
    """Columns start to start + width of a buffer."""

    buffer: str
    start: int
    width: int

    def columns(self, start: int, width: int) -> Ref:
        """A part of these columns."""
        return Ref(self.buffer, self.start + start, width)

    def next(self, width: int) -> Ref:
        """The columns behind these."""
        return self.columns(self.width, width)

    def grown(self, width: int) -> Ref:
        """These columns and those behind them."""
        return Ref(self.buffer, self.start, self.width + width)


@dataclass(frozen=True, slots=True)
class GatherStep:
    """Bring the states of the children in `slots` side by side (slots None: one row an edge)."""

    buffer: str
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
    packs: parameters that are columns of others side by side.
    """

    name: str
    nodes: tuple[Node, ...]
    buffers: Mapping[str, Buffer]
    refs: Mapping[int, Ref]
    slots: Mapping[str, tuple[int, ...]]
    eager: tuple[Step, ...]
    batch: tuple[Step, ...]
    lazy: tuple[Step, ...]
    backward: tuple[Step, ...]
    backward_lazy: tuple[Step, ...]
    push: int | None
    loss: int | None
    packs: tuple[Pack, ...] = ()
