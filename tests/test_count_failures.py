"""Counts that go wrong leave a row with a status and a reason, and the others go on."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from harness.commands.schedule import main
from harness.counts.row import AnyCount, read_count_rows
from harness.errors import ConfigError, ScheduleError, UnsupportedTrial
from tests.faulty_counts import COUNT, N_ROWS, Fault, have_depth_fail, raise_


def allocate_without_end() -> None:
    blocks = []
    while True:
        blocks.append(np.ones(2**21))  # 16 MiB
        time.sleep(0.002)


def statuses(rows: tuple[AnyCount, ...]) -> list[tuple[int, str, str]]:
    return [(row.batch_size, row.policy, row.status) for row in rows]


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        (raise_(ValueError("a fault\nover two lines")), "crash", "ValueError: a fault over two"),
        (raise_(MemoryError("no room")), "oom", "MemoryError: no room"),
        (raise_(ScheduleError("vertex 3 twice")), "wrong_result", "vertex 3 twice"),
        (raise_(UnsupportedTrial("too odd a model")), "unsupported", "too odd a model"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "crash", "killed by SIGKILL"),
        (lambda: os._exit(3), "crash", "exit code 3"),
        (lambda: time.sleep(600), "timeout", "not done within limits.time_s=4"),
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
    assert main([*COUNT, f"out={file}", f"records={tmp_path / 'raw'}", "limits.time_s=4"]) == 0
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


def test_a_count_that_eats_memory_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_depth_fail(monkeypatch, allocate_without_end)
    limit = psutil.Process().memory_info().rss + 2**28
    file = tmp_path / "rows.json"
    assert main([*COUNT, f"out={file}", f"limits.memory_bytes={limit}"]) == 0
    failed = [row for row in read_count_rows(file) if row.status != "ok"]
    assert [(row.policy, row.status) for row in failed] == [("depth", "oom")] * 2
    assert failed[0].reason.endswith(f"limits.memory_bytes is {limit}")


def test_a_policy_with_an_invalid_schedule_has_no_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(graph: object, schedule: object) -> None:
        raise ScheduleError("vertex 3 comes before its argument 2")

    monkeypatch.setattr("harness.counts.counting.check_schedule", check)
    assert main([*COUNT, "--json"]) == 0
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
