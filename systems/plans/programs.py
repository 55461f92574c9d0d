"""Decisions of programs for frameworks: computed once per instance, before it runs.

A framework follows them step by step, each only after the value that decides it has been read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.drnn import DRNN, Place
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.values.instances import Chain

NONE = -1
R = TypeVar("R")


def explain_inference_only(model: Model, mode: str) -> str | None:
    """Return the reason if a trial would train a program with control flow, or None.

    Frameworks run these models only in inference, as published: ACRoBat (Fegade et al., MLSys 2024)
    compares inference only. No paper defines training with graph segments that end at decisions.
    """
    if mode == "infer" or not isinstance(model, ProgramModel):
        return None
    return (
        f"model {model.name} has control flow, which frameworks run in inference only, got"
        f" mode={mode}; set mode=infer"
    )


class Once(Generic[R]):
    """Cached function of an instance, or of all of a mini-batch, which every pass loads again."""

    def __init__(self, read: Callable[[Any], R]) -> None:
        self._read = read
        self._found: dict[int, tuple[Any, R]] = {}  # holds the instance: ids can be reused

    def __call__(self, instance: Any) -> R:
        if id(instance) not in self._found:
            self._found[id(instance)] = (instance, self._read(instance))
        return self._found[id(instance)][1]


class Grown(NamedTuple):
    """Ranks of a node's relatives among the outputs of its tree; NONE if absent.

    Attributes:
        before: the previous sibling.
        sibling: the next sibling.
    """

    parent: int
    before: int
    child: int
    sibling: int


class GrownTree(NamedTuple):
    """Word and label of a tree, and all of its nodes, the root first."""

    word: int
    label: int
    nodes: list[Grown]

    def list_waves(self) -> list[list[int]]:
        """Return the nodes breadth first, by the number of decisions that lead to them."""
        waves = [[0]]
        while waves[-1]:
            nodes = (self.nodes[rank] for rank in waves[-1])
            waves.append([k for node in nodes for k in (node.child, node.sibling) if k != NONE])
        return waves[:-1]

    def list_depth_first(self) -> list[int]:
        """Return the nodes in the order of recursion: a node, all below it, its next sibling."""
        ranks, to_do = [], [0]
        while to_do:
            ranks.append(to_do.pop())
            node = self.nodes[ranks[-1]]
            to_do += [k for k in (node.sibling, node.child) if k != NONE]
        return ranks


def grow_tree(model: DRNN, sentence: Chain) -> GrownTree:
    """Build the tree, with one query per decision."""
    places = [Place()]
    for place in places:  # grows during the loop, in the order of outputs
        has_child, has_sibling = model.replay_decisions(sentence, place)
        places += [place.child] * has_child + [place.next] * has_sibling
    ranks = {place.path: rank for rank, place in enumerate(places)}
    parents, befores = [NONE] * len(places), [NONE] * len(places)
    nodes = []
    for rank, place in enumerate(places):
        child, sibling = (ranks.get(p.path, NONE) for p in (place.child, place.next))
        if child != NONE:
            parents[child] = rank
        if sibling != NONE:
            parents[sibling], befores[sibling] = parents[rank], rank
        nodes.append(Grown(parents[rank], befores[rank], child, sibling))
    return GrownTree(int(sentence.words[0]), int(sentence.labels[0]), nodes)
