"""Plans of the pipeline: dry runs, and one-line errors.

There is one error for each part that reads input; tests/test_wrong_input.py has all errors.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pipelines import HERE, SPEEDUPS, build_experiment, snakemake, write_experiment


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
def test_the_shipped_pipeline_plans_and_touches_nothing(tmp_path: Path) -> None:
    # The paper's scale has thousands of trials; test_artifact_plans plans them without Snakemake.
    config = ["scale=smoke", "device=cpu", "data_root=no_data"]
    snakemake(tmp_path, "all", "--dry-run", "--quiet", config=config)
    assert not (tmp_path / "results").exists()


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
    ],
)
def test_pipeline_error_gives_one_line(
    folder: Path, target: str, config: str, file: str, words: str
) -> None:
    if file:
        (folder / "conf" / f"{file}.yaml").write_text("name: [a\n")
    others = [text for text in HERE if text.partition("=")[0] != config.partition("=")[0]]
    config_of_run = [*others, *filter(None, [config])]
    printed = snakemake(folder, target, "--dry-run", config=config_of_run, returncode=1)
    (line,) = (one for one in printed.splitlines() if one.startswith("snakemake: "))
    assert words in line
    assert "Traceback" not in printed
    assert not (folder / "results").exists()
