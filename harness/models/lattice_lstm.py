"""Lattice-LSTM as in ED-Batch's release: a cell for every arc, and plain sums where arcs meet.

It omits the gates between words and characters of Zhang and Yang (ACL 2018); gated_lattice_lstm has
them.

Source: Chen et al., "ED-Batch", ICML 2023; benchmark/models/lattice.cc of its release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynbatch.harness.contracts.model import Model, ParameterSpec
from dynbatch.harness.models.parts.lattices import build_lattice_mini_batch
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Lattice
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax, sigmoid, sum_edges, tanh


class LatticeLSTM(Model):
    """LSTM cells with separate weights for characters and words; states are sums of cells."""

    name = "lattice_lstm"
    instance_kind = "lattice"
    vertex_types = ("start", "char", "word", "join")

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "c": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        tables = {
            "characters": ParameterSpec((self.sizes.get_size("characters"), e), 0.1),
            "words": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "h_0": ParameterSpec((h,), 0.1),
            "c_0": ParameterSpec((h,), 0.1),
        }
        for arc in ("char", "word"):
            tables |= {
                f"W_{arc}": ParameterSpec((e, 4 * h), e**-0.5),  # columns f, i, o, g
                f"U_{arc}": ParameterSpec((h, 4 * h), h**-0.5),
                f"b_{arc}": ParameterSpec((4 * h,), 0.1),
            }
        return tables | {"W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5)}

    def mini_batch(self, instances: Sequence[Lattice]) -> MiniBatch:
        """Build vertices start, char, word and join; the classifier reads every state."""
        return build_lattice_mini_batch(instances)

    def start(self, v: VertexTracer) -> None:
        """Compute the learned state before the first character."""
        h = self.sizes.hidden_size
        v.scatter(h=v.zeros(h) + v.parameter("h_0"), c=v.zeros(h) + v.parameter("c_0"))

    def char(self, v: VertexTracer) -> None:
        """Compute the cell of a character."""
        self._compute_cell(v, "char", "characters", "character")

    def word(self, v: VertexTracer) -> None:
        """Compute the cell of a word."""
        self._compute_cell(v, "word", "words", "word")

    def _compute_cell(self, v: VertexTracer, arc: str, table: str, token: str) -> None:
        """Compute f, i, o = s(W x + U h + b), g = tanh(.); c' = i g + f c; h' = o tanh c'."""
        x, state = v.lookup(table, v.pull(token)), v.gather(0)
        gates = x @ v.parameter(f"W_{arc}") + state.h @ v.parameter(f"U_{arc}")
        f, i, o, g = v.split(gates + v.parameter(f"b_{arc}"), 4)
        c = sigmoid(i) * tanh(g) + sigmoid(f) * state.c
        v.scatter(h=sigmoid(o) * tanh(c), c=c)

    def join(self, v: VertexTracer) -> None:
        """Sum h and c of all arcs that end here."""
        arcs = v.gather_each()
        v.scatter(h=sum_edges(arcs.h), c=sum_edges(arcs.c))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the tags and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
