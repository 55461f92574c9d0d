"""What `bench experiment=NAME` says before it measures."""

from __future__ import annotations

from pathlib import Path

from harness.terminal.command_line import opening, parse, plan


def words_of(*typed: str) -> list[str]:
    jobs = parse(typed)
    return list(opening(jobs, plan(jobs, typed)))


def test_the_plan_names_scale_rounds_and_time(tmp_path: Path) -> None:
    (line,) = words_of("experiment=first_look", "scale=smoke", f"results_dir={tmp_path}")
    assert line.startswith("first_look at smoke scale: 6 rounds of 3 trials to measure, about ")


def test_a_stand_in_for_data_that_is_not_there_is_told(tmp_path: Path) -> None:
    places = [f"results_dir={tmp_path}", f"data_root={tmp_path}"]
    _, line = words_of("experiment=headline_parser", "scale=smoke", "device=cpu", *places)
    assert line == (
        f"ud_ewt is not in {tmp_path}: ud_ewt_synthetic stands in, numbers are of that;"
        " `bench-data fetch ud_ewt` gets it"
    )


def test_data_that_is_named_for_all_needs_no_stand_in(tmp_path: Path) -> None:
    places = [f"results_dir={tmp_path}", f"data_root={tmp_path}"]
    lines = words_of(
        "experiment=headline_tree_lstm",
        "scale=smoke",
        "dataset=sst_synthetic",
        "device=cpu",
        *places,
    )
    assert len(lines) == 1


def test_a_trial_by_itself_says_nothing(tmp_path: Path) -> None:
    assert words_of("dataset=sst_synthetic", f"results_dir={tmp_path}") == []
