"""Counts of many policies: a failed count has a status, and nothing is counted twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dynbatch.harness.commands.schedule import main
from dynbatch.harness.counts import sequential, worker
from dynbatch.harness.counts.counting import Scheduler
from dynbatch.harness.counts.request import PlannedCount, parse_requests
from dynbatch.harness.counts.sequential import count_in_turn, plan_policy_counts
from dynbatch.harness.errors import ConfigError, ScheduleError, UnsupportedTrial
from dynbatch.harness.machine.source_code import find_module_file
from dynbatch.harness.planning.sweep import COUNTER
from dynbatch.harness.records.count_row import CountRow, read_count_rows
from dynbatch.harness.terminal.exit_handling import EXIT_TRIAL_FAILED
from dynbatch.harness.trials.spec import Limits
from tests.support.odd_system import detach
from tests.support.processes import wait_until
from tests.support.refusals import read_refusal
from tests.support.sandbox import COUNT, N_ROWS

pytestmark = pytest.mark.slow  # together they take seconds
Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Fault = Callable[[], object] | Exception


def have_depth_fail(monkeypatch: Patch, fault: Fault) -> None:
    """Let the policy `depth` raise an error or call a function when it counts."""
    count_batches = worker.count_batches

    def wrong(scheduler: Scheduler, *rest: Any) -> object:
        if scheduler.name == "depth":
            if isinstance(fault, Exception):
                raise fault
            fault()
        return count_batches(scheduler, *rest)

    monkeypatch.setattr(worker, "count_batches", wrong)


def planned_with(limits_of_depth: Limits) -> list[PlannedCount]:
    """Return the sweep, in which only `depth` has limits that a slow machine may exceed."""
    planned = plan_policy_counts(parse_requests(COUNT))
    for k, count in enumerate(planned):
        if count.policy == "depth":
            spec = replace(count.request.spec, limits=limits_of_depth)
            planned[k] = replace(count, request=replace(count.request, spec=spec))
    return planned


def allocate_without_end() -> None:
    blocks = []
    while True:
        blocks.append(np.ones(2**21))  # 16 MiB
        time.sleep(0.002)


IN_TIME = Limits(time_s=2.0)
IN_MEMORY = Limits(memory_bytes=psutil.Process().memory_info().rss + 2**29)


@pytest.mark.parametrize(
    ("fault", "status", "reason", "again"),
    [
        (ValueError("a fault\nover two lines"), "crash", "ValueError: a fault over two", True),
        (MemoryError("no room"), "oom", "MemoryError: no room", False),
        (ScheduleError("vertex 3 twice"), "wrong_result", "vertex 3 twice", False),
        (UnsupportedTrial("too odd a model"), "unsupported", "too odd a model", True),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash", "killed by SIGKILL", True),
        (lambda: os._exit(3), "crash", "exit code 3", True),
        (lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6), "crash", "killed by signal 40", True),
    ],
)
def test_a_count_that_fails_has_a_status_and_is_tried_again_unless_that_is_a_finding(
    fault: Fault,
    status: str,
    reason: str,
    again: bool,
    monkeypatch: Patch,
    tmp_path: Path,
    capsys: Output,
) -> None:
    have_depth_fail(monkeypatch, fault)
    file, raw = tmp_path / "rows.json", tmp_path / "raw"
    command = [*COUNT, f"out={file}", f"records={raw}"]
    code = EXIT_TRIAL_FAILED if status in ("crash", "wrong_result") else 0
    assert main(command) == code
    rows = read_count_rows(file)
    expected = [
        (size, policy, status if policy == "depth" else "ok")
        for size in (1, 2)
        for policy in ("agenda", "depth", "sufficient")
    ]
    assert [(row.batch_size, row.policy, row.status) for row in rows] == expected
    printed = capsys.readouterr()
    for row in rows:
        if row.status != "ok":
            assert row.reason.startswith(reason)
            assert "\n" not in row.reason
            assert f"depth: {status}: {row.reason}" in printed.out.splitlines()
    assert f"6 records: 4 ok, 2 {status}; 0 reused" in printed.err.splitlines()
    assert len(list(raw.glob("count-*.json"))) == N_ROWS

    monkeypatch.undo()
    assert main(command) == (0 if again else code), "what failed and is kept fails again"
    kept = 4 if again else N_ROWS
    assert f"{kept} reused" in capsys.readouterr().err.splitlines()[-1]
    assert len(list(raw.glob("superseded/*"))) == N_ROWS - kept


@pytest.mark.parametrize(
    ("fault", "limits", "status", "reason"),
    [
        (lambda: time.sleep(600), IN_TIME, "timeout", "not finished within limits.time_s=2"),
        (allocate_without_end, IN_MEMORY, "oom", "used "),
    ],
)
def test_a_count_that_passes_a_limit_is_ended(
    fault: Fault, limits: Limits, status: str, reason: str, monkeypatch: Patch
) -> None:
    have_depth_fail(monkeypatch, fault)
    outcomes, n_kept = count_in_turn(planned_with(limits))
    assert n_kept == 0
    for outcome in outcomes:
        row = outcome.row
        assert row.status == (status if row.policy == "depth" else "ok")
        if not isinstance(row, CountRow):
            assert row.reason.startswith(reason)
            assert row.limits == limits
    assert multiprocessing.active_children() == []


def test_an_invalid_schedule_has_no_counts(monkeypatch: Patch, capsys: Output) -> None:
    def check(graph: object, schedule: object) -> None:
        raise ScheduleError("vertex 3 comes before its argument 2")

    monkeypatch.setattr("dynbatch.harness.counts.counting.check_schedule", check)
    assert main([*COUNT, "--json"]) == EXIT_TRIAL_FAILED
    rows = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in rows} == {"wrong_result"}
    assert rows[0]["reason"].startswith("policy agenda returned an invalid schedule: vertex 3")
    assert "n_batches" not in rows[0]


def test_wrong_input_of_one_policy_is_refused_and_the_others_are_counted(
    monkeypatch: Patch, tmp_path: Path, capsys: Output
) -> None:
    have_depth_fail(monkeypatch, ConfigError("this is not allowed; give another"))
    file = tmp_path / "rows.json"
    assert main([*COUNT, f"out={file}", f"records={tmp_path / 'raw'}"]) == 1
    assert {row.policy for row in read_count_rows(file)} == {"agenda", "sufficient"}
    assert capsys.readouterr().err.splitlines() == [
        "4 records: 4 ok; 0 reused; 2 refused",
        "bench-schedule: this is not allowed; give another",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to who asks for them")
def test_processes_left_by_a_policy_are_ended(monkeypatch: Patch, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    have_depth_fail(monkeypatch, lambda: detach(pid_file, bare=True))
    outcomes, _ = count_in_turn(planned_with(Limits(time_s=600.0)))
    assert {outcome.row.status for outcome in outcomes if outcome.row} == {"ok"}
    assert not psutil.pid_exists(int(pid_file.read_text()))


def test_nothing_is_counted_twice_unless_forced_or_with_changed_code(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    command = [*COUNT, f"records={tmp_path}"]
    assert main(command) == 0
    first = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(first) == N_ROWS
    table = capsys.readouterr().out
    assert main(command) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == first
    printed = capsys.readouterr()
    assert printed.out == table
    assert printed.err == "6 records: 6 ok; 6 reused\n"
    assert main([*command, "force=true"]) == 0
    assert len(list((tmp_path / "superseded").iterdir())) == N_ROWS
    monkeypatch.setattr(sequential, "_hash_code", lambda model, loader, policy: f"changed {policy}")
    assert main(command) == 0
    assert "0 reused" in capsys.readouterr().err.splitlines()[-1]
    assert len(list((tmp_path / "superseded").iterdir())) == 2 * N_ROWS


def test_other_settings_are_another_count() -> None:
    def find_id(*words: str) -> str:
        (count,) = plan_policy_counts(parse_requests([*COUNT[:2], "batch_size=1", *words]))
        return count.count_id

    changes = (
        ("policy=agenda", "learning.trials=1"),
        ("policy=agenda", "offset=1"),
        ("policy=agenda", "outputs=stage"),
        ("policy=agenda", "granularity=operator"),
        ("policy=agenda", "n_following=1"),
        ("policy=agenda", "split=dev"),
        ("policy=fsm_base", "learning.trials=1"),
        ("policy=fsm_base", "learning.trials=2"),
        ("policy=fsm_base", "learning.trials=1", "learn_offset=3"),
    )
    ids = [find_id(*words) for words in changes]
    assert len(set(ids)) == len(ids)
    # Options of learned policies do not change the id of a count of other policies.
    assert find_id("policy=agenda", "learning.trials=7", "learn_offset=3") == ids[0]


def test_a_count_that_a_limit_ended_is_tried_again_under_another_limit(
    monkeypatch: Patch, tmp_path: Path
) -> None:
    def count(time_s: float) -> tuple[list[str], int]:
        outcomes, n_kept = count_in_turn(planned_with(Limits(time_s=time_s)), tmp_path)
        return [one.row.status for one in outcomes if one.row is not None], n_kept

    have_depth_fail(monkeypatch, lambda: time.sleep(600))
    timeouts = ["ok", "timeout", "ok"] * 2
    assert count(0.5) == (timeouts, 0)
    monkeypatch.undo()
    assert count(0.5) == (timeouts, N_ROWS)
    assert count(600.0) == (["ok"] * N_ROWS, N_ROWS - 2)


@pytest.mark.parametrize("wants_learned", [False, True])
def test_learned_policy_is_sent_only_on_request(wants_learned: bool) -> None:
    requests = parse_requests([*COUNT[:2], "batch_size=1", "policy=fsm_base", "learning.trials=1"])
    planned = sequential.plan_policy_counts(requests)
    (outcome,), _ = count_in_turn(planned, wants_learned=wants_learned)
    assert outcome.row.status == "ok"
    assert (outcome.learned is not None) == wants_learned


def test_the_counter_that_is_hashed_is_the_one_that_counts() -> None:
    path = find_module_file(COUNTER)
    assert path is not None, "a module that is not there would be hashed as nothing"
    assert path == Path(worker.__file__)


def test_half_written_records_are_counted_again(tmp_path: Path, capsys: Output) -> None:
    command = [*COUNT, f"records={tmp_path}"]
    assert main(command) == 0
    path = sorted(tmp_path.iterdir())[0]
    leftover = path.with_name(f".{path.name}.99.tmp")
    leftover.write_text('{"half')
    path.write_text(path.read_text()[:200])
    assert main(command) == 0
    assert "6 records: 6 ok; 5 reused" in capsys.readouterr().err
    assert not leftover.exists()


def test_records_that_cannot_be_written_give_one_line(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "file").touch()
    assert main([*COUNT, f"records={tmp_path / 'file' / 'below'}"]) == 1
    read_refusal(capsys, "choose another records")


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dynbatch.harness.commands.schedule", *COUNT[:-1]]
    # Each count takes half a second, so that the sweep can be killed in between.
    command += ["timing.min_seconds=0.5", f"records={folder / 'raw'}", f"out={folder / 'o.json'}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(sys.platform != "linux", reason="the child dies with its parent on Linux only")
def test_kill_and_run_again(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("raw/count-*.json"))) >= 2, 120, process)
    children = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert children
    assert not psutil.wait_procs(children, timeout=10)[1]
    before = {path: path.read_bytes() for path in tmp_path.glob("raw/count-*.json")}
    assert 2 <= len(before) < N_ROWS
    assert not (tmp_path / "o.json").exists()
    assert start(tmp_path).wait() == 0
    after = {path: path.read_bytes() for path in tmp_path.glob("raw/count-*.json")}
    assert len(after) == len(read_count_rows(tmp_path / "o.json")) == N_ROWS
    assert {path: after[path] for path in before} == before
    assert not list(tmp_path.rglob("superseded"))
    assert not list(tmp_path.rglob("*.tmp"))
