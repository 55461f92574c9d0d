"""Programs in PyTorch, one instance at a time, and all in parallel: NestedRNN, DRNN and Berxit.

A value that decides on the next operation is read first, as in a program that computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dynbatch.harness.models.berxit import Berxit
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex.operators import LAYER_NORM_EPSILON
from dynbatch.systems.on_torch.layers import ProgramNet
from dynbatch.systems.on_torch.net import Batched, OneByOne, score_labels
from dynbatch.systems.on_torch.products import tanh
from dynbatch.systems.on_torch.rows import arrange_columns, to_tensor
from dynbatch.systems.plans.programs import NONE, Grown, GrownTree, grow_tree
from dynbatch.systems.plans.trees import invert_permutation


class Loops(NamedTuple):
    """Instance of NestedRNN.

    Attributes:
        word: first word.
        n_inner: inner steps of each outer step.
    """

    word: int
    label: int
    n_inner: list[int]


class NestedNet(ProgramNet):
    """Parameters of dynbatch.harness.models.nested_rnn."""

    def convert_chain(self, chain: Chain) -> Loops:
        return Loops(int(chain.words[0]), int(chain.labels[0]), self.model.list_inner_counts(chain))


class RecursiveNested(NestedNet, OneByOne):
    """One instance at a time; every state of the outer loop is read before the next step."""

    def yield_scores(self, batch: list[Loops]) -> Iterator[tuple[Tensor, Tensor]]:
        device, U, b = self.embedding.weight.device, self["U"], self["b"]
        for word, label, loops in batch:
            h = self.embedding(torch.tensor([word], device=device))
            states = []
            for n_inner in loops:
                float(h[0, 0])  # synchronizes to read the length of the inner loop
                x = h
                for _ in range(n_inner):
                    x = torch.tanh(torch.addmm(b, x, U))
                h = self.run_outer_step(x, h)
                states.append(h)
            scores = torch.cat(states) @ self["W_out"]
            yield scores, torch.full((len(loops),), label, device=device)

    def run_outer_step(self, x: Tensor, h: Tensor) -> Tensor:
        """Run a step of the outer GRU; return its next state (1, h)."""
        x_r, x_z, x_n = torch.addmm(self["b_gates"], x, self["W_x"]).chunk(3, dim=1)
        h_r, h_z = (h @ self["W_h"]).chunk(2, dim=1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(torch.addmm(x_n, r * h, self["U_n"]))
        return z * h + (1.0 - z) * n


class LoopBatch(NamedTuple):
    """Instances sorted by the length of the outer loop, longest first.

    Attributes:
        loops: the instances.
        n_going: number of instances in each outer step.
        labels: (n,) labels of all steps.
        rows: (n,) row of every step, instance by instance; rows are step by step.
    """

    loops: list[Loops]
    n_going: list[int]
    labels: Tensor
    rows: Tensor


class LevelsNested(NestedNet, Batched):
    """All instances in parallel, in outer and in inner steps.

    In an inner loop, instances with the most steps come first, so that each step is a slice.
    """

    def plan(self, batch: Sequence[Loops], device: torch.device) -> LoopBatch:
        lengths = np.array([len(instance.n_inner) for instance in batch], dtype=np.int64)
        steps = arrange_columns(lengths, device)
        labels = to_tensor(np.repeat([instance.label for instance in batch], lengths), device)
        loops = [batch[i] for i in steps.order.tolist()]
        return LoopBatch(loops, steps.sizes, labels[steps.along.places], steps.along.rows)

    def forward(self, plan: LoopBatch) -> tuple[Tensor, Tensor]:
        """Return the summed loss, and the scores of all outer steps, step after step."""
        words = [instance.word for instance in plan.loops]
        h = self.embedding(torch.tensor(words, device=self.embedding.weight.device))
        states = []
        for step, n in enumerate(plan.n_going):
            h = h[:n]
            h[:, 0].tolist()  # synchronizes to read the lengths of inner loops
            h = self.run_outer_step(
                self.run_inner_loops(h, [instance.n_inner[step] for instance in plan.loops[:n]]), h
            )
            states.append(h)
        return score_labels(self.get_product("W_out")(torch.cat(states)), plan.labels)

    def run_inner_loops(self, h: Tensor, times: Sequence[int]) -> Tensor:
        """Run the inner loops; return their last states (n, h), given their initial states h."""
        order = sorted(range(len(times)), key=lambda i: -times[i])
        rows = torch.tensor(order, device=h.device)
        x, n, inner = h.index_select(0, rows), len(order), self.get_product("U", "b")
        for step in range(times[order[0]]):
            while times[order[n - 1]] <= step:
                n -= 1
            tanh(inner(x[:n]), x[:n])
        return torch.empty_like(x).index_copy_(0, rows, x)

    def run_outer_step(self, x: Tensor, h: Tensor) -> Tensor:
        """Run a step of the outer GRU; return its next states (n, h)."""
        gates, width = self.get_product("W_x", "b_gates")(x), h.shape[1]
        r_z, n = gates[:, : 2 * width], gates[:, 2 * width :]
        r, z = self.get_product("W_h").add_to(r_z, h).sigmoid_().chunk(2, dim=1)
        self.get_product("U_n").add_to(n, r * h)
        n = tanh(n)
        return torch.addcmul(n, z, h - n)

    def find_canonical_rows(self, plan: LoopBatch) -> NDArray[np.integer]:
        return plan.rows.cpu().numpy()


class RecursiveDRNN(ProgramNet, OneByOne):
    """One tree at a time; every node's state is read before its tree grows."""

    def convert_chain(self, chain: Chain) -> tuple[Tensor, Tensor, GrownTree]:
        """Return word and labels on the device, and the tree that will grow."""
        device, tree = self.embedding.weight.device, grow_tree(self.model, chain)
        labels = torch.full((len(tree.nodes),), tree.label, device=device)
        return torch.tensor([tree.word], device=device), labels, tree

    def yield_scores(
        self, batch: list[tuple[Tensor, Tensor, GrownTree]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for word, labels, tree in batch:
            states: dict[int, Tensor] = {}
            self.grow(tree.nodes, 0, None, self.embedding(word), states)
            yield torch.cat([states[k] for k in range(len(labels))]) @ self["W_out"], labels

    def grow(
        self,
        nodes: Sequence[Grown],
        rank: int,
        parent: Tensor | None,
        state: Tensor,
        states: dict[int, Tensor],
    ) -> None:
        """Store the states of a node and of all that grow from it, children before siblings."""
        states[rank] = state
        float(state[0, 0])  # synchronizes to read the decision on growth
        _, _, child, sibling = nodes[rank]
        if child != NONE:
            self.grow(nodes, child, state, self.apply_gate(state @ self["U_a"]), states)
        if sibling != NONE:
            assert parent is not None  # a root has no siblings
            x = torch.addmm(parent @ self["U_a"], state, self["U_f"])
            self.grow(nodes, sibling, parent, self.apply_gate(x), states)

    def apply_gate(self, x: Tensor) -> Tensor:
        """Return h s(u h), with h = tanh(x + b)."""
        h = torch.tanh(x + self["b"])
        return h * torch.sigmoid(h @ self["u"])


Node = tuple[int, int]  # tree, and rank of the node in it


class GrowthBatch(NamedTuple):
    """Trees to grow, and the node of every state, appended when the state is computed."""

    trees: Sequence[GrownTree]
    order: list[Node]


class Wave(NamedTuple):
    """Nodes that are computed together, with their parents' terms and their own states (n, h)."""

    nodes: list[Node]
    given: Tensor
    states: Tensor


class LevelsDRNN(ProgramNet, Batched):
    """All trees breadth first: each wave has all nodes whose parent and previous sibling exist.

    The term of a parent is computed for its first child, and passed on from sibling to sibling.
    """

    def convert_chain(self, chain: Chain) -> GrownTree:
        return grow_tree(self.model, chain)

    def plan(self, trees: Sequence[GrownTree], device: torch.device) -> GrowthBatch:
        """Return an empty order, because nodes are unknown before they grow."""
        return GrowthBatch(trees, [])

    def forward(self, plan: GrowthBatch) -> tuple[Tensor, Tensor]:
        """Return the summed loss, and the scores of all nodes, wave after wave."""
        device, trees = self.embedding.weight.device, plan.trees
        states = self.embedding(torch.tensor([tree.word for tree in trees], device=device))
        wave = Wave([(i, 0) for i in range(len(trees))], states[:0], states)
        waves = []
        while wave.nodes:
            waves.append(wave.states)
            plan.order.extend(wave.nodes)
            wave = self.compute_next_wave(trees, wave)
        scores = self.get_product("W_out")(torch.cat(waves))
        labels = torch.tensor([trees[i].label for i, _ in plan.order], device=device)
        return score_labels(scores, labels)

    def compute_next_wave(self, trees: Sequence[GrownTree], wave: Wave) -> Wave:
        """Return first children, then next siblings, after reading the states that decide."""
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
        x = given = self.get_product("U_a", "b")(parents)
        if len(befores):
            handed_on = wave.given.index_select(0, chosen[sizes[0] :])
            given = torch.cat([given, handed_on])
            x = torch.cat([x, self.get_product("U_f").add_to(handed_on, befores)])
        h = torch.tanh(x)
        return Wave(nodes, given, h.mul_(self.get_product("u")(h).sigmoid_()))

    def find_canonical_rows(self, plan: GrowthBatch) -> NDArray[np.integer]:
        """Return the rows tree by tree, in order of rank."""
        firsts = np.cumsum([0, *(len(tree.nodes) for tree in plan.trees)])
        return invert_permutation(np.array([firsts[i] + rank for i, rank in plan.order]))


class BerxitSentence(NamedTuple):
    """Sentence of Berxit.

    Attributes:
        words: words of all tokens.
        n_layers: layers until a computed value makes the sentence exit.
    """

    words: list[int]
    label: int
    n_layers: int


class Encoder(ProgramNet):
    """Encoder of sentences (n, tokens, h), with PyTorch's functions for the layer."""

    def __init__(self, model: Berxit) -> None:
        super().__init__(model)
        self.n_heads, self.layers = model.n_heads, model.layers
        self._side_by_side: tuple[Tensor, Tensor] | None = None

    def convert_chain(self, chain: Chain) -> BerxitSentence:
        model = self.model
        words, n_layers = model.pad_words(chain), model.count_layers(chain)
        return BerxitSentence(words, int(chain.labels[0]), n_layers)

    def embed_tokens(self, sentences: Sequence[BerxitSentence]) -> Tensor:
        words = torch.tensor(
            [sentence.words for sentence in sentences], device=self.embedding.weight.device
        )
        return self.normalize(self.embedding(words) + self["places"], "gain_token", "b_token")

    def apply_layer(self, x: Tensor) -> Tensor:
        heads = functional.linear(self.apply_attention(x), self["W_heads"].t(), self["b_heads"])
        a = self.normalize(x + heads, "gain_heads", "b_heads_norm")
        up = functional.linear(a, self["W_up"].t(), self["b_up"])
        down = functional.linear(
            functional.gelu(up, approximate="tanh"), self["W_down"].t(), self["b_down"]
        )
        return self.normalize(a + down, "gain_layer", "b_layer")

    def apply_attention(self, x: Tensor) -> Tensor:
        """Return all attention heads, concatenated."""
        n, n_tokens, h = x.shape
        weight, bias = self._join_q_k_v()
        parts = functional.linear(x, weight, bias).view(n, n_tokens, 3, self.n_heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(n, n_tokens, h)

    def _join_q_k_v(self) -> tuple[Tensor, Tensor]:
        """Return the weights of q, k and v for one product; they are never trained."""
        if self._side_by_side is None:
            weight = torch.cat([self[f"W_{part}"] for part in "qkv"], dim=1).t().contiguous()
            self._side_by_side = weight, torch.cat([self[f"b_{part}"] for part in "qkv"])
        return self._side_by_side

    def normalize(self, x: Tensor, gain: str, bias: str) -> Tensor:
        """Apply layer normalization."""
        return functional.layer_norm(
            x, x.shape[-1:], self[gain], self[bias], eps=LAYER_NORM_EPSILON
        )

    def exit(self, x: Tensor) -> Tensor:
        """Return the input of the classifier (n, h)."""
        return torch.tanh(torch.addmm(self["b_exit"], x[:, 0], self["W_exit"]))


class RecursiveBerxit(Encoder, OneByOne):
    """One sentence at a time; the exit after every layer is read before the next layer."""

    def yield_scores(self, batch: list[BerxitSentence]) -> Iterator[tuple[Tensor, Tensor]]:
        for sentence in batch:
            x = self.embed_tokens([sentence])
            for layer in range(1, sentence.n_layers + 1):
                x = self.apply_layer(x)
                leaving = self.exit(x)
                if layer < self.layers:
                    float(leaving[0, 0])  # synchronizes to read the exit decision
            scores = leaving @ self["W_out"]
            yield scores, torch.tensor([sentence.label], device=scores.device)


class ExitBatch(NamedTuple):
    """Sentences sorted by number of layers, largest first.

    Attributes:
        sentences: the sentences.
        places: (n,) original index of each sentence.
    """

    sentences: list[BerxitSentence]
    places: NDArray[np.int64]


class LevelsBerxit(Encoder, Batched):
    """Each layer for all sentences that continue; sentences that exit are the last ones."""

    def plan(self, batch: Sequence[BerxitSentence], device: torch.device) -> ExitBatch:
        """Sort the sentences, so that those that continue are a slice."""
        places = np.argsort([-sentence.n_layers for sentence in batch], kind="stable")
        return ExitBatch([batch[k] for k in places], places)

    def forward(self, plan: ExitBatch) -> tuple[Tensor, Tensor]:
        going = plan.sentences
        x, exits = self.embed_tokens(going), []
        for layer in range(1, going[0].n_layers + 1):
            x = self.apply_layer(x)
            leaving = self.exit(x)
            if layer < self.layers:
                leaving[:, 0].tolist()  # synchronizes to read the exit decisions
            n = sum(sentence.n_layers > layer for sentence in going)
            exits.append(leaving[n:])
            x, going = x[:n], going[:n]
        scores = torch.cat(exits[::-1]) @ self["W_out"]
        labels = torch.tensor([sentence.label for sentence in plan.sentences], device=scores.device)
        return score_labels(scores, labels)

    def find_canonical_rows(self, plan: ExitBatch) -> NDArray[np.integer]:
        return invert_permutation(plan.places)


EAGER = {"nested_rnn": RecursiveNested, "drnn": RecursiveDRNN, "berxit": RecursiveBerxit}
LEVELS = {"nested_rnn": LevelsNested, "drnn": LevelsDRNN, "berxit": LevelsBerxit}
