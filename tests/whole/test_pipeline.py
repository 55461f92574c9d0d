"""The whole pipeline in miniature: trials, tables, figures and report; kill and resume."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.records.packed import RECORDS, pack_records
from harness.records.record import read_record, trial_of
from harness.values.places import CONF_DIR, ROOT
from tests.support.made_up_records import MACHINE, made_up_record

SYSTEMS = ["null", "reference"]  # need no framework, and one of them computes

pytestmark = pytest.mark.skipif(
    not shutil.which("flock"), reason="the pipeline needs flock (util-linux)"
)


def experiment(draw: str, quantities: list[str], **base: object) -> dict[str, object]:
    """An artefact of two systems at two batch sizes, in two rounds of milliseconds."""
    timing = {"timing.min_seconds": 0, "timing.n_mini_batches": 1, "timing.min_passes": 1}
    return {
        "title": "Tree-LSTM in miniature",
        "paper": "none",
        "draw": draw,
        "quantities": quantities,
        "axis": "batch_size",
        "axis_label": "batch size",
        "epoch": {"n_instances": 100, "words": "100 trees"},
        "compare": {"systems": SYSTEMS},
        "published": {"table": "cavs_short_table1", "model": "tree_lstm"},
        "scales": {
            "smoke": {
                "rounds": 2,
                "base": {
                    "model": "tree_lstm",
                    "dataset": "sst",
                    "hidden_size": 4,
                    **timing,
                    **base,
                },
                "blocks": [{"system": SYSTEMS, "batch_size": [1, 2]}],
            }
        },
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with its own two artefacts, which share their trials."""
    shutil.copytree(CONF_DIR, tmp_path / "conf", ignore=shutil.ignore_patterns("experiment"))
    place = tmp_path / "conf" / "experiment"
    place.mkdir()
    curves = experiment("plots.figures.curves", ["epoch_s"])
    table = experiment("plots.tables.speedups", ["computation_s", "overall_speedup"])
    for name, content in (("small_curves", curves), ("small_table", table)):
        (place / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


HERE = ("scale=smoke", "device=cpu", "conf_dir=conf", "data_root=no_data")


def command(*arguments: str, config: Sequence[str] = HERE) -> list[str]:
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    return [*snakemake, *arguments, "--config", *config]


def environment(folder: Path) -> dict[str, str]:
    """Modules are found in the repository, then in the working folder."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONSAFEPATH": "1"}


def snakemake(
    folder: Path, *arguments: str, config: Sequence[str] = HERE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, config=config),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def records(folder: Path) -> dict[Path, bytes]:
    """Every record's content by its path; its samples would differ if it were measured again."""
    paths = sorted((folder / "results" / "raw").glob("*/r*.json"))
    return {path: path.read_bytes() for path in paths}


def superseded(folder: Path) -> list[Path]:
    return list((folder / "results" / "raw").glob("*/superseded/*"))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the pipeline ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_all_makes_every_table_and_figure_once(folder: Path) -> None:
    done = snakemake(folder, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    results = folder / "results"
    for suffix in ("pdf", "png", "csv"):
        assert (results / f"figures/small_curves.{suffix}").stat().st_size > 0
    for suffix in ("pdf", "png", "csv", "tex", "md", "html"):
        assert (results / f"tables/small_table_systems.{suffix}").stat().st_size > 0
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "synthetic" in page
    assert "Tree-LSTM in miniature" in page

    first = records(folder)
    assert len(first) == len(SYSTEMS) * 2 * 2, "artefacts share their trials"
    measured = [read_record(path) for path in first]
    assert {record.status for record in measured} == {"ok"}
    by_time = sorted((record.started_at, record.trial.round) for record in measured)
    assert [round_ for _, round_ in by_time] == [0] * 4 + [1] * 4, "rounds interleave the systems"
    again = snakemake(folder, "all")
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr
    assert records(folder) == first


FRESH = '''"""A system of somebody's own: the oracle by another name."""

from systems.on_core.reference import Adapter  # noqa: F401
'''


@pytest.mark.slow
def test_a_new_system_is_one_file_and_one_yaml(folder: Path) -> None:
    """Experiments select frameworks; afterwards one is added, and is measured and shown."""
    for path in (folder / "conf" / "system").glob("*.yaml"):
        if yaml.safe_load(path.read_text())["kind"] == "framework":
            path.unlink()  # no framework is needed for this
    place = folder / "conf" / "experiment"
    (place / "small_curves.yaml").unlink()
    content = yaml.safe_load((place / "small_table.yaml").read_text())
    content["compare"] = {"systems": ["reference", "kind:framework"]}
    scale = content["scales"]["smoke"]
    scale["blocks"] = [{"system": ["reference", "kind:framework"], "batch_size": 2}]
    (place / "small_table.yaml").write_text(yaml.safe_dump(content))
    none = snakemake(folder, "all")
    assert none.returncode == 1
    assert "selects kind:framework, but no file of conf/system" in none.stdout + none.stderr

    (folder / "fresh_system.py").write_text(FRESH)
    fresh = {"name": "fresh", "kind": "framework", "label": "Fresh", "adapter": "fresh_system"}
    (folder / "conf" / "system" / "fresh.yaml").write_text(yaml.safe_dump(fresh))
    done = snakemake(folder, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = [read_record(path) for path in records(folder)]
    assert {record.trial.system for record in measured} == {"reference", "fresh"}
    assert {record.status for record in measured} == {"ok"}
    assert "Fresh" in (folder / "results/tables/small_table_systems.md").read_text()


@pytest.mark.slow
def test_a_killed_run_is_completed_and_nothing_is_measured_twice(folder: Path) -> None:
    with subprocess.Popen(
        command("all"),
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_for(lambda: len(records(folder)) >= 3, process)
        # Only Snakemake dies: the trial that it started goes on for a moment.
        process.send_signal(signal.SIGKILL)
    before = records(folder)
    done = snakemake(folder, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    after = records(folder)
    assert len(after) == len(SYSTEMS) * 2 * 2
    assert {path: after[path] for path in before} == before
    assert superseded(folder) == []
    assert (folder / "results" / "report.html").exists()


@pytest.mark.slow
def test_a_trial_that_fails_leaves_its_status_in_the_table(folder: Path) -> None:
    place = folder / "conf" / "experiment" / "small_table.yaml"
    content = yaml.safe_load(place.read_text())
    content["scales"]["smoke"]["rounds"] = 1
    content["scales"]["smoke"]["base"]["limits.time_s"] = 0.05
    place.write_text(yaml.safe_dump(content))
    (folder / "conf" / "experiment" / "small_curves.yaml").unlink()
    done = snakemake(folder, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {read_record(path).status for path in records(folder)} == {"timeout"}
    assert "timeout" in (folder / "results/tables/small_table_systems.md").read_text()


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


def counts_experiment(**limits: float) -> dict[str, object]:
    """A table of counts, where learning without end is one of the policies."""
    mini_batch = {"model": "lattice_lstm", "dataset": "weibo_lattice", "batch_size": 4}
    quick = {**mini_batch, "policy": ["agenda", "depth"], "timing.min_seconds": 0}
    endless = {**mini_batch, "policy": "fsm_sort", "learning.trials": 10**8, **limits}
    return {
        "title": "Counts in miniature",
        "paper": "none",
        "draw": "plots.tables.policies",
        "show": {"graph": "vertex"},
        "scales": {"smoke": {"counts": [quick, endless]}},
    }


@pytest.mark.slow
def test_a_count_that_fails_leaves_its_status_in_the_table(folder: Path) -> None:
    """Afterwards only what failed is tried again, and only where the limit is another.

    No experiment measures trials here, so that there is no table of them.
    """
    place = folder / "conf" / "experiment"
    for name in ("small_curves", "small_table"):
        (place / f"{name}.yaml").unlink()
    content = counts_experiment(**{"limits.time_s": 6})
    (place / "small_counts.yaml").write_text(yaml.safe_dump(content))
    done = snakemake(folder, "all")
    assert done.returncode == 0, done.stdout + done.stderr
    results = folder / "results"
    table = (results / "tables/small_counts.md").read_text()
    cells = {row[1].strip(): row[2].strip() for row in map(_cells, table.splitlines()) if row}
    assert cells["fsm_sort"] == "timeout"
    assert int(cells["depth"]) >= int(cells["agenda"]) >= int(cells["lower bound"]) > 1
    assert "fsm_sort: timeout: not done within limits.time_s=6" in table.splitlines()
    assert not (results / "records.csv").exists()
    assert "2 ok, 1 timeout" in (results / "report.html").read_text(encoding="utf-8")

    records = {path: path.read_bytes() for path in (results / "raw/counts").glob("count-*.json")}
    assert len(records) == 3
    again = snakemake(folder, "all", "--forcerun", "counts")
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: path.read_bytes() for path in records} == records
    content = counts_experiment(**{"limits.time_s": 7})
    (place / "small_counts.yaml").write_text(yaml.safe_dump(content))
    assert snakemake(folder, "all").returncode == 0
    changed = [path.name for path in records if path.read_bytes() != records[path]]
    assert [name.partition("-lattice")[0] for name in changed] == ["count-fsm_sort"]


def _cells(line: str) -> list[str]:
    return line.split("|") if line.startswith("|") else []


def test_dry_run_plans_every_trial_and_touches_nothing(folder: Path) -> None:
    done = snakemake(folder, "all", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "results").exists()


@pytest.mark.slow
def test_the_shipped_pipeline_plans(tmp_path: Path) -> None:
    # The paper's scale has thousands of trials; test_artefact_plans plans them without Snakemake.
    config = ["scale=smoke", "device=cpu", "data_root=no_data"]
    done = subprocess.run(
        [*command("all", "--dry-run", "--quiet")[:-5], "--config", *config],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint(folder: Path) -> None:
    done = snakemake(folder, "--lint")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_experiment_is_told_in_one_line(folder: Path) -> None:
    (folder / "conf/experiment/small_table.yaml").write_text("title: nothing else\n")
    done = snakemake(folder, "all", "--dry-run")
    assert done.returncode == 1
    assert "small_table.yaml has no paper" in done.stdout + done.stderr
