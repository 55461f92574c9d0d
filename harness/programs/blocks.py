"""The blocks that a program may call, and which of them may run before everything else.

A block is recurrent where what it computes can reach itself, through any blocks; tainted are
recurrent blocks and all that they reach. Others have a static depth: how many of them may come
before it. Which block feeds which is taken from recordings, so that the analysis is as exact as the
programs that were met; a mini-batch that shows a new edge is recorded again.

Source: ACRoBat, MLSys 2024, B.1 (a 1-context-sensitive taint analysis of the program's text; here
a context is a block, and a function called with other weights is another block).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.vertex.program import VertexFunction

COUNTED = -1  # operands of a block that takes any number of them
TAINTED = -1
Feeds = NDArray[np.bool_]  # which type's vertices are arguments of which type's (n_types, n_types)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The form of a block's calls.

    type_id: of the vertices that calls become. operands: of every slot the types that have the
    states which it reads; `of_each` where it takes any number. pulls: numbers that it needs.
    """

    name: str
    type_id: int
    operands: tuple[frozenset[int], ...]
    of_each: frozenset[int] | None
    pulls: frozenset[str]

    def allowed(self, n: int) -> tuple[frozenset[int], ...] | None:
        """Types of n operands; None where it does not take so many."""
        if self.of_each is not None:
            return (self.of_each,) * n
        return self.operands if n == len(self.operands) else None


def block_shapes(
    functions: Mapping[str, VertexFunction], types: Sequence[str]
) -> dict[str, BlockShape]:
    """Shapes of all blocks by name; ids are places in `types`, from 1."""
    having: dict[str, set[int]] = {}
    for type_id, name in enumerate(types, start=1):
        for state, _ in functions[name].scatter:
            having.setdefault(state, set()).add(type_id)
    every = frozenset(range(1, len(types) + 1))
    found = {}
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
        found[name] = BlockShape(name, type_id, tuple(slots), of_each, pulls)
    return found


class Fitting:
    """The form of all blocks' calls as arrays, for the pass that proves all of them.

    n_slots (n_types,): operands, COUNTED where a block takes any. fits (n_types, slots,
    n_types): whether a type may stand in a slot. needs (n_types, n_names): numbers that a type
    cannot be without.
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


def static_depths(feeds: Feeds) -> list[int]:
    """Return the depth of every type among untainted ones, from 0; TAINTED if it has none."""
    reaches = feeds.copy()
    for middle in range(len(feeds)):
        reaches |= reaches[:, middle, None] & reaches[None, middle]
    recurrent = reaches.diagonal()
    tainted = recurrent | reaches[recurrent].any(axis=0)
    found = np.where(tainted, TAINTED, 0)
    for _ in range(len(feeds)):  # no path among untainted types is longer
        for user in np.flatnonzero(~tainted):
            before = found[feeds[:, user]]
            found[user] = before.max(initial=-1) + 1
    depths: list[int] = found.tolist()
    return depths


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """Options of what is counted while a program runs.

    phases: the program's stages part its depths; else all of it is one. ghosts: counted, or left
    out. hoisting: blocks that no recurrent value reaches have a static depth. restart: depths begin
    anew with every round, or go on.
    """

    phases: bool = True
    ghosts: bool = True
    hoisting: bool = True
    restart: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """Facts that all recordings of a model share until more is known of it.

    shapes: of the blocks, by name. names: of the numbers that any function needs. static: depth of
    every type that does not count (static_depths).
    """

    shapes: Mapping[str, BlockShape]
    names: tuple[str, ...]
    static: Sequence[int]
    options: RecordingOptions

    @property
    def base(self) -> int:
        """Hoisted blocks come before all others."""
        return 1 + max(self.static, default=TAINTED)
