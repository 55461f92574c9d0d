"""A trial's identity, which covers everything that changes the work and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.records.record import locate_record
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import load_workload
from tests.support.measured import MakeSpec

LATER: dict[str, Any] = {"n_instances": 4, "max_warmup": 3, "max_warmup_s": 9.0, "last": "keep"}


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
