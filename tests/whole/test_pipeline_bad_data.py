"""Pipeline on unreadable data files: their trials and counts have a status, others are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.records.record import read_record
from tests.support.pipelines import build_counts, records, snakemake

WRONG = "(2 (1 a) (1 b)\n"  # one ")" too few


def on_wrong_data(content: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment with half of its trials on an invalid file, half on generated trees."""
    smoke = content["scales"]["smoke"]
    smoke["rounds"] = 1
    wrong = {"dataset": "sst", "dataset.options.sha256": None}
    smoke["blocks"] = [
        {**smoke["blocks"][0], "batch_size": 1, **wrong},
        {**smoke["blocks"][0], "batch_size": 2, "dataset": "sst_synthetic"},
    ]
    return content


@pytest.mark.slow
def test_invalid_data_gives_a_status_and_other_trials_continue(folder: Path) -> None:
    place = folder / "conf" / "experiment"
    (place / "small_curves.yaml").unlink()
    table = place / "small_table.yaml"
    table.write_text(yaml.safe_dump(on_wrong_data(yaml.safe_load(table.read_text()))))
    count = {"model": "tree_lstm", "dataset": "sst", "batch_size": 1, "timing.min_seconds": 0}
    counted = build_counts({**count, "policy": ["agenda", "depth"]})
    (place / "small_counts.yaml").write_text(yaml.safe_dump(counted))
    (folder / "no_data" / "sst").mkdir(parents=True)
    (folder / "no_data" / "sst" / "train.txt").write_text(WRONG)
    done = snakemake(folder, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [read_record(path) for path in records(folder)]
    by_dataset = {(record.trial.dataset, record.status) for record in found}
    assert by_dataset == {("sst", "invalid_data"), ("sst_synthetic", "ok")}
    reasons = {record.reason for record in found if record.status == "invalid_data"}
    assert len(reasons) == 1
    assert "no_data/sst/train.txt:1: unbalanced: 1 '(' not closed" in reasons.pop()
    assert "invalid_data" in (folder / "results/tables/small_table_systems.md").read_text()
    assert "invalid_data" in (folder / "results/tables/small_counts.md").read_text()
