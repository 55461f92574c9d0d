"""Checks of a Slurm cluster before measurement: partition, nodes and leftover jobs.

Only the output of Slurm's commands that is meant for scripts (`--noheader`, `--format`) is read.
The check of a node starts with a shell, because Python may be missing there.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.job_specs import check_code
from dynbatch.harness.planning.nodes import Nodes
from dynbatch.harness.records.files import replace_whole

NEEDED = ("sbatch", "srun", "squeue", "sinfo", "scancel")
PATIENCE_S = 60.0
POLL_S = 0.5  # interval between checks for the end of jobs


def check_slurm(partition: str | None) -> None:
    """Raise ConfigError if Slurm is not installed, does not answer, or has no such partition."""
    missing = [command for command in NEEDED if shutil.which(command) is None]
    if missing:
        raise ConfigError(
            f"{missing[0]} is not installed, but the profile slurm needs it; run on a head node,"
            " or remove --workflow-profile to measure here"
        )
    known = list(dict.fromkeys(_ask(["sinfo", "--noheader", "--format=%R"])))
    if partition is not None and partition not in known:
        raise ConfigError(
            f"nodes.partition={partition} is unknown to this cluster; choose one of"
            f" {', '.join(known)}"
        )


def list_jobs(folder: Path) -> dict[str, str]:
    """Return the comments of this user's jobs from a working directory, by job number.

    A comment names the rule and its wildcards (see snakemake-executor-plugin-slurm).
    """
    lines = _ask(["squeue", "--me", "--noheader", "--format=%i|%Z|%k"])
    parts = [line.split("|", 2) for line in lines]
    return {job: comment for job, where, comment in parts if Path(where) == folder.resolve()}


def cancel(jobs: Sequence[str]) -> None:
    """Cancel running and pending jobs, and wait for their end.

    Raises:
        ConfigError: if a job does not end, for example on a node that does not answer.
    """
    if not jobs:
        return
    _ask(["scancel", *jobs])
    deadline_s = time.monotonic() + PATIENCE_S
    while left := set(_ask(["squeue", "--me", "--noheader", "--format=%i"])) & set(jobs):
        if time.monotonic() > deadline_s:
            raise ConfigError(
                f"jobs {', '.join(sorted(left))} of an earlier run did not end within"
                f" {PATIENCE_S:g} s; stop them (scancel --signal=KILL), then rerun"
            )
        time.sleep(POLL_S)


def _ask(command: Sequence[str]) -> list[str]:
    done = run_tool(command)
    if done.returncode != 0:
        fault = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ConfigError(
            f"{command[0]} failed: {fault}; fix it or contact your cluster administrator"
        )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def run_tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm; raise ConfigError if it does not end in time."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"{command[0]} timed out after {PATIENCE_S:g} s; contact your cluster administrator"
        ) from error


MAX_LOOKED_AT = 8  # a check takes a second, and most errors concern all nodes
SEEN = ".seen_by_nodes"  # file in the results directory during the check
FAULT, CODE = "fault=", "code="  # prefixes of the lines that a check prints


def check_idle_nodes(nodes: Nodes, results_dir: Path, notify: Callable[[str], None]) -> None:
    """Check some idle nodes; each job checks its own node before it measures.

    Args:
        notify: called with a line if no node is idle.

    Raises:
        ConfigError: for a node without the results directory, the environment or the same code.
    """
    where = [] if nodes.partition is None else [f"--partition={nodes.partition}"]
    asked = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N", *where]
    idle = list(dict.fromkeys(_ask(asked)))
    if not idle:
        notify(
            "no node is idle, so none is checked now; each job checks its node before it measures"
        )
        return
    file = results_dir.resolve() / SEEN
    replace_whole(file, "seen\n")
    try:
        for node in idle[:MAX_LOOKED_AT]:
            step = ["srun", *where, f"--nodelist={node}", "--nodes=1", "--ntasks=1"]
            done = run_tool([*step, "--immediate=20", "sh", "-c", build_check_script(file)])
            if "Unable to allocate resources" not in done.stderr:  # no longer idle
                check_seen(node, done.stdout or done.stderr)
    finally:
        file.unlink(missing_ok=True)


def build_check_script(file: Path) -> str:
    """Return the shell script of a node check, which prints an error or the node's code version."""
    python = shlex.quote(sys.executable)
    look = (
        "from dynbatch.harness.planning.job_specs import compute_code_version as c;"
        " print('code=' + c())"
    )
    no_folder = f"{FAULT}cannot see {file.parent}; set results_dir to a directory that the head"
    no_python = f"{FAULT}has no {sys.executable}; install the environment in a directory"
    return (
        f"test -e {shlex.quote(str(file))} ||"
        f" {{ echo {shlex.quote(f'{no_folder} node and all nodes share')}; exit; }};"
        f" test -x {python} ||"
        f" {{ echo {shlex.quote(f'{no_python} that the head node and all nodes share')}; exit; }};"
        f" exec {python} -c {shlex.quote(look)}"
    )


def check_seen(node: str, printed: str) -> None:
    """Raise ConfigError if the output of a node's check reports an error or other code."""
    lines = [line.strip() for line in printed.split("\n") if line.strip()]
    for line in lines:
        if line.startswith(FAULT):
            raise ConfigError(f"{node} {line.removeprefix(FAULT)}")
        if line.startswith(CODE):
            return check_code(line.removeprefix(CODE), node)
    raise ConfigError(
        f"{node} cannot run the code with {sys.executable}: {lines[-1] if lines else 'no output'};"
        " use the head node's checkout and environment on all nodes"
    )
