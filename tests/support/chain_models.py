"""A tagger and a language model with sentences, to compare batch counts with real DyNet."""

from __future__ import annotations

from collections.abc import Mapping

from harness.contracts.model import ModelSizes, ParameterSpec
from harness.models.bilstm import BiLSTM
from harness.models.var_lstm import VarLSTM
from harness.vertex import Symbol, VertexTracer, sigmoid, tanh
from tests.support.instances import random_sentences

SIZES = ModelSizes(4, {"words": 100, "classes": 5})
TAGGER = BiLSTM(SIZES)
TAGGER_OF_TWO = BiLSTM(SIZES, layers=2)
WORDS = VarLSTM(SIZES)
SENTENCES = random_sentences("chain", (7, 1, 12, 4, 4, 9, 2), SIZES, seed=1)


class AffineBiLSTM(BiLSTM):
    """The tagger with sums of two matmuls as one affine transform, as in DyNet."""

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        found = dict(super().parameters)
        rows, width = found.pop("W_tag").shape
        half = ParameterSpec((rows // 2, width), 0.1)
        return found | {"F_tag": half, "B_tag": half}

    def _compute_bottom_step(self, suffix: str, v: VertexTracer) -> None:
        self._affine_step(suffix, v, v.lookup("embedding", v.pull("word")))

    def _compute_upper_step(self, suffix: str, v: VertexTracer) -> None:
        self._affine_step(suffix, v, v.gather(1).h)

    def _affine_step(self, suffix: str, v: VertexTracer, x: Symbol) -> None:
        before = v.gather(0)
        products = x @ v.parameter(f"W{suffix}") + before.h @ v.parameter(f"U{suffix}")
        i, f, g, o = v.split(products + v.parameter(f"b{suffix}"), 4)
        c = sigmoid(f) * before.c + sigmoid(i) * tanh(g)
        v.scatter(h=sigmoid(o) * tanh(c), c=c)

    def tag(self, v: VertexTracer) -> None:
        there, back = v.gather(0).h, v.gather(1).h
        products = there @ v.parameter("F_tag") + back @ v.parameter("B_tag")
        v.scatter(t=tanh(products + v.parameter("b_tag")))
