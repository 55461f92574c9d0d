"""Interrupted commands: one line, the right exit code, and no leftovers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dynbatch.harness.planning.job_specs import Order, Step, build_done_path, build_order_path
from dynbatch.harness.planning.locks import _build_lock_path
from dynbatch.harness.terminal.status import read_current_work
from tests.support.measured import MakeSpec
from tests.support.sandbox import (
    ODD,
    Sandbox,
    assert_ended,
    assert_nothing_left,
    assert_one_line,
    bench,
    run_module,
    sandbox,
    wait_until,
    with_own_cache,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="workers end with their parent on Linux"),
]
FAULTS = "none,note_and_wait"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a sandbox whose cache has the user's compiled code."""
    with sandbox(with_own_cache(tmp_path / "cache"), grace_s=10) as box:
        yield box


def run_until(box: Sandbox, command: list[str], happened: Callable[[], object]) -> subprocess.Popen:
    """Start a command, and wait for an event; the command must not end before it."""
    process = box.start(command)
    wait_until(happened, 60, process)
    assert process.poll() is None, "it ended before"
    return process


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
    (line,) = end(box, process, signal.SIGTERM)
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


def test_a_full_standard_output_loses_no_record(box: Sandbox) -> None:
    ended = box.run(bench(box, "system=null"), stdout=Path("/dev/full"))
    assert_ended(ended, (1,))
    *_, line = lines = ended.stderr.splitlines()
    assert line.startswith("bench: standard output cannot be written (No space")
    assert len(lines) == 2
    assert len(list(box.results.glob("raw/*/r0.json"))) == 1
    assert_nothing_left(box)


def test_a_full_disk_under_the_records_ends_a_sweep_in_one_line(box: Sandbox) -> None:
    """A limit of the file size replaces the full disk: the log fits, but not the record."""
    ended = box.run(bench(box, "system=reference,null", sweep=True), file_bytes=2048)
    assert_ended(ended, (1,))
    assert_one_line(ended, "bench")
    assert f"{box.results}/raw cannot be written (File too large); choose" in ended.stderr
    assert not list(box.results.rglob("*.json"))
    assert_nothing_left(box, temporary=False)
