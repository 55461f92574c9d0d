"""Only the harness's clock measures: any other file that reads the time is listed here."""

from __future__ import annotations

import pytest

from dynbatch.harness.measuring.checks.mini_batch_check import find_clock_reads
from dynbatch.harness.values.paths import ROOT

CLOCK = "harness/measuring/clock.py"
FOLDERS = ("harness", "systems", "datasets")
# Files that read the time without measuring anything that a table shows.
ALLOWED = {
    "datasets/parts/fetch.py": "a server that sends too slowly",
    "harness/commands/compile_ahead.py": "how long compiling ahead took, which is printed",
    "harness/compiler/pointers.py": "ticks, where compiled functions run as plain Python",
    "harness/counts/sequential.py": "the time limit of a count",
    "harness/engine/cpu_kernels/team.py": "sleeps while threads end",
    "harness/machine/folders.py": "how old a folder is that another process left",
    "harness/machine/noise.py": "how much others run, from outside what is timed",
    "harness/measuring/block.py": "how long a worker without a socket may still run",
    "harness/measuring/processes/fork_server.py": "limits of imports, and changes of files",
    "harness/measuring/processes/process_tree.py": "how long killed processes are waited for",
    "harness/measuring/processes/supervise.py": "limits of a worker",
    "harness/records/record.py": "when a trial was measured, for people",
    "harness/planning/durations.py": "times of day in records, of which durations are made",
    "harness/commands/measure.py": "how long a run of the pipeline still takes",
    "harness/terminal/exit_handling.py": "whether a signal that comes twice is meant twice",
    "harness/terminal/status.py": "since when a node is at work, for whoever asks",
    "harness/planning/slurm.py": "how long a scheduler's answer is waited for",
    "harness/planning/locks.py": "how long another run is waited for",
    "harness/planning/pending.py": "when a run of the pipeline began, and until when",
}


def readers() -> set[str]:
    """Return the project's files that may read the time."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if any(find_clock_reads(path.read_text(encoding="utf-8")))
    }


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("import os, time as t", ["time"]),
        ("def f():\n    from time import perf_counter", ["time.perf_counter"]),
        ("from timeit import default_timer", ["timeit.default_timer"]),
        ("event = torch.cuda.Event(enable_timing=True)", ["enable_timing"]),
        ("seconds = begin.elapsed_time(end)", ["elapsed_time"]),
        ("from dynbatch.harness.trials.spec import Timing", []),
        ("import datetime as d", ["datetime"]),
        ("from resource import getrusage", ["resource.getrusage"]),
        ("import resource\nresource.setrlimit(*limit)", []),
        ("import resource\nresource.getrusage(0)", ["getrusage"]),
        ("from asyncio import get_running_loop", ["asyncio.get_running_loop"]),
        ("seconds = os.times().user", ["os.times"]),
        ("from psutil import cpu_times", ["psutil.cpu_times"]),
        ('now = np.datetime64("now")', ["datetime64"]),
        ("from time import sleep", []),
        ("import timer\nfrom .time import x\ntiming.min_seconds", []),
    ],
)
def test_clock_reads_are_found_in_every_syntax(source: str, found: list[str]) -> None:
    assert list(find_clock_reads(source)) == found


def test_only_allowed_modules_read_the_clock() -> None:
    assert readers() == {CLOCK, *ALLOWED}
