"""BERxiT: a BERT with an early exit after every layer.

The layer is that of BERT, with a normalization after each half; all layers share their weights, and
sequences have 128 tokens. ACRoBat's text does not specify two things, which are chosen here: the
probability of an exit, and the treatment of lengths. Longer sentences are cut, and shorter ones are
padded with word 0, without a mask.

Source: Xin, Tang, Yu and Lin, "BERxiT: early exiting for BERT", EACL 2021; Fegade et al.,
"ACRoBat", MLSys 2024, Table 3; Devlin, Chang, Lee and Toutanova, "BERT", NAACL 2019.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.programs.decisions import draw_chance
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.harness.values.checked import check_count, check_number
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import (
    Symbol,
    VertexTracer,
    gelu,
    layer_norm,
    mix_heads,
    pick_neg_log_softmax,
    score_heads,
    softmax,
    tanh,
)

FILLING = 0  # padding word after the end of a sentence


class Berxit(ProgramModel):
    """BERxiT encoder with early exits; its output is the classifier at the last exit.

    Vertex types: token (an embedding), sentence (the matrix X with one token per row), layer (X'
    from X), exit (from the first token, after every layer).

    Args:
        head_size: columns of an attention head; if hidden_size is smaller, there is one head.
        p_exit: probability of an exit after each layer.

    Raises:
        ConfigError: for a probability outside 0 to 1, and for sizes that do not fit.
    """

    name = "berxit"
    instance_kind = "chain"
    vertex_types = ("token", "sentence", "layer", "exit")
    is_trainable = False

    def __init__(
        self,
        sizes: ModelSizes,
        layers: int = 12,
        tokens: int = 128,
        head_size: int = 64,
        p_exit: float = 0.1,
        seed: int = 0,
    ) -> None:
        check_count("model.options.layers", layers, 1, 1000)
        check_count("model.options.tokens", tokens, 1, 1000)
        check_count("model.options.head_size", head_size, 1)
        check_number("model.options.p_exit", p_exit, 0, 1)
        h = sizes.hidden_size
        sizes.check_equal("berxit uses embeddings as states")
        if h > head_size and h % head_size:
            raise ConfigError(
                f"hidden_size={h} is not divisible by model.options.head_size={head_size};"
                " set another value of either"
            )
        super().__init__(sizes, seed=seed, layers=layers, tokens=tokens, p_exit=p_exit)
        self.layers, self.tokens, self.p_exit = layers, tokens, p_exit
        self.n_heads = max(1, h // head_size)

    @property
    def state(self) -> Mapping[str, int]:
        """Widths of the states: e of a token, X of a sentence (row-major), t of an exit."""
        h = self.sizes.hidden_size
        return {"e": h, "X": self.tokens * h, "t": h}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h = self.sizes.hidden_size
        square, bias, gain = (
            ParameterSpec((h, h), h**-0.5),
            ParameterSpec((h,), 0.1),
            ParameterSpec((h,), 0.1, (1.0,)),
        )
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), h), 0.5),
            "places": ParameterSpec((self.tokens, h), 0.5),
            "gain_token": gain,
            "b_token": bias,
            "W_q": square,
            "b_q": bias,
            "W_k": square,
            "b_k": bias,
            "W_v": square,
            "b_v": bias,
            "W_heads": square,
            "b_heads": bias,
            "gain_heads": gain,
            "b_heads_norm": bias,
            "W_up": ParameterSpec((h, 4 * h), h**-0.5),
            "b_up": ParameterSpec((4 * h,), 0.1),
            "W_down": ParameterSpec((4 * h, h), (4 * h) ** -0.5),
            "b_down": bias,
            "gain_layer": gain,
            "b_layer": bias,
            "W_exit": square,
            "b_exit": bias,
            "W_out": ParameterSpec((h, self.sizes.get_size("classes")), h**-0.5),
        }

    def program(self, p: CallWriter, sentence: Chain) -> Body:
        """Run layers until an exit is taken or the last layer is reached."""
        words, label = self.pad_words(sentence), int(sentence.labels[0])
        token = p.token
        tokens = p.map(lambda word, place: token(word=word, place=place), words, range(self.tokens))
        X, layer = p.sentence(*tokens), 0
        while True:
            X, layer = p.layer(X), layer + 1
            leaving = p.exit(X, label=label)
            if layer == self.layers or self.should_exit((yield p.chance(leaving, layer))):
                return leaving

    def should_exit(self, number: float) -> bool:
        """Return True if a sentence exits, given a number in [0, 1)."""
        return number < self.p_exit

    def pad_words(self, sentence: Chain) -> list[int]:
        """Return the words of a sentence, cut or padded to `tokens` words."""
        words: list[int] = sentence.words[: self.tokens].tolist()
        return words + [FILLING] * (self.tokens - len(words))

    def count_layers(self, sentence: Chain) -> int:
        """Return the number of layers of a sentence, from the same decisions as the program's."""
        key = self.key_of(sentence)
        for layer in range(1, self.layers):
            if self.should_exit(draw_chance(self.seed, key, layer)):
                return layer
        return self.layers

    def token(self, v: VertexTracer) -> None:
        """Compute a token's embedding: normalized sum of the rows of its word and its position."""
        e = v.lookup("embedding", v.pull("word")) + v.lookup("places", v.pull("place"))
        v.scatter(e=layer_norm(e, v.parameter("gain_token")) + v.parameter("b_token"))

    def sentence(self, v: VertexTracer) -> None:
        """Concatenate the embeddings of all tokens."""
        v.scatter(X=v.concat(*(v.gather(k).e for k in range(self.tokens))))

    def layer(self, v: VertexTracer) -> None:
        """Compute A, attention with residual and norm, and X', an MLP with residual and norm.

        A = norm(X + attention of X), X' = norm(A + gelu(A W_up + b_up) W_down + b_down).
        """
        X = v.gather(0).as_matrix("X", self.tokens)
        heads = _project(v, self._compute_attention(v, X), "heads")
        A = layer_norm(X + heads, v.parameter("gain_heads")) + v.parameter("b_heads_norm")
        Y = A + _project(v, gelu(_project(v, A, "up")), "down")
        v.scatter(X=layer_norm(Y, v.parameter("gain_layer")) + v.parameter("b_layer"))

    def _compute_attention(self, v: VertexTracer, X: Symbol) -> Symbol:
        """Compute softmax(q k^T / sqrt(columns of a head)) v for each head."""
        n, h = self.n_heads, self.sizes.hidden_size
        q = _project(v, X, "q") * (n / h) ** 0.5
        return mix_heads(softmax(score_heads(q, _project(v, X, "k"), n)), _project(v, X, "v"), n)

    def exit(self, v: VertexTracer) -> None:
        """Compute t = tanh(W x + b) of the first token's x."""
        first = v.slice_columns(v.gather(0).X, 0, self.sizes.hidden_size)
        v.scatter(t=tanh(_project(v, first, "exit")))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the classes and the negative log likelihood of the correct one."""
        logits = v.gather(0).t @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))


def _project(v: VertexTracer, x: Symbol, name: str) -> Symbol:
    return x @ v.parameter(f"W_{name}") + v.parameter(f"b_{name}")
