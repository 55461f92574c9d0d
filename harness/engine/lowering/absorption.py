"""Additions that other kernels do: those that matmuls do as they write, and biases of losses.

An addition costs nothing if a matmul can do it while it writes its result. A softmax loss and its
gradient are one kernel if no other operator reads the logits. This kernel adds the bias, computes
the loss, and replaces the logits by softmax minus one-hot. Exponentials are thus computed once, and
rows of thousands of classes stay in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynbatch.harness.engine.lowering.plan import Abilities
from dynbatch.harness.vertex.operators import OPERATORS, Node

MATMULS = ("matmul", "matmul_transposed")


@dataclass(frozen=True, slots=True)
class Absorption:
    """Matmuls that also do the addition that follows.

    Attributes:
        into: From a matmul to the bias or add node whose value the matmul computes.
        after: From a matmul to the node whose value it adds to, which must be computed first.
    """

    into: Mapping[int, int]
    after: Mapping[int, int]

    @property
    def merged(self) -> frozenset[int]:
        """Additions that need no separate step."""
        return frozenset(self.into.values())


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Nodes of one loss.

    Attributes:
        bias: The node that adds a bias to a matmul, if the logits are such a sum.
        gradient: The gradient of the logits; None in inference.
    """

    logits: int
    bias: int | None
    gradient: int | None


@dataclass(frozen=True, slots=True)
class Readers:
    """Readers of the values of one program.

    Attributes:
        results: Values that are also read outside of the program, such as states and outputs.
    """

    nodes: Sequence[Node]
    stage_of: Mapping[int, str]
    consumers: Sequence[Sequence[int]]
    results: frozenset[int]
    scattered: frozenset[int]

    def find_absorption(self, biases: frozenset[int], abilities: Abilities) -> Absorption:
        """Find sums x W + b and y + x W whose parts have no other use.

        A fused kernel of the same stage that reads x W + b adds the bias itself.

        A scattered sum is stored in its state row, where no other value can be computed first.

        Args:
            biases: Biases of losses, whose kernels add them in place.
        """
        nodes, into, after = self.nodes, dict[int, int](), dict[int, int]()
        for i, node in enumerate(nodes):
            if i not in self.stage_of or node.op not in ("bias", "add"):
                continue
            if node.op == "bias":
                product = node.inputs[0]
                whole = node.shape[-1:] == nodes[node.inputs[1]].shape
                absorbs = not abilities.fuses or (
                    abilities.starts_from_biases and not self._has_elementwise_reader(i, i)
                )
                is_sum = whole and nodes[product].op in MATMULS and self._is_sole_use(product, i)
                if i in biases or (absorbs and is_sum):
                    into[product] = i
                continue
            if i in self.scattered or any(nodes[k].op == "concat" for k in self.consumers[i]):
                continue  # the reader determines its columns, not its parts
            for target, product in (node.inputs, node.inputs[::-1]):
                if nodes[product].op not in MATMULS or product in into or product == target:
                    continue
                if self.stage_of.get(product) != self.stage_of[i]:
                    continue  # a matmul of an earlier stage would run before its addend is computed
                if self._is_sole_use(product, i) and self._may_grow(target, i):
                    into[product], after[product] = i, target
                    break
        return Absorption(into, after)

    def _has_elementwise_reader(self, i: int, value: int) -> bool:
        """Return whether an elementwise operator of i's stage reads a value or its slices."""
        return any(
            self._has_elementwise_reader(i, k)
            if self.nodes[k].op == "slice"
            else OPERATORS[self.nodes[k].op].elementwise
            and self.stage_of.get(k) == self.stage_of[i]
            for k in self.consumers[value]
        )

    def _is_sole_use(self, i: int, user: int) -> bool:
        return list(self.consumers[i]) == [user] and i not in self.results

    def _may_grow(self, target: int, user: int) -> bool:
        """Return whether a matmul may add to the target's memory.

        The target must have no other reader. It must be computed in the same stage, or hoisted
        before the batches, where every vertex has its own row.
        """
        nodes, base = self.nodes, target
        if not self._is_sole_use(target, user):
            return False
        if nodes[target].op == "slice":
            base = nodes[target].inputs[0]
            others = [k for k in self.consumers[base] if k != target]
            if base in self.results or any(self._reads_columns(k, target) for k in others):
                return False
        stages = (self.stage_of.get(base), self.stage_of.get(user))
        if stages == ("eager", "batch"):
            return nodes[base].op in (*MATMULS, "add", "bias", "lookup")
        return nodes[base].op in (*MATMULS, "outer", "add") and stages[0] == stages[1]

    def _reads_columns(self, reader: int, target: int) -> bool:
        """Return whether a reader of a slice's base reads columns of the slice."""
        sliced, other = self.nodes[target], self.nodes[reader]
        if other.op != "slice":
            return True
        return (
            other.index < sliced.index + sliced.width and sliced.index < other.index + other.width
        )

    def find_losses(self, pinned: frozenset[int]) -> dict[int, SoftmaxLoss]:
        """Find the losses that one kernel can compute together with their gradients.

        Args:
            pinned: Values whose columns are determined otherwise.
        """
        losses = {}
        for i, node in enumerate(self.nodes):
            if node.op == "pick_neg_log_softmax" and i in self.stage_of:
                loss = self._match_softmax_loss(i, pinned)
                if loss is not None:
                    losses[i] = loss
        return losses

    def _match_softmax_loss(self, loss: int, pinned: frozenset[int]) -> SoftmaxLoss | None:
        nodes, consumers = self.nodes, self.consumers
        logits = nodes[loss].inputs[0]
        if self.stage_of.get(logits) != self.stage_of[loss] or logits in pinned:
            return None
        gradients = [k for k in consumers[logits] if k != loss]
        if len(gradients) > 1 or any(not self._is_gradient(k, logits) for k in gradients):
            return None
        if any(k in self.results for k in gradients):
            return None
        bias, product = None, logits
        if nodes[logits].op == "bias":
            product, parameter = nodes[logits].inputs
            whole = nodes[parameter].shape == nodes[logits].shape
            if not whole or not self._is_sole_use(product, logits):
                return None
            bias = logits
        if nodes[product].op not in MATMULS:
            return None
        return SoftmaxLoss(logits, bias, gradients[0] if gradients else None)

    def _is_gradient(self, i: int, logits: int) -> bool:
        """Return whether a node is the gradient of the loss itself, summed over the mini-batch."""
        node = self.nodes[i]
        return (
            node.op == "softmax_minus_one_hot"
            and node.inputs[0] == logits
            and self.nodes[node.inputs[2]].op == "ones"
        )

    def find_unneeded(self, gradients: Mapping[int, int]) -> frozenset[int]:
        """Find values that only gradients of losses read; a loss's kernel does not need them."""
        read = (k for i in gradients for k in self.nodes[i].inputs)
        only = (k for k in read if all(r in gradients for r in self.consumers[k]))
        return frozenset(k for k in only if k in self.stage_of)
