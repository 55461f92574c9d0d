"""A trial's identity, which covers everything that changes the work and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.records.record import locate_record
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import load_workload


def test_identity_covers_the_work_and_nothing_else(make_spec: Callable[..., TrialSpec]) -> None:
    spec = make_spec()
    changes: list[dict[str, Any]] = [
        *({"hidden_size": 4}, {"seed": 1}, {"mode": "infer"}, {"learning_rate": 1.0}),
        *({"system_options": {"a": 1}}, {"model_options": {"a": 1}}, {"split": "dev"}),
        *({"policy": "depth"}, {"threads": 2}, {"embedding_size": 7}, {"order": "length"}),
    ]
    ids = [make_spec(**change).trial_id for change in changes]
    assert len({spec.trial_id, *ids}) == len(changes) + 1
    same: list[dict[str, Any]] = [
        *({"round": 3}, {"command": "x"}, {"data_root": "x"}, {"cache_dir": None}),
        {"embedding_size": spec.hidden_size},
    ]
    assert {make_spec(**change).trial_id for change in same} == {spec.trial_id}


def test_the_usual_order_leaves_a_trial_its_name(make_spec: Callable[..., TrialSpec]) -> None:
    assert make_spec(order="shuffled").trial_id == make_spec().trial_id
    assert "order" not in make_spec().identity  # so that records from before the option count


def test_mini_batches_are_in_the_order_of_the_trial(make_spec: Callable[..., TrialSpec]) -> None:
    sentences: dict[str, Any] = {
        **{"model": "var_lstm", "model_module": "dynbatch.harness.models.var_lstm"},
        **{"dataset": "ptb_synthetic", "loader": "dynbatch.datasets.ptb_synthetic"},
        **{"model_options": {}, "dataset_options": {}, "split": "dev"},
    }
    spreads = {}
    for order in ("shuffled", "length"):
        batches = load_workload(make_spec(**sentences, order=order)).mini_batches
        spreads[order] = [max(c.n_words for c in b) - min(c.n_words for c in b) for b in batches]
    assert max(spreads["length"]) <= 1 < max(spreads["shuffled"])


def test_a_trial_id_is_safe_in_paths(make_spec: Callable[..., TrialSpec], tmp_path: Path) -> None:
    spec = make_spec(system="a/b c:d")
    assert locate_record(tmp_path, spec).parent.parent == tmp_path / "raw"
    assert TrialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ConfigError, match="colour is unknown in a trial"):
        TrialSpec.from_dict(spec.to_dict() | {"colour": 1})
