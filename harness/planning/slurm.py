"""Slurm, before anything is measured: its partitions, a look at its nodes, jobs that were left.

Of its commands only the output that scripts are meant to read (`--noheader`, `--format`) is read.
The look at a node begins with a shell, since what is missing may be the Python that we run with.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.errors import ConfigError
from harness.planning.nodes import Nodes
from harness.planning.orders import check_code
from harness.records.files import replace_whole

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


MOST_LOOKED_AT = 8  # a look takes a second, and a fault is mostly everywhere
SEEN = ".seen_by_nodes"  # below the results, for the time of the look
NO_FOLDER, NO_PYTHON, CODE = "no_folder", "no_python", "code="


def look_at_nodes(nodes: Nodes, results_dir: Path, say: Callable[[str], None]) -> None:
    """Raise ConfigError for a node that lacks the folder of results, the environment or our code.

    Of those that are idle some are looked at; each job looks for itself before it measures.
    """
    idle = idle_nodes(nodes.partition)
    if not idle:
        say("no node is idle to be looked at; each job looks for itself before it measures")
        return
    file = results_dir.resolve() / SEEN
    replace_whole(file, "seen\n")
    try:
        check_seen(
            on_each(idle[:MOST_LOOKED_AT], nodes.partition, ["sh", "-c", script(file)]), results_dir
        )
    finally:
        file.unlink(missing_ok=True)


def script(file: Path) -> str:
    """What is run on a node: it prints one word, or the version of its code."""
    python = shlex.quote(sys.executable)
    look = "from harness.planning.orders import code_of_this_machine as c; print('code=' + c())"
    return (
        f"test -e {shlex.quote(str(file))} || {{ echo {NO_FOLDER}; exit; }};"
        f" test -x {python} || {{ echo {NO_PYTHON}; exit; }};"
        f" exec {python} -c {shlex.quote(look)}"
    )


def check_seen(found: Mapping[str, str], results_dir: Path) -> None:
    """Raise ConfigError, in one line, for the first node that is not as it has to be.

    found: what each node printed.
    """
    for node, printed in found.items():
        lines = printed.split("\n")
        if NO_FOLDER in lines:
            raise ConfigError(
                f"{node} does not see {results_dir.resolve()}: results_dir has to be a folder that"
                " the head node and all nodes share"
            )
        if NO_PYTHON in lines:
            raise ConfigError(
                f"{node} has no {sys.executable}: make the environment (make install) in a folder"
                " that the head node and all nodes share"
            )
        codes = [line.removeprefix(CODE) for line in lines if line.startswith(CODE)]
        if not codes:
            last = next((line for line in reversed(lines) if line.strip()), "no word")
            raise ConfigError(
                f"{node} cannot run our code with {sys.executable}: {last.strip()}; see that all"
                " nodes have the checkout and the environment of the head node"
            )
        check_code(codes[0], node)
