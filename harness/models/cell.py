"""One recurrent cell by itself, one application an instance: what subgraphs are measured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.contracts.model import Model, ModelSizes, ParameterSpec
from harness.errors import ConfigError
from harness.models.parts.cells import CELLS
from harness.models.parts.trees import tree_mini_batch
from harness.values.graph import MiniBatch
from harness.values.instances import Tree
from harness.vertex import VertexTracer, sum_elements


class CellModel(Model):
    """A tree of two leaves is an instance: the root is the cell, leaves hold what it is given."""

    name = "cell"
    instance_kind = "tree"
    vertex_types = ("given", "cell")

    def __init__(self, sizes: ModelSizes, cell: str = "tree_lstm_internal") -> None:
        if cell not in CELLS:
            raise ConfigError(f"cell={cell} is unknown; choose one of {', '.join(CELLS)}")
        sizes.check_equal("cells mix words and states")
        super().__init__(sizes, cell=cell)
        self.described = CELLS[cell]

    @property
    def state(self) -> Mapping[str, int]:
        h = self.sizes.hidden_size
        return {"x": h, "h": h, "c": h, "T": h * h}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, n_words = self.sizes.hidden_size, self.sizes.of("words")
        reads, wide = self.described.reads, self.described.wide
        given = {f"given_{s}": ParameterSpec((n_words, self.state[s]), 0.5) for s in reads}
        matrices = {
            name: ParameterSpec((2 * h if name in wide else h, h), h**-0.5)
            for name in self.described.matrices
        }
        biases = {name: ParameterSpec((h,), 0.1) for name in self.described.biases}
        return given | matrices | biases

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """The cell of every instance is read from outside.

        Raises ConfigError for a tree of another size.
        """
        for tree in instances:
            if tree.n_leaves != 2:
                raise ConfigError(
                    f"model=cell takes trees of two leaves, not of {tree.n_leaves}; use"
                    " dataset=complete_trees dataset.options.n_leaves=2"
                )
        return tree_mini_batch(instances, "roots", ("unbatchable", *self.vertex_types))

    def given(self, v: VertexTracer) -> None:
        """Rows of tables."""
        word = v.pull("word")
        v.scatter(**{state: v.lookup(f"given_{state}", word) for state in self.described.reads})

    def cell(self, v: VertexTracer) -> None:
        """The cell itself."""
        v.scatter(**self.described.body(v, v.gather(0), v.gather(1)))

    def output(self, v: VertexTracer) -> None:
        """All that the cell computes; the loss is its sum, so that there is something to train."""
        cell = v.gather(0)
        states = [getattr(cell, state) for state in self.described.gives]
        shown = v.concat(*states) if len(states) > 1 else states[0]
        v.push(shown, loss=sum_elements(shown))
