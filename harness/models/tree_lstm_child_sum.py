"""Child-sum Tree-LSTM on trees of any arity, with a classifier at every vertex.

All gates but the forget gates read the sum of the children's h, and all children share the weights
of the forget gate. Inputs and outputs are those of tree_lstm: only leaves have a word, so that the
terms W x are absent at internal vertices, and the terms of children at leaves. On binary trees, its
functions read a left and a right child; on others, any number of children.

Source: Tai, Socher and Manning, "Improved Semantic Representations From Tree-Structured Long
Short-Term Memory Networks", ACL 2015, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dynbatch.harness.contracts.model import ParameterSpec
from dynbatch.harness.models.parts.trees import build_nary_mini_batch
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import NaryTree, Tree
from dynbatch.harness.vertex import VertexTracer, sigmoid, sum_edges, tanh


class TreeLSTMChildSum(TreeLSTM):
    """Tree-LSTM whose parents read the sum of h_k, with equal forget gates for all children."""

    name = "tree_lstm_child_sum"
    any_children = True

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "W": ParameterSpec((e, 3 * h), e**-0.5),  # columns i, o, u
            "U": ParameterSpec((h, 3 * h), h**-0.5),
            "b": ParameterSpec((3 * h,), 0.1),  # of leaves and of internal vertices
            "U_f": ParameterSpec((h, h), h**-0.5),
            "b_f": ParameterSpec((h,), 0.1),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def mini_batch(self, instances: Sequence[Tree] | Sequence[NaryTree]) -> MiniBatch:
        """Build vertices leaf and internal; the classifier reads every vertex."""
        if self.max_children is None:
            return super().mini_batch(cast("Sequence[Tree]", instances))
        return build_nary_mini_batch(cast("Sequence[NaryTree]", instances))

    def leaf(self, v: VertexTracer) -> None:
        """Compute i, o = s(W x + b), u = tanh(W x + b); c = i u; h = o tanh c."""
        x = v.lookup("embedding", v.pull("word"))
        i, o, u = v.split(x @ v.parameter("W") + v.parameter("b"), 3)
        c = sigmoid(i) * tanh(u)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def internal(self, v: VertexTracer) -> None:
        """Compute f_k = s(U_f h_k + b_f); c = i u + sum_k f_k c_k; h = o tanh c."""
        if self.max_children is not None:
            self._compute_nary_internal(v)
            return
        left, right = v.gather(0), v.gather(1)
        i, o, u = v.split((left.h + right.h) @ v.parameter("U") + v.parameter("b"), 3)
        f_1 = sigmoid(left.h @ v.parameter("U_f") + v.parameter("b_f"))
        f_2 = sigmoid(right.h @ v.parameter("U_f") + v.parameter("b_f"))
        c = sigmoid(i) * tanh(u) + f_1 * left.c + f_2 * right.c
        v.scatter(c=c, h=sigmoid(o) * tanh(c))

    def _compute_nary_internal(self, v: VertexTracer) -> None:
        each = v.gather_each()
        i, o, u = v.split(sum_edges(each.h) @ v.parameter("U") + v.parameter("b"), 3)
        f = sigmoid(each.h @ v.parameter("U_f") + v.parameter("b_f"))
        c = sigmoid(i) * tanh(u) + sum_edges(f * each.c)
        v.scatter(c=c, h=sigmoid(o) * tanh(c))
