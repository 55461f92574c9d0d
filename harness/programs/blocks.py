"""Blocks that a program can call, and taint analysis that finds those that can run first.

A block is recurrent if its result can reach itself through any blocks. Recurrent blocks and all
blocks that they reach are tainted. Others have a static depth: the maximum number of them on a path
to it. The edges between blocks come from recordings, so the analysis is as exact as the programs
run so far; a mini-batch with a new edge is recorded again.

Source: ACRoBat, MLSys 2024, B.1 (a 1-context-sensitive taint analysis of the program's text; here a
context is a block, and a function called with other weights is another block).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.vertex.program import VertexFunction

COUNTED = -1  # for a block with a variable number of operands
TAINTED = -1
Feeds = NDArray[np.bool_]  # [a, b]: vertices of type a are arguments of type b (n_types, n_types)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Signature of a block's calls.

    Attributes:
        type_id: type of the vertices that calls become.
        operands: for each slot the types that have the states it reads.
        of_each: types allowed in all slots of a block with a variable number of operands.
        pulls: names of the external numbers that it needs.
    """

    name: str
    type_id: int
    operands: tuple[frozenset[int], ...]
    of_each: frozenset[int] | None
    pulls: frozenset[str]

    def find_allowed_types(self, n: int) -> tuple[frozenset[int], ...] | None:
        """Return the allowed types of each of n operands; None if n operands are not allowed."""
        if self.of_each is not None:
            return (self.of_each,) * n
        return self.operands if n == len(self.operands) else None


def build_block_shapes(
    functions: Mapping[str, VertexFunction], types: Sequence[str]
) -> dict[str, BlockShape]:
    """Return the signatures of all blocks by name; ids are indices in `types`, from 1."""
    having: dict[str, set[int]] = {}
    for type_id, name in enumerate(types, start=1):
        for state, _ in functions[name].scatter:
            having.setdefault(state, set()).add(type_id)
    every = frozenset(range(1, len(types) + 1))
    shapes = {}
    for type_id, name in enumerate(types, start=1):
        function = functions[name]
        slots = [every] * function.arity
        of_each: frozenset[int] | None = None
        for node in function.nodes:
            if node.op == "gather":
                slots[node.index] &= having[node.name]
            elif node.op == "gather_each":
                of_each = (every if of_each is None else of_each) & having[node.name]
        pulls = frozenset(node.name for node in function.nodes if node.op == "pull")
        shapes[name] = BlockShape(name, type_id, tuple(slots), of_each, pulls)
    return shapes


class Fitting:
    """Signatures of all blocks as arrays, for the pass that checks calls.

    Attributes:
        n_slots: (n_types,), number of operands, COUNTED if variable.
        fits: (n_types, slots, n_types), True if a type is allowed in a slot.
        needs: (n_types, n_names), True for the external numbers that a type requires.
    """

    def __init__(self, shapes: Iterable[BlockShape], n_types: int, names: Sequence[str]) -> None:
        shapes = tuple(shapes)
        most = max((len(shape.operands) for shape in shapes), default=0)
        self.n_slots = np.zeros(n_types, dtype=np.int32)
        self.fits: NDArray[np.bool_] = np.zeros((n_types, max(1, most), n_types), dtype=np.bool_)
        self.needs: NDArray[np.bool_] = np.zeros((n_types, len(names)), dtype=np.bool_)
        for shape in shapes:
            operands = shape.operands if shape.of_each is None else (shape.of_each,)
            self.n_slots[shape.type_id] = len(operands) if shape.of_each is None else COUNTED
            for slot, types in enumerate(operands):
                self.fits[shape.type_id, slot, list(types)] = True
            self.needs[shape.type_id] = [name in shape.pulls for name in names]


def compute_static_depths(feeds: Feeds) -> list[int]:
    """Return each type's depth among untainted types, from 0; TAINTED for tainted ones."""
    reaches = feeds.copy()
    for middle in range(len(feeds)):
        reaches |= reaches[:, middle, None] & reaches[None, middle]
    recurrent = reaches.diagonal()
    tainted = recurrent | reaches[recurrent].any(axis=0)
    depth = np.where(tainted, TAINTED, 0)
    for _ in range(len(feeds)):  # no path among untainted types is longer
        for user in np.flatnonzero(~tainted):
            before = depth[feeds[:, user]]
            depth[user] = before.max(initial=-1) + 1
    depths: list[int] = depth.tolist()
    return depths


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """Options of what is counted while a program runs.

    Attributes:
        phases: the program's stages are separate phases; otherwise there is one phase.
        hoisting: blocks that no recurrent value reaches have a static depth.
        restart: depths restart in every graph segment; otherwise they continue.
    """

    phases: bool = True
    ghosts: bool = True
    hoisting: bool = True
    restart: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """Facts that all recordings of a model share until a new edge between blocks is recorded.

    Attributes:
        shapes: signatures of the blocks, by name.
        names: names of the external numbers that any function needs.
        static: static depth of every type (compute_static_depths).
    """

    shapes: Mapping[str, BlockShape]
    names: tuple[str, ...]
    static: Sequence[int]
    options: RecordingOptions

    @property
    def base(self) -> int:
        """Initial depth of tainted blocks, which is after all hoisted blocks."""
        return 1 + max(self.static, default=TAINTED)
