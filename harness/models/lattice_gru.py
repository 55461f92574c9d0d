"""Lattice-GRU as in ED-Batch's release: a cell for every arc, and plain sums where arcs meet.

Source: Chen et al., "ED-Batch", ICML 2023; benchmark/models/lattice.cc of its release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynbatch.harness.contracts.model import Model, ParameterSpec
from dynbatch.harness.models.parts.lattices import build_lattice_mini_batch
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Lattice
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax, sigmoid, sum_edges, tanh


class LatticeGRU(Model):
    """GRU cells with separate weights for characters and words; states are sums of cells."""

    name = "lattice_gru"
    instance_kind = "lattice"
    vertex_types = ("start", "char", "word", "join")

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        tables = {
            "characters": ParameterSpec((self.sizes.get_size("characters"), e), 0.1),
            "words": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "h_0": ParameterSpec((h,), 0.1),
            "c_0": ParameterSpec((h,), 0.1),  # the release creates it too, and never reads it
        }
        for arc in ("char", "word"):
            tables |= {
                f"W_{arc}": ParameterSpec((e, 3 * h), e**-0.5),  # columns r, z, n
                f"U_{arc}": ParameterSpec((h, 2 * h), h**-0.5),  # columns r, z
                f"U_n_{arc}": ParameterSpec((h, h), h**-0.5),
                # z = s(-2): with z = 1/2, sums of states grow to 10^17 in the longest lattices.
                f"b_{arc}": ParameterSpec((3 * h,), 0.1, init_means=(0.0, -2.0, 0.0)),
            }
        return tables | {"W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5)}

    def mini_batch(self, instances: Sequence[Lattice]) -> MiniBatch:
        """Build vertices start, char, word and join; the classifier reads every state."""
        return build_lattice_mini_batch(instances)

    def start(self, v: VertexTracer) -> None:
        """Compute the learned state before the first character."""
        v.parameter("c_0")
        v.scatter(h=v.zeros(self.sizes.hidden_size) + v.parameter("h_0"))

    def char(self, v: VertexTracer) -> None:
        """Compute the cell of a character."""
        self._compute_cell(v, "char", "characters", "character")

    def word(self, v: VertexTracer) -> None:
        """Compute the cell of a word."""
        self._compute_cell(v, "word", "words", "word")

    def _compute_cell(self, v: VertexTracer, arc: str, table: str, token: str) -> None:
        """Compute r, z = s(W x + U h + b); n = tanh(W x + U_n (r h) + b); h' = z h + (1 - z) n."""
        x, h = v.lookup(table, v.pull(token)), v.gather(0).h
        width = self.sizes.hidden_size
        inputs = x @ v.parameter(f"W_{arc}") + v.parameter(f"b_{arc}")
        gates = v.slice_columns(inputs, 0, 2 * width) + h @ v.parameter(f"U_{arc}")
        r, z = v.split(sigmoid(gates), 2)
        reset = (r * h) @ v.parameter(f"U_n_{arc}")
        n = tanh(v.slice_columns(inputs, 2 * width, width) + reset)
        v.scatter(h=z * h + (1.0 - z) * n)

    def join(self, v: VertexTracer) -> None:
        """Sum h of all arcs that end here."""
        v.scatter(h=sum_edges(v.gather_each().h))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the tags and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
