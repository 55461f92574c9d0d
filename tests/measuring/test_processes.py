"""Fork servers: frameworks are imported once, and forked workers are like directly started ones.

Runs end processes that an earlier run left in their results directory, and no others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dynbatch.harness.machine import folders
from dynbatch.harness.measuring.processes import fork_server
from dynbatch.harness.measuring.processes.child import FROM_SERVER, IMPORTED
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.measuring.processes.launch import build_server_key
from dynbatch.harness.measuring.processes.process_tree import MARK
from dynbatch.harness.measuring.processes.results_lock import lock_results_dirs
from dynbatch.harness.planning.job_specs import VARIABLE
from dynbatch.harness.records.record import Record
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.measured import MakeSpec, measure_alone
from tests.support.processes import wait_until

Patch = pytest.MonkeyPatch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only"),
]

MakeModule = Callable[[str], str]
NOTES = """\
import os
from pathlib import Path

from tests.support import odd_system

{at_import}
with Path({log!r}).open("a") as log:
    print("imported", os.getpid(), file=log)


class Adapter(odd_system.Adapter):
    def prepare(self, model, weights):
        super().prepare(model, weights)
        with Path({log!r}).open("a") as log:
            print("prepared", os.getpid(), os.getsid(0), os.getppid(), file=log)
"""


class Noted:
    """Rounds of a system that notes its imports and its processes."""

    def __init__(self, make_spec: MakeSpec, make_module: MakeModule, folder: Path) -> None:
        self.folder, self.log = folder, folder / "notes"
        self._make_spec, self._make_module = make_spec, make_module

    def build_spec(self, at_import: str = "") -> TrialSpec:
        text = NOTES.format(log=str(self.log), at_import=at_import)
        return self._make_spec(adapter=self._make_module(text))

    def measure(self, spec: TrialSpec, servers: ForkServers) -> Record:
        return measure_alone(spec, self.folder / "r.json", self.folder / "log", servers)

    def list_notes(self, kind: str) -> list[list[int]]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [list(map(int, line[1:])) for line in lines if line[0] == kind]


@pytest.fixture
def noted(make_spec: MakeSpec, make_module: MakeModule, tmp_path: Path) -> Noted:
    return Noted(make_spec, make_module, tmp_path)


def test_a_framework_is_imported_once_for_the_points_of_a_round(
    noted: Noted, tmp_path: Path
) -> None:
    """Servers outlive the lock of a results directory, which the pipeline takes repeatedly."""
    spec = noted.build_spec()
    records = []
    with ForkServers() as servers:
        for number in (0, 0, 0, 1):
            with lock_results_dirs({tmp_path}, "a test", print):
                records.append(noted.measure(spec.replace_round(number), servers))
        assert len(psutil.Process().children()) == 1, "the first round's server has ended"
    assert [record.status for record in records] == ["ok"] * 4
    assert {record.effective_options["start"] for record in records} == {FROM_SERVER}
    assert len(noted.list_notes("imported")) == 2, "one in each round"
    workers = noted.list_notes("prepared")
    assert len({pid for pid, _, _ in workers}) == 4
    for pid, group, parent in workers:
        assert (group, parent) == (pid, os.getpid()), "as if this process had started it"
    assert not psutil.Process().children(recursive=True)


def test_a_changed_file_is_imported_anew(noted: Noted) -> None:
    spec = noted.build_spec()
    with ForkServers() as servers:
        noted.measure(spec, servers)
        (file,) = noted.folder.glob(f"*/{spec.adapter}.py")
        os.utime(file, (time.time() + 60, time.time() + 60))
        noted.measure(spec, servers)
    assert len(noted.list_notes("imported")) == 2


@pytest.mark.parametrize(
    "at_import",
    [
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import sys\nif 'fork_server' in ' '.join(sys.argv):\n    os.abort()",
        "import subprocess\nsubprocess.Popen(['sleep', '1000'])",
        "import os\nos.fork()",
    ],
)
def test_a_framework_that_bears_no_fork_is_imported_by_each_worker(
    noted: Noted, at_import: str
) -> None:
    spec = noted.build_spec(at_import)
    with ForkServers() as servers:
        records = [noted.measure(spec, servers) for _ in range(2)]
        assert not psutil.Process().children()
    assert [record.status for record in records] == ["ok"] * 2
    assert {record.effective_options["start"] for record in records} == {IMPORTED}
    assert not psutil.Process().children(recursive=True), "what it starts ends, too"
    importers = {pid for (pid,) in noted.list_notes("imported")}
    assert {pid for pid, _, _ in noted.list_notes("prepared")} <= importers


def test_a_killed_server_costs_no_round(noted: Noted) -> None:
    spec = noted.build_spec()
    with ForkServers() as servers:
        noted.measure(spec, servers)
        (server,) = psutil.Process().children()
        server.kill()
        assert wait_until(lambda: server.status() == psutil.STATUS_ZOMBIE)
        assert noted.measure(spec, servers).status == "ok"


def test_servers_take_no_more_than_their_share_of_memory(noted: Noted, monkeypatch: Patch) -> None:
    """Those that are out of use end, and no more are started."""
    spec, keys = noted.build_spec(), []
    for value in ("a", "b"):
        monkeypatch.setenv("SOME_VARIABLE", value)
        keys.append(build_server_key(spec))
    with ForkServers() as servers:
        for share, n_running in ((1.0, 2), (0.0, 1)):
            monkeypatch.setattr(fork_server, "_MEMORY_SHARE", share)
            for key in keys:
                servers.start([key])
            assert len(psutil.Process().children()) == n_running
    monkeypatch.setattr(fork_server, "list_usable_cpus", lambda: (0,))
    with ForkServers() as servers:
        servers.start(keys)
        assert len(psutil.Process().children()) == 1


def test_other_interpreters_threads_and_gpus_have_no_server(make_spec: MakeSpec) -> None:
    assert build_server_key(make_spec()) is not None
    assert build_server_key(make_spec(python="/usr/bin/python3")) is None
    assert build_server_key(make_spec(device="cuda")) is None
    assert build_server_key(make_spec(threads=2)) is None


# --- processes of earlier runs ---

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


def test_next_run_on_folder_terminates_processes_of_killed_run(left: int, tmp_path: Path) -> None:
    with lock_results_dirs([tmp_path / "other"], "bench", print):
        assert is_running(left), "it may belong to another run"
    with lock_results_dirs([tmp_path / "other", tmp_path / "results"], "bench", print):
        assert not is_running(left)


def test_processes_of_live_run_survive_deletion_of_its_lock(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    command = [sys.executable, "-c", LIVES, str(tmp_path / "results")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        worker = int(alive.stdout.readline())
        monkeypatch.setattr(folders, "MEMORY", tmp_path)
        monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])  # not spared as ours
        with lock_results_dirs([tmp_path / "results"], "bench", print):
            assert is_running(worker)
        alive.stdin.close()


def test_children_are_marked_for_all_folders_while_a_turn_lasts(tmp_path: Path) -> None:
    assert MARK not in os.environ
    with lock_results_dirs([tmp_path / "a", tmp_path / "b"], "bench", print):
        assert len(set(os.environ[MARK].split())) == 2
    assert MARK not in os.environ


def test_a_job_of_the_pipeline_waits_as_long_as_it_takes(
    tmp_path: Path, monkeypatch: Patch
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
