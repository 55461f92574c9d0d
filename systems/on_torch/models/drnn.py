"""DRNN in PyTorch: one tree at a time, recursively (Recursive), and breadth first (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.models.drnn import DRNN
from harness.values.instances import Chain
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.untrained import UntrainedParameters
from systems.plans.programs import NONE, Grown, GrownTree, Once, grown_tree


class Recursive(PlainParameters):
    """One tree at a time; every node's state is read before it goes on."""

    def __init__(self, model: DRNN) -> None:
        super().__init__(model)
        self.model, self.read = model, Once(self.tensors)

    def prepare(self, chains: Sequence[Chain]) -> list[tuple[Tensor, Tensor, GrownTree]]:
        """Word and labels of each, on the device, and what grows."""
        return [self.read(chain) for chain in chains]

    def tensors(self, chain: Chain) -> tuple[Tensor, Tensor, GrownTree]:
        """Of one instance."""
        device, tree = self.embedding.weight.device, grown_tree(self.model, chain)
        labels = torch.full((len(tree.nodes),), tree.label, device=device)
        return torch.tensor([tree.word], device=device), labels, tree

    def forward(self, batch: list[tuple[Tensor, Tensor, GrownTree]]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all nodes."""
        losses, outputs = [], []
        for word, labels, tree in batch:
            states: dict[int, Tensor] = {}
            self.grow(tree.nodes, 0, None, self.embedding(word), states)
            outputs.append(torch.cat([states[k] for k in range(len(labels))]) @ self["W_out"])
            losses.append(functional.cross_entropy(outputs[-1], labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def grow(
        self,
        nodes: Sequence[Grown],
        rank: int,
        parent: Tensor | None,
        state: Tensor,
        states: dict[int, Tensor],
    ) -> None:
        """Note a node's state, and those of all that grows from it: children, then siblings."""
        states[rank] = state
        float(state[0, 0])  # waits: only now is known what grows
        _, _, child, sibling = nodes[rank]
        if child != NONE:
            self.grow(nodes, child, state, self.gated(state @ self["U_a"]), states)
        if sibling != NONE:
            assert parent is not None  # a root has no siblings
            x = torch.addmm(parent @ self["U_a"], state, self["U_f"])
            self.grow(nodes, sibling, parent, self.gated(x), states)

    def gated(self, x: Tensor) -> Tensor:
        """h s(u h), of h = tanh(x + b)."""
        h = torch.tanh(x + self["b"])
        return h * torch.sigmoid(h @ self["u"])


Node = tuple[int, int]  # which tree, and the node's rank in it


class Plan(NamedTuple):
    """Trees to grow, and of every state its node, noted as it is computed."""

    trees: Sequence[GrownTree]
    order: list[Node]


class Wave(NamedTuple):
    """Nodes that are computed at once: what the parent of each gives, and their states (n, h)."""

    nodes: list[Node]
    given: Tensor
    states: Tensor


class Levels(UntrainedParameters):
    """All trees breadth first: at once every node whose parent and sibling are there.

    What a parent gives is computed for its first child, and handed on from sibling to sibling.
    """

    def __init__(self, model: DRNN) -> None:
        super().__init__(model)
        self.read = Once(partial(grown_tree, model))

    def prepare(self, chains: Sequence[Chain]) -> list[GrownTree]:
        """What grows from each."""
        return [self.read(chain) for chain in chains]

    def plan(self, trees: Sequence[GrownTree], device: torch.device) -> Plan:
        """Nothing is known before it has grown."""
        return Plan(trees, [])

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all nodes, wave after wave."""
        device, trees = self.embedding.weight.device, plan.trees
        states = self.embedding(torch.tensor([tree.word for tree in trees], device=device))
        wave = Wave([(i, 0) for i in range(len(trees))], states[:0], states)
        waves = []
        while wave.nodes:
            waves.append(wave.states)
            plan.order.extend(wave.nodes)
            wave = self.next_wave(trees, wave)
        scores = self.by("W_out")(torch.cat(waves))
        labels = torch.tensor([trees[i].label for i, _ in plan.order], device=device)
        return functional.cross_entropy(scores, labels, reduction="sum"), scores

    def next_wave(self, trees: Sequence[GrownTree], wave: Wave) -> Wave:
        """First children, then next siblings, once the states that decide on them are read."""
        wave.states[:, 0].tolist()
        new: tuple[list[Node], list[Node]] = [], []
        rows: tuple[list[int], list[int]] = [], []
        for row, (i, rank) in enumerate(wave.nodes):
            _, _, *grown = trees[i].nodes[rank]
            for kind, node in enumerate(grown):
                if node != NONE:
                    new[kind].append((i, node))
                    rows[kind].append(row)
        nodes = [*new[0], *new[1]]
        if not nodes:
            return Wave([], wave.given, wave.states)
        chosen = torch.tensor([*rows[0], *rows[1]], device=wave.states.device)
        sizes = [len(new[0]), len(new[1])]
        parents, befores = torch.split(wave.states.index_select(0, chosen), sizes)
        x = given = self.by("U_a", "b")(parents)
        if len(befores):
            handed_on = wave.given.index_select(0, chosen[sizes[0] :])
            given = torch.cat([given, handed_on])
            x = torch.cat([x, self.by("U_f").add_to(handed_on, befores)])
        h = torch.tanh(x)
        return Wave(nodes, given, h.mul_(self.by("u")(h).sigmoid_()))

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Tree by tree, by rank."""
        firsts = np.cumsum([0, *(len(tree.nodes) for tree in plan.trees)])
        ordered = np.empty_like(outputs)
        ordered[[firsts[i] + rank for i, rank in plan.order]] = outputs
        return ordered


EAGER = {"drnn": Recursive}
LEVELS = {"drnn": Levels}
