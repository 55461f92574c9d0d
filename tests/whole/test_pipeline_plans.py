"""Plans of the pipeline, one error of each part that reads input, and directories of any name."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from dynbatch.harness.planning.requests import format_pipeline_command
from dynbatch.harness.records.record import read_record
from tests.support.pipelines import (
    HERE,
    SPEEDUPS,
    SYSTEMS,
    build_counts,
    build_experiment,
    edit_experiment,
    snakemake,
    write_experiment,
)


def test_tables_draws_three_tables_and_nothing_else(folder: Path) -> None:
    names = ("epoch_times", "graph_construction", "ablation")
    for name in names:
        write_experiment(folder, name, build_experiment(SPEEDUPS))
    printed = snakemake(folder, "tables", "--dry-run")
    planned = set(re.findall(r"^(?:local)?rule (\w+):", printed, re.MULTILINE))
    named = set(re.findall(r"^(drawn_\w+|report|collect|measure\w*) +\d+$", printed, re.MULTILINE))
    assert {rule for rule in planned | named if rule.startswith("drawn_")} == {
        f"drawn_{name}" for name in names
    }
    assert not {"report", "collect", "drawn_small_table"} & (planned | named)


@pytest.mark.slow
def test_a_budget_is_for_the_experiments_of_the_target(folder: Path) -> None:
    """It covers one round, which is not that of an experiment that precedes the drawn one."""
    write_experiment(folder, "another", build_experiment(SPEEDUPS))
    with edit_experiment(folder, "another") as content:
        content["scales"]["smoke"]["blocks"][0]["batch_size"] = [3, 4]
    config = (*HERE, "budget=15s")
    printed = snakemake(folder, "draw_small_table", "--dry-run", config=config)
    assert re.search(r"^measure +1$", printed, re.MULTILINE)


@pytest.mark.slow
def test_the_shipped_pipeline_plans_and_touches_nothing(tmp_path: Path) -> None:
    # The paper's scale has thousands of trials; test_artifact_plans plans them without Snakemake.
    config = ["scale=smoke", "device=cpu", "data_root=no_data"]
    snakemake(tmp_path, "all", "--dry-run", "--quiet", config=config)
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_without_a_target_everything_is_drawn(folder: Path) -> None:
    assert re.search(r"^report +1$", snakemake(folder, "--dry-run"), re.MULTILINE)


@pytest.mark.slow
def test_lint(folder: Path) -> None:
    snakemake(folder, "--lint")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "config", "file", "words"),
    [
        ("all", "skale=paper", "", "--config skale is unknown, did you mean scale?"),
        ("all", "", "bench", "bench.yaml:2: invalid YAML: "),
        ("small_table", "", "", "small_table is unknown, did you mean draw_small_table?; choose"),
        ("claims draw_all", "", "", "expected no other target, got draw_all; run them"),
    ],
)
def test_pipeline_error_gives_one_line(
    folder: Path, target: str, config: str, file: str, words: str
) -> None:
    if file:
        (folder / "conf" / f"{file}.yaml").write_text("name: [a\n")
    others = [text for text in HERE if text.partition("=")[0] != config.partition("=")[0]]
    config_of_run = [*others, *filter(None, [config])]
    printed = snakemake(folder, *target.split(), "--dry-run", config=config_of_run, returncode=1)
    (line,) = (text for text in printed.splitlines() if text.startswith("snakemake: "))
    assert words in line
    assert "Traceback" not in printed
    assert not (folder / "results").exists()


NASTY = "-a b: #'\"$(touch hacked);`touch hacked`&touch hacked|*#~\\"


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


def run_all(folder: Path, **config: str) -> None:
    """Run the pipeline with the arguments that printed commands have."""
    words = shlex.split(format_pipeline_command("all", config))
    snakemake(folder, "all", config=words[words.index("--config") + 1 :])


@pytest.mark.slow
def test_a_run_in_places_of_any_name(nasty: Path) -> None:
    """The run measures, counts and draws; another draws its records."""
    conf, results, data = (f"{NASTY}{name}" for name in ("conf", "results", "data"))
    results = results.replace(" ", "")  # with a space, argparse does not take it for an option
    run_all(nasty, scale="smoke", device="cpu", conf_dir=conf, results_dir=results, data_root=data)
    drawn_in(nasty / results)
    records = [read_record(path) for path in (nasty / results).glob("raw/*/r0.json")]
    assert {record.status for record in records} == {"ok"}
    assert {record.config["data_root"] for record in records} == {data}
    assert {path.name for path in nasty.iterdir()} == {".snakemake", conf, results}
    place, drawn = (f"{NASTY}{name}" for name in ("records", "drawn"))
    shutil.move(nasty / results / "raw", nasty / place)
    run_all(nasty, conf_dir=conf, records=place, results_dir=drawn)
    drawn_in(nasty / drawn)
    assert {path.name for path in nasty.iterdir()} == {".snakemake", conf, results, place, drawn}
