"""Typed graphs of mini-batches of sentences; shared by all sequence models.

A graph consists of blocks: vertices of one purpose, each with as many arguments as its type reads.
The code uses few NumPy calls, as it is timed for every mini-batch, and no compiler, which processes
of other frameworks need not load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.graph import Graph

NONE = -1


@dataclass(frozen=True, slots=True)
class Chains:
    """Concatenated sentences.

    Attributes:
        lengths: (k,).
        starts, ends: (k,), first position of each sentence, and the position after its last.
    """

    lengths: IntArray
    starts: IntArray
    ends: IntArray

    @property
    def n(self) -> int:
        """Number of positions of all sentences."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def mirror_positions(self) -> IntArray:
        """Return for each position (n,) its mirror image in its sentence."""
        last: IntArray = (self.ends - np.int32(1)).astype(np.int32, copy=False)
        mirror: IntArray = (self.starts + last).repeat(self.lengths)
        mirror -= np.arange(self.n, dtype=np.int32)
        return mirror

    def index_positions(self) -> IntArray:
        """Return the index of each position (n,) in its sentence."""
        positions: IntArray = np.arange(self.n, dtype=np.int32) - self.starts.repeat(self.lengths)
        return positions


def concatenate_chains(lengths: Sequence[int] | IntArray) -> Chains:
    """Concatenate sentences of these lengths."""
    counts = np.asarray(lengths, dtype=np.int32)
    ends = np.cumsum(counts, dtype=np.int32)
    return Chains(counts, ends - counts, ends)


@dataclass(frozen=True, slots=True)
class VertexBlock:
    """Vertices of the graph, numbered from `base`.

    Attributes:
        types: (m,).
        args: (m, a), vertices by slot; NONE for no argument. Joining removes the NONEs, which moves
            later arguments to lower slots.
    """

    base: int
    types: IntArray
    args: IntArray

    @property
    def end(self) -> int:
        """Number of the vertex after its last."""
        return self.base + len(self.types)

    @property
    def vertices(self) -> IntArray:
        """Numbers of its vertices (m,)."""
        return np.arange(self.base, self.end, dtype=np.int32)


def build_recurrence(base: int, along: Chains, first: int, step: int) -> VertexBlock:
    """Build a vertex for every position that reads the previous one; first vertices read none."""
    types = np.full(along.n, step, dtype=np.int32)
    types[along.starts] = first
    args = np.arange(base - 1, base - 1 + along.n, dtype=np.int32)
    args[along.starts] = NONE
    return VertexBlock(base, types, args[:, None])


def build_started_recurrence(
    base: int, along: Chains, start: int, step: int
) -> tuple[VertexBlock, IntArray]:
    """Build a start vertex per chain and one per position; return the positions' vertices, too."""
    with_start = concatenate_chains(along.lengths + 1)
    block = build_recurrence(base, with_start, start, step)
    starting = np.zeros(with_start.n, dtype=np.bool_)
    starting[with_start.starts] = True
    return block, np.flatnonzero(~starting).astype(np.int32) + np.int32(base)


def append_arguments(block: VertexBlock, at: IntArray, what: IntArray) -> VertexBlock:
    """Return the block with one more argument for each of its vertices `at`.

    Args:
        at: (k,), numbers of vertices of the block.
        what: (k,), the vertex that each of them reads.
    """
    more = np.full((len(block.types), 1), NONE, dtype=np.int32)
    more[at - block.base, 0] = what
    return VertexBlock(block.base, block.types, np.concatenate([block.args, more], axis=1))


def build_block(base: int, type_id: int, args: IntArray) -> VertexBlock:
    """Build vertices of one type with the given arguments (m, a)."""
    return VertexBlock(base, np.full(len(args), type_id, dtype=np.int32), args)


def join_blocks(
    blocks: Sequence[VertexBlock], type_names: tuple[str, ...], segments: IntArray | None = None
) -> Graph:
    """Join blocks, numbered consecutively, into one graph; for segments see Graph.segments."""
    slots = np.concatenate([block.args.ravel() for block in blocks])
    is_read = slots != NONE
    widths = np.repeat([b.args.shape[1] for b in blocks], [len(b.types) for b in blocks])
    first_slot = np.zeros(len(widths) + 1, dtype=np.int32)
    np.cumsum(widths, out=first_slot[1:])
    # Few slots are empty, so counting those before a vertex is faster than a sum over all slots.
    empty = np.flatnonzero(~is_read)
    arg_start = (first_slot - empty.searchsorted(first_slot)).astype(np.int32)
    args = slots[is_read]
    types = np.concatenate([block.types for block in blocks])
    return Graph(types, arg_start, args, type_names, segments=segments)


def build_pull(n: int, *parts: tuple[IntArray, IntArray]) -> IntArray:
    """Build an external input (n,) from (vertices, values) pairs; NONE at other vertices."""
    pull = np.full(n, NONE, dtype=np.int32)
    for at, values in parts:
        pull[at] = values
    return pull
