"""The same command again completes what is missing and measures nothing twice.

Interrupted commands give one line and the right exit code, and leave nothing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dynbatch.harness.commands.bench import main
from dynbatch.harness.contracts.home import SPLITS
from dynbatch.harness.planning.job_specs import Order, Step, build_done_path, build_order_path
from dynbatch.harness.planning.locks import _build_lock_path
from dynbatch.harness.records.record import Record, read_record
from dynbatch.harness.terminal import measurement
from dynbatch.harness.terminal.exit_handling import EXIT_TRIAL_FAILED
from dynbatch.harness.terminal.status import read_current_work
from dynbatch.harness.trials.sources import SourceHashes
from tests.support.corpora import write
from tests.support.measured import MakeSpec
from tests.support.processes import wait_until
from tests.support.sandbox import (
    ODD,
    TINY,
    Kept,
    Sandbox,
    assert_ended,
    assert_kept,
    assert_no_survivors,
    assert_nothing_left,
    bench,
    run_module,
    sandbox,
    with_own_cache,
)

pytestmark = pytest.mark.slow  # together they take seconds
Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]
SWEEP = ("-m", "system=reference,null", "rounds=2", *TINY)
N_RECORDS = 4
FAULTS = "none,note_and_wait"


def records_in(results: Path) -> dict[Path, Record]:
    return {path: read_record(path) for path in results.glob("raw/*/r*.json")}


def fake(results: Path, fault: str) -> list[str]:
    """Return arguments that measure the faulty system and a good one."""
    return [*TINY, *ODD, f"+system.options.fault={fault}", f"results_dir={results}"]


def test_changed_data_are_measured(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
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
    words = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert [line[0] for line in words] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    systems = [line[1] for line in words]
    assert set(systems[:2]) == set(systems[2:]) == {"reference", "null"}  # in either order
    assert [line[8] for line in words] == ["r0", "r0", "r1", "r1"]
    monkeypatch.setattr(measurement, "measure_block", None)
    assert main(command) == 0
    assert records_in(tmp_path) == first
    printed = capsys.readouterr()
    assert printed.out == "4 records: 4 ok; 4 reused\n"
    assert printed.err.count("reused: ") == N_RECORDS


def test_changed_code_and_force_set_old_records_aside(tmp_path: Path, monkeypatch: Patch) -> None:
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


# --- interrupted commands ---


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a sandbox whose cache has the user's compiled code."""
    if sys.platform != "linux":
        pytest.skip("workers end with their parent on Linux only")
    with sandbox(with_own_cache(tmp_path / "cache"), grace_s=10) as box:
        yield box


def run_until(box: Sandbox, command: list[str], happened: Callable[[], object]) -> subprocess.Popen:
    """Start a command, and wait for an event; the command must not end before it."""
    process = box.start(command)
    wait_until(happened, 60, process)
    assert process.poll() is None, "it ended before"
    return process


def test_kill_and_run_again(box: Sandbox) -> None:
    box = replace(box, grace_s=3.0)
    sweep = bench(box, "system=reference,null", "rounds=2", sweep=True)
    process = run_until(box, sweep, lambda: len(records_in(box.results)) >= 2)
    process.send_signal(signal.SIGKILL)
    box.wait(process)
    assert_no_survivors(box)
    before = Kept.of(box.results)
    assert 2 <= len(before.complete) < N_RECORDS
    assert_ended(box.run(sweep), (0,))
    assert_kept(box.results, before)
    assert len(Kept.of(box.results).complete) == N_RECORDS
    assert_nothing_left(box, temporary=False)


def end(box: Sandbox, process: subprocess.Popen[bytes], number: int) -> list[str]:
    """Interrupt a command, check that nothing is left, and return its lines on stderr."""
    process.send_signal(number)
    ended = box.wait(process, 60)
    assert_ended(ended, (128 + number,))
    assert_nothing_left(box)
    assert not _build_lock_path(box.results, "turn").exists()
    return ended.stderr.splitlines()


def test_stopped_bench_reports_saved_records_and_resume_command(box: Sandbox) -> None:
    pid_file = box.folder / "pid"
    odd = [*ODD, f"+system.options.file={pid_file}", "+system.options.fault=none"]
    assert_ended(box.run(bench(box, *odd)), (0,))
    sweep = bench(box, *odd[:-1], f"+system.options.fault={FAULTS}", sweep=True)
    process = run_until(box, sweep, lambda: pid_file.exists() and pid_file.read_text())
    *_, line = end(box, process, signal.SIGINT)
    assert line.startswith(
        "bench: stopped by SIGINT; 1 of 2 records are saved; resume with: bench -m "
    )
    assert line.endswith(f"fault={FAULTS}")
    assert not list((box.results / "logs").iterdir())


def test_a_job_of_the_pipeline(make_spec: MakeSpec, box: Sandbox) -> None:
    pid_file = box.folder / "pid"
    spec = make_spec(system_options={"fault": "note_and_wait", "file": str(pid_file)})
    name, order = spec.trial_id, build_order_path(box.results, "some")
    done = build_done_path(box.results, "some")
    Order(box.results, repetitions=((Step(name, 0),),), specs={name: spec}).write(order)
    command = run_module("dynbatch.harness.commands.measure", str(order), "--done", str(done))
    process = run_until(box, command, lambda: pid_file.exists() and pid_file.read_text())
    (line,) = end(box, process, signal.SIGTERM)
    assert line.endswith(
        ": stopped by SIGTERM; 0 of 1 records are saved; resume with: the same snakemake command"
    )
    assert not done.exists()
    assert not list(read_current_work(box.results))


def test_counts(box: Sandbox) -> None:
    records = box.results / "raw" / "counts"
    sweep = ["batch_size=1,2", "policy=agenda,depth,sufficient", f"records={records}"]
    arguments = ["model=tree_lstm", "dataset=sst_synthetic", "hidden_size=4", *sweep]
    command = run_module("dynbatch.harness.commands.schedule", *arguments)
    process = run_until(box, command, lambda: list(records.glob("count-*.json")))
    (line,) = end(box, process, signal.SIGINT)
    n_kept = len(list(records.glob("count-*.json")))
    assert line.startswith(
        f"bench-schedule: stopped by SIGINT; {n_kept} of 6 counts are saved; resume"
    )


@pytest.mark.parametrize("command", ["doctor", "first_look"])
def test_commands_that_start_others(box: Sandbox, command: str) -> None:
    name = {"doctor": "bench-doctor", "first_look": "bench-try"}[command]
    arguments = [] if command == "doctor" else [f"results_dir={box.results}"]
    process = box.start(run_module(f"dynbatch.harness.commands.{command}", *arguments))
    wait_until(psutil.Process(process.pid).children, 60, process)
    *_, line = end(box, process, signal.SIGTERM)  # after lines of progress
    assert line.startswith(f"{name}: stopped by SIGTERM; ")


def test_two_runs_on_one_folder_measure_nothing_twice(box: Sandbox, tmp_path: Path) -> None:
    """The second run waits, prints the holder of the lock, and finds everything measured."""
    sweep = bench(box, "system=reference,null", "rounds=2", sweep=True)
    lock = _build_lock_path(box.results, "turn")
    first = run_until(box, sweep, lambda: lock.exists() and lock.read_text())
    first.send_signal(signal.SIGSTOP)  # until the second run has started
    with sandbox(tmp_path / "another cache") as other:
        second = other.start(sweep)
        printed = other.folder / "said.err"
        wait_until(printed.read_text, 60, second)
        first.send_signal(signal.SIGCONT)
        ended = [box.wait(first), other.wait(second)]
    for one, n_kept in zip(ended, (0, 4), strict=True):
        assert_ended(one, (0,))
        assert f"4 records: 4 ok; {n_kept} reused" in one.stdout
    waits = ended[1].stderr.splitlines()[0]
    assert waits.startswith("bench: bench -m ")
    assert f" is measuring into {box.results}; " in waits
    assert f"(process {first.pid}, since " in waits
    assert not list(box.results.rglob("superseded"))


def test_a_bad_trial_does_not_stop_the_others(tmp_path: Path, capsys: Output) -> None:
    faults = 'abort,null,skip,"raise:value","raise:memory"'
    assert main(["-m", *fake(tmp_path, faults), "rounds=1"]) == EXIT_TRIAL_FAILED
    statuses = sorted(record.status for record in records_in(tmp_path).values())
    assert statuses == ["crash", "crash", "ok", "oom", "unsupported"]
    assert capsys.readouterr().out.startswith("5 records: 2 crash, ")
