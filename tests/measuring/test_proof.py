"""Later rounds rely on the proof of the first one, and only as long as nothing has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.measuring import worker
from dynbatch.harness.records.record import Record, locate_record
from dynbatch.harness.trials.spec import TrialSpec
from tests.support import saboteurs
from tests.support.measured import MakeSpec, measure_at, spec_of


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each proof."""
    calls: list[int] = []
    prove = worker.prove

    def counted(*given: Any) -> Any:
        calls.append(1)
        return prove(*given)

    monkeypatch.setattr(worker, "prove", counted)
    return calls


def measured_in(folder: Path, spec: TrialSpec, round_: int) -> Record:
    spec = replace(spec, round=round_)
    return measure_at(spec, locate_record(folder, spec))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_later_round_is_proved_by_the_first(
    make_spec: MakeSpec, tmp_path: Path, proofs: list[int], mode: str
) -> None:
    spec = spec_of(make_spec, "Honest", mode=mode)
    first, second = (measured_in(tmp_path, spec, round_) for round_ in (0, 1))
    assert (first.status, second.status) == ("ok", "ok")
    assert len(proofs) == 1
    assert (first.check.in_round, second.check.in_round) == (None, 0)
    assert second.fingerprint.sketches == first.fingerprint.sketches
    assert (first.unseen_slowdown is None, second.unseen_slowdown is None) == (False, True)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_later_round_with_other_losses_is_wrong(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    spec = spec_of(make_spec, "Honest", mode=mode)
    assert measured_in(tmp_path, spec, 0).status == "ok"
    last_loss = saboteurs.Honest.last_loss
    monkeypatch.setattr(saboteurs.Honest, "last_loss", lambda self: 1.01 * last_loss(self))
    record = measured_in(tmp_path, spec, 1)
    assert record.status == "wrong_result"
    assert "the loss of mini-batch 0 is" in str(record.reason)
    assert record.passes_s == ()


@pytest.mark.parametrize("changed", ["source", "machine", "versions", "inputs", "status", "none"])
def test_a_changed_first_round_proves_nothing(
    make_spec: MakeSpec, tmp_path: Path, proofs: list[int], changed: str
) -> None:
    spec = spec_of(make_spec, "Honest")
    first = measured_in(tmp_path, spec, 0)
    path = locate_record(tmp_path, spec)
    changes: dict[str, dict[str, Any]] = {
        "source": {"source_sha256": "0" * 64},
        "machine": {"machine": {**first.machine, "cpu": "another"}},
        "versions": {"versions": {**first.versions, "numpy": "0.1"}},
        "inputs": {"inputs_sha256": "0" * 64},
        "status": {"status": "wrong_result", "reason": "other systems contradict it"},
        "none": {},
    }
    path.write_text(first.model_copy(update=changes[changed]).model_dump_json())
    if changed == "none":
        path.unlink()
    again = measured_in(tmp_path, spec, 1)
    assert again.status == "ok"
    assert again.check.in_round is None
    assert len(proofs) == 2
