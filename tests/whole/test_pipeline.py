"""Whole pipeline on a small scale: trials, tables, figures and report; kill and resume."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from dynbatch.harness.planning.durations import DRAWN_S, estimate_usual_s
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.records.record import read_record
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.pipelines import (
    HERE,
    SYSTEMS,
    command,
    edit_experiment,
    environment,
    records,
    snakemake,
)
from tests.support.processes import wait_until

ADAPTERS = [read_mapping(CONF_DIR / "system" / f"{name}.yaml")["adapter"] for name in SYSTEMS]
ROUND_S = 2 * sum(estimate_usual_s(adapter, 0.0) for adapter in ADAPTERS)  # of two batch sizes
BUDGET = f"budget={1.5 * ROUND_S + 2 * DRAWN_S:.0f}s"  # two experiments


@pytest.mark.slow
def test_all_makes_every_table_and_figure_once_also_in_several_runs(folder: Path) -> None:
    """Runs measure a round within a budget, the rest, and lost records; one run is killed."""
    printed = snakemake(folder, "all", config=(*HERE, BUDGET))
    work = "4 rounds of 4 trials and counts to measure at smoke scale, 2 experiments to draw"
    assert work in printed
    assert "4 more are left for the next run" in printed
    assert "[4/4]" in printed, "what measures says how far the run is"
    first = records(folder)
    assert {path.name for path in first} == {"r0.json"}
    results = folder / "results"
    assert "Tree-LSTM in miniature" in (results / "report.html").read_text(encoding="utf-8")

    snakemake(folder, "all")
    for suffix in ("pdf", "png", "csv"):
        assert (results / f"figures/small_curves.{suffix}").stat().st_size > 0
    for suffix in ("csv", "tex", "md", "html"):
        assert (results / f"tables/small_table_systems.{suffix}").stat().st_size > 0
    assert "synthetic" in (results / "report.html").read_text(encoding="utf-8")
    both = records(folder)
    assert len(both) == len(SYSTEMS) * 2 * 2, "experiments share their trials"
    assert first.items() <= both.items(), "nothing is measured twice"
    check_order(both)

    lost = sorted(both)[::3]
    for path in lost:
        path.unlink()
    table = results / "tables/small_table_systems.csv"
    drawn_at = table.stat().st_mtime_ns
    kill(folder, lambda: len(records(folder)) > len(both) - len(lost))
    before = records(folder)
    assert before.keys() < both.keys(), "it ended before it could be killed"
    assert "measure all" in snakemake(folder, "all")
    after = records(folder)
    assert after.keys() == both.keys()
    assert {path: after[path] for path in before} == before, "nothing is measured twice"
    assert {path: after[path] for path in both if path not in lost}.items() <= both.items()
    assert list((results / "raw").glob("*/superseded/*")) == []
    assert table.stat().st_mtime_ns > drawn_at


def kill(folder: Path, happened: Callable[[], bool]) -> None:
    """Start the pipeline, and kill only Snakemake; its trial continues for a moment."""
    with subprocess.Popen(
        command("all"),
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(happened, 120, process)
        assert happened(), "the pipeline ended before it could be killed"
        process.send_signal(signal.SIGKILL)


def check_order(measured: Iterable[Path]) -> None:
    """Check that each round measures the systems of a point together, in one block."""
    in_time = list(map(read_record, sorted(measured, key=lambda path: path.stat().st_mtime_ns)))
    assert {record.status for record in in_time} == {"ok"}
    assert [record.trial.round for record in in_time] == [0] * 4 + [1] * 4
    blocks = [
        (block, list(of_it)) for block, of_it in itertools.groupby(in_time, attrgetter("block"))
    ]
    assert len({block for block, _ in blocks}) == len(blocks) == 4
    for _, members in blocks:
        assert {record.trial.system for record in members} == set(SYSTEMS)
        assert len({(record.trial.round, record.trial.batch_size) for record in members}) == 1


FRESH = '''"""A system of somebody's own: the reference by another name."""

from dynbatch.systems.on_core.reference import Adapter  # noqa: F401
'''


@pytest.mark.slow
def test_a_new_system_is_one_file_and_one_yaml(folder: Path) -> None:
    """A framework that is added later is selected by kind, measured and shown."""
    for path in (folder / "conf" / "system").glob("*.yaml"):
        if yaml.safe_load(path.read_text())["kind"] == "framework":
            path.unlink()  # no framework is needed for this
    (folder / "conf/experiment/small_curves.yaml").unlink()
    compared = ["reference", "kind:framework"]
    with edit_experiment(folder, "small_table") as content:
        content["compare"] = {"systems": compared}
        content["scales"]["smoke"]["blocks"] = [{"system": compared, "batch_size": 2}]
    (folder / "fresh_system.py").write_text(FRESH)
    fresh = {"name": "fresh", "kind": "framework", "label": "Fresh", "adapter": "fresh_system"}
    (folder / "conf" / "system" / "fresh.yaml").write_text(yaml.safe_dump(fresh))
    snakemake(folder, "all")
    measured = [read_record(path) for path in records(folder)]
    assert {record.trial.system for record in measured} == {"reference", "fresh"}
    assert {record.status for record in measured} == {"ok"}
    assert "Fresh" in (folder / "results/tables/small_table_systems.md").read_text()
