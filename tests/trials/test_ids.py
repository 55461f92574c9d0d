"""Ids outside of a table or a layer are refused before any system receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dynbatch.harness.trials.workload
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.errors import DataError
from dynbatch.harness.models.bilstm import BiLSTM
from dynbatch.harness.models.bilstm_char import BiLSTMChar
from dynbatch.harness.models.seq2seq import Seq2Seq
from dynbatch.harness.models.var_lstm import VarLSTM
from dynbatch.harness.trials.workload import check_ids, load_workload
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain, SentencePair
from tests.support.engine_models import EXAMPLES
from tests.support.instances import ALL_SIZES
from tests.support.measured import MakeSpec

SIZES = ModelSizes(4, ALL_SIZES, dataset="made_up")  # 7 words, 5 characters, 3 classes
GOOD = Chain([0, 6], [2, 0])


@pytest.mark.parametrize("name", EXAMPLES)
def test_ids_inside_are_accepted(name: str) -> None:
    model, instances = EXAMPLES[name]
    check_ids(model, [instances])


OUTSIDE: list[tuple[Model, Any, str]] = [
    (VarLSTM(SIZES), Chain([0, 7], [0, 0]), "word=7 is not a row of the table embedding"),
    (VarLSTM(SIZES), Chain([7, 0], [0, 0]), "word=7 is not"),
    (VarLSTM(SIZES), Chain([0, 1], [0, 999]), "label=999 is not a score of the layer"),
    (VarLSTM(SIZES, layers=2), Chain([0, 1], [7, 0]), "label=7 is not"),
    (BiLSTM(SIZES), Chain([0, 1], [0, 3]), "of bilstm: expected 0 to 2; fix the ids or"),
    (BiLSTM(SIZES), Chain([7, 1], [0, 2]), "expected 0 to 6; .* dataset=made_up"),
    (BiLSTMChar(SIZES), Chain([0, 1], [0, 2], [0, 0, 2], [4, 5]), "character=5 is not"),
    (Seq2Seq(SIZES), SentencePair([6, 0], [0, 1]), "=6 is not a row of the table"),
    (Seq2Seq(SIZES), SentencePair([5, 0], [0, 5]), "label=5 is not"),
]


@pytest.mark.parametrize(("model", "instance", "reason"), OUTSIDE)
def test_an_id_outside_is_one_line(model: Model, instance: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        check_ids(model, [[instance]])
    assert "\n" not in str(caught.value)


def test_every_mini_batch_and_instance_is_looked_at() -> None:
    model, wrong = VarLSTM(SIZES), Chain([0], [7])
    check_ids(model, [[GOOD, GOOD], [GOOD]])
    for mini_batches in ([[GOOD, wrong], [GOOD]], [[GOOD], [GOOD, wrong]], [[GOOD], [wrong, GOOD]]):
        with pytest.raises(DataError, match="label=7"):
            check_ids(model, mini_batches)


class Pulls(VarLSTM):
    """Var-LSTM whose mini-batches have some pulls replaced."""

    changes: Mapping[str, Any] = {}

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        return replace(super().mini_batch(instances), **self.changes)


WORDS, NO_IDS = as_int_array([0, 6]), as_int_array([-1, -1])
REPLACED: dict[str, tuple[dict[str, Any], str]] = {
    "a vertex without its word": ({"pulls": {"word": NO_IDS, "label": WORDS}}, "word=-1 is not"),
    "an output without its label": ({"pulls": {"word": WORDS, "label": NO_IDS}}, "label=-1 is not"),
    "the output's own pulls": ({"output_pulls": {"label": as_int_array([0, 7])}}, "label=7 is not"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_pulls_that_a_model_made_are_checked(name: str) -> None:
    changes, reason = REPLACED[name]
    model = Pulls(SIZES)
    check_ids(model, [[GOOD]])
    model.changes = changes
    with pytest.raises(DataError, match=reason):
        check_ids(model, [[GOOD]])


@pytest.mark.parametrize("word", [10, 11])
def test_a_corpus_whose_ids_exceed_its_sizes_is_refused(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, word: int
) -> None:
    chains = [Chain(as_int_array([0]), as_int_array(np.array([word])))] * 2

    def load(*arguments: object, **options: object) -> Corpus:
        return Corpus("made_up", "train", chains, {"words": 11}, "", "", True, "chain")

    monkeypatch.setattr(dynbatch.harness.trials.workload, "load_corpus", load)
    spec = make_spec(model="var_lstm", model_options={})
    if word < 11:
        assert load_workload(spec).n_instances == 4
    else:
        with pytest.raises(DataError, match=r"label=11 is not .* expected 0 to 10; "):
            load_workload(spec)
