"""DRNN in PyTorch: one tree at a time, recursively (Recursive), and breadth first (Levels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.models.drnn import DRNN
from harness.values.instances import Chain
from systems.grown_trees import Grown, GrownTree, grown_tree
from systems.on_torch.parts.untrained import UntrainedLinear


class _DRNN(nn.Module):
    """Parameters of harness.models.drnn."""

    def __init__(self, model: DRNN, kind: type[nn.Linear]) -> None:
        super().__init__()
        self.model, h = model, model.sizes.hidden_size
        self.embedding = nn.Embedding(model.sizes.of("words"), h)
        self.of_parent, self.of_before = kind(h, h), kind(h, h, bias=False)
        self.gate = kind(h, 1, bias=False)
        self.classifier = kind(h, model.sizes.of("classes"), bias=False)
        self.SHARED = {
            "embedding": "embedding.weight",
            "U_a": "of_parent.weight",
            "U_f": "of_before.weight",
            "b": "of_parent.bias",
            "u": "gate.weight",
            "W_out": "classifier.weight",
        }

    def gated(self, x: Tensor) -> Tensor:
        """h s(u h), of h = tanh(x)."""
        h = torch.tanh(x)
        return h * torch.sigmoid(self.gate(h))


class Recursive(_DRNN):
    """One tree at a time; every node's state is read before it goes on."""

    def __init__(self, model: DRNN) -> None:
        super().__init__(model, nn.Linear)

    def prepare(self, chains: Sequence[Chain]) -> list[tuple[Tensor, Tensor, Grown]]:
        """Word and label of each, on the device, and what grows."""
        device = self.embedding.weight.device
        trees = [grown_tree(self.model, chain) for chain in chains]
        return [
            (
                torch.tensor([tree.word], device=device),
                torch.full((tree.n_nodes,), tree.label, device=device),
                tree.root,
            )
            for tree in trees
        ]

    def forward(self, batch: list[tuple[Tensor, Tensor, Grown]]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all nodes."""
        losses, outputs = [], []
        for word, labels, root in batch:
            states: dict[int, Tensor] = {}
            self.grow(root, None, self.embedding(word), states)
            outputs.append(self.classifier(torch.cat([states[k] for k in range(len(labels))])))
            losses.append(functional.cross_entropy(outputs[-1], labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def grow(
        self, node: Grown, parent: Tensor | None, state: Tensor, states: dict[int, Tensor]
    ) -> None:
        """Note a node's state, and those of all that grows from it: children, then siblings."""
        states[node.rank] = state
        float(state[0, 0])  # waits: only now is known what grows
        if node.child is not None:
            self.grow(node.child, state, self.gated(self.of_parent(state)), states)
        if node.sibling is not None:
            assert parent is not None  # a root has no siblings
            x = self.of_parent(parent) + self.of_before(state)
            self.grow(node.sibling, parent, self.gated(x), states)


class Plan(NamedTuple):
    """Trees to grow, and of every state its rank among the outputs, noted while they grow."""

    trees: Sequence[GrownTree]
    ranks: list[int]


class Wave(NamedTuple):
    """Nodes that are computed at once: of each its place and that of its tree, and their states."""

    nodes: list[tuple[Grown, int]]
    given: Tensor
    states: Tensor


class Levels(_DRNN):
    """All trees breadth first: at once every node whose parent and sibling are there.

    What a parent gives is computed for its first child, and handed on from sibling to sibling.
    """

    def __init__(self, model: DRNN) -> None:
        super().__init__(model, UntrainedLinear)

    def prepare(self, chains: Sequence[Chain]) -> list[GrownTree]:
        """What grows from each."""
        return [grown_tree(self.model, chain) for chain in chains]

    def plan(self, trees: Sequence[GrownTree], device: torch.device) -> Plan:
        """Nothing is known before it has grown."""
        return Plan(trees, [])

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all nodes, wave after wave."""
        device, trees = self.embedding.weight.device, plan.trees
        first_ranks = np.cumsum([0, *(tree.n_nodes for tree in trees)]).tolist()
        states = self.embedding(torch.tensor([tree.word for tree in trees], device=device))
        wave = Wave([(tree.root, i) for i, tree in enumerate(trees)], states[:0], states)
        waves, labels = [], []
        while wave.nodes:
            waves.append(wave.states)
            plan.ranks.extend([first_ranks[i] + node.rank for node, i in wave.nodes])
            labels += [trees[i].label for _, i in wave.nodes]
            wave = self.next_wave(wave)
        scores = self.classifier(torch.cat(waves))
        right = torch.tensor(labels, device=device)
        return functional.cross_entropy(scores, right, reduction="sum"), scores

    def next_wave(self, wave: Wave) -> Wave:
        """First children, then next siblings, once the states that decide on them are read."""
        wave.states[:, 0].tolist()
        above = [(k, node.child, i) for k, (node, i) in enumerate(wave.nodes) if node.child]
        beside = [(k, node.sibling, i) for k, (node, i) in enumerate(wave.nodes) if node.sibling]
        new = [(node, i) for _, node, i in (*above, *beside)]
        if not new:
            return Wave([], wave.given, wave.states)
        rows = torch.tensor([k for k, *_ in (*above, *beside)], device=wave.states.device)
        chosen = wave.states.index_select(0, rows)
        parents, befores = torch.split(chosen, [len(above), len(beside)])
        given = self.of_parent(parents)
        x = given
        if beside:
            handed_on = wave.given.index_select(0, rows[len(above) :])
            given = torch.cat([given, handed_on])
            x = torch.cat([x, self.of_before(befores).add_(handed_on)])
        return Wave(new, given, self.gated(x))

    def in_canonical_order(self, plan: Plan, outputs: NDArray[Any]) -> NDArray[Any]:
        """Tree by tree, by rank."""
        ordered = np.empty_like(outputs)
        ordered[plan.ranks] = outputs
        return ordered
