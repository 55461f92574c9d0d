"""Output of `bench experiment=NAME` before and after measuring."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.commands import draw
from dynbatch.harness.commands.bench import describe_drawing
from dynbatch.harness.terminal.command_line import describe_plan, parse, plan
from dynbatch.harness.values import paths


def words_of(*typed: str) -> list[str]:
    jobs = parse(typed)
    return list(describe_plan(jobs, plan(jobs, typed)))


def test_fallback_dataset_is_reported(tmp_path: Path) -> None:
    places = [f"results_dir={tmp_path}", f"data_root={tmp_path}"]
    _, line = words_of("experiment=headline_parser", "scale=smoke", "device=cpu", *places)
    assert line == (
        f"ud_ewt is not in {tmp_path}: measuring fallback ud_ewt_synthetic;"
        " to download it, run `bench-data fetch ud_ewt`"
    )


def test_no_note_for_named_data_or_a_single_trial(tmp_path: Path) -> None:
    places = [f"results_dir={tmp_path}", f"data_root={tmp_path}", "dataset=sst_synthetic"]
    lines = words_of("experiment=headline_tree_lstm", "scale=smoke", "device=cpu", *places)
    assert len(lines) == 1
    assert words_of(*places) == []


def test_an_experiment_names_the_command_that_draws_it() -> None:
    jobs = parse(["experiment=first_look", "scale=smoke", "device=cpu", "results_dir=some where"])
    (line,) = describe_drawing(jobs)
    config = "scale=smoke device=cpu 'results_dir=some where'"
    assert line == f"draw with: snakemake draw_first_look --config {config}"

    (line,) = describe_drawing(parse(["experiment=first_look", "rounds=2"]))
    assert line == "draw with: snakemake draw_first_look", "the pipeline does not take rounds"
    assert list(describe_drawing(parse(["model=tree_lstm"]))) == []


def test_an_installed_package_draws_without_a_snakefile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    jobs = parse(["experiment=first_look", "scale=smoke", "results_dir=some where"])
    (line,) = describe_drawing(jobs)
    options = "--scale=smoke '--results-dir=some where'"
    assert line == f"draw with: python -m dynbatch.harness.commands.draw first_look {options}"
    given = draw.parse(["first_look", "--scale=smoke", "--results-dir=some where"])
    assert (given.names, given.results_dir) == (["first_look"], "some where")
