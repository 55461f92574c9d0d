"""Invalid programs, data and choices: one line and exit code 1, or a record on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynbatch.harness.commands import bench
from dynbatch.harness.commands.bench import main
from dynbatch.harness.commands.schedule import main as count
from dynbatch.harness.machine.facts import list_usable_cpus
from dynbatch.harness.records.record import read_record
from tests.support.corpora import write
from tests.support.processes import run_python
from tests.support.refusals import Output, read_refusal
from tests.support.sandbox import TINY


def read_refused_trial(capsys: Output) -> str:
    """Return the line that follows the one of the trial."""
    printed = capsys.readouterr()
    assert printed.out == ""
    trial, line = printed.err.splitlines()
    assert trial.endswith("refused")
    assert line.startswith("bench: ")
    return line


# --- programs ---

TYPED = (
    *("model=stack_rnn", "model.model=tests.support.breaking_program", "dataset=xnli_synthetic"),
    *("batch_size=2", "hidden_size=3", "mode=infer"),
    *("timing.min_seconds=0", "timing.n_mini_batches=1"),
)
HERE = "bad_programs.py:"
RULES = {
    "goes_back": [HERE, "calls unary_b at depth", "only after their join"],
    "recurses": ["recurses deeper than 5000 calls; end the recursion, or fork it"],
    "a_number": [HERE, "waits for a computed number", "execution=interleaved"],
}


def write_line(rule: str, system: str, results: Path) -> list[str]:
    return [*TYPED, f"system={system}", f"+model.options.rule={rule}", f"results_dir={results}"]


@pytest.mark.parametrize("rule", RULES)
def test_broken_rule_error_names_rule_and_place(rule: str, tmp_path: Path, capsys: Output) -> None:
    assert main(write_line(rule, "acrobat", tmp_path)) == 1
    line = read_refused_trial(capsys)
    assert [words for words in RULES[rule] if words not in line] == []
    assert not list(tmp_path.rglob("*.json"))


def test_counting_reports_the_same_error(capsys: Output) -> None:
    arguments = [text for text in TYPED if not text.startswith(("timing", "mode="))]
    assert count([*arguments, "+model.options.rule=goes_back", "policy=inline_depth"]) == 1
    read_refusal(capsys, "calls unary_b at depth")


def test_the_same_model_runs_where_it_breaks_none(tmp_path: Path) -> None:
    assert main(write_line("none", "reference", tmp_path)) == 0
    assert len(list(tmp_path.rglob("r0.json"))) == 1


# --- data ---

NULL = ["system=null", *(text for text in TINY if not text.startswith(("dataset", "model")))]


@pytest.fixture
def faulty(tmp_path: Path) -> list[str]:
    """Return arguments of a trial on a text with an empty sentence."""
    write(tmp_path / "data" / "ptb", {"train": "a word\n\nanother\n"}, ".txt")
    chosen = ["dataset=ptb", "model=var_lstm", "dataset.options.sha256=null"]
    return [*NULL, *chosen, f"data_root={tmp_path}/data", f"results_dir={tmp_path}/results"]


def test_invalid_data_is_refused(faulty: list[str], tmp_path: Path, capsys: Output) -> None:
    assert main(faulty) == 1
    line = read_refused_trial(capsys)
    assert line.startswith(f"bench: {tmp_path}/data/ptb/train.txt:2: the sentence is empty")
    assert not list((tmp_path / "results").rglob("*.json"))


def test_invalid_data_may_be_recorded(faulty: list[str], tmp_path: Path, capsys: Output) -> None:
    assert main([*faulty, "on_invalid_data=record"]) == 0
    (path,) = (tmp_path / "results").rglob("*.json")
    record = read_record(path)
    assert record.status == "invalid_data"
    assert str(record.reason).startswith(f"{tmp_path}/data/ptb/train.txt:2: the sentence is empty")
    assert "invalid_data: " in capsys.readouterr().out
    assert not list((tmp_path / "results" / "logs").iterdir())
    # After a correction of the file, the trial is measured.
    write(tmp_path / "data" / "ptb", {"train": "a word\nanother\n"}, ".txt")
    assert main([*faulty, "on_invalid_data=record"]) == 0
    assert read_record(path).status == "ok"


def test_sweep_continues_after_invalid_data(faulty: list[str], capsys: Output) -> None:
    datasets = "dataset=ptb,ptb_synthetic"
    others = [text for text in faulty if not text.startswith("dataset")]
    assert main(["-m", *others, datasets, "on_invalid_data=record"]) == 0
    assert "2 records: 1 invalid_data, 1 ok; 0 reused" in capsys.readouterr().out


def test_counts_on_invalid_data_are_refused_or_marked(faulty: list[str], capsys: Output) -> None:
    arguments = [text for text in faulty if not text.startswith(("system", "results_dir"))]
    assert count([*arguments, "policy=agenda,depth"]) == 1
    read_refusal(capsys, "train.txt:2: the sentence is empty")
    assert count([*arguments, "policy=agenda,depth", "on_invalid_data=record", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    found = [(row["policy"], row["status"]) for row in rows]
    assert found == [("agenda", "invalid_data"), ("depth", "invalid_data")]


# --- choices ---


def test_a_trial_runs_pinned_without_time_limit_on_a_partial_mini_batch(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("(3 (2 a) (2 b))\n(1 c)\n(3 (1 a) (2 (1 b) (1 c)))\n")
    cpu = list_usable_cpus()[-1]
    typed = ["system=null", "dataset=trees", f"dataset.path={file}", "batch_size=2", f"cpu={cpu}"]
    typed += ["limits.time_s=null", "timing.last=keep", "timing.min_seconds=0.05"]
    typed += [f"results_dir={tmp_path / 'results'}"]
    run_python("-m", bench.__name__, *typed)  # in its own process, whose CPUs it may restrict
    (record,) = map(read_record, (tmp_path / "results").rglob("r0.json"))
    assert list(record.machine["usable_cpus"]) == [cpu]
    assert record.config["limits"]["time_s"] is None
    assert (record.n_mini_batches, record.n_instances) == (2, 3)
    run_python("-m", bench.__name__, *typed)
    (again,) = map(read_record, (tmp_path / "results").rglob("r0.json"))
    assert again.started_at == record.started_at  # the pinned CPUs are the same: not measured again
