"""`bench ... trace=FILE`: a timeline in addition to the record, which is not affected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main as bench
from dynbatch.harness.measuring.processes import launch
from dynbatch.harness.records.record import read_record
from tests.support.fake_time import checked
from tests.support.sandbox import TINY

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def typed(folder: Path, *words: str) -> list[str]:
    return [*TINY, f"results_dir={folder / 'results'}", f"trace={folder / 'timeline.json'}", *words]


def record_under(folder: Path) -> Path:
    (path,) = (folder / "results" / "raw").glob("*/r0.json")
    return path


def refused(arguments: list[str], capsys: Output) -> str:
    assert bench(arguments) == 1
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.slow
def test_the_engine_shows_phases_batches_and_kernels(tmp_path: Path) -> None:
    assert bench(typed(tmp_path, "system=vertex", "system.options.backend=stepwise")) == 0
    events = checked((tmp_path / "timeline.json").read_text())
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in spans} == {"phase", "batch", "kernel"}
    phases = [event["name"] for event in spans if event["cat"] == "phase" and event["tid"] == 1]
    assert phases == ["construct", "schedule", "forward", "backward", "update"]
    batches = [event["args"] for event in spans if event["cat"] == "batch"]
    assert {batch["stage"] for batch in batches} >= {"batch", "backward", "backward_lazy"}
    assert sum(batch["FLOP"] for batch in batches) == read_record(record_under(tmp_path)).n_flop


@pytest.mark.slow
def test_other_systems_show_phases_and_existing_record_is_unchanged(tmp_path: Path) -> None:
    words = typed(tmp_path, "system=null")
    assert bench([word for word in words if not word.startswith("trace=")]) == 0
    before = record_under(tmp_path).read_bytes()
    assert bench(words) == 0
    assert record_under(tmp_path).read_bytes() == before
    events = checked((tmp_path / "timeline.json").read_text())
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"phase"}
    assert not list((tmp_path / "results" / "logs").glob("*"))


@pytest.mark.slow
def test_a_trial_that_does_not_run_has_no_timeline(tmp_path: Path, capsys: Output) -> None:
    words = typed(tmp_path, "system=products", "system.options.blas=none")
    assert "blas=none is not allowed" in refused(words, capsys)
    line = refused(typed(tmp_path, "system=dynet_manual"), capsys)
    assert line.startswith(
        f"bench: trace={tmp_path / 'timeline.json'} is not written: the trial is"
    )
    assert not (tmp_path / "timeline.json").exists()
    assert read_record(record_under(tmp_path)).status == "unsupported"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("-m", "system=null", "seed=0,1"), "trace is one file for several trials or rounds"),
        (("system=null", "rounds=2"), "trace is one file for several trials or rounds"),
        (("experiment=first_look",), "trace is of one trial, an experiment has many"),
        (
            ("system=null", "trace=/tmp/x.txt"),
            "but a timeline is JSON; choose a name that ends in .json",
        ),
        (("system=null", "trace=/proc/x.json"), "trace=/proc/x.json cannot be written"),
        (("system=null", "out={folder}/timeline.json"), "is the file of the record"),
    ],
)
def test_unwritable_output_is_refused_before_measuring(
    words: tuple[str, ...], printed: str, tmp_path: Path, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(launch, "supervise_child", None)
    monkeypatch.setattr(launch, "ChildProcess", None)
    words = tuple(word.format(folder=tmp_path) for word in words)
    base = typed(tmp_path)  # of two values of a key, the last counts
    if words[0].startswith("experiment"):
        base = base[-2:]
    assert printed in refused([*base, *words], capsys)


@pytest.mark.slow
def test_late_failure_keeps_the_record(tmp_path: Path, capsys: Output, monkeypatch: Patch) -> None:
    """The directory is replaced after the record has been written."""
    folder = tmp_path / "gone"
    folder.mkdir()
    plain = launch.supervise_child

    def supervise(*arguments: object) -> object:
        module = arguments[1][0]  # type: ignore[index]
        if module == launch.TRACER:
            folder.rmdir()
            folder.touch()
        return plain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(launch, "supervise_child", supervise)
    words = typed(tmp_path, "system=null", f"trace={folder / 'timeline.json'}")
    assert "cannot be written" in refused(words, capsys)
    assert json.loads(record_under(tmp_path).read_text())["status"] == "ok"
