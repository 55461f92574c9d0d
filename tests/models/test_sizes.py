"""A dataset defines named sizes: a new kind of data adds a name, but no field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import ModelSizes, ParameterSpec, draw_initial_weights
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_model
from tests.support.instances import build
from tests.support.refusals import expect_refusal

TREES = {"words": 7, "classes": 3}


class Translator(TreeLSTM):
    """Model with two vocabularies, such as one of sentence pairs."""

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        target = ParameterSpec((self.sizes.get_size("target_words"), self.sizes.hidden_size), 0.1)
        return {**super().parameters, "target_embedding": target}


def test_a_model_may_ask_for_sizes_that_no_other_has() -> None:
    model = Translator(ModelSizes(4, TREES | {"target_words": 11}))
    weights = draw_initial_weights(model, seed=0)
    assert weights["target_embedding"].shape == (11, 4)
    plain = draw_initial_weights(TreeLSTM(ModelSizes(4, TREES)), seed=0)
    assert all(np.array_equal(weights[name], plain[name]) for name in plain)


def test_missing_dataset_size_names_the_dataset(make_spec: Callable[..., TrialSpec]) -> None:
    model = LatticeLSTM(ModelSizes(4, TREES, dataset="sst"))
    with expect_refusal("the size characters, but dataset=sst has only words, classes; choose"):
        _ = model.parameters
    with expect_refusal("has only instances;"):
        ModelSizes(4, {}).get_size("words")
    spec = make_spec(model="tree_lstm")
    with expect_refusal(f"needs the size classes, but dataset={spec.dataset} has only words;"):
        _ = build_model(spec, {"words": 99}).parameters


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hidden_size": 0, "data": TREES}, "hidden_size=0"),
        ({"hidden_size": 4, "data": TREES, "embedding_size": -1}, "embedding_size=-1"),
        ({"hidden_size": 4, "data": {"words": 7, "tags": 0}}, "tags=0"),
    ],
)
def test_sizes_below_one_are_refused(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"{words} is not allowed: expected a size of at least 1"):
        ModelSizes(**sizes)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("tree_fc", {"variant": "flat"}),
        ("cell", {"cell": "mgu"}),
        ("tree_lstm_2type", {"type_seed": -1}),
    ],
)
def test_messages_name_the_key_of_the_command_line(name: str, option: dict[str, Any]) -> None:
    ((key, value),) = option.items()
    with expect_refusal(f"model.options.{key}={value} is "):
        build(name, ModelSizes(4, TREES), **option)
