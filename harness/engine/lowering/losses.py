"""Softmax losses whose gradient is computed with them, in the place of the logits.

Where nobody but the loss and its gradient reads the logits, one kernel adds the bias, takes the
loss, and leaves softmax minus one-hot where they were: exponentials are computed once, and rows of
thousands of classes stay in the cache meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.engine.lowering.absorption import MATMULS, find_consumers
from harness.engine.lowering.results import Results
from harness.vertex.operators import Node


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Nodes of one loss.

    bias: the node that adds one to a product, if that is what the logits are. gradient: of the
    logits, None in inference.
    """

    loss: int
    logits: int
    bias: int | None
    gradient: int | None


@dataclass(frozen=True, slots=True)
class Losses:
    """All of them in one program, by the node of the loss."""

    by_loss: Mapping[int, SoftmaxLoss]

    @property
    def biases(self) -> frozenset[int]:
        """Additions of a bias that a loss's kernel does."""
        return frozenset(one.bias for one in self.by_loss.values() if one.bias is not None)

    @property
    def gradients(self) -> Mapping[int, int]:
        """Gradients that a loss's kernel leaves in the place of the logits, and these."""
        return {
            one.gradient: one.logits for one in self.by_loss.values() if one.gradient is not None
        }


def find_losses(
    nodes: Sequence[Node], stage_of: Mapping[int, str], results: Results, *, able: bool
) -> Losses:
    """Find the losses of a program that one kernel can do; able: whether there is such a kernel."""
    if not able:
        return Losses({})
    consumers = find_consumers(nodes, {*stage_of, *results.all})
    found = {}
    for i, node in enumerate(nodes):
        if node.op == "pick_neg_log_softmax" and i in stage_of:
            one = _softmax_loss(nodes, i, stage_of, consumers, results)
            if one is not None:
                found[i] = one
    return Losses(found)


def _softmax_loss(
    nodes: Sequence[Node],
    loss: int,
    stage_of: Mapping[int, str],
    consumers: Sequence[Sequence[int]],
    results: Results,
) -> SoftmaxLoss | None:
    logits = nodes[loss].inputs[0]
    pinned = results.scattered | results.given_back
    if stage_of.get(logits) != stage_of[loss] or logits in pinned:
        return None
    gradients = [k for k in consumers[logits] if k != loss]
    if len(gradients) > 1 or any(not _is_gradient(nodes, k, logits) for k in gradients):
        return None
    if any(k in results.all for k in gradients):
        return None
    bias = None
    if nodes[logits].op == "bias":
        product, parameter = nodes[logits].inputs
        whole = nodes[parameter].shape == nodes[logits].shape
        alone = list(consumers[product]) == [logits] and product not in results.all
        if not whole or not alone:
            return None
        bias, product_node = logits, nodes[product]
    else:
        product_node = nodes[logits]
    if product_node.op not in MATMULS:
        return None
    return SoftmaxLoss(loss, logits, bias, gradients[0] if gradients else None)


def _is_gradient(nodes: Sequence[Node], i: int, logits: int) -> bool:
    """Whether a node is the gradient of the loss itself, summed over the mini-batch."""
    node = nodes[i]
    return (
        node.op == "softmax_minus_one_hot"
        and node.inputs[0] == logits
        and nodes[node.inputs[2]].op == "ones"
    )
