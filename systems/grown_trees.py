"""The tree that a DRNN grows from a sentence, as peers hold it: decided beforehand, node by node.

Peers follow it as they go, each step only when the value that decides it has been read.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.models.drnn import CHILD, DRNN, SIBLING, Place
from harness.values.instances import Chain


class Grown(NamedTuple):
    """A node: its rank among the outputs, its first child and its next sibling, if any."""

    rank: int
    child: Grown | None
    sibling: Grown | None


class GrownTree(NamedTuple):
    """What grows from the row of a word, how many nodes there are, and the label of each."""

    word: int
    label: int
    root: Grown
    n_nodes: int


def grown_tree(model: DRNN, sentence: Chain) -> GrownTree:
    """Ask for every decision once."""
    root, n_nodes = _grown(model, sentence, Place(), 0)
    return GrownTree(int(sentence.words[0]), int(sentence.labels[0]), root, n_nodes)


def _grown(model: DRNN, sentence: Chain, place: Place, rank: int) -> tuple[Grown, int]:
    """A node and what follows it; and the next rank."""
    end = rank + 1
    has_child, has_sibling = (model.decides(sentence, place, what) for what in (CHILD, SIBLING))
    child = sibling = None
    if has_child:
        child, end = _grown(model, sentence, place.child, end)
    if has_sibling:
        sibling, end = _grown(model, sentence, place.next, end)
    return Grown(rank, child, sibling), end
