"""The pipeline draws what was measured elsewhere, and measures nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.records.packed import RECORDS, pack_records
from harness.records.record import trial_of
from tests.support.made_up_records import MACHINE, made_up_record
from tests.support.pipelines import snakemake


@pytest.mark.slow
def test_what_was_measured_elsewhere_is_drawn_and_nothing_is_measured(folder: Path) -> None:
    """On a GPU, with more threads than there are here, by other code, and on real trees."""
    said = {"scale": "smoke", "device": "cuda", "threads": 999, "conf_dir": folder / "conf"}
    choices = choices_from(said, {}, frozenset({"sst"}))
    trials = plan_artefact("small_curves", choices, Composer(choices.conf_dir))
    measured = []
    for trial, round_ in itertools.product(trials[1:], range(2)):
        spec = trial.spec.with_round(round_)
        changes = {
            "trial": trial_of(spec),
            "trial_id": f"of-older-code-{trial.trial_id}",
            "config": spec.to_dict() | {"adapter": "gone"},
            "machine": MACHINE | {"cpu": "A CPU elsewhere"},
        }
        measured.append(made_up_record(trial, round_).model_copy(update=changes))
    pack_records(folder / "packed" / RECORDS, measured)

    done = snakemake(folder, "draw_all", config=["records=packed", "conf_dir=conf"])
    said_so = done.stdout + done.stderr
    assert done.returncode == 0, said_so
    assert "2 artefacts are drawn from 6 records, with scale=smoke device=cuda" in said_so
    assert "shown as missing: small_curves (2), small_table (2)" in said_so
    results = folder / "results"
    lines = (results / "figures/small_curves.csv").read_text().splitlines()
    assert sum(line.startswith("measured,") for line in lines) == len(trials)
    assert sum(",missing," in line for line in lines) == 1
    assert "A CPU elsewhere" in (results / "tables/small_table_systems.md").read_text()
    assert not (results / "raw").exists()
    assert not (results / "report.html").exists()
    again = snakemake(folder, "draw_all", config=["records=packed", "conf_dir=conf"])
    assert "Nothing to be done" in again.stdout + again.stderr
    done = snakemake(folder, "all", config=["records=packed", "conf_dir=conf"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (results / "records.csv").read_text().count("of-older-code") == len(measured)

    wrong = snakemake(folder, "draw_all", config=["records=nowhere", "conf_dir=conf"])
    assert wrong.returncode == 1
    assert "records=nowhere does not exist" in wrong.stdout + wrong.stderr
