"""A trial's identity, which covers everything that changes the work, and its inputs.

Ids outside of a table or a layer are refused before any system receives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.errors import ConfigError, DataError
from dynbatch.harness.models.var_lstm import VarLSTM
from dynbatch.harness.records.record import locate_record
from dynbatch.harness.trials import workload
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import check_ids, load_workload
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain, SentencePair
from tests.support.engine_models import EXAMPLES
from tests.support.instances import ALL_SIZES, build
from tests.support.measured import MakeSpec

LATER: dict[str, Any] = {"n_instances": 4, "max_warmup": 3, "max_warmup_s": 9.0, "last": "keep"}
LATER["precision"] = 0.5


def test_identity_covers_the_work_and_nothing_else(make_spec: MakeSpec) -> None:
    spec = make_spec()
    changes: list[dict[str, Any]] = [
        *({"hidden_size": 4}, {"seed": 1}, {"mode": "infer"}, {"learning_rate": 1.0}),
        *({"system_options": {"a": 1}}, {"model_options": {"a": 1}}, {"split": "dev"}),
        *({"policy": "depth"}, {"threads": 2}, {"embedding_size": 7}, {"order": "length"}),
        *({"timing": replace(spec.timing, **{name: value})} for name, value in LATER.items()),
    ]
    ids = [make_spec(**change).trial_id for change in changes]
    assert len({spec.trial_id, *ids}) == len(changes) + 1
    same: list[dict[str, Any]] = [
        *({"round": 3}, {"command": "x"}, {"data_root": "x"}, {"cache_dir": None}),
        *({"embedding_size": spec.hidden_size}, {"python": "/elsewhere/bin/python"}),
    ]
    assert {make_spec(**change).trial_id for change in same} == {spec.trial_id}


def test_defaults_of_later_options_leave_a_trial_its_name(make_spec: MakeSpec) -> None:
    """Records from before an option count for trials with its default."""
    identity = make_spec().identity
    assert "order" not in identity
    assert not LATER.keys() & identity["timing"].keys()


def test_mini_batches_are_in_the_order_of_the_trial(make_spec: MakeSpec) -> None:
    sentences: dict[str, Any] = {
        **{"model": "var_lstm", "dataset": "ptb_synthetic", "split": "dev"},
        **{"model_options": {}, "dataset_options": {}},
    }
    spreads = {}
    for order in ("shuffled", "length"):
        batches = load_workload(make_spec(**sentences, order=order)).mini_batches
        spreads[order] = [max(c.n_words for c in b) - min(c.n_words for c in b) for b in batches]
    assert max(spreads["length"]) <= 1 < max(spreads["shuffled"])


def test_a_trial_id_is_safe_in_paths(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(system="a/b c:d")
    assert locate_record(tmp_path, spec).parent.parent == tmp_path / "raw"
    assert TrialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ConfigError, match="colour is unknown in a trial"):
        TrialSpec.from_dict(spec.to_dict() | {"colour": 1})


# --- ids ---

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
    (build("bilstm", SIZES), Chain([0, 1], [0, 3]), "of bilstm: expected 0 to 2; fix the ids or"),
    (build("bilstm", SIZES), Chain([7, 1], [0, 2]), "expected 0 to 6; .* dataset=made_up"),
    (build("bilstm_char", SIZES), Chain([0, 1], [0, 2], [0, 0, 2], [4, 5]), "character=5 is not"),
    (build("seq2seq", SIZES), SentencePair([6, 0], [0, 1]), "=6 is not a row of the table"),
    (build("seq2seq", SIZES), SentencePair([5, 0], [0, 5]), "label=5 is not"),
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

    monkeypatch.setattr(workload, "load_corpus", load)
    spec = make_spec(model="var_lstm", model_options={})
    if word < 11:
        assert load_workload(spec).n_instances == 4
    else:
        with pytest.raises(DataError, match=r"label=11 is not .* expected 0 to 10; "):
            load_workload(spec)
