"""The tree that a DRNN grows from a sentence, as peers hold it: decided beforehand, node by node.

Peers follow it as they go, each step only when the value that decides it has been read.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.models.drnn import DRNN, Place
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
    places = [Place()]
    for place in places:  # which grows as it is read, in the order of outputs
        has_child, has_sibling = model.decides(sentence, place)
        places += [place.child] * has_child + [place.next] * has_sibling
    nodes: dict[int, Grown] = {}
    for rank in reversed(range(len(places))):
        place = places[rank]
        below, beside = nodes.get(place.child.path), nodes.get(place.next.path)
        nodes[place.path] = Grown(rank, below, beside)
    root = nodes[Place().path]
    return GrownTree(int(sentence.words[0]), int(sentence.labels[0]), root, len(places))
