"""Drawing of records of other machines by the pipeline, without measuring."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dynbatch.harness.planning.artifacts import build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.records.record import build_trial
from dynbatch.harness.records.store import RecordSet, write_packed
from tests.support.experiments import read_rows
from tests.support.pipelines import edit_experiment, snakemake
from tests.support.records import MACHINE, made_up_record

CONFIG = ("records=packed", "conf_dir=conf")
N_MEASURED = 6


@pytest.fixture
def packed(folder: Path) -> Path:
    """Return a working directory with packed records of a GPU, many threads and older code."""
    message = {"scale": "smoke", "device": "cuda", "threads": 999, "conf_dir": folder / "conf"}
    choices = build_choices(message, {}, frozenset({"sst"}))
    trials = plan_artifact("small_curves", choices, Composer(choices.conf_dir))
    measured = []
    for trial, round_ in itertools.product(trials[1:], range(2)):
        spec = trial.spec.replace_round(round_)
        changes = {
            "trial": build_trial(spec),
            "trial_id": f"of-older-code-{trial.trial_id}",
            "config": spec.to_dict() | {"adapter": "gone"},
            "machine": MACHINE | {"cpu": "A CPU elsewhere"},
        }
        measured.append(made_up_record(trial, round_).model_copy(update=changes))
    assert len(measured) == N_MEASURED
    write_packed(RecordSet(tuple(measured)), folder / "packed")
    return folder


@pytest.mark.slow
def test_records_of_elsewhere_are_drawn_again_only_if_something_changed(packed: Path) -> None:
    """Targets for one and all experiments share files; each detects when its own are outdated."""
    printed = snakemake(packed, "all", config=CONFIG)
    assert "2 experiments are drawn from 6 records, with scale=smoke device=cuda" in printed
    assert "shown as not measured: small_curves (2); small_table (2)" in printed
    results = packed / "results"
    log = (results / "logs/report.log").read_text()
    drawn = [line.split(" (")[0] for line in log.splitlines()]
    assert drawn == ["drawn 1/2: small_curves", "drawn 2/2: small_table"], "one process draws both"
    rows = read_rows(results / "figures/small_curves.csv")
    statuses = [row["status"] for row in rows if row["status"] != "published"]
    assert sorted(statuses) == ["not measured", "ok", "ok", "ok"]
    table, report = results / "tables/small_table_systems.csv", results / "report.html"
    assert "A CPU elsewhere" in report.read_text(encoding="utf-8")
    assert (results / "records.csv").read_text().count("of-older-code") == N_MEASURED
    assert not (results / "raw").exists(), "nothing is measured"
    written = table.read_bytes()
    table.unlink()
    snakemake(packed, "all", config=CONFIG)
    assert table.read_bytes() == written, "a file that was removed is drawn again"
    assert "Nothing to be done" in snakemake(packed, "draw_small_table", config=CONFIG)

    with next((packed / "conf/claims").glob("*.yaml")).open("a") as file:
        file.write("# edited\n")  # as an edit of plots/ does
    experiment = packed / "conf/experiment/small_table.yaml"
    experiment.write_text(experiment.read_text().replace("in miniature", "in few words"))
    before = [path.stat().st_mtime_ns for path in (table, report)]
    snakemake(packed, "draw_small_curves", config=CONFIG)
    assert [path.stat().st_mtime_ns for path in (table, report)] == before
    snakemake(packed, "all", config=CONFIG)
    after = [path.stat().st_mtime_ns for path in (table, report)]
    assert all(new > old for new, old in zip(after, before, strict=True))

    assert "in few words" in report.read_text(encoding="utf-8")
    assert "Nothing to be done" in snakemake(packed, "draw_small_table", config=CONFIG)


@pytest.mark.slow
def test_an_experiment_that_cannot_be_drawn_is_named_in_one_line(packed: Path) -> None:
    with edit_experiment(packed, "small_curves") as content:
        content["figure"]["values"] = {"throughputs": "trees/s"}
    printed = snakemake(packed, "draw_all", config=CONFIG, returncode=1)
    assert "draw: small_curves: " in printed
    lines = (packed / "results/logs/report.log").read_text().splitlines()
    assert [line.split(":")[0] for line in lines] == ["draw", "drawn 2/2"], "others are drawn"
    assert "did you mean throughput" in lines[0]
    assert not (packed / "results/report.html").exists()
