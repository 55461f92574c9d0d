"""Full disks and deleted directories: one line, exit code 1, and existing records stay."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main as bench
from dynbatch.harness.commands.schedule import main as schedule
from dynbatch.harness.counts import sequential
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.measuring.block import BlockEntry, Hear, Settled
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.records import files
from dynbatch.harness.records.count_row import AnyCount
from dynbatch.harness.records.record import read_record, write_record
from dynbatch.harness.terminal import measurement
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.harness.values.paths import ROOT
from tests.support.odd_files import everything_in
from tests.support.records import MakeRecord
from tests.support.sandbox import ODD, TINY

WORK = tuple(one for one in TINY if not one.startswith("hidden_size"))
SWEEP = ("-m", "system=null", "hidden_size=4,5,6", *WORK)
COUNTS = ("model=tree_fc", "dataset=complete_trees", "dataset.options.n_leaves=4", "batch_size=2")
NO_SPACE = "(No space left on device)"
Measured = list[int]  # hidden sizes
Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def fail(*_: object, **__: object) -> None:
    """Report a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def measured(make_record: MakeRecord, monkeypatch: Patch) -> Measured:
    """Return the list of measured hidden sizes; measuring is replaced by a fast function."""
    found: Measured = []

    def run(entries: Sequence[BlockEntry], _: ForkServers, __: Hear, settled: Settled) -> None:
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
        patch.setattr(os, "fsync", after(2, measured, fail))
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
    monkeypatch.setattr(files.tempfile, "TemporaryFile", fail)
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
                patch.setattr(files, "_write_probe", fail)
            room(folder)

    monkeypatch.setattr(measurement, "check_room", check)
    assert bench([*SWEEP, f"results_dir={tmp_path}"]) == 1
    assert f"{NO_SPACE}; existing records are intact" in last_line(capsys)
    assert measured == [4]
    assert sizes_in(tmp_path) == [4]


@pytest.mark.parametrize("place", ["", "raw"])
@pytest.mark.parametrize("what", ["deleted", "replaced", "moved", "made anew"])
def test_a_folder_that_goes_away_ends_the_sweep(
    what: str, place: str, tmp_path: Path, measured: Measured, monkeypatch: Patch, capsys: Output
) -> None:
    results = tmp_path / "results"
    folder = results / place

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
            patch.setattr(os, "fsync", fail)
        write(path, row)
        written.append(path)
        if what == "deleted":
            shutil.rmtree(records)
            records.mkdir()

    command = [*COUNTS, "policy=agenda,depth,unbatched", f"records={records}"]
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


@pytest.mark.parametrize("output", ["out", "save_policy", "--draw", "--draw-policy"])
def test_an_output_that_finds_no_room_leaves_nothing(
    output: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    file = tmp_path / {"out": "a.json", "save_policy": "a"}.get(output, "a.png")
    words = [output, str(file)] if output.startswith("--") else [f"{output}={file}"]

    monkeypatch.setattr(os, "fsync", fail)
    assert schedule([*COUNTS, "policy=fsm_sort", "learning.trials=5", *words]) == 1
    line = last_line(capsys)
    assert str(file) in line
    assert "No space left on device" in line
    assert everything_in(tmp_path) == set()


FULL = """
set -e
mount -t tmpfs -o size=600k none "$1"
head -c 328k /dev/zero > "$1/filler"
shift
"$@" || echo "first exit $?"
find "$RESULTS" -name "*.tmp" -o -type f -empty -not -name "*.lock"
find "$RESULTS/raw" -name "r*.json" -exec sha256sum {} + | sort > "$KEPT"
rm "$RESULTS/filler"
"$@" || echo "second exit $?"
sha256sum --check --quiet "$KEPT" && echo "kept $(wc -l < "$KEPT")"
"""


@pytest.mark.slow
def test_a_disk_that_really_is_full(tmp_path: Path) -> None:
    """The test uses a small file system, which only the superuser may mount."""
    trial = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
    if os.geteuid() != 0 or trial.returncode:
        pytest.skip("nothing can be mounted here")
    results = tmp_path / "results"
    command = [sys.executable, "-m", "dynbatch.harness.commands.bench"]
    results.mkdir()
    sweep = [*SWEEP, "rounds=2", f"results_dir={results}"]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", FULL, "full", str(results), *command, *sweep],
        env={**os.environ, "RESULTS": str(results), "KEPT": str(tmp_path / "kept"),
             "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.stderr.count("No space left on device") == 1
    first, totals, kept = done.stdout.splitlines()
    assert first == "first exit 1"
    n_kept = int(kept.removeprefix("kept "))
    assert 0 < n_kept < 6
    assert totals == f"6 records: 6 ok; {n_kept} reused"
