"""The same sweep of counts again completes what is missing and counts nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.commands.schedule import main
from harness.counts import in_turn, worker
from harness.counts.request import parse_requests
from harness.errors import ScheduleError, UnsupportedTrial
from harness.machine.source_code import module_file
from harness.measuring.launch import ROOT
from harness.planning.counter import COUNTER
from harness.records.count_row import read_count_rows
from harness.terminal.ending import FAILED
from harness.trials.spec import Limits
from tests.support.faulty_counts import COUNT, N_ROWS, have_depth_fail, planned_with, raise_

pytestmark = pytest.mark.slow  # all of them together take seconds


def test_nothing_is_counted_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*COUNT, f"records={tmp_path}"]
    assert main(command) == 0
    first = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(first) == N_ROWS
    table = capsys.readouterr().out
    assert main(command) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == first
    said = capsys.readouterr()
    assert said.out == table
    assert said.err == "6 records: 6 ok; 6 kept\n"
    assert main([*command, "force=true"]) == 0
    assert len(list((tmp_path / "superseded").iterdir())) == N_ROWS


@pytest.mark.slow
def test_another_mini_batch_policy_or_learning_is_another_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = [*COUNT[:2], "batch_size=1", "timing.min_seconds=0", f"records={tmp_path}"]
    for place, change in enumerate(
        (
            ("policy=fsm_base", "learning.trials=1"),
            ("policy=fsm_base", "learning.trials=2"),
            ("policy=fsm_base", "learning.trials=1", "learn_offset=3"),
            ("policy=agenda", "learning.trials=1"),
            ("policy=agenda", "offset=1"),
            ("policy=agenda", "outputs=stage"),
            ("policy=agenda", "granularity=operator"),
            ("policy=agenda", "n_following=1"),
            ("policy=agenda", "split=dev"),
        )
    ):
        assert main([*one, *change]) == 0
        assert len(list(tmp_path.iterdir())) == place + 1
    # What only learned policies ask for makes no other count of one that is not.
    assert main([*one, "policy=agenda", "learning.trials=7", "learn_offset=3"]) == 0
    assert "1 kept" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code", "again"),
    [
        (ValueError("a fault"), FAILED, True),
        (UnsupportedTrial("not installed"), 0, True),
        (ScheduleError("vertex 3 twice"), FAILED, False),
        (MemoryError("no room"), 0, False),
    ],
)
def test_failures_without_a_finding_are_tried_again(
    error: Exception,
    code: int,
    again: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    have_depth_fail(monkeypatch, raise_(error))
    command = [*COUNT, f"records={tmp_path}"]
    assert main(command) == code
    monkeypatch.undo()
    assert main(command) == (0 if again else code), "what failed and is kept fails again"
    kept = 4 if again else N_ROWS
    assert f"{kept} kept" in capsys.readouterr().err.splitlines()[-1]
    assert len(list(tmp_path.glob("superseded/*"))) == N_ROWS - kept


@pytest.mark.slow
def test_a_count_that_a_limit_ended_is_tried_again_under_another_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def count(time_s: float) -> tuple[list[str], int]:
        outcomes, n_kept = in_turn.count_in_turn(planned_with(Limits(time_s=time_s)), tmp_path)
        return [one.row.status for one in outcomes if one.row is not None], n_kept

    have_depth_fail(monkeypatch, lambda: time.sleep(600))
    timeouts = ["ok", "timeout", "ok"] * 2
    assert count(0.5) == (timeouts, 0)
    monkeypatch.undo()
    assert count(0.5) == (timeouts, N_ROWS)
    assert count(600.0) == (["ok"] * N_ROWS, N_ROWS - 2)


@pytest.mark.parametrize("wants_learned", [False, True])
def test_a_learned_policy_is_sent_only_to_whoever_wants_it(wants_learned: bool) -> None:
    requests = parse_requests([*COUNT[:2], "batch_size=1", "policy=fsm_base", "learning.trials=1"])
    planned = in_turn.planned_counts(requests)
    (outcome,), _ = in_turn.count_in_turn(planned, wants_learned=wants_learned)
    assert outcome.row is not None
    assert outcome.row.status == "ok"
    assert (outcome.learned is not None) == wants_learned


def test_the_counter_that_is_hashed_is_the_one_that_counts() -> None:
    path = module_file(COUNTER)
    assert path is not None, "a module that is not there would be hashed as nothing"
    assert path == Path(worker.__file__)


@pytest.mark.slow
def test_changed_code_is_counted_again_and_the_old_record_kept_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*COUNT, f"records={tmp_path}"]
    assert main(command) == 0
    monkeypatch.setattr(in_turn, "_sha256", lambda model, loader, policy: f"changed {policy}")
    assert main(command) == 0
    assert "0 kept" in capsys.readouterr().err.splitlines()[-1]
    assert len(list((tmp_path / "superseded").iterdir())) == N_ROWS


def test_the_code_of_a_count_is_that_of_its_own_policy() -> None:
    agenda, depth = (
        in_turn.counting_sha256(["harness.models.tree_lstm"], {policy})
        for policy in ("agenda", "depth")
    )
    assert agenda != depth


@pytest.mark.slow
def test_half_written_records_are_counted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*COUNT, f"records={tmp_path}"]
    assert main(command) == 0
    path = sorted(tmp_path.iterdir())[0]
    leftover = path.with_name(f".{path.name}.99.tmp")
    leftover.write_text('{"half')
    path.write_text(path.read_text()[:200])
    assert main(command) == 0
    assert "6 records: 6 ok; 5 kept" in capsys.readouterr().err
    assert not leftover.exists()


def test_records_that_cannot_be_written_give_one_line_before_counting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([*COUNT, f"records={tmp_path / 'file' / 'below'}"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "choose another records" in said.err


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "harness.commands.schedule", *COUNT[:-1]]
    # Half a second a count, so that the sweep can be killed in its middle.
    command += ["timing.min_seconds=0.5", f"records={folder / 'raw'}", f"out={folder / 'o.json'}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the child dies with its parent on Linux only")
def test_kill_and_run_again(tmp_path: Path) -> None:
    process = start(tmp_path)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("raw/count-*.json"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert children
    assert gone
    assert not alive
    before = {path: path.read_bytes() for path in tmp_path.glob("raw/count-*.json")}
    assert 2 <= len(before) < N_ROWS
    assert not (tmp_path / "o.json").exists()
    assert start(tmp_path).wait() == 0
    after = {path: path.read_bytes() for path in tmp_path.glob("raw/count-*.json")}
    assert len(after) == len(read_count_rows(tmp_path / "o.json")) == N_ROWS
    assert {path: after[path] for path in before} == before
    assert not list(tmp_path.rglob("superseded"))
    assert not list(tmp_path.rglob("*.tmp"))
