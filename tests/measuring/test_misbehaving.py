"""Systems whose processes misbehave: a record, a bounded log, no survivor, the next one as ever."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.measuring.child import FORKED
from harness.measuring.launch import run_worker
from harness.records.record import Record, read_record
from harness.trials.spec import Limits, TrialSpec
from tests.support.misbehaving import FIRST, FLOOD_BYTES, LAST

pytestmark = pytest.mark.slow  # all of them together take seconds

MakeSpec = Callable[..., TrialSpec]
ADAPTER = "tests.support.misbehaving"


def run(spec: TrialSpec, folder: Path) -> Record:
    record = run_worker(spec, folder / "raw" / "r0.json", folder / "logs" / "r0.log")
    assert read_record(folder / "raw" / "r0.json") == record
    return record


def misbehaving(make_spec: MakeSpec, way: str, **changes: object) -> TrialSpec:
    return make_spec(adapter=ADAPTER, system_options={"way": way}, **changes)


@pytest.mark.parametrize(
    ("way", "status", "reason"),
    [
        ("real_time_signal", "crash", "killed by signal 40 (SIGRTMIN+6)"),
        ("exits_64", "crash", "no refusal of the harness"),
        ("exits_65", "crash", "no refusal of the harness"),
        ("enomem", "oom", "OSError: [Errno 12] Cannot allocate memory"),
        ("numpy_memory", "oom", "MemoryError: Unable to allocate"),
        ("caused_by_memory", "oom", "ValueError: the compiler gave up"),
        ("bad_alloc", "oom", "killed by SIGABRT; last line: terminate called"),
    ],
)
def test_whatever_ends_a_process_leaves_a_record(
    make_spec: MakeSpec, tmp_path: Path, way: str, status: str, reason: str
) -> None:
    record = run(misbehaving(make_spec, way), tmp_path)
    assert record.status == status
    assert str(record.reason).startswith(reason)
    assert (tmp_path / "logs" / "r0.log").exists() == (status == "crash")
    assert run(make_spec(), tmp_path / "next").status == "ok"


@pytest.mark.parametrize("what", ["adapter", "loader", "model_module"])
def test_memory_that_runs_out_before_the_trial_begins_is_no_crash(
    make_spec: MakeSpec, tmp_path: Path, what: str
) -> None:
    record = run(make_spec(**{what: "tests.support.no_memory"}), tmp_path)
    assert record.status == "oom"
    assert "Unable to allocate" in str(record.reason)


def test_a_flood_of_words_does_no_harm(make_spec: MakeSpec, tmp_path: Path) -> None:
    record = run(misbehaving(make_spec, "floods"), tmp_path)
    assert record.status == "ok"
    assert not list((tmp_path / "logs").iterdir())


def test_the_log_of_a_flood_has_its_first_and_its_last_words(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    assert run(misbehaving(make_spec, "floods_and_aborts"), tmp_path).status == "crash"
    log = (tmp_path / "logs" / "r0.log").read_bytes()
    assert len(log) < FLOOD_BYTES // 16
    assert log.startswith(FIRST)
    assert LAST in log[-100_000:]
    assert b"bytes are left out here" in log


@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to who asks for them")
@pytest.mark.parametrize("way", ["detaches", "detaches_bare"])
def test_what_detaches_itself_ends_with_its_trial(
    make_spec: MakeSpec, tmp_path: Path, way: str
) -> None:
    pid_file = tmp_path / "pid"
    spec = make_spec(adapter=ADAPTER, system_options={"way": way, "pid_file": str(pid_file)})
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        assert run(spec, tmp_path).status == "ok"
        assert not psutil.pid_exists(int(pid_file.read_text()))
        assert bystander.poll() is None, "what was there before is not its own"
    finally:
        bystander.kill()
        bystander.wait()


def test_a_fork_that_comes_back_leaves_no_record(make_spec: MakeSpec, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    spec = make_spec(adapter=ADAPTER, system_options={"way": "forks", "pid_file": str(pid_file)})
    assert run(spec, tmp_path).status == "ok"
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["r0.json"]
    assert os.waitstatus_to_exitcode(int(pid_file.read_text())) == FORKED


def test_memory_of_what_detached_itself_counts(make_spec: MakeSpec, tmp_path: Path) -> None:
    """A child that leaves the family's tree stays in its household."""
    program = tmp_path / "eats.py"
    program.write_text("import time\nheld = b'x' * 2**30\ntime.sleep(600)\n")
    script = f"setsid sh -c '{sys.executable} {program} & exit' >/dev/null 2>&1; exec sleep 600\n"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}")
    python.chmod(0o755)
    limits = Limits(time_s=60.0, memory_bytes=600 * 2**20)
    record = run(make_spec(python=str(python), limits=limits), tmp_path)
    assert record.status == "oom"


def test_a_start_without_memory_is_oom_and_no_missing_program(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, os.strerror(12))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    record = run(make_spec(), tmp_path)
    assert (record.status, record.reason) == (
        "oom",
        "the worker cannot be started: Cannot allocate memory",
    )


def test_a_full_disk_is_no_fault_of_the_trial(make_spec: MakeSpec, tmp_path: Path) -> None:
    """/dev/full stands for the folder's disk: what cannot be kept ends the run; no record."""
    folder = tmp_path / "raw"
    folder.mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "r0.log").symlink_to("/dev/full")
    started, others = time.monotonic(), psutil.Process().children(recursive=True)
    spec = misbehaving(make_spec, "floods")
    with pytest.raises(OSError, match="No space left on device"):
        run_worker(spec, folder / "r0.json", tmp_path / "logs" / "r0.log")
    assert time.monotonic() - started < spec.limits.time_s
    assert not list(folder.iterdir())
    assert set(psutil.Process().children(recursive=True)) <= set(others)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("python", [None, sys.executable])
def test_a_start_without_descriptors_is_no_fault_of_the_python(
    make_spec: MakeSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    python: str | None,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    record = run(make_spec(python=python), tmp_path)
    start = f"the worker cannot be started: {os.strerror(error)}"
    assert record.status == "unsupported"
    assert record.reason == f"{start}; raise `ulimit -n` and try again"


def test_a_start_that_fails_otherwise_names_no_python_that_was_not_given(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    record = run(make_spec(), tmp_path)
    assert record.reason == "the worker cannot be started: Permission denied"
