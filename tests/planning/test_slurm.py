"""Checks of Slurm, with scripts in place of its commands."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess, check_output

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning import slurm
from dynbatch.harness.planning.job_specs import compute_code_version
from dynbatch.harness.planning.nodes import Nodes
from dynbatch.harness.planning.slurm import (
    NEEDED,
    build_check_script,
    cancel,
    check_idle_nodes,
    check_seen,
    check_slurm,
    list_jobs,
)
from tests.support.refusals import expect_refusal

Patch = pytest.MonkeyPatch
NODES = Nodes("small", n_cpus=2, memory_gib=2)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Return a directory of commands that print nothing until a test replaces them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        say(folder, name, "")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def say(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_partition_is_looked_up(commands: Path) -> None:
    say(commands, "sinfo", "printf 'cpu\\ngpu\\ngpu\\n'")
    check_slurm(None)
    check_slurm("gpu")
    with expect_refusal("nodes.partition=tpu is unknown to this cluster; choose one of cpu, gpu"):
        check_slurm("tpu")


@pytest.mark.parametrize("name", NEEDED)
def test_missing_slurm_is_reported(commands: Path, monkeypatch: Patch, name: str) -> None:
    (commands / name).unlink()
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(ConfigError, match=f"{name} is not installed"):
        check_slurm(None)


def test_unresponsive_slurm_is_reported(commands: Path, monkeypatch: Patch) -> None:
    say(commands, "sinfo", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ConfigError, match="sinfo failed: Unable to contact slurm controller"):
        check_slurm(None)
    say(commands, "sinfo", "exec sleep 60")
    monkeypatch.setattr(slurm, "PATIENCE_S", 0.1)
    with pytest.raises(ConfigError, match=r"sinfo timed out after 0\.1 s"):
        check_slurm(None)


def test_jobs_of_a_run_are_those_of_its_folder(commands: Path, tmp_path: Path) -> None:
    lines = [f"12|{tmp_path}|rule_measure_wildcards_a", "13|/elsewhere|rule_measure"]
    say(commands, "squeue", f"printf '%s\\n' '{lines[0]}' '{lines[1]}'")
    assert list_jobs(tmp_path) == {"12": "rule_measure_wildcards_a"}


def test_cancelled_jobs_are_waited_for(commands: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """Jobs that are still ending would otherwise overlap with the new run."""
    looks = tmp_path / "looks"
    say(commands, "squeue", f"echo look >> {looks}; test $(wc -l < {looks}) -gt 2 || echo 12")
    say(commands, "scancel", f'echo "$@" > {tmp_path}/cancelled')
    monkeypatch.setattr(slurm, "POLL_S", 0.0)
    cancel([])
    assert not looks.exists()
    cancel(["12", "13"])
    assert (tmp_path / "cancelled").read_text() == "12 13\n"
    assert len(looks.read_text().splitlines()) == 3

    clock = iter(range(0, 1000, 40))
    monkeypatch.setattr(slurm.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(slurm, "run_tool", lambda _: CompletedProcess("", 0, "12\n", ""))
    with pytest.raises(ConfigError, match="jobs 12 of an earlier run did not end within 60 s"):
        cancel(["12"])


def test_nodes_are_checked_unless_others_took_them(commands: Path, tmp_path: Path) -> None:
    answer = 'case "$*" in *nodelist=b*) echo "Unable to allocate resources" >&2; exit 1;; *)'
    say(commands, "srun", f"{answer} echo code={compute_code_version()};; esac")
    message: list[str] = []
    for idle in ("a\nb", ""):
        say(commands, "sinfo", f"echo '{idle}'")
        check_idle_nodes(NODES, tmp_path, message.append)
    (line,) = message
    assert line.startswith("no node is idle")
    say(commands, "sinfo", "echo a")
    say(commands, "srun", "echo fault=is blind")
    with pytest.raises(ConfigError, match=r"^a is blind$"):
        check_idle_nodes(NODES, tmp_path, message.append)
    assert not (tmp_path / slurm.SEEN).exists()


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("code=3.9.0-beef\n", "bench2 has a different version of the code or of Python"),
        ("Traceback\nModuleNotFoundError: No module named 'numpy'\n", "No module named 'numpy'"),
        ("", "cannot run the code"),
    ],
)
def test_node_fault_gives_one_line_error_before_measurement(printed: str, words: str) -> None:
    check_seen("bench1", f"code={compute_code_version()}\n")
    with expect_refusal("bench2", words):
        check_seen("bench2", printed)


def test_check_script_reports_the_state_of_the_node(tmp_path: Path, monkeypatch: Patch) -> None:
    """The script runs in a shell, as on a node."""

    def looked(file: Path) -> str:
        return check_output(["sh", "-c", build_check_script(file)], text=True)

    file = tmp_path / "a folder's file"
    assert looked(file).startswith(f"fault=cannot see {tmp_path}; set results_dir to a directory")
    file.touch()
    assert looked(file) == f"code={compute_code_version()}\n"
    monkeypatch.setattr(slurm.sys, "executable", "/no python")
    assert looked(file).startswith("fault=has no /no python; install the environment")
