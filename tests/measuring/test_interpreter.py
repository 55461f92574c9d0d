"""`system.python`: a system measured by the Python of its own environment."""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.measuring.launch import run_worker
from harness.records.record import Record, read_record
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]

pytestmark = pytest.mark.slow  # starts processes


def run(spec: TrialSpec, folder: Path) -> Record:
    record = run_worker(spec, folder / "r0.json", folder / "r0.log")
    assert read_record(folder / "r0.json") == record
    assert record.reason is None or "\n" not in record.reason
    return record


def test_the_worker_is_started_with_it(make_spec: MakeSpec, tmp_path: Path) -> None:
    other, trace = tmp_path / "python", tmp_path / "was_here"
    other.write_text(f'#!/bin/sh\ntouch {trace}\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    record = run(make_spec(python=str(other)), tmp_path)
    assert record.status == "ok"
    assert trace.exists()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("no/python", "no such program"),
        ("", ""),
        ("#!/bin/sh\nexit 3\n", "it is no Python"),
        ("cat", "it is no Python"),  # which takes `-m` for something of its own
        ("echo", "it is no Python"),
    ],
)
def test_one_that_is_no_python_is_a_record(
    make_spec: MakeSpec, tmp_path: Path, program: str, why: str
) -> None:
    other = shutil.which(program) if program else None
    if other is None:
        other = str(tmp_path / ("no/python" if program == "no/python" else "python"))
        if program != "no/python":
            Path(other).write_text(program)
            Path(other).chmod(0o755)
    record = run(make_spec(python=other), tmp_path)
    assert record.status == "unsupported"
    start = f"system.python={other} does not start the benchmark's worker ({why}"
    assert str(record.reason).startswith(start)


def test_a_python_whose_worker_dies_is_not_blamed(make_spec: MakeSpec, tmp_path: Path) -> None:
    record = run(make_spec(python=sys.executable, system_options={"fault": "raise"}), tmp_path)
    assert (record.status, record.reason) == ("crash", "ValueError: a fault over two lines")


def test_a_record_of_another_interpreter_does_not_answer(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    assert make_spec(python="/elsewhere/bin/python").trial_id == make_spec().trial_id
    record = run(make_spec(), tmp_path)
    assert record.answers(make_spec(), record.source_sha256)
    assert not record.answers(make_spec(python=sys.executable), record.source_sha256)


def test_one_without_the_benchmarks_packages_is_a_record(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    record = run(make_spec(python=str(python)), tmp_path)
    assert record.status == "unsupported"
    assert record.reason is not None
    assert record.reason.startswith(f"system.python={python} lacks ")
    assert f"{python} -m pip install -e '.[EXTRA]'" in record.reason


def test_one_without_the_framework_names_its_extra(make_spec: MakeSpec, tmp_path: Path) -> None:
    record = run(make_spec(python=sys.executable, adapter="tests.support.fake_missing"), tmp_path)
    assert record.status == "unsupported"
    assert record.reason == (
        "a_framework_that_is_not_installed is not installed; install it to run it"
    )
