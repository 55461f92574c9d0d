"""Values that have a place so far; every step of placement adds to it and returns a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.engine.lowering.plan import Buffer, BufferName, Memory, Ref, Role
from harness.engine.lowering.uses import Uses
from harness.vertex.operators import Node


@dataclass(frozen=True, slots=True)
class Placed:
    """Columns of nodes, and the buffers that these are columns of."""

    refs: Mapping[int, Ref] = field(default_factory=dict)
    buffers: Mapping[BufferName, Buffer] = field(default_factory=dict)

    def at(self, i: int, ref: Ref) -> Placed:
        """With node i at these columns."""
        return Placed({**self.refs, i: ref}, self.buffers)

    def having(self, buffer: Buffer) -> Placed:
        """With one more buffer."""
        return Placed(self.refs, {**self.buffers, buffer.name: buffer})

    def joined(self, other: Placed) -> Placed:
        """With all of another."""
        return Placed({**self.refs, **other.refs}, {**self.buffers, **other.buffers})

    def filling(self, i: int, node: Node, name: BufferName, memory: Memory) -> Placed:
        """With node i alone in a buffer of its width."""
        buffer = Buffer(name, memory, node.width, node.domain)
        return self.having(buffer).at(i, Ref(name, 0, node.width))


def place_alone(uses: Uses, placed: Placed, i: int) -> Placed:
    """Give a node a buffer of its own."""
    return placed.filling(i, uses.nodes[i], BufferName(Role.NODE, str(i)), Memory.SCRATCH)


def place_view(uses: Uses, placed: Placed, i: int) -> Placed:
    """Place a node that has a place already, or is columns of one that has."""
    if i in placed.refs:
        return placed
    node = uses.nodes[i]
    base = node.inputs[0]
    placed = place_view(uses, placed, base)
    return placed.at(i, placed.refs[base].columns(node.index, node.width))
