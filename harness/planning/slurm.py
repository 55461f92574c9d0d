"""What Slurm tells the head node before anything is measured: which partitions, which nodes.

Of its commands only the output that scripts are meant to read (`--noheader`, `--format`) is read.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from harness.errors import ConfigError

NEEDED = ("sbatch", "srun", "squeue", "sinfo", "scancel")
PATIENCE_S = 60.0
LOOK_S = 0.5  # between looks whether jobs have ended


def check_slurm(partition: str | None) -> None:
    """Raise ConfigError where Slurm is not here, does not answer, or has no such partition."""
    missing = [command for command in NEEDED if shutil.which(command) is None]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not on this machine: the profile slurm needs Slurm's commands; run"
            " it on a head node, or leave --workflow-profile out to measure here"
        )
    known = partitions()
    if partition is not None and partition not in known:
        raise ConfigError(
            f"nodes.partition={partition} is no partition of this cluster; choose one of"
            f" {', '.join(known)}"
        )


def partitions() -> list[str]:
    """Names of all partitions; raises ConfigError where Slurm does not answer."""
    lines = _ask(["sinfo", "--noheader", "--format=%R"])
    return list(dict.fromkeys(lines))


def idle_nodes(partition: str | None) -> list[str]:
    """Names of nodes that a job could begin on at once; of the usual partition where it is None."""
    where = [] if partition is None else [f"--partition={partition}"]
    return _ask(["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N", *where])


def on_each(nodes: Sequence[str], partition: str | None, command: Sequence[str]) -> dict[str, str]:
    """Run a command on each of some idle nodes, and return what it printed there.

    A node that is taken by others meanwhile is left out.
    """
    where = [] if partition is None else [f"--partition={partition}"]
    found = {}
    for node in dict.fromkeys(nodes):
        step = ["srun", *where, f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--immediate=20"]
        done = _run([*step, *command])
        if "Unable to allocate resources" not in done.stderr:
            found[node] = done.stdout or done.stderr
    return found


def jobs_of_this_run(folder: Path) -> dict[str, str]:
    """This user's jobs that were submitted from a working folder: by number, with their comments.

    The comment names the rule and what it makes (see snakemake-executor-plugin-slurm).
    """
    lines = _ask(["squeue", "--me", "--noheader", "--format=%i|%Z|%k"])
    parts = [line.split("|", 2) for line in lines]
    return {job: comment for job, where, comment in parts if Path(where) == folder.resolve()}


def cancel(jobs: Sequence[str]) -> None:
    """End jobs, whether they run or wait, and wait for their end.

    Raises ConfigError where one does not end, as on a node that does not answer.
    """
    if not jobs:
        return
    _ask(["scancel", *jobs])
    deadline_s = time.monotonic() + PATIENCE_S
    while left := set(_ask(["squeue", "--me", "--noheader", "--format=%i"])) & set(jobs):
        if time.monotonic() > deadline_s:
            raise ConfigError(
                f"jobs {', '.join(sorted(left))} of an earlier run do not end within"
                f" {PATIENCE_S:g} s; end them (scancel --signal=KILL), then begin again"
            )
        time.sleep(LOOK_S)


def _ask(command: Sequence[str]) -> list[str]:
    done = _run(command)
    if done.returncode != 0:
        fault = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ConfigError(f"{command[0]} fails: {fault}; mend it, or ask who runs the cluster")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"{command[0]} does not answer within {PATIENCE_S:g} s; ask who runs the cluster"
        ) from error
