"""A trial's identity: the work and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.records.record import record_path
from harness.trials.spec import TrialSpec


def test_identity_covers_the_work_and_nothing_else(make_spec: Callable[..., TrialSpec]) -> None:
    spec = make_spec()
    changes: list[dict[str, Any]] = [
        *({"hidden_size": 4}, {"seed": 1}, {"mode": "infer"}, {"learning_rate": 1.0}),
        *({"system_options": {"a": 1}}, {"model_options": {"a": 1}}, {"split": "dev"}),
        *({"policy": "depth"}, {"threads": 2}, {"embedding_size": 7}),
    ]
    ids = [make_spec(**change).trial_id for change in changes]
    assert len({spec.trial_id, *ids}) == len(changes) + 1
    same: list[dict[str, Any]] = [
        *({"round": 3}, {"command": "x"}, {"data_root": "x"}, {"cache_dir": None}),
        {"embedding_size": spec.hidden_size},
    ]
    assert {make_spec(**change).trial_id for change in same} == {spec.trial_id}


def test_a_trial_id_is_safe_in_paths(make_spec: Callable[..., TrialSpec], tmp_path: Path) -> None:
    spec = make_spec(system="a/b c:d")
    assert record_path(tmp_path, spec).parent.parent == tmp_path / "raw"
    assert TrialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ConfigError, match="no colour"):
        TrialSpec.from_dict(spec.to_dict() | {"colour": 1})
