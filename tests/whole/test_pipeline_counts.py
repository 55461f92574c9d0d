"""Counts, invalid data and claims in the pipeline: statuses in tables, and what is measured."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.records.record import read_record
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.pipelines import (
    HERE,
    SYSTEMS,
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
    """Only failed counts are repeated, and only with another limit."""
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
    assert not (results / "records.csv").exists(), "no experiment has trials"
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
    assert alone <= {job for running in at_once for job in running}


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


# --- target `claims` ---

ON_PAPER = ["scale=paper", *HERE[1:]]


def write_claim(folder: Path, name: str, size: int, **changes: Any) -> None:
    """Write a claim that compares the two systems at one batch size."""
    claim = {
        **{"claim": f"Batch size {size}", "authors": "Nobody", "paper": "None", "year": 2020},
        **{"location": "Table 0", "conditions": "none", "device": "cpu"},
        "published": {"text": "1", "number": 1},
        "answer": {
            **{"experiment": "small_table", "quantity": "instance_s", "substitution": "nothing"},
            "numerator": {"system": SYSTEMS[1]},
            "denominator": {"system": SYSTEMS[0]},
            "settings": {"batch_size": size},
        },
        "rule": {"at_least": 1, "rationale": "a claim about direction"},
        **changes,
    }
    (folder / f"conf/claims/{name}.yaml").write_text(yaml.safe_dump(claim))


@pytest.fixture
def claiming(folder: Path) -> Path:
    """Return a working directory with claims about one batch size on each device."""
    with edit_experiment(folder, "small_table") as content:
        content["scales"]["paper"] = content["scales"]["smoke"]
    (folder / "conf/experiment/small_curves.yaml").unlink()
    shutil.copy(CONF_DIR / "experiment/claims.yaml", folder / "conf/experiment/claims.yaml")
    shutil.rmtree(folder / "conf/claims")
    (folder / "conf/claims").mkdir()
    write_claim(folder, "small", 1)
    write_claim(folder, "large", 2, device="cuda")
    return folder


def read_work(printed: str) -> str:
    """Return what a run announces to measure."""
    return re.search(r"\d+ rounds of \d+ trials and counts to measure at \w+ scale", printed)[0]  # type: ignore[index]


@pytest.mark.slow
def test_only_missing_rounds_of_decidable_claims_are_measured(claiming: Path) -> None:
    printed = snakemake(claiming, "claims", config=ON_PAPER)
    # Two systems at one of two batch sizes, in two rounds.
    assert read_work(printed) == "4 rounds of 2 trials and counts to measure at paper scale"
    assert "measure claims" in printed
    assert "draw claims" in printed
    first = records(claiming)
    assert len(first) == 4
    table = (claiming / "results/tables/claims.md").read_text(encoding="utf-8")
    (small,) = (line for line in table.splitlines() if "Batch size 1" in line)
    (large,) = (line for line in table.splitlines() if "Batch size 2" in line)
    assert "not measurable here" not in small
    assert "not measurable here" in large

    lost = sorted(first)[0]
    lost.unlink()
    printed = snakemake(claiming, "claims", config=ON_PAPER)
    assert read_work(printed).startswith("1 rounds of 1 trials")
    second = records(claiming)
    assert set(second) == set(first)
    assert {path for path in first if second[path] != first[path]} == {lost}
