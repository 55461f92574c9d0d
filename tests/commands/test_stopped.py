"""Whole commands that are ended in their midst: one line, the right code, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harness.commands.bench import main as bench
from harness.planning.running import _lock_file
from harness.records.measured import sitting_path
from harness.trials.spec import TrialSpec
from harness.values.places import ROOT
from tests.support.sandbox import TINY, with_own_cache

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="workers end with their parent on Linux"),
]
MakeSpec = Callable[..., TrialSpec]
ODD = ("system=reference", "system.name=odd", "system.adapter=tests.support.odd_system")


@contextmanager
def running(
    folder: Path, module: str, arguments: Sequence[str], **streams: int
) -> Iterator[subprocess.Popen[str]]:
    (folder / "tmp").mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": str(with_own_cache(folder / "cache")),
    }
    command = [sys.executable, "-m", module, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    with subprocess.Popen(command, env=environment, cwd=folder, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def wait_for(happened: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def end(process: subprocess.Popen[str], number: int) -> list[str]:
    """End a command as a person does; return what it said, and see that nothing is left."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number, error
    assert "Traceback" not in error
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    return error.splitlines()


def assert_nothing_is_left(folder: Path) -> None:
    assert not list((folder / "tmp").iterdir())
    assert not list(folder.rglob("*.tmp"))
    assert not _lock_file(folder / "results", "turn").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_bench_says_what_is_kept_and_what_goes_on(tmp_path: Path, number: int) -> None:
    pid_file, results = tmp_path / "pid", tmp_path / "results"
    options = [*TINY, *ODD, f"+system.options.file={pid_file}", f"results_dir={results}"]
    assert bench([*options, "+system.options.fault=none"]) == 0
    sweep = ["-m", *options, "+system.options.fault=none,note_and_wait"]
    with running(tmp_path, "harness.commands.bench", sweep) as process:
        wait_for(lambda: pid_file.exists() and pid_file.read_text(), process)
        *_, line = end(process, number)
    name = signal.Signals(number).name
    assert line.startswith(f"bench: ended by {name}; 1 of 2 records are kept; to go on: bench -m ")
    assert line.endswith("fault=none,note_and_wait")
    assert not list((results / "logs").iterdir())
    assert_nothing_is_left(tmp_path)


def test_a_sitting_of_the_pipeline(make_spec: MakeSpec, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    options = {"fault": "note_and_wait", "file": str(pid_file)}
    spec = make_spec(system_options=options)
    done = sitting_path(tmp_path / "results", "some", 0)
    where = ["--round", "0", "--results-dir", str(tmp_path / "results"), "--done", str(done)]
    arguments = [json.dumps(spec.to_dict()), *where]
    with running(tmp_path, "harness.commands.measure", arguments) as process:
        wait_for(lambda: pid_file.exists() and pid_file.read_text(), process)
        (line,) = end(process, signal.SIGTERM)
    assert line == (
        "bench: ended by SIGTERM; 0 of 1 records are kept; to go on: the same run of snakemake"
    )
    assert not done.exists()
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_counts(tmp_path: Path, number: int) -> None:
    records = tmp_path / "results" / "raw" / "counts"
    sweep = ["batch_size=1,2", "policy=agenda,depth,sufficient", f"records={records}"]
    arguments = ["model=tree_lstm", "dataset=sst_synthetic", "hidden_size=4", *sweep]
    with running(tmp_path, "harness.commands.schedule", arguments) as process:
        wait_for(lambda: list(records.glob("count-*.json")), process)
        (line,) = end(process, number)
    n_kept = len(list(records.glob("count-*.json")))
    name = signal.Signals(number).name
    assert line.startswith(f"bench-schedule: ended by {name}; {n_kept} of 6 counts are kept; to go")
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize("command", ["doctor", "first_look"])
def test_commands_that_start_others(tmp_path: Path, command: str) -> None:
    name = {"doctor": "bench-doctor", "first_look": "bench-try"}[command]
    arguments = [] if command == "doctor" else [f"results_dir={tmp_path / 'results'}"]
    with running(tmp_path, f"harness.commands.{command}", arguments) as process:
        wait_for(psutil.Process(process.pid).children, process)
        lines = end(process, signal.SIGTERM)
    assert lines[-1].startswith(f"{name}: ended by SIGTERM; ")
    assert len(lines) == 1
    assert_nothing_is_left(tmp_path)


def test_two_runs_on_one_folder_measure_nothing_twice(tmp_path: Path) -> None:
    """The second waits, says for whom, and finds everything measured."""
    results = tmp_path / "results"
    sweep = [*TINY, "system=reference,null", "rounds=2", f"results_dir={results}"]
    with running(tmp_path, "harness.commands.bench", ["-m", *sweep]) as first:
        lock = _lock_file(results, "turn")
        wait_for(lambda: lock.exists() and lock.read_text(), first)
        first.send_signal(signal.SIGSTOP)  # until the second has come, however long that takes
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(tmp_path / "another cache"),
        }
        said = tmp_path / "said"
        with said.open("w") as file:
            second = subprocess.Popen(
                [sys.executable, "-m", "harness.commands.bench", "-m", *sweep],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        with second:
            try:
                wait_for(said.read_text, second)
            finally:
                first.send_signal(signal.SIGCONT)
            second_said = second.communicate()[0]
        first_said = first.communicate()
        assert first.returncode == second.returncode == 0
    assert "; 0 kept" in first_said[0]
    assert "4 records: 4 ok; 4 kept" in second_said
    waits = said.read_text().splitlines()[0]
    assert waits.startswith(f"bench: {results} is measured into by bench -m ")
    assert f"(process {first.pid}, since " in waits
    assert not list(results.rglob("superseded"))


def test_a_full_standard_output_loses_no_record(tmp_path: Path) -> None:
    results = tmp_path / "results"
    arguments = [*TINY, "system=null", f"results_dir={results}"]
    with (
        Path("/dev/full").open("w") as full,
        running(tmp_path, "harness.commands.bench", arguments, stdout=full.fileno()) as process,
    ):
        error = process.communicate()[1]
    assert process.returncode == 1
    assert error.splitlines()[-1].startswith("bench: standard output cannot be written (No space")
    assert len(error.splitlines()) == 2
    assert len(list(results.glob("raw/*/r0.json"))) == 1
    assert_nothing_is_left(tmp_path)


def test_a_full_disk_under_the_records_ends_a_sweep_in_one_line(tmp_path: Path) -> None:
    """A limit of the size of files stands for the disk: the record does not fit, its log does."""
    results = tmp_path / "results"
    arguments = ["-m", *TINY, "system=reference,null", f"results_dir={results}"]
    script = 'ulimit -f 2; exec "$@"'
    command = ["bash", "-c", script, "sh", sys.executable, "-m", "harness.commands.bench"]
    done = subprocess.run(
        [*command, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("bench: ")
    assert f"{results}/raw cannot be written (File too large); choose another results_dir" in line
    assert not list(results.rglob("*.json"))
    assert not list(results.rglob("*.tmp"))
