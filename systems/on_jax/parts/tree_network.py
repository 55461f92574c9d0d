"""What all networks of trees share: words looked up, and a plan of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jax import Array

from harness.contracts.model import Model
from harness.values.instances import Tree
from systems.on_jax.parts.plan import Plan, planned
from systems.on_jax.parts.tree_rows import chunk_for, halved, tree_rows


class TreeNetwork:
    """reads: whether all vertices are outputs, or the roots alone.

    Ids are those of systems.on_jax.parts.tree_rows, without what nobody reads.
    """

    tables: Mapping[str, str] = {"embedding": "words"}
    reads: ClassVar[str] = "all"

    def __init__(self, model: Model, options: Any) -> None:
        self.h = model.sizes.hidden_size
        self.options = options

    def plan(self, trees: Sequence[Tree]) -> Plan:
        """Rows of all vertices."""
        chunk = self.options.chunk or chunk_for(sum(tree.n_leaves - 1 for tree in trees))
        widths = halved(chunk, self.options.widths)
        sizes, vectors, rows = tree_rows(trees, widths, self.options.multiple)
        if self.reads == "all":
            del vectors["roots"]
            return planned(sizes, rows, vectors)
        del vectors["labels"]
        return planned(sizes, slice(len(trees)), vectors)

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Scores of the classes at all vertices."""
        return hidden @ weights["W_out"]
