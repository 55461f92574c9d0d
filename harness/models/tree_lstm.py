"""Binary N-ary Tree-LSTM with a classifier at every vertex.

Source: Tai, Socher and Manning, "Improved Semantic Representations From Tree-Structured Long
Short-Term Memory Networks", ACL 2015; equations of ED-Batch's release, benchmark/models/treenn.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ParameterSpec
from dynbatch.harness.models.parts.trees import build_tree_mini_batch, write_tree
from dynbatch.harness.programs.writer import CallWriter
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax, sigmoid, tanh


class TreeLSTM(Model):
    """Tree-LSTM: a leaf reads its word vector, a parent [h_1; h_2] with a forget gate per child."""

    name = "tree_lstm"
    instance_kind = "tree"
    vertex_types: tuple[str, ...] = ("leaf", "internal")

    @property
    def state(self) -> Mapping[str, int]:
        return {"c": self.sizes.hidden_size, "h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "W": ParameterSpec((e, 3 * h), e**-0.5),  # columns i, o, u
            "b_leaf": ParameterSpec((3 * h,), 0.1),
            "U": ParameterSpec((2 * h, 3 * h), (2 * h) ** -0.5),  # rows h_1, h_2; columns i, o, u
            "b": ParameterSpec((3 * h,), 0.1),
            "F_1": ParameterSpec((h, h), h**-0.5),
            "F_2": ParameterSpec((h, h), h**-0.5),
            "b_f": ParameterSpec((h,), 0.1),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """Build vertices leaf and internal; the classifier reads every vertex."""
        return build_tree_mini_batch(instances, outputs="all")

    def program(self, p: CallWriter, tree: Tree) -> list[Any]:
        """Build the same graph by recursion over one tree."""
        return write_tree(p, tree)

    def leaf(self, v: VertexTracer) -> None:
        """Compute i, o = s(W x + b), u = tanh(W x + b); c = i u; h = o tanh c."""
        x = v.lookup("embedding", v.pull("word"))
        i, o, u = v.split(x @ v.parameter("W") + v.parameter("b_leaf"), 3)
        c = sigmoid(i) * tanh(u)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def internal(self, v: VertexTracer) -> None:
        """Compute f_k = s(F_k h_k + b_f); c = i u + f_1 c_1 + f_2 c_2; h = o tanh c."""
        left, right = v.gather(0), v.gather(1)
        i, o, u = v.split(v.concat(left.h, right.h) @ v.parameter("U") + v.parameter("b"), 3)
        f_1 = sigmoid(left.h @ v.parameter("F_1") + v.parameter("b_f"))
        f_2 = sigmoid(right.h @ v.parameter("F_2") + v.parameter("b_f"))
        c = sigmoid(i) * tanh(u) + f_1 * left.c + f_2 * right.c
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the classes and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
