"""Binary trees as a loom: a leaf and an internal cell, each with the classifier on top.

Logits leave the loom as they are computed, and the loss is computed once, over all of them: they
are few numbers to pass through, while states would be many, and a loss inside the loom would need
every label passed to its depth.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from harness.contracts.model import Model
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.loom.network import LoomNetwork
from systems.on_tensorflow.loom.ops import OWN, Call, Loom, LoomOp
from systems.on_tensorflow.parts.classifier import summed_loss, word_vectors


class ClassifiedTrees(LoomNetwork):
    """n_parts: how many vectors of h numbers a state is; the classifier reads the last of them."""

    output_shape = "logits"
    n_parts: ClassVar[int] = 1

    def make_loom(self, model: Model) -> Loom:
        """A word's vector enters at depth 0, with a tag of its own: a state is no word."""
        sizes = model.sizes
        self.h = sizes.hidden_size
        n_inputs = model.parameters["embedding"].shape[1]
        found = ("state", "logits")
        return Loom(
            {"logits": sizes.of("classes"), "state": self.n_parts * self.h, "word": n_inputs},
            [
                LoomOp("internal", ("state", "state"), found, self._internal_and_logits),
                LoomOp("leaf", ("word",), found, self._leaf_and_logits),
            ],
            (None, Call("leaf", (OWN,)), Call("internal", (0, 1))),
        )

    @abstractmethod
    def leaf(self, weights: Tensors, x: Any) -> Any:
        """States of leaves from their words' vectors."""

    @abstractmethod
    def internal(self, weights: Tensors, left: Any, right: Any) -> Any:
        """States of internal vertices from those of their children."""

    def inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Word vectors of all leaves."""
        return {"word": word_vectors(weights, words)}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """Of the classifier at every vertex."""
        return summed_loss(outputs, labels)

    def _leaf_and_logits(self, weights: Tensors, x: Any) -> tuple[Any, Any]:
        return self._classified(weights, self.leaf(weights, x))

    def _internal_and_logits(self, weights: Tensors, left: Any, right: Any) -> tuple[Any, Any]:
        return self._classified(weights, self.internal(weights, left, right))

    def _classified(self, weights: Tensors, state: Any) -> tuple[Any, Any]:
        return state, state[:, (self.n_parts - 1) * self.h :] @ weights["W_out"]
