"""Invalid programs on the command line: one line with the file and line, exit code 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main
from dynbatch.harness.commands.schedule import main as count
from tests.support.refusals import read_refusal

Output = pytest.CaptureFixture[str]
TYPED = (
    *("model=stack_rnn", "model.model=tests.support.breaking_program", "dataset=xnli_synthetic"),
    *("batch_size=2", "hidden_size=3", "mode=infer"),
    *("timing.min_seconds=0", "timing.n_mini_batches=1"),
)
HERE = "bad_programs.py:"
RULES = {
    "waits_for_nothing": [HERE, "waits for a value of None, which no block computed"],
    "never_joins": [HERE, "forks branches without waiting; yield it"],
    "other_shapes": [HERE, "calls project with other shapes than traced"],
    "goes_back": [HERE, "calls unary_b at depth", "only after their join"],
    "recurses": ["recurses deeper than 5000 calls; end the recursion, or fork it"],
    "a_number": [HERE, "waits for a computed number", "execution=interleaved"],
}


def typed(rule: str, system: str, results: Path) -> list[str]:
    return [*TYPED, f"system={system}", f"+model.options.rule={rule}", f"results_dir={results}"]


@pytest.mark.parametrize("rule", RULES)
def test_broken_rule_error_names_rule_and_place(rule: str, tmp_path: Path, capsys: Output) -> None:
    assert main(typed(rule, "acrobat", tmp_path)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    trial, line = printed.err.splitlines()
    assert trial.endswith("refused")
    assert line.startswith("bench: ")
    for words in RULES[rule]:
        assert words in line
    assert not list(tmp_path.rglob("*.json"))


def test_counting_reports_the_same_error(capsys: Output) -> None:
    arguments = [text for text in TYPED if not text.startswith(("timing", "mode="))]
    assert count([*arguments, "+model.options.rule=goes_back", "policy=inline_depth"]) == 1
    read_refusal(capsys, "calls unary_b at depth")


def test_the_same_model_runs_where_it_breaks_none(tmp_path: Path) -> None:
    assert main(typed("none", "reference", tmp_path)) == 0
    assert len(list(tmp_path.rglob("r0.json"))) == 1


def test_a_program_and_a_data_set_that_do_not_fit(tmp_path: Path, capsys: Output) -> None:
    arguments = ["system=acrobat", "model=drnn", "dataset=sst_synthetic", "mode=infer"]
    assert main([*arguments, f"results_dir={tmp_path}"]) == 1
    choices = ("; choose a model of: cell, mv_rnn, tree_fc, ", "; or a dataset of: ", "xnli_synth")
    words = "model=drnn expects chain instances, but dataset=sst_synthetic has tree"
    read_refusal(capsys, words, *choices)
