"""Lattice-LSTM with gates between words and characters.

ED-Batch's release replaces the gates by plain sums (lattice_lstm).

Source: Zhang and Yang, "Chinese NER Using Lattice LSTM", ACL 2018, equations 11 to 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynbatch.harness.contracts.model import Model, ParameterSpec
from dynbatch.harness.models.parts.lattices import build_lattice_mini_batch
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Lattice
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    exp,
    pick_neg_log_softmax,
    sigmoid,
    sum_edges,
    tanh,
)


class GatedLatticeLSTM(Model):
    """Lattice-LSTM whose characters weigh the cells of the words that end with them.

    Cells of words have no output gates. The weights of a character's own candidate and of its words
    are an elementwise softmax. A word scatters its terms of the softmax's sums (g, m), and a join
    adds those of several words.
    """

    name = "gated_lattice_lstm"
    instance_kind = "lattice"
    vertex_types = ("start", "char", "word", "gated_char", "join")

    @property
    def state(self) -> Mapping[str, int]:
        return dict.fromkeys(("h", "c", "g", "m"), self.sizes.hidden_size)

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        return {
            "characters": ParameterSpec((self.sizes.get_size("characters"), e), 0.1),
            "words": ParameterSpec((self.sizes.get_size("words"), e), 0.1),
            "h_0": ParameterSpec((h,), 0.1),
            "c_0": ParameterSpec((h,), 0.1),
            "W_char": ParameterSpec((e, 4 * h), e**-0.5),  # columns i, o, f, g
            "U_char": ParameterSpec((h, 4 * h), h**-0.5),
            "b_char": ParameterSpec((4 * h,), 0.1),
            "W_word": ParameterSpec((e, 3 * h), e**-0.5),  # columns i, f, g
            "U_word": ParameterSpec((h, 3 * h), h**-0.5),
            "b_word": ParameterSpec((3 * h,), 0.1),
            "W_gate": ParameterSpec((e, h), e**-0.5),
            "U_gate": ParameterSpec((h, h), h**-0.5),
            "b_gate": ParameterSpec((h,), 0.1),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def mini_batch(self, instances: Sequence[Lattice]) -> MiniBatch:
        """Build vertices of types start, char, word, gated_char and join; all states are read."""
        return build_lattice_mini_batch(instances, gated=True)

    def start(self, v: VertexTracer) -> None:
        """Compute the learned state before the first character."""
        h = self.sizes.hidden_size
        v.scatter(h=v.zeros(h) + v.parameter("h_0"), c=v.zeros(h) + v.parameter("c_0"))

    def char(self, v: VertexTracer) -> None:
        """Compute c' = f c + i g, h' = o tanh c' (eq. 11), for a character that ends no word."""
        i, o, f, g = self._compute_gates(v)
        c = f * v.gather(0).c + i * g
        v.scatter(h=o * tanh(c), c=c)

    def word(self, v: VertexTracer) -> None:
        """Compute a word's cell c^w = f c + i g (eq. 13) and its gate (eq. 14).

        The input state is that at the word's start.
        """
        x, before = v.lookup("words", v.pull("word")), v.gather(0)
        gates = x @ v.parameter("W_word") + before.h @ v.parameter("U_word")
        i, f, g = v.split(gates + v.parameter("b_word"), 3)
        c = sigmoid(f) * before.c + sigmoid(i) * tanh(g)
        last = v.lookup("characters", v.pull("character")) @ v.parameter("W_gate")
        weight = exp(sigmoid(last + c @ v.parameter("U_gate") + v.parameter("b_gate")))
        v.scatter(g=weight, m=weight * c)

    def join(self, v: VertexTracer) -> None:
        """Sum the weights and the weighted cells of the words that end here."""
        words = v.gather_each()
        v.scatter(g=sum_edges(words.g), m=sum_edges(words.m))

    def gated_char(self, v: VertexTracer) -> None:
        """Compute c' from the candidate and the words' cells (eq. 15, 16), and h' = o tanh c'.

        c' = (e^i g + sum of e^i_w c^w) / (e^i + sum of e^i_w).
        """
        i, o, _, g = self._compute_gates(v)
        words, own = v.gather(1), exp(i)
        c = (own * g + words.m) / (own + words.g)
        v.scatter(h=o * tanh(c), c=c)

    def _compute_gates(self, v: VertexTracer) -> tuple[Symbol, Symbol, Symbol, Symbol]:
        x = v.lookup("characters", v.pull("character"))
        gates = x @ v.parameter("W_char") + v.gather(0).h @ v.parameter("U_char")
        i, o, f, g = v.split(gates + v.parameter("b_char"), 4)
        return sigmoid(i), sigmoid(o), sigmoid(f), tanh(g)

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the tags and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
