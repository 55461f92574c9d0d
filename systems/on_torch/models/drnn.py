"""DRNN in PyTorch: one tree at a time, recursively, and breadth first over all (Levels)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from harness.contracts.model import Model
from harness.models.drnn import DRNN, Place
from harness.values.instances import Chain
from systems.on_torch.parts.plain_parameters import PlainParameters
from systems.on_torch.parts.rows import to_device
from systems.on_torch.parts.sentences import tensor


class _DRNN(PlainParameters):
    def __init__(self, model: Model) -> None:
        super().__init__(model)
        assert isinstance(model, DRNN)
        self.model = model

    def gated(self, x: Tensor) -> Tensor:
        """tanh(x + b), times one number a row."""
        h = torch.tanh(x + self["b"])
        return h * torch.sigmoid(h @ self["u"])


class Grown(NamedTuple):
    """One instance: the input's row, a label for a node, and the sentence that decides."""

    word: Tensor
    label: Tensor
    sentence: Chain


class Recursive(_DRNN):
    """A node waits for its state, and then makes its child and its sibling."""

    def prepare(self, sentences: Sequence[Chain]) -> list[Grown]:
        """Tensors on the device."""
        device = self.embedding.weight.device
        return [
            Grown(tensor(s.words[:1], device), tensor(s.labels[:1], device), s) for s in sentences
        ]

    def forward(self, instances: list[Grown]) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all nodes, those first that fewer decisions lead to."""
        losses, outputs = [], []
        for instance in instances:
            root = self.embedding(instance.word)
            nodes = dict(self._below(root, root, Place(), instance.sentence))
            scores = torch.cat([nodes[path] for path in sorted(nodes)]) @ self["W_out"]
            labels = instance.label.expand(len(scores))
            outputs.append(scores)
            losses.append(functional.cross_entropy(scores, labels, reduction="sum"))
        return torch.stack(losses).sum(), torch.cat(outputs)

    def _below(
        self, node: Tensor, parent: Tensor, place: Place, sentence: Chain
    ) -> Iterator[tuple[int, Tensor]]:
        """A node behind its path, and all that grows from it."""
        yield place.path, node
        node[0, 0].item()  # what decides is drawn, but it is waited for
        has_child, has_next = self.model.decides(sentence, place)
        if has_child:
            first = self.gated(node @ self["U_a"])
            yield from self._below(first, node, place.child, sentence)
        if has_next:
            following = self.gated(torch.addmm(parent @ self["U_a"], node, self["U_f"]))
            yield from self._below(following, parent, place.next, sentence)


class Round(NamedTuple):
    """Nodes that are decided together: firsts, and then those behind a sibling.

    parents (n,), before (m,): rows among all nodes so far; m of the n have a sibling, the last.
    """

    parents: Tensor
    before: Tensor


class Plan(NamedTuple):
    """Rows of the table and of labels for all nodes; rounds; and where each row's output goes."""

    words: Tensor
    labels: Tensor
    rounds: list[Round]
    order: NDArray[np.int64]


class Levels(_DRNN):
    """All nodes of all trees that are as many decisions away from their roots, at once."""

    def prepare(self, sentences: Sequence[Chain]) -> Sequence[Chain]:
        """The instances as they are; planning is timed."""
        return sentences

    def plan(self, sentences: Sequence[Chain], device: torch.device) -> Plan:
        """Follow all decisions breadth first."""
        frontier = [(k, Place(), -1, k) for k in range(len(sentences))]  # instance, parent, own row
        keys = [(k, Place().path) for k in range(len(sentences))]
        arrays: list[NDArray[np.int64]] = []
        while frontier:
            firsts, nexts = [], []
            for k, place, parent, row in frontier:
                has_child, has_next = self.model.decides(sentences[k], place)
                if has_child:
                    firsts.append((k, place.child, row, -1))
                if has_next:
                    nexts.append((k, place.next, parent, row))
            grown = [*firsts, *nexts]
            n = len(keys)
            keys += [(k, place.path) for k, place, _, _ in grown]
            frontier = [(k, place, of, n + i) for i, (k, place, of, _) in enumerate(grown)]
            arrays.append(np.array([of for _, _, of, _ in grown], dtype=np.int64))
            arrays.append(np.array([before for *_, before in nexts], dtype=np.int64))
        words = np.array([s.words[0] for s in sentences], dtype=np.int64)
        labels = np.array([sentences[k].labels[0] for k, _ in keys], dtype=np.int64)
        of_words, of_labels, *parts = to_device(device, words, labels, *arrays[:-2])
        rounds = [Round(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
        return Plan(of_words, of_labels, rounds, order)

    def forward(self, plan: Plan) -> tuple[Tensor, Tensor]:
        """Summed loss, scores of all nodes, round by round."""
        states = self.embedding(plan.words)
        for parents, before in plan.rounds:
            states[-1, 0].item()  # what decides is drawn, but it is waited for
            x = states[parents] @ self["U_a"]
            if len(before):
                n_firsts = len(parents) - len(before)
                behind = torch.addmm(x[n_firsts:], states[before], self["U_f"])
                x = torch.cat([x[:n_firsts], behind])
            states = torch.cat([states, self.gated(x)])
        scores = states @ self["W_out"]
        return functional.cross_entropy(scores, plan.labels, reduction="sum"), scores

    def in_canonical_order(self, plan: Plan, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Tree by tree."""
        return outputs[plan.order]
