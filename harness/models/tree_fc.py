"""Tree-FC: one fully connected layer at every internal vertex of a complete binary tree.

There are two published variants. "fold" (Looks et al., ICLR 2017) looks up leaves in a table and
evaluates 255 layers for 256 leaves. "cavs" (Xu et al., ATC 2018) has no table and evaluates the
layer at all 511 vertices; leaves read zero vectors.

Source: the releases of Fold, tensorflow_fold/loom/benchmarks/iclr_2017_benchmark.py, and of Cavs,
apps/paper/tree-fc-cavs-artificial-tree.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ModelSizes, ParameterSpec
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.parts.trees import build_tree_mini_batch
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree
from dynbatch.harness.vertex import VertexTracer, relu, square, sum_elements

VARIANTS = ("fold", "cavs")


class TreeFC(Model):
    """Layer h = relu([h_1; h_2] W + b); the output is the root's h, the loss |h|^2 / 2 (Fold's)."""

    name = "tree_fc"
    instance_kind = "tree"
    vertex_types = ("leaf", "internal")

    def __init__(self, sizes: ModelSizes, variant: str = "fold", **options: Any) -> None:
        super().__init__(sizes, variant=variant, **options)
        if variant not in VARIANTS:
            raise ConfigError(
                f"model.options.variant={variant} is unknown; choose one of {', '.join(VARIANTS)}"
            )
        self.variant = variant

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h = self.sizes.hidden_size
        layer = {
            "W": ParameterSpec((2 * h, h), (3 / h) ** 0.5),
            # The released Cavs program has no bias, so every output and gradient is zero and a
            # check of them would prove nothing; the bias costs the same in every system.
            "b": ParameterSpec((h,), 0.1),
        }
        if self.variant == "cavs":
            return layer
        return {"embedding": ParameterSpec((self.sizes.get_size("words"), h), 1.0)} | layer

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """Build vertices leaf and internal; only roots are outputs."""
        return build_tree_mini_batch(instances, outputs="roots")

    def leaf(self, v: VertexTracer) -> None:
        """Look up a row of the table (Fold), or apply the layer to two zero vectors (Cavs)."""
        if self.variant == "fold":
            v.scatter(h=v.lookup("embedding", v.pull("word")))
        else:
            zero = v.zeros(2 * self.sizes.hidden_size)
            v.scatter(h=relu(zero @ v.parameter("W") + v.parameter("b")))

    def internal(self, v: VertexTracer) -> None:
        """Compute h = relu([h_1; h_2] W + b)."""
        children = v.concat(v.gather(0).h, v.gather(1).h)
        v.scatter(h=relu(children @ v.parameter("W") + v.parameter("b")))

    def output(self, v: VertexTracer) -> None:
        """Push the root's state, with its l2_loss."""
        h = v.gather(0).h
        v.push(h, loss=0.5 * sum_elements(square(h)))
