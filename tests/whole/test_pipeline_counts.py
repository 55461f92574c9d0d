"""Batch counts and invalid data in the pipeline: tables have the statuses, and others are run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.records.record import read_record
from tests.support.pipelines import (
    build_counts,
    edit_experiment,
    records,
    snakemake,
    write_experiment,
)


def counts_experiment(**limits: float) -> dict[str, Any]:
    """Return a table of counts, in which one policy's learning does not end."""
    mini_batch = {"model": "lattice_lstm", "dataset": "weibo_lattice", "batch_size": 4}
    quick = {**mini_batch, "policy": ["agenda", "depth"], "timing.min_seconds": 0}
    endless = {**mini_batch, "policy": "fsm_sort", "learning.trials": 10**8, **limits}
    return build_counts(quick, endless)


@pytest.mark.slow
def test_a_count_that_fails_leaves_its_status_in_the_table(folder: Path) -> None:
    """Only failed counts are repeated, and only with another limit.

    No experiment here has trials, so there is no table of records.
    """
    for name in ("small_curves", "small_table"):
        (folder / f"conf/experiment/{name}.yaml").unlink()
    write_experiment(folder, "small_counts", counts_experiment(**{"limits.time_s": 2}))
    snakemake(folder, "all")
    results = folder / "results"
    table = (results / "tables/small_counts.md").read_text()
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    cells = {row[1].strip(): row[2].strip() for row in rows}
    assert cells["fsm_sort"] == "timeout"
    assert int(cells["depth"]) >= int(cells["agenda"]) >= int(cells["lower bound"]) > 1
    assert "fsm_sort: timeout: not finished within limits.time_s=2" in table.splitlines()
    assert not (results / "records.csv").exists()
    assert "2 ok, 1 timeout" in (results / "report.html").read_text(encoding="utf-8")

    records = {path: path.read_bytes() for path in (results / "raw/counts").glob("count-*.json")}
    assert len(records) == 3
    write_experiment(folder, "small_counts", counts_experiment(**{"limits.time_s": 3}))
    snakemake(folder, "all")
    changed = [path.name for path in records if path.read_bytes() != records[path]]
    assert [name.partition("-lattice")[0] for name in changed] == ["count-fsm_sort"]


@pytest.mark.slow
def test_counts_run_concurrently_and_trials_alone(folder: Path) -> None:
    """Trials and timed counts use all cores."""
    (folder / "conf/experiment/small_curves.yaml").unlink()
    content = counts_experiment()
    mini_batch = {"model": "lattice_lstm", "dataset": "weibo_lattice", "policy": "depth"}
    quick = [{**mini_batch, "batch_size": n, "timing.min_seconds": 0} for n in range(2, 5)]
    timed = {"model": "tree_gru", "dataset": "sst_synthetic", "policy": "depth"}
    timed |= {"batch_size": 1, "timing.min_seconds": 0.01}
    content["scales"] = {"smoke": {"counts": [*quick, timed]}}
    content["table"] = {**content["table"], "columns": ["model", "batch_size"]}
    write_experiment(folder, "small_counts", content)
    at_once = _at_once(snakemake(folder, "all", "--cores", "2"))
    assert ["count lattice_lstm"] * 2 in at_once
    alone = {"count tree_gru", "measure all"}
    assert all(len(running) == 1 for running in at_once if alone & set(running))
    assert alone <= {one for running in at_once for one in running}


def _at_once(printed: str) -> list[list[str]]:
    """Return the running jobs, as rule and model, after each start and each end of a job."""
    running: dict[str, str] = {}
    found = []
    for line in printed.splitlines():
        if begins := re.match(r"Job (\d+): (\w+)(?: (?:sweep-)?(\w+))?", line):
            running[begins[1]] = f"{begins[2]} {begins[3]}"
        elif ends := re.match(r"Finished jobid: (\d+)", line):
            running.pop(ends[1], None)
        else:
            continue
        found.append(list(running.values()))
    return found


WRONG = "(2 (1 a) (1 b)\n"  # one ")" too few


@pytest.mark.slow
def test_invalid_data_gives_a_status_and_other_trials_continue(folder: Path) -> None:
    """Half of the trials are on an invalid file, and half on generated trees."""
    (folder / "conf/experiment/small_curves.yaml").unlink()
    with edit_experiment(folder, "small_table") as content:
        smoke, wrong = content["scales"]["smoke"], {"dataset.options.sha256": None}
        smoke["blocks"] = [
            {**smoke["blocks"][0], "batch_size": 1, "dataset": "sst", **wrong},
            {**smoke["blocks"][0], "batch_size": 2, "dataset": "sst_synthetic"},
        ]
        smoke["rounds"] = 1
    count = {"model": "tree_lstm", "dataset": "sst", "batch_size": 1, "timing.min_seconds": 0}
    counted = build_counts({**count, "policy": ["agenda", "depth"]})
    write_experiment(folder, "small_counts", counted)
    (folder / "no_data" / "sst").mkdir(parents=True)
    (folder / "no_data" / "sst" / "train.txt").write_text(WRONG)
    snakemake(folder, "all")
    found = [read_record(path) for path in records(folder)]
    by_dataset = {(record.trial.dataset, record.status) for record in found}
    assert by_dataset == {("sst", "invalid_data"), ("sst_synthetic", "ok")}
    reasons = {record.reason for record in found if record.status == "invalid_data"}
    assert len(reasons) == 1
    assert "no_data/sst/train.txt:1: unbalanced: 1 '(' not closed" in reasons.pop()
    assert "invalid_data" in (folder / "results/tables/small_table_systems.md").read_text()
    assert "invalid_data" in (folder / "results/tables/small_counts.md").read_text()
