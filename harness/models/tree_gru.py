"""Binary Tree-GRU with a classifier at every vertex, as in ED-Batch's release.

Source: Chen et al., "ED-Batch", ICML 2023; benchmark/models/treenn.cc of its release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.models.parts.trees import build_tree_mini_batch
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree
from dynbatch.harness.vertex import Symbol, VertexTracer, pick_neg_log_softmax, sigmoid, tanh


class TreeGRU(Model):
    """Tree-GRU: a leaf is a GRU step on the word vector, a parent the mean of its children's."""

    name = "tree_gru"
    instance_kind = "tree"
    vertex_types = ("leaf", "internal")

    def __init__(self, sizes: ModelSizes) -> None:
        sizes.check_equal("tree_gru mixes embeddings and states")
        super().__init__(sizes)

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h = self.sizes.hidden_size
        bound = h**-0.5
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), h), 0.1),
            "W": ParameterSpec((h, 2 * h), bound),  # columns r, z
            "b_leaf": ParameterSpec((2 * h,), 0.1),
            "W_c": ParameterSpec((h, h), bound),
            "b_leaf_c": ParameterSpec((h,), 0.1),
            "U_1": ParameterSpec((h, 2 * h), bound),  # columns r, z
            "U_2": ParameterSpec((h, 2 * h), bound),
            "b": ParameterSpec((2 * h,), 0.1),
            "U_c1": ParameterSpec((h, h), bound),
            "U_c2": ParameterSpec((h, h), bound),
            "b_c": ParameterSpec((h,), 0.1),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), bound),
        }

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """Build vertices leaf and internal; the classifier reads every vertex."""
        return build_tree_mini_batch(instances, outputs="all")

    def leaf(self, v: VertexTracer) -> None:
        """Compute r, z = s(W x + b); c = tanh(W_c (r x) + b_c); h = z x + (1 - z) c."""
        x = v.lookup("embedding", v.pull("word"))
        v.scatter(h=_step(v, x, ("W", "W_c"), ("b_leaf", "b_leaf_c")))

    def internal(self, v: VertexTracer) -> None:
        """Compute the mean of steps on h_1 and h_2, with separate matrices and shared biases."""
        first = _step(v, v.gather(0).h, ("U_1", "U_c1"), ("b", "b_c"))
        second = _step(v, v.gather(1).h, ("U_2", "U_c2"), ("b", "b_c"))
        v.scatter(h=0.5 * (first + second))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the classes and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))


def _step(v: VertexTracer, h: Symbol, matrices: tuple[str, str], biases: tuple[str, str]) -> Symbol:
    gates, candidate = matrices
    r, z = v.split(sigmoid(h @ v.parameter(gates) + v.parameter(biases[0])), 2)
    c = tanh((r * h) @ v.parameter(candidate) + v.parameter(biases[1]))
    return z * h + (1.0 - z) * c
