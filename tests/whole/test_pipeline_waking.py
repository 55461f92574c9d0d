"""Between its jobs the pipeline sleeps: what measures beside it has the machine to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.values.places import ROOT

N_JOBS = 4
SNAKEFILE = """
import threading

from harness.planning.run_plan import let_sleep

onstart:
    {start}

rule all:
    input: [f"{{k}}.txt" for k in range({n_jobs})]

rule one:
    output: "{{k}}.txt"
    threads: workflow.cores
    shell: "touch {{output}}"

onsuccess:
    timers = [t for t in threading.enumerate() if isinstance(t, threading.Timer)]
    with open("timers.txt", "w") as file:
        file.write(str(len(timers)))
"""


def timers_left(folder: Path, start: str) -> int:
    """Timers that wait to wake Snakemake when a few jobs are over."""
    text = SNAKEFILE.format(start=start, n_jobs=N_JOBS)
    (folder / "Snakefile").write_text(text)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--scheduler", "greedy", "-q"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SNAKEMAKE")}
    environment["PYTHONPATH"] = str(ROOT)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return int((folder / "timers.txt").read_text())


@pytest.mark.slow
def test_no_job_wakes_the_pipeline_for_ever(tmp_path: Path) -> None:
    assert timers_left(tmp_path, "let_sleep(workflow)") == 0


@pytest.mark.slow
def test_snakemake_alone_still_does(tmp_path: Path) -> None:
    """When this fails, harness/planning/run_plan.py can go."""
    assert timers_left(tmp_path, "pass") > 0


def test_the_pipeline_sleeps() -> None:
    """Snakemake keeps the last of several onstart blocks."""
    rules = [*(ROOT / "workflow").rglob("*.smk"), ROOT / "Snakefile"]
    blocks = [text.split("onstart:\n")[1:] for text in (path.read_text() for path in rules)]
    (block,) = [block for found in blocks for block in found]
    assert block.startswith("    let_sleep(workflow)\n")
