"""Which operators must wait for children, and which may run earlier or later.

eager: an ancestor of what is scattered that does not depend on what is gathered (W x): may run for
all vertices before the first batch. recurrent: on a path from a gather to a scatter: runs with its
batch.
lazy: needed, but nothing scattered depends on it (outputs; in dF every parameter gradient): may
run for all vertices after the last batch. The same definition serves F (gather to scatter) and dF,
where state gradients come in and gathers' gradients go out.

Source: Xu et al., "Cavs", ATC 2018, Def. 1 and Prop. 2.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from harness.vertex.operators import Node


class Stage(StrEnum):
    """When an operator runs; UNUSED ones are dropped."""

    EAGER = "eager"
    RECURRENT = "recurrent"
    LAZY = "lazy"
    UNUSED = "unused"


def descendants(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """Nodes that depend on one of the roots, the roots included."""
    found = set(roots)
    for i, node in enumerate(nodes):
        if any(operand in found for operand in node.inputs):
            found.add(i)
    return found


def ancestors(nodes: Sequence[Node], roots: Collection[int]) -> set[int]:
    """Nodes that one of the roots depends on, the roots included."""
    found = set(roots)
    for i in reversed(range(len(nodes))):
        if i in found:
            found.update(nodes[i].inputs)
    return found


def find_stages(
    nodes: Sequence[Node],
    incoming: Collection[int],
    outgoing: Collection[int],
    other_results: Collection[int],
) -> tuple[Stage, ...]:
    """Stage of every node.

    incoming: gathers (in dF: state gradients). outgoing: scattered nodes (in dF: gathers'
    gradients).
    other_results: pushed values, losses and parameter gradients.
    """
    dependent = descendants(nodes, incoming)
    needed_by_outgoing = ancestors(nodes, outgoing)
    needed = needed_by_outgoing | ancestors(nodes, other_results)
    stages = []
    for i in range(len(nodes)):
        if i not in needed:
            stages.append(Stage.UNUSED)
        elif i not in needed_by_outgoing:
            stages.append(Stage.LAZY)
        else:
            stages.append(Stage.RECURRENT if i in dependent else Stage.EAGER)
    return tuple(stages)
