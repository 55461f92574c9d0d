"""Workers that go wrong in every way: each leaves a record, none stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.errors import BenchError
from harness.measuring.child_process import LEFT_OUT, memory_limit_bytes
from harness.measuring.launch import ROOT, run_worker, worker_environment
from harness.records.record import Record, find_record, read_record
from harness.trials.spec import Limits, TrialSpec

pytestmark = pytest.mark.slow  # all of them together take seconds

MakeSpec = Callable[..., TrialSpec]


def run(spec: TrialSpec, folder: Path) -> Record:
    record = run_worker(spec, folder / "raw" / "r0.json", folder / "logs" / "r0.log")
    assert read_record(folder / "raw" / "r0.json") == record
    assert [path.name for path in (folder / "raw").iterdir()] == ["r0.json"]
    return record


def test_a_good_trial_leaves_its_record_and_nothing_else(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    record = run(make_spec(), tmp_path)
    assert record.status == "ok"
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("abort", "crash", "killed by SIGABRT"),
        ("raise", "crash", "ValueError: a fault over two lines"),
        ("unsupported", "unsupported", "this model is too odd"),
        ("wrong_loss", "wrong_result", "loss deviates"),
    ],
)
def test_faults_become_statuses(
    make_spec: MakeSpec, tmp_path: Path, fault: str, status: str, reason: str
) -> None:
    record = run(make_spec(system_options={"fault": fault}), tmp_path)
    assert record.status == status
    assert record.reason is not None
    assert record.reason.startswith(reason)
    assert "\n" not in record.reason
    assert (tmp_path / "logs" / "r0.log").exists() == (status == "crash")


def test_a_trial_that_hangs_is_ended(make_spec: MakeSpec, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    options = {"fault": "hang", "pid_file": str(pid_file)}
    record = run(make_spec(system_options=options, limits=Limits(time_s=4.0)), tmp_path)
    assert (record.status, record.reason) == ("timeout", "not done within limits.time_s=4")
    assert not psutil.pid_exists(int(pid_file.read_text()))


def test_a_trial_that_eats_memory_is_ended(make_spec: MakeSpec, tmp_path: Path) -> None:
    limits = Limits(time_s=60.0, memory_bytes=400 * 2**20)
    record = run(make_spec(system_options={"fault": "allocate"}, limits=limits), tmp_path)
    assert record.status == "oom"
    assert record.reason is not None
    assert record.reason.endswith("limits.memory_bytes is 419430400")


def test_an_old_record_is_not_taken_for_a_new_one(make_spec: MakeSpec, tmp_path: Path) -> None:
    path = tmp_path / "raw" / "r0.json"
    log = tmp_path / "r0.log"
    assert run_worker(make_spec(), path, log).status == "ok"
    crashed = run_worker(make_spec(system_options={"fault": "abort"}), path, log)
    assert crashed.status == "crash"
    assert find_record(path) == crashed
    assert len(list((path.parent / "superseded").iterdir())) == 1


def test_wrong_input_is_raised_and_leaves_nothing(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(dataset_options={"n_leaves": 3})
    with pytest.raises(BenchError, match="n_leaves"):
        run_worker(spec, tmp_path / "raw" / "r0.json", tmp_path / "logs" / "r0.log")
    assert not (tmp_path / "raw").exists()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_folder_named_datasets_does_no_harm(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    record = run_worker(make_spec(), Path("r0.json"), Path("r0.log"))
    assert record.status == "ok"


def test_threads_reach_every_library(make_spec: MakeSpec) -> None:
    environment = worker_environment(make_spec(threads=3))
    names = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    assert {environment[f"{name}_NUM_THREADS"] for name in names} == {"3"}
    assert environment["PYTHONHASHSEED"] == "0"


def test_one_allocator_for_all_systems(make_spec: MakeSpec) -> None:
    environment = worker_environment(make_spec())
    assert environment["MALLOC_MMAP_MAX_"] == "0"  # nothing is given back between mini-batches


def test_no_library_is_told_which_kernels_to_take(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    environment = worker_environment(make_spec())
    assert not {"OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"} & set(environment)
    assert {"OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"} <= set(environment[LEFT_OUT].split())
    record = run_worker(make_spec(), Path("r0.json"), Path("r0.log"))
    assert "OPENBLAS_CORETYPE" in record.in_force["left out of the environment"]
    assert "PATH" in environment


def test_the_memory_limit_is_a_share_of_the_machine_unless_given() -> None:
    total = psutil.virtual_memory().total
    assert 0 < memory_limit_bytes(Limits()) < total
    assert memory_limit_bytes(Limits(memory_bytes=5)) == 5


def wait_for(happened: Callable[[], object], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_worker_dies_with_its_parent(make_spec: MakeSpec, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    spec = make_spec(system_options={"fault": "hang", "pid_file": str(pid_file)})
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    program = (
        "import json, pathlib;"
        "from harness.measuring.launch import run_worker;"
        "from harness.trials.spec import TrialSpec;"
        f"folder = pathlib.Path({str(tmp_path)!r});"
        "spec = TrialSpec.from_dict(json.loads((folder / 'spec.json').read_text()));"
        "run_worker(spec, folder / 'r0.json', folder / 'r0.log')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment)
    assert wait_for(lambda: pid_file.exists() and pid_file.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    worker = int(pid_file.read_text())
    assert wait_for(lambda: not psutil.pid_exists(worker))
    assert not (tmp_path / "r0.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize("is_killed_at_once", [True, False])
def test_a_worker_whose_parent_ended_before_it_could_ask_ends_at_once(
    make_spec: MakeSpec, tmp_path: Path, is_killed_at_once: bool
) -> None:
    """The parent is gone before the worker's Python is up, or as it is; it may not measure."""
    (tmp_path / "spec.json").write_text(json.dumps(make_spec().to_dict()))
    record = tmp_path / "r0.json"
    worker = ["harness.measuring.worker", str(tmp_path / "spec.json"), str(record)]
    program = (
        "import os, subprocess, sys, time;"
        "from harness.measuring.supervise import BEGIN;"
        f"command = [sys.executable, '-m', BEGIN, str(os.getpid()), *{worker}];"
        "print(subprocess.Popen(command, start_new_session=True).pid, flush=True);"
        f"time.sleep({0 if is_killed_at_once else 0.2});"
        "os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=False
    )
    # The pipe that it printed to is over: nobody holds it any more, and nothing was measured.
    assert parent.returncode == -signal.SIGKILL
    worker_pid = int(parent.stdout)
    assert wait_for(lambda: not psutil.pid_exists(worker_pid))
    assert not record.exists()


def test_a_worker_started_through_a_script_lives_while_its_ancestor_does(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    script.chmod(0o755)
    assert run(make_spec(python=str(script)), tmp_path).status == "ok"
