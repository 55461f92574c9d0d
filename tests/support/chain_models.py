"""Taggers and a language model with sentences, to compare batch counts with real DyNet."""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.models.bilstm import BiLSTM
from dynbatch.harness.models.bilstm_char import BiLSTMChar
from dynbatch.harness.models.var_lstm import VarLSTM
from dynbatch.harness.vertex import Symbol, VertexTracer, sigmoid, tanh
from tests.support.instances import random_instances

SIZES = ModelSizes(4, {"words": 100, "classes": 5})
TAGGER = BiLSTM(SIZES)
TAGGER_OF_TWO = BiLSTM(SIZES, layers=2)
WORDS = VarLSTM(SIZES)
LENGTHS = (7, 1, 12, 4, 4, 9, 2)
SENTENCES = random_instances("chain", LENGTHS, SIZES, seed=1)
SPELLED_SIZES = ModelSizes(8, {"words": 100, "characters": 20, "classes": 5})
SPELLER = BiLSTMChar(SPELLED_SIZES, mlp_size=6)
SPELLED = random_instances("chain", LENGTHS, SPELLED_SIZES, seed=2)


class AffineTags:
    """Tags from t = tanh(F h_forward + B h_backward + b): a matrix for each direction."""

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        found = dict(super().parameters)  # type: ignore[misc]
        rows, width = found.pop("W_tag").shape
        return found | dict.fromkeys(("F_tag", "B_tag"), ParameterSpec((rows // 2, width), 0.1))

    def tag(self, v: VertexTracer) -> None:
        there, back = v.gather(0).h, v.gather(1).h
        products = there @ v.parameter("F_tag") + back @ v.parameter("B_tag")
        v.scatter(t=tanh(products + v.parameter("b_tag")))


class AffineBiLSTM(AffineTags, BiLSTM):
    """The tagger with sums of two matmuls as one affine transform, as in DyNet."""

    def _compute_bottom_step(self, suffix: str, v: VertexTracer) -> None:
        take_affine_step(v, suffix, v.lookup("embedding", v.pull("word")))

    def _compute_upper_step(self, suffix: str, v: VertexTracer) -> None:
        take_affine_step(v, suffix, v.gather(1).h)


class AffineBiLSTMChar(AffineTags, BiLSTMChar):
    """The tagger of spelled words with sums of two matmuls as one affine transform, as in DyNet."""

    @property
    def state(self) -> Mapping[str, int]:
        inherited = dict(super().state)
        del inherited["a_forward"], inherited["a_backward"]
        return inherited | {"x": self.sizes.embedding_size}

    def _spell(self, v: VertexTracer, suffix: str, *, first: bool) -> None:
        if first:
            super()._spell(v, suffix, first=True)
        else:
            take_affine_step(v, suffix, v.lookup("characters", v.pull("character")), "letter_")

    def _to_gates(self, v: VertexTracer, x: Symbol) -> None:
        v.scatter(x=x)

    def forward(self, v: VertexTracer) -> None:
        take_affine_step(v, "_forward", v.gather(1).x)

    def backward(self, v: VertexTracer) -> None:
        take_affine_step(v, "_backward", v.gather(1).x)


def take_affine_step(v: VertexTracer, suffix: str, x: Symbol, states: str = "") -> None:
    """Compute an LSTM step whose gates are one affine transform, W x + U h + b."""
    before = v.gather(0)
    h, c = (getattr(before, f"{states}{name}") for name in "hc")
    products = x @ v.parameter(f"W{suffix}") + h @ v.parameter(f"U{suffix}")
    i, f, g, o = v.split(products + v.parameter(f"b{suffix}"), 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    v.scatter(**{f"{states}h": sigmoid(o) * tanh(c), f"{states}c": c})
