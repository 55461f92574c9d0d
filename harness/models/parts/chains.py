"""From sentences to the typed graph of a mini-batch; shared by all sequence models.

A graph is put together from blocks: vertices of one purpose, each with as many arguments as its
type reads. NumPy only and few calls, since this is timed for every mini-batch, and so that the
process of another framework need not load a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.values.arrays import IntArray
from harness.values.graph import Graph

NONE = -1


@dataclass(frozen=True, slots=True)
class Chains:
    """Sentences end to end: lengths (k,) and where each begins and ends, (k,)."""

    lengths: IntArray
    starts: IntArray
    ends: IntArray

    @property
    def n(self) -> int:
        """All places of all sentences."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def mirrored(self) -> IntArray:
        """Of every place (n,): the place as far from its sentence's other end."""
        last: IntArray = (self.ends - np.int32(1)).astype(np.int32, copy=False)
        mirror: IntArray = (self.starts + last).repeat(self.lengths)
        mirror -= np.arange(self.n, dtype=np.int32)
        return mirror

    def places(self) -> IntArray:
        """Of every place (n,): how many come before it in its sentence."""
        found: IntArray = np.arange(self.n, dtype=np.int32) - self.starts.repeat(self.lengths)
        return found


def chains(lengths: Sequence[int] | IntArray) -> Chains:
    """Lay sentences of these lengths end to end."""
    counts = np.asarray(lengths, dtype=np.int32)
    ends = np.cumsum(counts, dtype=np.int32)
    return Chains(counts, ends - counts, ends)


@dataclass(frozen=True, slots=True)
class Block:
    """Some vertices of the graph, numbered from `base`.

    types (m,). args (m, a): vertices by slot, NONE where there is none; those that are left move
    to the lowest slots.
    """

    base: int
    types: IntArray
    args: IntArray

    @property
    def end(self) -> int:
        """The number behind its last vertex."""
        return self.base + len(self.types)

    @property
    def vertices(self) -> IntArray:
        """Their numbers (m,)."""
        return np.arange(self.base, self.end, dtype=np.int32)


def recurrence(base: int, along: Chains, first: int, step: int) -> Block:
    """A vertex for every place, which reads the one before; the first of a chain reads none."""
    types = np.full(along.n, step, dtype=np.int32)
    types[along.starts] = first
    args = np.arange(base - 1, base - 1 + along.n, dtype=np.int32)
    args[along.starts] = NONE
    return Block(base, types, args[:, None])


def started_recurrence(base: int, along: Chains, start: int, step: int) -> tuple[Block, IntArray]:
    """A start vertex for every chain and then one for every place; also the places' vertices."""
    with_start = chains(along.lengths + 1)
    block = recurrence(base, with_start, start, step)
    starting = np.zeros(with_start.n, dtype=np.bool_)
    starting[with_start.starts] = True
    return block, np.flatnonzero(~starting).astype(np.int32) + np.int32(base)


def reading(block: Block, at: IntArray, what: IntArray) -> Block:
    """The block, its vertices `at` with one more argument each: what they read (len(at),)."""
    more = np.full((len(block.types), 1), NONE, dtype=np.int32)
    more[at - block.base, 0] = what
    return Block(block.base, block.types, np.concatenate([block.args, more], axis=1))


def plain(base: int, type_id: int, args: IntArray) -> Block:
    """Vertices of one type with the given arguments (m, a)."""
    return Block(base, np.full(len(args), type_id, dtype=np.int32), args)


def joined(
    blocks: Sequence[Block], type_names: tuple[str, ...], rounds: IntArray | None = None
) -> Graph:
    """One graph of all blocks, which are numbered one after the other; see Graph.rounds."""
    n_args = np.concatenate([(block.args != NONE).sum(axis=1) for block in blocks])
    arg_start = np.zeros(len(n_args) + 1, dtype=np.int32)
    np.cumsum(n_args, out=arg_start[1:])
    args = np.concatenate([block.args[block.args != NONE] for block in blocks])
    types = np.concatenate([block.types for block in blocks])
    return Graph(types, arg_start, args, type_names, rounds=rounds)


def pulled(n: int, *parts: tuple[IntArray, IntArray]) -> IntArray:
    """External inputs (n,): of each part its values at its vertices, NONE elsewhere."""
    found = np.full(n, NONE, dtype=np.int32)
    for at, values in parts:
        found[at] = values
    return found
