"""Taggers and a language model with sentences, to compare batch counts with real DyNet."""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec
from dynbatch.harness.models.bilstm import BiLSTM
from dynbatch.harness.models.bilstm_char import BiLSTMChar
from dynbatch.harness.models.var_lstm import VarLSTM
from dynbatch.harness.vertex import Symbol, VertexTracer, sigmoid, tanh
from tests.support.instances import random_sentences

SIZES = ModelSizes(4, {"words": 100, "classes": 5})
TAGGER = BiLSTM(SIZES)
TAGGER_OF_TWO = BiLSTM(SIZES, layers=2)
WORDS = VarLSTM(SIZES)
LENGTHS = (7, 1, 12, 4, 4, 9, 2)
SENTENCES = random_sentences("chain", LENGTHS, SIZES, seed=1)
SPELLED_SIZES = ModelSizes(8, {"words": 100, "characters": 20, "classes": 5})
SPELLER = BiLSTMChar(SPELLED_SIZES, mlp_size=6)
SPELLED = random_sentences("chain", LENGTHS, SPELLED_SIZES, seed=2)


class AffineBiLSTM(BiLSTM):
    """The tagger with sums of two matmuls as one affine transform, as in DyNet."""

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        found = dict(super().parameters)
        return found | split_tag_weights(found.pop("W_tag"))

    def _compute_bottom_step(self, suffix: str, v: VertexTracer) -> None:
        self._affine_step(suffix, v, v.lookup("embedding", v.pull("word")))

    def _compute_upper_step(self, suffix: str, v: VertexTracer) -> None:
        self._affine_step(suffix, v, v.gather(1).h)

    def _affine_step(self, suffix: str, v: VertexTracer, x: Symbol) -> None:
        before = v.gather(0)
        take_affine_step(v, suffix, x, before.h, before.c)

    def tag(self, v: VertexTracer) -> None:
        compute_affine_tag(v)


class AffineBiLSTMChar(BiLSTMChar):
    """The tagger of spelled words with sums of two matmuls as one affine transform, as in DyNet."""

    @property
    def state(self) -> Mapping[str, int]:
        inherited = dict(super().state)
        del inherited["a_forward"], inherited["a_backward"]
        return inherited | {"x": self.sizes.embedding_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        found = dict(super().parameters)
        return found | split_tag_weights(found.pop("W_tag"))

    def _spell(self, v: VertexTracer, suffix: str, *, first: bool) -> None:
        if first:
            super()._spell(v, suffix, first=True)
        else:
            x = v.lookup("characters", v.pull("character"))
            before = v.gather(0)
            take_affine_step(v, suffix, x, before.letter_h, before.letter_c, "letter_")

    def _to_gates(self, v: VertexTracer, x: Symbol) -> None:
        v.scatter(x=x)

    def forward(self, v: VertexTracer) -> None:
        before = v.gather(0)
        take_affine_step(v, "_forward", v.gather(1).x, before.h, before.c)

    def backward(self, v: VertexTracer) -> None:
        before = v.gather(0)
        take_affine_step(v, "_backward", v.gather(1).x, before.h, before.c)

    def tag(self, v: VertexTracer) -> None:
        compute_affine_tag(v)


def split_tag_weights(weights: ParameterSpec) -> dict[str, ParameterSpec]:
    """Return a matrix for each direction in place of one for both."""
    rows, width = weights.shape
    half = ParameterSpec((rows // 2, width), 0.1)
    return {"F_tag": half, "B_tag": half}


def compute_affine_tag(v: VertexTracer) -> None:
    """Compute t = tanh(F h_forward + B h_backward + b)."""
    there, back = v.gather(0).h, v.gather(1).h
    products = there @ v.parameter("F_tag") + back @ v.parameter("B_tag")
    v.scatter(t=tanh(products + v.parameter("b_tag")))


def take_affine_step(
    v: VertexTracer, suffix: str, x: Symbol, h: Symbol, c: Symbol, states: str = ""
) -> None:
    """Compute an LSTM step whose gates are one affine transform, W x + U h + b."""
    products = x @ v.parameter(f"W{suffix}") + h @ v.parameter(f"U{suffix}")
    i, f, g, o = v.split(products + v.parameter(f"b{suffix}"), 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    v.scatter(**{f"{states}h": sigmoid(o) * tanh(c), f"{states}c": c})
