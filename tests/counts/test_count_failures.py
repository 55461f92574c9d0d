"""Counts that go wrong leave a row with a status and a reason, and the others go on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.commands.schedule import main
from harness.counts.in_turn import count_in_turn
from harness.errors import ConfigError, ScheduleError, UnsupportedTrial
from harness.records.count_row import AnyCount, CountRow, read_count_rows
from harness.terminal.ending import FAILED
from harness.trials.spec import Limits
from tests.support.faulty_counts import COUNT, N_ROWS, Fault, have_depth_fail, planned_with, raise_
from tests.support.misbehaving import detach


def allocate_without_end() -> None:
    blocks = []
    while True:
        blocks.append(np.ones(2**21))  # 16 MiB
        time.sleep(0.002)


def statuses(rows: tuple[AnyCount, ...]) -> list[tuple[int, str, str]]:
    return [(row.batch_size, row.policy, row.status) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        (raise_(ValueError("a fault\nover two lines")), "crash", "ValueError: a fault over two"),
        (raise_(MemoryError("no room")), "oom", "MemoryError: no room"),
        (raise_(ScheduleError("vertex 3 twice")), "wrong_result", "vertex 3 twice"),
        (raise_(UnsupportedTrial("too odd a model")), "unsupported", "too odd a model"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash", "killed by SIGKILL"),
        (lambda: os._exit(3), "crash", "exit code 3"),
    ],
)
def test_a_count_that_fails_leaves_its_status_and_the_others_go_on(
    fault: Fault,
    status: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    have_depth_fail(monkeypatch, fault)
    file = tmp_path / "rows.json"
    code = main([*COUNT, f"out={file}", f"records={tmp_path / 'raw'}"])
    assert code == (FAILED if status in ("crash", "wrong_result") else 0)
    rows = read_count_rows(file)
    expected = [
        (size, policy, status if policy == "depth" else "ok")
        for size in (1, 2)
        for policy in ("agenda", "depth", "sufficient")
    ]
    assert statuses(rows) == expected
    said = capsys.readouterr()
    for row in rows:
        if row.status != "ok":
            assert row.reason.startswith(reason)
            assert "\n" not in row.reason
            assert f"depth: {status}: {row.reason}" in said.out.splitlines()
    assert f"6 records: 4 ok, 2 {status}; 0 kept" in said.err.splitlines()
    assert len(list((tmp_path / "raw").glob("count-*.json"))) == N_ROWS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "limits", "status", "reason"),
    [
        (lambda: time.sleep(600), Limits(time_s=2.0), "timeout", "not done within limits.time_s=2"),
        (
            allocate_without_end,
            Limits(memory_bytes=psutil.Process().memory_info().rss + 2**29),
            "oom",
            "used ",
        ),
    ],
)
def test_a_count_that_passes_a_limit_is_ended(
    fault: Fault, limits: Limits, status: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_depth_fail(monkeypatch, fault)
    outcomes, n_kept = count_in_turn(planned_with(limits))
    assert n_kept == 0
    for outcome in outcomes:
        row = outcome.row
        assert row is not None
        assert row.status == (status if row.policy == "depth" else "ok")
        if not isinstance(row, CountRow):
            assert row.reason.startswith(reason)
            assert row.limits == limits
    assert multiprocessing.active_children() == []


def test_a_policy_with_an_invalid_schedule_has_no_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(graph: object, schedule: object) -> None:
        raise ScheduleError("vertex 3 comes before its argument 2")

    monkeypatch.setattr("harness.counts.counting.check_schedule", check)
    assert main([*COUNT, "--json"]) == FAILED
    rows = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in rows} == {"wrong_result"}
    assert rows[0]["reason"].startswith("policy agenda made a schedule that is not valid: vertex 3")
    assert "n_batches" not in rows[0]


def test_wrong_input_of_one_policy_is_refused_and_the_others_are_counted(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    have_depth_fail(monkeypatch, raise_(ConfigError("this is not allowed; give another")))
    file = tmp_path / "rows.json"
    assert main([*COUNT, f"out={file}", f"records={tmp_path / 'raw'}"]) == 1
    assert {row.policy for row in read_count_rows(file)} == {"agenda", "sufficient"}
    assert capsys.readouterr().err.splitlines() == [
        "4 records: 4 ok; 0 kept; 2 refused",
        "bench-schedule: this is not allowed; give another",
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to who asks for them")
def test_what_a_policy_leaves_behind_ends_with_the_counting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    have_depth_fail(monkeypatch, lambda: detach(pid_file, bare=True))
    outcomes, _ = count_in_turn(planned_with(Limits(time_s=600.0)))
    assert {outcome.row.status for outcome in outcomes if outcome.row} == {"ok"}
    assert not psutil.pid_exists(int(pid_file.read_text()))


@pytest.mark.slow
def test_a_real_time_signal_is_a_crash_of_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    have_depth_fail(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6))
    outcomes, _ = count_in_turn(planned_with(Limits(time_s=600.0)))
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    reasons = {row.reason for row in rows if not isinstance(row, CountRow)}
    assert reasons == {"killed by signal 40 (SIGRTMIN+6)"}
    assert len(rows) == N_ROWS
