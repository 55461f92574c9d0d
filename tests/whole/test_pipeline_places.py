"""Pipeline in directories with special characters, which no shell may interpret."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dynbatch.harness.records.record import read_record
from tests.support.pipelines import (
    SYSTEMS,
    build_counts,
    edit_experiment,
    snakemake,
    write_experiment,
)

NASTY = "a b'\"$(touch hacked);`touch hacked`&touch hacked|*#~\\"


@pytest.fixture
def nasty(folder: Path) -> Path:
    """Return a working directory with a trial and a count; conf/ has a name that needs quotes."""
    (folder / "conf/experiment/small_curves.yaml").unlink()
    blocks = [{"system": SYSTEMS, "batch_size": 1}]
    with edit_experiment(folder, "small_table") as content:
        content["scales"]["smoke"] |= {"rounds": 1, "blocks": blocks}
    counts = {"model": "tree_lstm", "dataset": "sst", "batch_size": 2, "policy": ["depth"]}
    counted = build_counts({**counts, "timing.min_seconds": 0})
    write_experiment(folder, "small_counts", counted)
    (folder / "conf").rename(folder / f"{NASTY}conf")
    return folder


def drawn_in(results: Path) -> None:
    assert (results / "report.html").stat().st_size > 0
    assert (results / "records.csv").stat().st_size > 0
    assert "depth" in (results / "tables/small_counts.md").read_text()
    assert (results / "tables/small_table_systems.md").stat().st_size > 0


@pytest.mark.slow
def test_a_run_in_places_of_any_name(nasty: Path) -> None:
    """The run measures, counts and draws; another draws records from a directory `-...`."""
    conf, results, data = (f"{NASTY}{name}" for name in ("conf", "results", "data"))
    printed = ["scale=smoke", "device=cpu", f"conf_dir={conf}"]
    snakemake(nasty, "all", config=[*printed, f"results_dir={results}", f"data_root={data}"])
    drawn_in(nasty / results)
    records = [read_record(path) for path in (nasty / results).glob("raw/*/r0.json")]
    assert {record.status for record in records} == {"ok"}
    assert {record.config["data_root"] for record in records} == {data}
    assert {path.name for path in nasty.iterdir()} == {".snakemake", conf, results}
    place, drawn = f"-r{NASTY}", f"-o{NASTY}"
    shutil.move(nasty / results / "raw", nasty / place)
    config = [f"conf_dir={conf}", f"records={place}", f"results_dir={drawn}"]
    snakemake(nasty, "all", config=config)
    drawn_in(nasty / drawn)
    assert {path.name for path in nasty.iterdir()} == {".snakemake", conf, results, place, drawn}
