"""Output paths of commands, full disks and deleted directories: one line, exit code 1.

Existing files of others are not moved, replaced or waited for, and existing records stay.
"""

from __future__ import annotations

import lzma
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main as bench
from dynbatch.harness.commands.collect import main as collect
from dynbatch.harness.commands.schedule import main as schedule
from dynbatch.harness.counts import sequential
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.measuring.block import BlockEntry, Settled
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.records import files
from dynbatch.harness.records.count_row import AnyCount
from dynbatch.harness.records.record import read_record, write_record
from dynbatch.harness.terminal import measurement
from dynbatch.harness.trials.sources import SourceHashes
from tests.support.odd_files import IMPOSSIBLE, THERE, everything_in, fail_on_full_disk, state
from tests.support.processes import in_time
from tests.support.records import MakeRecord
from tests.support.refusals import Output, read_refusal
from tests.support.sandbox import ODD, TINY

Patch = pytest.MonkeyPatch
NULL = ("system=null", *TINY)
COUNTED = TINY[:5]  # without timing
WORK = tuple(one for one in TINY if not one.startswith("hidden_size"))
SWEEP = ("-m", "system=null", "hidden_size=4,5,6", *WORK)
ALL_ODD = ("bench out", "schedule out", "collect out")
FEW_ODD = ("fifo", "foreign", "device")  # for other outputs
NO_SPACE = "(No space left on device)"
Measured = list[int]  # hidden sizes


def _make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 7))  # as /dev/full
    except PermissionError:
        pytest.skip("only the superuser makes devices")


OBJECTS = {**THERE, **IMPOSSIBLE, "device": (_make_device, "is a device")}


def _bench(path: Path) -> int:
    return bench([*NULL, f"results_dir={path.parents[1] / 'results'}", f"out={path}"])


def _pack(file: Path) -> int:
    return collect([str(file.parents[1] / "results"), "--pack", str(file.parent)])


def _collect(out: Path) -> int:
    return collect([str(out.parents[1] / "results"), "--out", str(out)])


def _schedule(*words: str) -> int:
    return schedule([*COUNTED, "policy=fsm_sort", "learning.trials=5", *words])


# By output: name of the file, and command that writes it.
OUTPUTS: dict[str, tuple[str, Callable[[Path], int]]] = {
    "bench out": ("r0.json", _bench),
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
    [(o, odd) for o in OUTPUTS for odd in OBJECTS if o in ALL_ODD or odd in FEW_ODD],
)
def test_unusable_output_path_is_unchanged_and_gives_one_line_error(
    output: str, odd: str, place: Path, monkeypatch: Patch, capsys: Output
) -> None:
    name, run = OUTPUTS[output]
    make, words = OBJECTS[odd]
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


def test_packed_files_replace_those_of_another_time(place: Path) -> None:
    packed = place / "records.jsonl.xz"
    packed.write_bytes(lzma.compress(b"of another time"))
    assert _pack(packed) == 0
    assert b"trial_id" in lzma.decompress(packed.read_bytes())


# --- full disks and lost directories ---


@pytest.fixture
def measured(make_record: MakeRecord, monkeypatch: Patch) -> Measured:
    """Return the list of measured hidden sizes; measuring is replaced by a fast function."""
    found: Measured = []

    def run(entries: Sequence[BlockEntry], _: ForkServers, settled: Settled) -> None:
        for number, entry in enumerate(entries):
            found.append(entry.spec.hidden_size)
            machine = describe_machine().to_dict()
            record = make_record(entry.spec, source_sha256="same", machine=machine, versions={})
            write_record(entry.path, record)
            settled(number, read_record(entry.path))

    monkeypatch.setattr(measurement, "measure_block", run)
    monkeypatch.setattr(SourceHashes, "hash_trial", lambda self, spec: "same")
    return found


def last_line(capsys: Output) -> str:
    """Return the only line on stderr that is not of a trial; stdout must be empty."""
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = (one for one in printed.err.splitlines() if not one.startswith("["))
    return line


def sizes_in(results: Path) -> list[int]:
    return sorted(read_record(path).trial.hidden_size for path in results.rglob("r0.json"))


def after(n_trials: int, measured: Measured, act: Callable[[], None]) -> Callable[..., None]:
    """Return a function that calls `act` once that many trials have been measured."""
    return lambda *_: act() if len(measured) >= n_trials else None


def test_full_disk_ends_sweep_and_keeps_existing_records(
    tmp_path: Path, measured: Measured, monkeypatch: Patch, capsys: Output
) -> None:
    command = [*SWEEP, f"results_dir={tmp_path}"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", after(2, measured, fail_on_full_disk))
        assert bench(command) == 1
    line = last_line(capsys)
    assert line.startswith(f"bench: {tmp_path}/raw/")
    assert f"r0.json cannot be written {NO_SPACE}; existing records are intact" in line
    assert measured == [4, 5], "the third would be lost, too"
    assert sizes_in(tmp_path) == [4]
    assert all(path.stat().st_size for path in everything_in(tmp_path) if path.is_file())
    assert not list(tmp_path.rglob("*.tmp"))
    assert bench(command) == 0
    assert measured == [4, 5, 5, 6], "what was kept is not measured again"
    assert capsys.readouterr().out == "3 records: 3 ok; 1 reused\n"


def test_full_disk_is_detected_before_measuring(
    tmp_path: Path, measured: Measured, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setattr(files.tempfile, "TemporaryFile", fail_on_full_disk)
    assert bench([*SWEEP, f"results_dir={tmp_path}"]) == 1
    line = last_line(capsys)
    assert line.endswith(f"{NO_SPACE}; choose another results_dir or out")
    assert measured == []


def test_room_is_looked_for_before_each_trial(
    tmp_path: Path, measured: Measured, monkeypatch: Patch, capsys: Output
) -> None:
    room = measurement.check_room

    def check(folder: Path) -> None:
        with monkeypatch.context() as patch:
            if measured:
                patch.setattr(files, "ROOM_BYTES", 10**15)
                patch.setattr(files, "_write_probe", fail_on_full_disk)
            room(folder)

    monkeypatch.setattr(measurement, "check_room", check)
    assert bench([*SWEEP, f"results_dir={tmp_path}"]) == 1
    assert f"{NO_SPACE}; existing records are intact" in last_line(capsys)
    assert measured == [4]
    assert sizes_in(tmp_path) == [4]


@pytest.mark.parametrize("below", ["", "raw"])
@pytest.mark.parametrize("what", ["deleted", "replaced", "moved", "made anew"])
def test_a_folder_that_goes_away_ends_the_sweep(
    what: str, below: str, tmp_path: Path, measured: Measured, monkeypatch: Patch, capsys: Output
) -> None:
    results = tmp_path / "results"
    folder = results / below

    def act() -> None:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        if what == "moved":
            folder.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(folder)
        if what == "replaced":
            folder.touch()
        if what == "made anew":
            folder.mkdir()

    monkeypatch.setattr(os, "fsync", after(2, measured, act))
    assert bench([*SWEEP, f"results_dir={results}"]) == 1
    line = last_line(capsys)
    assert "cannot be written" in line or "was deleted, moved or replaced" in line
    assert measured == [4, 5]
    if what == "moved":
        assert sizes_in(tmp_path / "elsewhere") == [4]
    if what == "replaced":
        folder.unlink()
    assert bench([*SWEEP, f"results_dir={results}"]) == 0
    assert sizes_in(results) == [4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["delete", "replace", "lose_room"])
def test_a_worker_that_loses_its_place(what: str, tmp_path: Path, capsys: Output) -> None:
    """The worker finds a full disk or no directory; its parent reports that once."""
    results = tmp_path / "results"
    options = (
        *(f"+system.options.fault={what}", "+system.options.at=load"),
        f"+system.options.file={results}",
    )
    sweep = ["-m", *WORK, *ODD, "hidden_size=4,5", *options, f"results_dir={results}"]
    assert bench(sweep) == 1
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    first, line = printed.err.splitlines()
    assert first.endswith("not saved")
    expected = "File too large" if what == "lose_room" else str(results)
    assert expected in line
    left = [path for path in everything_in(tmp_path) if path.is_file()]
    assert not [path for path in left if path.suffix == ".tmp" or "logs" in path.parts]
    assert {path.name for path in left if path.suffix == ".json"} <= {"r0.json"}


@pytest.mark.parametrize("what", ["full", "deleted"])
def test_counts_that_cannot_be_kept_end_the_run(
    what: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    records = tmp_path / "counts"
    write, written = sequential.write_count, []

    def act(path: Path, row: AnyCount) -> None:
        if what == "full" and written:
            patch.setattr(os, "fsync", fail_on_full_disk)
        write(path, row)
        written.append(path)
        if what == "deleted":
            shutil.rmtree(records)
            records.mkdir()

    command = [*COUNTED, "policy=agenda,depth,unbatched", f"records={records}"]
    with monkeypatch.context() as patch:
        patch.setattr(sequential, "write_count", act)
        assert schedule(command) == 1
    line = last_line(capsys)
    assert line.startswith("bench-schedule: ")
    assert ("No space left on device" if what == "full" else "was deleted, moved") in line
    kept = [path for path in everything_in(records) if path.is_file()]
    assert len(kept) == (what == "full")
    assert len(written) == 1
    assert schedule(command) == 0


@pytest.mark.parametrize("output", ["schedule out", "save_policy", "draw", "draw-policy"])
def test_an_output_that_finds_no_room_leaves_nothing(
    output: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    name, run = OUTPUTS[output]
    monkeypatch.setattr(os, "fsync", fail_on_full_disk)
    assert run(tmp_path / name) == 1
    line = last_line(capsys)
    assert str(tmp_path / name) in line
    assert "No space left on device" in line
    assert everything_in(tmp_path) == set()
