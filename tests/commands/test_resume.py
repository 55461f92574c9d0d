"""The same command again completes what is missing and measures nothing twice."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from dynbatch.harness.commands.bench import main
from dynbatch.harness.contracts.home import SPLITS
from dynbatch.harness.records.record import Record, read_record
from dynbatch.harness.terminal import measurement
from dynbatch.harness.terminal.exit_handling import EXIT_TRIAL_FAILED
from dynbatch.harness.trials.sources import SourceHashes
from tests.support.corpora import write
from tests.support.sandbox import (
    ODD,
    TINY,
    Kept,
    assert_ended,
    assert_kept,
    assert_no_survivors,
    assert_nothing_left,
    bench,
    sandbox,
    wait_until,
    with_own_cache,
)

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]
SWEEP = ("-m", "system=reference,null", "rounds=2", *TINY)
N_RECORDS = 4


def records_in(results: Path) -> dict[Path, Record]:
    return {path: read_record(path) for path in results.glob("raw/*/r*.json")}


def fake(results: Path, fault: str, *more: str) -> list[str]:
    """Return arguments that measure the faulty system and a good one."""
    return [*TINY, *ODD, f"+system.options.fault={fault}", f"results_dir={results}", *more]


def test_other_data_under_the_same_name_are_measured(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    own = ["dataset=sst", "dataset.options.sha256=null", f"data_root={tmp_path}/data"]
    command = ["-m", "system=reference,null", *TINY[3:], *own, f"results_dir={tmp_path}/results"]
    for text in ("(1 (0 a) (2 b))", "(1 (0 a) (2 (1 b) (1 a)))"):
        write(tmp_path / "data" / "sst", dict.fromkeys(SPLITS, f"{text}\n" * 2), ".txt")
        assert main(command) == 0
        assert "0 reused" in capsys.readouterr().out
        with monkeypatch.context() as patch:
            patch.setattr(measurement, "measure_block", None)
            assert main(command) == 0
        assert "2 reused" in capsys.readouterr().out
    assert len({record.inputs_sha256 for record in records_in(tmp_path / "results").values()}) == 1


def test_nothing_is_measured_twice(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    command = [*SWEEP, f"results_dir={tmp_path}"]
    assert main(command) == 0
    first = records_in(tmp_path)
    assert len(first) == N_RECORDS
    assert {record.status for record in first.values()} == {"ok"}
    _assert_rounds_interleave(capsys.readouterr().err.splitlines())
    monkeypatch.setattr(measurement, "measure_block", None)
    assert main(command) == 0
    assert records_in(tmp_path) == first
    printed = capsys.readouterr()
    assert printed.out == "4 records: 4 ok; 4 reused\n"
    assert printed.err.count("reused: ") == N_RECORDS


def _assert_rounds_interleave(lines: list[str]) -> None:
    words = [line.split() for line in lines]
    assert [line[0] for line in words] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    systems = [line[1] for line in words]
    assert set(systems[:2]) == set(systems[2:]) == {"reference", "null"}  # in either order
    assert [line[8] for line in words] == ["r0", "r0", "r1", "r1"]


@pytest.mark.slow
def test_changed_code_and_force_measure_again_and_keep_the_old_record_aside(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    command = fake(tmp_path, "null")
    assert main(command) == 0
    ((path, first),) = records_in(tmp_path).items()
    with monkeypatch.context() as patch:
        patch.setattr(SourceHashes, "hash_trial", lambda self, spec: "changed")
        assert main(command) == 0
    assert read_record(path) != first
    (aside,) = (path.parent / "superseded").iterdir()
    assert read_record(aside) == first
    assert main([*command, "force=true"]) == 0
    assert len(list((path.parent / "superseded").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status", "code", "again"),
    [
        ("wrong_loss", "wrong_result", EXIT_TRIAL_FAILED, False),
        ("abort", "crash", EXIT_TRIAL_FAILED, True),
        ("skip", "unsupported", 0, True),
    ],
)
def test_failures_leave_records_and_those_without_a_measurement_are_tried_again(
    tmp_path: Path, capsys: Output, fault: str, status: str, code: int, again: bool
) -> None:
    command = fake(tmp_path, fault)
    assert main(command) == code
    ((path, record),) = records_in(tmp_path).items()
    assert record.status == status
    assert f"{status}: " in capsys.readouterr().out
    assert main(command) == code
    assert (path.parent / "superseded").exists() == again


@pytest.mark.slow
def test_a_bad_trial_does_not_stop_the_others(tmp_path: Path, capsys: Output) -> None:
    faults = 'abort,null,skip,"raise:value","raise:memory"'
    command = ["-m", *fake(tmp_path, faults, "rounds=1")]
    assert main(command) == EXIT_TRIAL_FAILED
    statuses = sorted(record.status for record in records_in(tmp_path).values())
    assert statuses == ["crash", "crash", "ok", "oom", "unsupported"]
    assert capsys.readouterr().out.startswith("5 records: 2 crash, ")


@pytest.mark.slow
def test_half_written_files_are_ignored_and_removed(tmp_path: Path) -> None:
    command = fake(tmp_path, "null")
    assert main(command) == 0
    ((path, _),) = records_in(tmp_path).items()
    leftover = path.with_name(f".{path.name}.99.tmp")
    leftover.write_text('{"half')
    path.write_text(path.read_text()[:200])
    assert main(command) == 0
    assert read_record(path).status == "ok"
    assert not leftover.exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the worker dies with its parent on Linux only")
def test_kill_and_run_again(tmp_path: Path) -> None:
    with sandbox(with_own_cache(tmp_path / "cache")) as box:
        sweep = bench(box, "system=reference,null", "rounds=2", sweep=True)
        process = box.start(sweep)
        wait_until(lambda: len(records_in(box.results)) >= 2, 60, process)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        box.wait(process)
        assert_no_survivors(box)
        before = Kept.of(box.results)
        assert 2 <= len(before.complete) < N_RECORDS
        assert_ended(box.run(sweep), (0,))
        assert_kept(box.results, before)
        assert len(Kept.of(box.results).complete) == N_RECORDS
        assert_nothing_left(box, temporary=False)
