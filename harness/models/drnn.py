"""DRNN: a doubly recurrent network, which generates a tree from one vector, from the root down.

The inputs are random, as in ACRoBat. After the state of a node is computed,
dynbatch.harness.programs.decisions draws whether the node has a child and a next sibling. ACRoBat's
text does not specify two things, which are chosen here: both probabilities, and the limits on a
tree's size.

Source: Alvarez-Melis and Jaakkola, "Tree-structured decoding with doubly-recurrent neural
networks", ICLR 2017; Fegade et al., "ACRoBat", MLSys 2024, Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.programs.decisions import draw_chance
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.harness.values.checked import check_count, check_number
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    expand,
    pick_neg_log_softmax,
    sigmoid,
    tanh,
)

LATER_DIGITS = 2.0**26


class Place(NamedTuple):
    """Position of a node: its path as a number, its generation and its index among siblings."""

    path: int = 1
    generation: int = 0
    sibling: int = 0

    @property
    def child(self) -> Place:
        """Position of the first child."""
        return Place(2 * self.path, self.generation + 1, 0)

    @property
    def next(self) -> Place:
        """Position of the next sibling."""
        return Place(2 * self.path + 1, self.generation, self.sibling + 1)


class DRNN(ProgramModel):
    """Doubly recurrent network; the root is the embedding of a sentence's first word.

    The outputs are the states of all nodes.

    Args:
        p_child, p_sibling: probability that a node has a first child, a next sibling.

    Raises:
        ConfigError: for a probability outside 0 to 1, and for sizes outside 1 to 30.
    """

    name = "drnn"
    instance_kind = "chain"
    vertex_types = ("root", "first", "next")

    def __init__(
        self,
        sizes: ModelSizes,
        p_child: float = 0.7,
        p_sibling: float = 0.5,
        generations: int = 8,
        siblings: int = 4,
        seed: int = 0,
    ) -> None:
        sizes.check_equal("drnn uses embeddings as states")
        check_number("model.options.p_child", p_child, 0, 1)
        check_number("model.options.p_sibling", p_sibling, 0, 1)
        check_count("model.options.generations", generations, 1, 30)
        check_count("model.options.siblings", siblings, 1, 30)
        super().__init__(sizes, seed=seed, p_child=p_child, p_sibling=p_sibling)
        self.p_child, self.p_sibling = p_child, p_sibling
        self.generations, self.siblings = generations, siblings

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h = self.sizes.hidden_size
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), h), 0.5),
            "U_a": ParameterSpec((h, h), (1.5 / h) ** 0.5),
            "U_f": ParameterSpec((h, h), (1.5 / h) ** 0.5),
            "b": ParameterSpec((h,), 0.1),
            "u": ParameterSpec((h, 1), h**-0.5),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def program(self, p: CallWriter, sentence: Chain) -> Body:
        """Generate the tree, and return its nodes in the order of their paths.

        Nodes that fewer decisions lead to come first.
        """
        label = int(sentence.labels[0])
        root = p.root(word=int(sentence.words[0]), label=label)
        nodes = {1: root}  # by path; see Place
        has_child, _ = self.decide_growth(0, 0, (yield p.chance(root, 1)))
        if has_child:
            yield from self._grow(p, root, root, 2, 1, 0, label, nodes)
        return [nodes[path] for path in sorted(nodes)]

    def _grow(
        self,
        p: CallWriter,
        parent: Any,
        before: Any,
        path: int,
        generation: int,
        sibling: int,
        label: int,
        nodes: dict[int, Any],
    ) -> Body:
        """Generate a node, the tree below it, and its next siblings with their trees.

        If only a child or only a sibling is generated, this fiber continues with it, which is
        cheaper than a fork.

        Args:
            before: the previous sibling; ignored for a first child.
            nodes: receives each node under its path.
        """
        while True:
            if sibling == 0:
                node = p.first(parent, label=label)
            else:
                node = p.next(parent, before, label=label)
            nodes[path] = node
            number = yield p.chance(node, path)
            has_child, has_next = self.decide_growth(generation, sibling, number)
            child, following = 2 * path, 2 * path + 1
            if has_child and has_next:
                yield p.fork(
                    self._grow(p, node, node, child, generation + 1, 0, label, nodes),
                    self._grow(p, parent, node, following, generation, sibling + 1, label, nodes),
                )
                return
            if has_child:
                parent, path, generation, sibling = node, child, generation + 1, 0
            elif has_next:
                before, path, sibling = node, following, sibling + 1
            else:
                return

    def decide_growth(self, generation: int, sibling: int, number: float) -> tuple[bool, bool]:
        """Decide from a number in [0, 1) if a node has a first child, and a next sibling.

        The later digits of the number serve as a second random number.
        """
        has_child = generation < self.generations and number < self.p_child
        if generation == 0 or sibling + 1 >= self.siblings:
            return has_child, False
        return has_child, number * LATER_DIGITS % 1.0 < self.p_sibling

    def replay_decisions(self, sentence: Chain, position: Place) -> tuple[bool, bool]:
        """Return the program's decisions (child, sibling) at a node."""
        number = draw_chance(self.seed, self.key_of(sentence), position.path)
        return self.decide_growth(position.generation, position.sibling, number)

    def root(self, v: VertexTracer) -> None:
        """Look up a random vector in a table."""
        v.scatter(h=v.lookup("embedding", v.pull("word")))

    def first(self, v: VertexTracer) -> None:
        """Compute h = tanh(U_a h_parent + b), gated."""
        self._scatter_gated(v, v.gather(0).h @ v.parameter("U_a"))

    def next(self, v: VertexTracer) -> None:
        """Compute h = tanh(U_a h_parent + U_f h_before + b), gated."""
        parent, before = v.gather(0).h, v.gather(1).h
        self._scatter_gated(v, parent @ v.parameter("U_a") + before @ v.parameter("U_f"))

    def _scatter_gated(self, v: VertexTracer, x: Symbol) -> None:
        """Scatter h s(u h), with one gate per node for all elements of h."""
        h = tanh(x + v.parameter("b"))
        v.scatter(h=h * expand(sigmoid(h @ v.parameter("u")), self.sizes.hidden_size))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the classes and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
