"""What `bench experiment=NAME` measured is a table once it is drawn: it says how."""

from __future__ import annotations

from harness.commands.bench import describe_drawing
from harness.terminal.command_line import parse


def test_an_experiment_names_the_command_that_draws_it() -> None:
    jobs = parse(["experiment=first_look", "scale=smoke", "device=cpu", "results_dir=some where"])
    (line,) = describe_drawing(jobs)
    config = "scale=smoke device=cpu 'results_dir=some where'"
    assert line == f"draw it: snakemake draw_first_look --config {config}"


def test_what_the_pipeline_does_not_take_is_left_out() -> None:
    (line,) = describe_drawing(parse(["experiment=first_look", "rounds=2"]))
    assert line == "draw it: snakemake draw_first_look"


def test_a_trial_by_itself_has_nothing_to_draw() -> None:
    assert list(describe_drawing(parse(["model=tree_lstm"]))) == []
