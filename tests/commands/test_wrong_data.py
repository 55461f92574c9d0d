"""Missing or invalid data: an error, or a record on request (`on_invalid_data=record`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main
from dynbatch.harness.commands.schedule import main as count
from dynbatch.harness.records.record import read_record
from tests.support.corpora import write
from tests.support.refusals import read_refusal
from tests.support.sandbox import TINY

Output = pytest.CaptureFixture[str]
NULL = ["system=null", *(text for text in TINY if not text.startswith(("dataset", "model")))]


def test_a_missing_corpus(tmp_path: Path, capsys: Output) -> None:
    overrides = ["dataset=sst", "model=tree_lstm", f"data_root={tmp_path}/nowhere"]
    assert main([*NULL, f"results_dir={tmp_path}/results", *overrides]) == 1
    trial, line = capsys.readouterr().err.splitlines()
    assert trial.endswith("refused")
    assert "nowhere/sst/train.txt is missing; run `bench-data fetch sst`" in line


@pytest.fixture
def faulty(tmp_path: Path) -> list[str]:
    """Return arguments of a trial on a text with an empty sentence."""
    write(tmp_path / "data" / "ptb", {"train": "a word\n\nanother\n"}, ".txt")
    chosen = ["dataset=ptb", "model=var_lstm", "dataset.options.sha256=null"]
    return [*NULL, *chosen, f"data_root={tmp_path}/data", f"results_dir={tmp_path}/results"]


def test_data_that_is_wrong_is_refused_by_hand(
    faulty: list[str], tmp_path: Path, capsys: Output
) -> None:
    assert main(faulty) == 1
    trial, line = capsys.readouterr().err.splitlines()
    assert trial.endswith("refused")
    assert line.startswith(f"bench: {tmp_path}/data/ptb/train.txt:2: the sentence is empty")
    assert not list((tmp_path / "results").rglob("*.json"))


def test_invalid_data_is_recorded_on_request(
    faulty: list[str], tmp_path: Path, capsys: Output
) -> None:
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
