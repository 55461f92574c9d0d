"""NestedRNN: a GRU that runs an inner RNN loop in each step, with lengths that values decide.

ACRoBat's text specifies a GRU as the outer loop, an RNN as the inner one, and 20 to 40 iterations
of each. The rest is chosen here. The inner loop starts with the outer state, and its last state is
the GRU's input. The first state decides the number of outer steps, and each step's outer state the
number of its inner steps.

Source: Fegade et al., "ACRoBat", MLSys 2024, Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.programs.decisions import draw_chance
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.harness.values.checked import check_count
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax, sigmoid, tanh

OUTER = 0  # key of the outer loop's length; later keys are those of the inner loops


class NestedRNN(ProgramModel):
    """GRU with inner loops; it starts with the embedding of a sentence's first word.

    The outputs are the states of the outer loop.

    Args:
        fewest, most: limits on the iterations of either loop.

    Raises:
        ConfigError: unless 1 <= fewest <= most.
    """

    name = "nested_rnn"
    instance_kind = "chain"
    vertex_types = ("start", "inner", "outer")

    def __init__(self, sizes: ModelSizes, fewest: int = 20, most: int = 40, seed: int = 0) -> None:
        check_count("model.options.fewest", fewest, 1)
        if most < fewest:
            raise ConfigError(f"expected most >= fewest, got most={most}, fewest={fewest}")
        sizes.check_equal("nested_rnn uses embeddings as states")
        super().__init__(sizes, fewest=fewest, most=most, seed=seed)
        self.fewest, self.most, self._n_lengths = fewest, most, most - fewest + 1

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h = self.sizes.hidden_size
        square = ParameterSpec((h, h), h**-0.5)
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), h), 0.5),
            "U": ParameterSpec((h, h), (3 / h) ** 0.5),  # preserves states over 40 steps
            "b": ParameterSpec((h,), 0.1),
            "W_x": ParameterSpec((h, 3 * h), h**-0.5),  # columns r, z, n
            "W_h": ParameterSpec((h, 2 * h), h**-0.5),  # columns r, z
            "U_n": square,
            "b_gates": ParameterSpec((3 * h,), 0.1),
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def program(self, p: CallWriter, sentence: Chain) -> Body:
        """Run the outer loop.

        Each loop is a program phase in every outer step, so that outer steps of instances are
        batched.
        """
        state, label = p.start(word=int(sentence.words[0]), label=0), int(sentence.labels[0])
        n_outer = self.count_iterations((yield p.chance(state, OUTER)))
        read = []
        for step in range(n_outer):
            n_inner = self.count_iterations((yield p.chance(state, 1 + step)))
            p.stage()
            inner = p.chain(p.inner, state, n_inner)[-1]
            p.stage()
            state = p.outer(inner, state, label=label)
            read.append(state)
        return read

    def count_iterations(self, number: float) -> int:
        """Return the number of iterations of a loop, given a number in [0, 1)."""
        return self.fewest + int(number * self._n_lengths)

    def list_inner_counts(self, sentence: Chain) -> list[int]:
        """Return the number of iterations of the inner loop in each step of the outer one."""
        key = self.key_of(sentence)
        n_outer = self.count_iterations(draw_chance(self.seed, key, OUTER))
        return [
            self.count_iterations(draw_chance(self.seed, key, 1 + step)) for step in range(n_outer)
        ]

    def start(self, v: VertexTracer) -> None:
        """Look up a random vector in a table."""
        v.scatter(h=v.lookup("embedding", v.pull("word")))

    def inner(self, v: VertexTracer) -> None:
        """Compute h' = tanh(U h + b)."""
        v.scatter(h=tanh(v.gather(0).h @ v.parameter("U") + v.parameter("b")))

    def outer(self, v: VertexTracer) -> None:
        """Compute a GRU step from the inner loop's state x.

        r, z = s(W x + U h + b); n = tanh(W_n x + U_n (r h) + b_n); h' = z h + (1 - z) n.
        """
        x, h = v.gather(0).h, v.gather(1).h
        x_r, x_z, x_n = v.split(x @ v.parameter("W_x") + v.parameter("b_gates"), 3)
        h_r, h_z = v.split(h @ v.parameter("W_h"), 2)
        r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
        n = tanh(x_n + (r * h) @ v.parameter("U_n"))
        v.scatter(h=z * h + (1.0 - z) * n)

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the classes and the negative log likelihood of the correct one."""
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
