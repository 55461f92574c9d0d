"""Wrong input of `bench`: one clear line, exit code 1, no traceback, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import harness.planning.nodes
from harness.commands.bench import main
from harness.commands.schedule import main as count
from harness.records.record import read_record
from tests.support.corpora import write
from tests.support.sandbox import TINY

NULL = ("system=null", *TINY)

UNKNOWN = [
    (["system=dinet"], ["system=dinet is unknown", "choose one of", "null", "reference"]),
    (["model=tree"], ["model=tree is unknown", "tree_fc, tree_gru, tree_lstm"]),
    (["dataset=imagenet"], ["dataset=imagenet is unknown", "sst, sst_synthetic"]),
    (["experiment=fig99"], ["experiment=fig99 is unknown"]),
    (["policy=magic"], ["policy=magic is unknown", "agenda", "depth", "frontier"]),
    (["policy=depth"], ["policy=depth", "system=null batches in its own way"]),
    (["bad_data=ignore"], ["bad_data=ignore is not allowed", "refuse, record"]),
    (["order=sorted"], ["order=sorted is not allowed", "shuffled, file, length"]),
    (["mode=test"], ["mode=test is not allowed", "train, infer"]),
    (["device=tpu"], ["device=tpu is not allowed", "cpu, cuda"]),
    (["split=half"], ["split=half is not allowed", "train, dev, test"]),
    (
        ["system.options.color=red"],
        ["color is not in the file of this system, or of one of several", "+system.options.color"],
    ),
    (["model.options.variant=odd"], ["odd is unknown", "fold, cavs"]),
    (["+model.options.color=red"], ["model.options.color is unknown to model tree_fc", "variant"]),
    (["+colour=red"], ["colour is not in the configuration", "batch_size"]),
    (["+timing.pause=1"], ["timing.pause is not in the configuration", "n_warmup"]),
    (["colour=red"], ["colour"]),
    (["system.kind=fast"], ["system/null.yaml has kind=fast", "strategy, ablation, framework"]),
    (["learning.file_sha256=ab"], ["learning.file_sha256=ab cannot be chosen", "leave it out"]),
    (["learning.variant=odd"], ["learning.variant=odd", "released, intended"]),
    (["batch_size"], ["batch_size"]),
    (["--no-such-flag"], ["bench --help"]),
]
VALUES = [
    (["batch_size=0"], ["batch_size=0", "at least 1"]),
    (["batch_size=-4"], ["batch_size=-4", "at least 1"]),
    (["hidden_size=0"], ["hidden_size=0", "at least 1"]),
    (["embedding_size=-1"], ["embedding_size=-1", "at least 0"]),
    (["threads=0"], ["threads=0", "at least 1"]),
    (["threads=100000"], ["threads=100000", "CPUs"]),
    (["rounds=0"], ["rounds=0", "at least 1"]),
    (["round=-1"], ["round=-1", "at least 0"]),
    (["timing.n_mini_batches=0"], ["n_mini_batches=0", "at least 1"]),
    (["limits.time_s=0"], ["limits.time_s=0", "above 0"]),
    (["batch_size=many"], ["batch_size", "many"]),
    (["hidden_size=1.5"], ["hidden_size", "1.5"]),
    (["force=perhaps"], ["force", "perhaps"]),
    (["dataset.options.n_leaves=3"], ["n_leaves", "3"]),
    (["-m", "batch_size=2,0"], ["batch_size=0", "at least 1"]),
]


def refused(overrides: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run bench, and return its only line after the line of the trial, if one was started."""
    results = tmp_path / "results"
    chosen = {text.partition("=")[0] for text in overrides}
    base = [text for text in NULL if text.partition("=")[0] not in chosen]
    assert main([*base, f"results_dir={results}", *overrides]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    lines = [line for line in said.err.splitlines() if not line.startswith("[1/1]")]
    assert not list(results.rglob("*.json")) + list(results.rglob("*.tmp"))
    return "\n".join(lines)


@pytest.mark.parametrize(("overrides", "words"), UNKNOWN + VALUES)
def test_one_line_says_what_was_found_and_what_is_allowed(
    overrides: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(overrides, tmp_path, capsys)
    assert line.startswith("bench: ")
    assert "\n" not in line
    for word in words:
        assert word in line


def test_hydra_s_own_switch_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert "\n" not in refused(["system=dinet"], tmp_path, capsys)


def test_a_missing_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["dataset=sst", "model=tree_lstm", f"data_root={tmp_path}/nowhere"]
    base = [text for text in NULL if not text.startswith(("dataset", "model"))]
    assert main([*base, f"results_dir={tmp_path}/results", *overrides]) == 1
    trial, line = capsys.readouterr().err.splitlines()
    assert trial.endswith("refused")
    assert "nowhere/sst/train.txt is missing; run `bench-data fetch sst`" in line


@pytest.fixture
def faulty(tmp_path: Path) -> list[str]:
    """Arguments of a trial on a text with an empty sentence."""
    write(tmp_path / "data" / "ptb", {"train": "a word\n\nanother\n"}, ".txt")
    base = [text for text in NULL if not text.startswith(("dataset", "model"))]
    chosen = ["dataset=ptb", "model=var_lstm", "dataset.options.sha256=null"]
    return [*base, *chosen, f"data_root={tmp_path}/data", f"results_dir={tmp_path}/results"]


def test_data_that_is_wrong_is_refused_by_hand(
    faulty: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(faulty) == 1
    trial, line = capsys.readouterr().err.splitlines()
    assert trial.endswith("refused")
    assert line.startswith(f"bench: {tmp_path}/data/ptb/train.txt:2: the sentence is empty")
    assert not list((tmp_path / "results").rglob("*.json"))


def test_data_that_is_wrong_leaves_a_record_where_that_is_asked_for(
    faulty: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*faulty, "bad_data=record"]) == 0
    (path,) = (tmp_path / "results").rglob("*.json")
    record = read_record(path)
    assert record.status == "bad_data"
    assert str(record.reason).startswith(f"{tmp_path}/data/ptb/train.txt:2: the sentence is empty")
    assert "bad_data: " in capsys.readouterr().out
    assert not list((tmp_path / "results" / "logs").iterdir())
    # Whoever corrects the file gets the trial measured.
    write(tmp_path / "data" / "ptb", {"train": "a word\nanother\n"}, ".txt")
    assert main([*faulty, "bad_data=record"]) == 0
    assert read_record(path).status == "ok"


def test_a_sweep_goes_on_behind_wrong_data(
    faulty: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = "dataset=ptb,ptb_synthetic"
    others = [text for text in faulty if not text.startswith("dataset")]
    assert main(["-m", *others, datasets, "bad_data=record"]) == 0
    assert "2 records: 1 bad_data, 1 ok; 0 kept" in capsys.readouterr().out


def test_counts_on_wrong_data_are_refused_or_say_so(
    faulty: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [text for text in faulty if not text.startswith(("system", "results_dir"))]
    assert count([*arguments, "policy=agenda,depth"]) == 1
    refused = capsys.readouterr()
    assert refused.out == ""
    assert len(refused.err.splitlines()) == 1
    assert "train.txt:2: the sentence is empty" in refused.err
    assert count([*arguments, "policy=agenda,depth", "bad_data=record", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["policy"], row["status"]) for row in rows] == [
        ("agenda", "bad_data"),
        ("depth", "bad_data"),
    ]


def test_a_model_and_a_data_set_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["dataset.instance_kind=lattice"], tmp_path, capsys)
    assert "model=tree_fc takes instances of kind tree" in line
    assert "dataset=complete_trees has lattice" in line


def test_cuda_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.planning.nodes, "has_cuda_device", lambda: False)
    line = refused(["device=cuda"], tmp_path, capsys)
    assert line == "bench: device=cuda, but no NVIDIA device is visible; use device=cpu"


@pytest.mark.parametrize("key", ["results_dir", "out"])
def test_a_folder_that_cannot_be_written(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "below"
    value = f"out={place}/r0.json" if key == "out" else f"results_dir={place}"
    assert main([*NULL, f"results_dir={tmp_path}/results", value]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "cannot be written" in said.err
    assert "choose another " in said.err
    assert not list(tmp_path.rglob("*.json"))


def test_out_that_is_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a folder" in refused([f"out={tmp_path}"], tmp_path, capsys)


@pytest.mark.parametrize("name", ["x.csv", "x", "x.JSON", "x.json.gz"])
def test_out_that_names_another_format(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused([f"out={tmp_path / name}"], tmp_path, capsys)
    assert line == f"bench: out={tmp_path / name}, but a record is JSON; end it in .json"
    assert not (tmp_path / name).exists()


def test_a_wrong_trial_in_a_sweep_stops_it_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["-m", "hidden_size=8,16,-1"], tmp_path, capsys)
    assert "hidden_size=-1" in line


def test_a_fault_of_the_harness_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.terminal.measurement.run_worker", None)
    assert main([*NULL, f"results_dir={tmp_path}"]) == 2
    assert "a fault of the harness" in capsys.readouterr().err


def test_the_console_sees_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness.commands.bench", "system=dinet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    words = "bench: system=dinet is unknown, did you mean dynet?; choose one of: "
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == 1
