"""Runs end processes that an earlier run left in their results directory, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dynbatch.harness.machine import folders
from dynbatch.harness.measuring.processes.results_lock import MARK, lock_results_dirs
from dynbatch.harness.planning.job_specs import VARIABLE

# A run that leaves a detached process when it is killed.
KILLED = """
import os, subprocess, sys
from pathlib import Path
from dynbatch.harness.measuring.processes.results_lock import lock_results_dirs
with lock_results_dirs([Path(sys.argv[1])], "killed", print):
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Path(sys.argv[2]).write_text(str(left.pid))
    os.kill(os.getpid(), 9)
"""
# A run whose worker is active until there is something to read.
LIVES = """
import subprocess, sys
from pathlib import Path
from dynbatch.harness.measuring.processes.results_lock import lock_results_dirs
with lock_results_dirs([Path(sys.argv[1])], "lives", print):
    worker = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(worker.pid, flush=True)
    sys.stdin.read()
    worker.kill()
    worker.wait()
"""


@pytest.fixture
def left(tmp_path: Path) -> Iterator[int]:
    """Yield the number of a process that a killed run left."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "results"), str(tmp_path / "pid")]
    ended = subprocess.run(command)  # a pipe would stay open as long as that process lives
    assert ended.returncode == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    yield pid
    if is_running(pid):
        os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's processes")


def test_next_run_on_folder_terminates_processes_of_killed_run(left: int, tmp_path: Path) -> None:
    with lock_results_dirs([tmp_path / "other"], "bench", print):
        assert is_running(left), "it may belong to another run"
    with lock_results_dirs([tmp_path / "other", tmp_path / "results"], "bench", print):
        assert not is_running(left)


def test_processes_of_live_run_survive_deletion_of_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", LIVES, str(tmp_path / "results")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        worker = int(alive.stdout.readline())
        monkeypatch.setattr(folders, "MEMORY", tmp_path)
        with lock_results_dirs([tmp_path / "results"], "bench", print):
            assert is_running(worker)
        alive.stdin.close()


def test_children_are_marked_for_all_folders_while_a_turn_lasts(tmp_path: Path) -> None:
    assert MARK not in os.environ
    with lock_results_dirs([tmp_path / "a", tmp_path / "b"], "bench", print):
        assert len(set(os.environ[MARK].split())) == 2
    assert MARK not in os.environ


def test_a_job_of_the_pipeline_waits_as_long_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EnoughError(Exception):
        pass

    def sleep(_: float) -> None:
        raise EnoughError

    monkeypatch.setenv(VARIABLE, "a plan")
    monkeypatch.setattr(time, "sleep", sleep)
    printed: list[str] = []
    with (
        lock_results_dirs([tmp_path], "first", print),
        pytest.raises(EnoughError),
        lock_results_dirs([tmp_path], "second", printed.append),
    ):
        pass
    assert printed[0].endswith("; waiting")
