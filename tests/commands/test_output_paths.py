"""Output paths of commands: existing files of others are not moved, replaced or waited for."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main as bench
from dynbatch.harness.commands.collect import main as collect
from dynbatch.harness.commands.schedule import main as schedule
from dynbatch.harness.records.record import read_record, write_record
from dynbatch.harness.terminal import measurement
from tests.support.in_time import in_time
from tests.support.odd_files import IMPOSSIBLE, THERE, everything_in, state
from tests.support.records import MakeRecord
from tests.support.refusals import read_refusal
from tests.support.sandbox import TINY

Output = pytest.CaptureFixture[str]
NULL = ("system=null", *TINY)
COUNTED = TINY[:5]  # without timing
ALL_ODD = ("bench out", "schedule out", "collect out")
FEW_ODD = ("fifo", "foreign", "device")  # for other outputs


def _make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 7))  # as /dev/full
    except PermissionError:
        pytest.skip("only the superuser makes devices")


ODD = {**THERE, **IMPOSSIBLE, "device": (_make_device, "is a device")}


def _bench(path: Path, key: str = "out") -> int:
    results = f"results_dir={path.parents[1] / 'results'}"
    return bench([*NULL, results, f"{key}={path}"])


def _pack(file: Path) -> int:
    return collect([str(file.parents[1] / "results"), "--pack", str(file.parent)])


def _collect(out: Path) -> int:
    return collect([str(out.parents[1] / "results"), "--out", str(out)])


def _schedule(*words: str) -> int:
    return schedule([*COUNTED, "policy=fsm_sort", "learning.trials=5", *words])


# By output: name of the file, and command that writes it.
OUTPUTS: dict[str, tuple[str, Callable[[Path], int]]] = {
    "bench out": ("r0.json", _bench),
    "bench trace": ("timeline.json", lambda path: _bench(path, "trace")),
    "schedule out": ("rows.json", lambda path: _schedule(f"out={path}")),
    "schedule csv": ("rows.csv", lambda path: _schedule(f"out={path}")),
    "save_policy": ("policy", lambda path: _schedule(f"save_policy={path}")),
    "draw": ("graph.png", lambda path: _schedule("--draw", str(path))),
    "draw-policy": ("machine.svg", lambda path: _schedule("--draw-policy", str(path))),
    "collect out": ("records.csv", _collect),
    "collect pack": ("records.jsonl.xz", _pack),
}


@pytest.fixture
def place(tmp_path: Path, make_record: MakeRecord) -> Path:
    """Return an empty directory next to one with a record."""
    record = make_record()
    write_record(tmp_path / "results" / "raw" / record.trial_id / "r0.json", record)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("output", "odd"),
    [(o, odd) for o in OUTPUTS for odd in ODD if o in ALL_ODD or odd in FEW_ODD],
)
def test_unusable_output_path_is_unchanged_and_gives_one_line_error(
    output: str, odd: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    name, run = OUTPUTS[output]
    make, words = ODD[odd]
    make(place / name)
    before, others = state(place / name), everything_in(place)
    # Before anything is measured or counted.
    monkeypatch.setattr(measurement, "measure_block", None)
    monkeypatch.setattr("dynbatch.harness.commands.schedule.count_in_turn", None)
    with in_time(60):
        assert run(place / name) == 1
    read_refusal(capsys, words, str(place / name))
    assert state(place / name) == before
    assert everything_in(place) == others


@pytest.mark.slow
@pytest.mark.parametrize("output", OUTPUTS)
def test_command_overwrites_its_own_output(output: str, place: Path) -> None:
    """Empty files are replaced, too; a symbolic link stays, and its target is written."""
    name, run = OUTPUTS[output]
    target = place / f"target_{name}"
    target.touch()
    (place / name).symlink_to(target)
    assert run(place / name) == 0
    assert (place / name).is_symlink()
    assert target.stat().st_size > 0
    assert run(place / name) == 0, "over what it wrote itself"
    assert not list(place.rglob("*.tmp"))


def test_record_of_other_work_is_superseded_not_deleted(place: Path) -> None:
    out = place / "r0.json"
    assert _bench(out) == 0
    old = out.read_bytes()
    assert bench([*NULL, f"results_dir={place}", f"out={out}", "seed=7"]) == 0
    assert read_record(out).trial.seed == 7
    (kept,) = (place / "superseded").iterdir()
    assert kept.read_bytes() == old


def test_a_fifo_as_a_record_is_neither_read_nor_replaced(tmp_path: Path, capsys: Output) -> None:
    command = [*NULL, f"results_dir={tmp_path}"]
    assert bench(command) == 0
    (record,) = tmp_path.glob("raw/*/r0.json")
    record.unlink()
    os.mkfifo(record)
    before = state(record)
    capsys.readouterr()
    with in_time(60):
        assert bench(command) == 1
    printed = capsys.readouterr().err.splitlines()
    assert "it is a FIFO, not a file" in printed[-1]
    assert len(printed) == 2
    assert state(record) == before
    with in_time(60):
        assert collect([str(tmp_path)]) == 1
    assert "it is a FIFO, not a file" in capsys.readouterr().err


@pytest.mark.parametrize("odd", ["fifo", "folder", "full"])
def test_collect_refuses_non_regular_files(odd: str, tmp_path: Path, capsys: Output) -> None:
    for name in ("r0.json", "records.jsonl.xz"):
        make, _ = ODD[odd]
        make(tmp_path / name)
        with in_time(60):
            assert collect([str(tmp_path / name)]) == 1
        read_refusal(capsys)


@pytest.mark.parametrize("odd", ["fifo", "folder", "full"])
def test_corpus_and_policy_must_be_regular_files(odd: str, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "ptb").mkdir()
    make, words = ODD[odd]
    make(tmp_path / "ptb" / "train.txt")
    corpus = ["dataset=ptb", "model=var_lstm", f"data_root={tmp_path}", "batch_size=1"]
    with in_time(60):
        assert schedule([*corpus, "policy=depth"]) == 1
    assert words in capsys.readouterr().err
    file = f"learning.file={tmp_path / 'ptb' / 'train.txt'}"
    with in_time(60):
        assert schedule([*COUNTED, "policy=fsm_sort", file]) == 1
    assert words in capsys.readouterr().err


def test_packed_files_replace_those_of_another_time(place: Path) -> None:
    packed = place / "records.jsonl.xz"
    packed.write_bytes(lzma.compress(b"of another time"))
    assert _pack(packed) == 0
    assert b"trial_id" in lzma.decompress(packed.read_bytes())
