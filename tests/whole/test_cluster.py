"""Pipeline on a real Slurm cluster of two nodes, with failures of a node and of the head node."""

from __future__ import annotations

import csv
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from dynbatch.harness.records.record import read_record
from dynbatch.harness.terminal.status import read_current_work
from dynbatch.harness.values.paths import ROOT
from tests.support.pipelines import (
    SYSTEMS,
    command,
    edit_experiment,
    environment,
    records,
    snakemake,
)
from tests.support.processes import wait_until
from tests.support.small_slurm import (
    NODES,
    PARTITION,
    PATIENCE_S,
    SmallSlurm,
    small_slurm,
    why_no_slurm,
)

WHY_NOT = why_no_slurm()
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]
SIZES, N_ROUNDS = list(range(1, 11)), 2  # 20 trials
TIMES = re.compile(r"_s$|^started_at$|^warnings$|per_s|spread|memory|^(n_warmup|command|machine)$")
NUMBERS = re.compile(r"\d[\d.,]*(e[+-]?\d+)?| ?†")  # daggers depend on the run


@pytest.fixture(scope="module")
def slurm() -> Iterator[SmallSlurm]:
    pytest.importorskip("snakemake_executor_plugin_slurm")
    with small_slurm() as started:
        yield started


@pytest.fixture
def many(folder: Path) -> Path:
    """Return a working directory with an experiment of 20 trials and a description of nodes."""
    (folder / "conf/experiment/small_curves.yaml").unlink()
    blocks = [{"system": SYSTEMS, "batch_size": SIZES}]
    with edit_experiment(folder, "small_table") as content:
        content["scales"]["smoke"] |= {"rounds": N_ROUNDS, "blocks": blocks}
    say_nodes(folder)
    return folder


def say_nodes(folder: Path, **changes: object) -> None:
    nodes = {"name": "small", "n_cpus": psutil.cpu_count(), "memory_gib": 2, "block": "40s"}
    content = {"nodes": {**nodes, "partition": PARTITION, **changes}}
    (folder / "nodes.yaml").write_text(yaml.safe_dump(content))


def on_slurm(*arguments: str) -> list[str]:
    """Return the Snakemake command of the head node."""
    profile = ["--workflow-profile", str(ROOT / "profiles" / "slurm"), "--configfile", "nodes.yaml"]
    quick = ["--latency-wait", "5", "--slurm-init-seconds-before-status-checks", "2"]
    return command("all", *profile, *quick, "--slurm-status-command", "squeue", *arguments)


Begin = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def begin(slurm: SmallSlurm) -> Iterator[Begin]:
    """Yield a function that starts Snakemake on the head node; kill what is left at the end."""
    begun = []

    def begin_one(folder: Path, log: str, **more: str) -> subprocess.Popen[bytes]:
        own = slurm.environment(environment(folder)) | more
        with (folder / log).open("wb") as file:
            process = subprocess.Popen(
                on_slurm(), cwd=folder, env=own, stdout=file, stderr=subprocess.STDOUT
            )
        begun.append(process)
        return process

    yield begin_one
    for process in begun:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes], folder: Path, log: str) -> str:
    process.wait(timeout=500)
    printed = (folder / log).read_text(errors="replace")
    assert process.returncode == 0, printed[-5000:]
    return printed


def without_times(folder: Path) -> list[dict[str, str]]:
    """Return the table of all records without the values that differ between runs."""
    with (folder / "results" / "records.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if not TIMES.search(k)} for row in rows]


def in_words(folder: Path) -> list[str]:
    """Return the experiment's table without its numbers and the width of its columns."""
    text = (folder / "results/tables/small_table_systems.md").read_text()
    lines = (NUMBERS.sub("", line) for line in text.splitlines() if line.startswith("|"))
    return [re.sub(r"[ -]+", " ", line) for line in lines]


def test_node_or_head_failure_loses_only_running_measurements(
    slurm: SmallSlurm, many: Path, begin: Begin
) -> None:
    running = begin(many, "first.log")
    n_steps = len(SYSTEMS) * len(SIZES) * N_ROUNDS
    assert wait_until(
        lambda: len(records(many)) >= 4 and NODES[1] in slurm.busy_nodes(), PATIENCE_S
    )
    slurm.kill_node(NODES[1])
    at_death = records(many)

    assert wait_until(lambda: len(records(many)) >= len(at_death) + 4, PATIENCE_S), "on the other"
    assert running.poll() is None
    running.send_signal(signal.SIGKILL)
    running.wait()
    slurm.start_node(NODES[1])
    assert wait_until(lambda: len(records(many)) > len(at_death) + 4, PATIENCE_S), (
        "without its head"
    )
    at_restart = records(many)
    assert len(at_restart) < n_steps

    running = begin(many, "second.log")
    printed = end(running, many, "second.log")
    assert "jobs of an earlier run" in printed
    found = records(many)
    assert len(found) == n_steps
    assert {read_record(path).status for path in found} == {"ok"}
    for earlier in (at_death, at_restart):
        assert {path: found[path] for path in earlier} == earlier, "nothing is measured twice"
    assert not list((many / "results" / "raw").glob("*/superseded/*"))
    assert set(slurm.node_of_each_job()) == set(NODES)
    assert not list(read_current_work(many / "results")), "whoever ended is at work no more"

    again = end(begin(many, "third.log"), many, "third.log")
    assert "Nothing to be done" in again

    (many / "results").rename(many / "of_the_cluster")
    snakemake(many, "all")
    one_box = without_times(many), in_words(many)
    (many / "results").rename(many / "of_one_box")
    (many / "of_the_cluster").rename(many / "results")
    assert (without_times(many), in_words(many)) == one_box


def refusal(process: subprocess.Popen[bytes], folder: Path, log: str) -> str:
    """Return the error line of a run that fails before measuring."""
    assert process.wait(timeout=120) == 1
    assert not records(folder)
    printed = (folder / log).read_text()
    assert "Traceback" not in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("snakemake: "))
    return line


def test_cluster_error_gives_one_line(
    slurm: SmallSlurm, many: Path, begin: Begin, tmp_path: Path
) -> None:
    say_nodes(many, partition="gpus")
    line = refusal(begin(many, "0.log"), many, "0.log")
    assert f"nodes.partition=gpus is unknown to this cluster; choose one of {PARTITION}" in line

    say_nodes(many)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "which").symlink_to(str(shutil.which("which")))  # Snakemake's plugin asks it
    line = refusal(begin(many, "1.log", PATH=str(empty)), many, "1.log")
    assert "sbatch is not installed" in line

    # A node with another directory at the path of the results.
    blind = tmp_path / "blind"
    blind.mkdir()
    (blind / "srun").write_text("#!/bin/sh\necho fault=does not see it\n")
    (blind / "srun").chmod(0o755)
    path = slurm.environment(environment(many))["PATH"]
    line = refusal(begin(many, "2.log", PATH=f"{blind}:{path}"), many, "2.log")
    assert "does not see" in line


def test_a_wrong_machine_is_a_record_and_a_right_one_measures(many: Path, begin: Begin) -> None:
    blocks = [{"system": SYSTEMS, "batch_size": 1}]
    with edit_experiment(many, "small_table") as content:
        content["scales"]["smoke"] |= {"rounds": 1, "blocks": blocks}
    say_nodes(many, cpu="Z80")
    end(begin(many, "0.log"), many, "0.log")
    found = [read_record(path) for path in records(many)]
    assert {record.status for record in found} == {"machine_mismatch"}
    assert all("not Z80" in str(record.reason) for record in found)
    assert "machine_mismatch" in (many / "results/tables/small_table_systems.md").read_text()

    say_nodes(many)
    end(begin(many, "1.log"), many, "1.log")
    assert {read_record(path).status for path in records(many)} == {"ok"}
