"""Matrix-vector recursive network: every vertex has a vector, and a matrix for its sibling.

Matrices are stored transposed (T = M^T), like parameters: M v is written v T, and W_M [M_1; M_2] is
T_1 A_1 + T_2 A_2.

Source: Socher, Huval, Manning and Ng, "Semantic Compositionality through Recursive Matrix-Vector
Spaces", EMNLP 2012; equations of ED-Batch's release, benchmark/models/treenn.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.models.parts.trees import build_tree_mini_batch, write_tree
from dynbatch.harness.programs.writer import CallWriter
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax, tanh


class MVRNN(Model):
    """Recursive network whose vertices multiply each child's matrix by the other child's vector.

    A leaf reads its word's vector v and matrix T from two tables.
    """

    name = "mv_rnn"
    instance_kind = "tree"
    vertex_types = ("leaf", "internal")

    def __init__(self, sizes: ModelSizes) -> None:
        sizes.check_equal("mv_rnn uses embeddings as states")
        super().__init__(sizes)

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {"v": h, "T": h * h}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        """Parameters whose matmuls preserve variance, to keep values in range over 30 levels."""
        h, n_words = self.sizes.hidden_size, self.sizes.get_size("words")
        keeping = (3 / h) ** 0.5  # half width of a uniform distribution of variance 1 / h
        halving = (1.5 / h) ** 0.5  # the two children's parts are added
        return {
            "embedding": ParameterSpec((n_words, h), 0.5),
            "matrices": ParameterSpec((n_words, h * h), keeping),  # T, row-major
            "W": ParameterSpec((2 * h, h), halving),  # rows: M_1 v_2, M_2 v_1
            "b": ParameterSpec((h,), 0.1),
            "A_1": ParameterSpec((h, h), halving),
            "A_2": ParameterSpec((h, h), halving),
            "b_T": ParameterSpec((h,), 0.1 * h**-0.5),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """Build vertices leaf and internal; the classifier reads every vertex."""
        return build_tree_mini_batch(instances, outputs="all")

    def program(self, p: CallWriter, tree: Tree) -> list[Any]:
        """Build the same graph by recursion over one tree."""
        return write_tree(p, tree)

    def leaf(self, v: VertexTracer) -> None:
        """Look up a row of each table."""
        word = v.pull("word")
        v.scatter(v=v.lookup("embedding", word), T=v.lookup("matrices", word))

    def internal(self, v: VertexTracer) -> None:
        """Compute v = tanh(W [M_1 v_2; M_2 v_1] + b); M = W_M [M_1; M_2] + b_M in every column."""
        left, right, h = v.gather(0), v.gather(1), self.sizes.hidden_size
        T_1, T_2 = left.as_matrix("T", h), right.as_matrix("T", h)
        crossed = v.concat(right.v @ T_1, left.v @ T_2)
        v.scatter(
            v=tanh(crossed @ v.parameter("W") + v.parameter("b")),
            T=T_1 @ v.parameter("A_1") + T_2 @ v.parameter("A_2") + v.parameter("b_T"),
        )

    def output(self, v: VertexTracer) -> None:
        """Compute the classifier of v and its negative log likelihood; T is not an output."""
        logits = v.gather(0).v @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
