"""Records of trials and counts that nobody measured, from a few values each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.measuring.passes import instances_per_s
from harness.records.count_row import AnyCount, parse_count, write_count
from harness.records.record import Record, path_of, trial_of, write_record
from harness.trials.spec import TrialSpec
from tests.support.made_up_counts import made_up_row

SPEC: dict[str, Any] = {
    "system": "fake",
    "adapter": "tests.support.fake_systems",
    "model": "tree_fc",
    "model_module": "harness.models.tree_fc",
    "dataset": "complete_trees",
    "loader": "datasets.complete_trees",
    "batch_size": 2,
    "hidden_size": 8,
}
POINT = {
    "model": "tree_lstm",
    "dataset": "sst",
    "split": "train",
    "batch_size": "4",
    "granularity": "vertex",
    "policy": "agenda",
}


def plain_record(round_: int = 0, changes: dict[str, Any] | None = None, **spec: Any) -> Record:
    """One round of a trial; `changes` are to the record, the others to what was measured."""
    chosen = TrialSpec(**(SPEC | spec | {"round": round_}))
    values: dict[str, Any] = {
        "status": "ok",
        "trial": trial_of(chosen),
        "trial_id": chosen.trial_id,
        "samples_s": (0.5, 0.25),
        "n_mini_batches": 2,
        "n_instances": 4,
        "source_sha256": "a" * 64,
        "machine": {"cpu": "Some CPU", "usable_cpus": [0, 1], "gpus": []},
        "versions": {"python": "3.11"},
        "config": chosen.to_dict(),
        "started_at": "2026-01-01T00:00:00+00:00",
        "finished_at": "2026-01-01T00:00:01+00:00",
    }
    return Record(**of_one_piece(values, changes or {}))


def of_one_piece(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A record's values, changed; its samples follow from a speed that is said, or the reverse."""
    changed = values | changes
    n, n_instances = changed["n_mini_batches"], changed["n_instances"]
    speed = changes.get("instances_per_s")
    if speed is not None and "samples_s" not in changes:
        return changed | {"samples_s": (n_instances / speed / n,) * n}
    samples = changed["samples_s"]
    said = {"instances_per_s": instances_per_s(samples, n, n_instances) if samples else None}
    return changed | said | changes


def plain_count(name: str = "count-a", **changes: Any) -> AnyCount:
    """One count under that name."""
    return parse_count(_json(made_up_row(POINT, count_id=name, **changes)))


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def write_results(results_dir: Path, records: list[Record], counts: list[AnyCount]) -> None:
    """Lay them out as `bench` and `bench-schedule` do."""
    for record in records:
        write_record(path_of(results_dir, record.trial_id, record.trial.round), record)
    for row in counts:
        write_count(results_dir / "raw" / "counts" / f"{row.count_id}.json", row)


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
