"""From binary trees to the typed graph of a mini-batch; shared by all tree models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.programs.writer import Writer
from harness.values.graph import Graph, MiniBatch
from harness.values.instances import TREE_ROWS, IntArray, Tree

LEAF, INTERNAL = 1, 2
WORDS, LABELS, LEFT = (TREE_ROWS.index(name) for name in ("words", "labels", "left"))
TYPE_NAMES = ("unbatchable", "leaf", "internal")


# (table (4, n), sizes (k,) of the trees in it) -> which kind each vertex is of (n,), from 0.
Kinds = Callable[[IntArray, IntArray], IntArray]


def tree_program(
    p: Writer,
    tree: Tree,
    outputs: str,
    type_names: tuple[str, ...] = TYPE_NAMES,
    internal_kinds: Kinds | None = None,
) -> list[Any] | Any:
    """The same graph as a program: recursion from the root, both children concurrently.

    outputs, internal_kinds: see tree_mini_batch.
    """
    words, labels, left, right = (row.tolist() for row in tree.table)
    of: list[Any] = [None] * len(words)
    internal, kinds = [getattr(p, name) for name in type_names[INTERNAL:]], [0] * len(words)
    if internal_kinds is not None:
        kinds = internal_kinds(tree.table, np.array([len(words)], dtype=np.int32)).tolist()

    def visit(v: int) -> Any:
        if left[v] < 0:
            of[v] = p.leaf(word=words[v], label=labels[v])
        else:
            children = p.map(visit, (left[v], right[v]))
            of[v] = internal[kinds[v]](*children, word=words[v], label=labels[v])
        return of[v]

    root = visit(len(words) - 1)
    return of if outputs == "all" else root


def tree_mini_batch(
    instances: Sequence[Tree],
    outputs: str,
    type_names: tuple[str, ...] = TYPE_NAMES,
    internal_kinds: Kinds | None = None,
) -> MiniBatch:
    """Join K trees into one graph of leaf and internal vertices.

    outputs: "all" vertices or the "roots" are read from outside.
    internal_kinds: where a model has several types of internal vertices, which is each one's.
    """
    tables = [tree.table for tree in instances]
    sizes = np.array([table.shape[1] for table in tables], dtype=np.int32)
    table = np.concatenate(tables, axis=1)
    ends = np.cumsum(sizes, dtype=np.int32)
    types, arg_start, args = _join(table[LEFT:], (ends - sizes).repeat(sizes))
    if internal_kinds is not None:
        kinds = internal_kinds(table, sizes)
        np.add(types, kinds, out=types, where=types == INTERNAL)
    read = np.arange(table.shape[1], dtype=np.int32) if outputs == "all" else ends - 1
    return MiniBatch(
        graph=Graph(types=types, arg_start=arg_start, args=args, type_names=type_names),
        pulls={"word": table[WORDS], "label": table[LABELS]},
        outputs=read,
        n_instances=len(instances),
    )


def _join(children: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Types and arguments of all vertices, children (2, n) shifted behind the trees before theirs.

    NumPy only, so that the process of another framework need not load a compiler; few calls, since
    this is timed for every mini-batch.
    """
    internal = children[0] >= 0
    types = np.add(internal, LEAF, dtype=np.int32)  # INTERNAL is LEAF + 1
    arg_start = np.zeros(len(internal) + 1, dtype=np.int32)
    np.cumsum(internal, out=arg_start[1:])
    arg_start *= 2
    children += offsets  # meaningless at leaves, which are left out
    return types, arg_start, children.T[internal].ravel()
