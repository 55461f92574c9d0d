"""Small pipeline: its experiments, and its command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dynbatch.harness.values.paths import CONF_DIR, ROOT, SNAKEFILE
from tests.support.processes import run_in

SYSTEMS = ["null", "reference"]  # without frameworks; one of them computes
CURVES = {
    "figure": {
        "kind": "curves",
        "x": "batch_size",
        "values": {"instance_s": "seconds per epoch"},
        "epoch": 100,
    }
}
SPEEDUPS = {
    "table": {
        "rows": ["batch_size"],
        "columns": ["quantity", "system"],
        "values": {"computation_s": "computation (s)", "instance_s over base": "speedup"},
        "epoch": 100,
        "published": {"table": "cavs_short_table1", "model": "tree_lstm_child_sum"},
    }
}
COUNTS = {
    "table": {
        "rows": ["policy"],
        "columns": ["model"],
        "values": {"n_batches": "batches"},
        "settings": {"counted": {"graph": "plain"}},
        "extra": ["lower_bound"],
    }
}


def build_experiment(shown: dict[str, Any]) -> dict[str, Any]:
    """Build an experiment of two systems at two batch sizes, in two rounds of milliseconds."""
    timing = {"timing.min_seconds": 0, "timing.n_mini_batches": 1, "timing.min_passes": 1}
    return {
        "title": "Tree-LSTM in miniature",
        "paper": "none",
        **shown,
        "compare": {"systems": SYSTEMS},
        "scales": {
            "smoke": {
                "rounds": 2,
                "base": {"model": "tree_lstm", "dataset": "sst", "hidden_size": 4, **timing},
                "blocks": [{"system": SYSTEMS, "batch_size": [1, 2]}],
            }
        },
    }


def build_counts(*counts: dict[str, Any]) -> dict[str, Any]:
    """Build an experiment that only counts batches."""
    scales = {"smoke": {"counts": list(counts)}}
    return {"title": "Counts in miniature", "paper": "none", **COUNTS, "scales": scales}


def write_conf(folder: Path, **experiments: dict[str, Any]) -> None:
    """Write a configuration whose only experiments are these."""
    shutil.copytree(CONF_DIR, folder / "conf", ignore=shutil.ignore_patterns("experiment"))
    (folder / "conf" / "experiment").mkdir()
    for name, content in experiments.items():
        write_experiment(folder, name, content)


def write_experiment(folder: Path, name: str, content: dict[str, Any]) -> None:
    (folder / "conf" / "experiment" / f"{name}.yaml").write_text(yaml.safe_dump(content))


@contextmanager
def edit_experiment(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield an experiment, and write what the block makes of it."""
    content = yaml.safe_load((folder / "conf" / "experiment" / f"{name}.yaml").read_text())
    yield content
    write_experiment(folder, name, content)


HERE = ("scale=smoke", "device=cpu", "conf_dir=conf", "data_root=no_data")


def command(*arguments: str, config: Sequence[str] = HERE) -> list[str]:
    """Return the command that starts Snakemake."""
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE)]
    return [*snakemake, *arguments, "--config", *config]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment: modules come from the repository, then the working directory."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONSAFEPATH": "1"}


def snakemake(
    folder: Path, *arguments: str, config: Sequence[str] = HERE, returncode: int = 0
) -> str:
    """Run Snakemake in a working directory, check its exit code, and return what it prints."""
    return run_in(folder, command(*arguments, config=config), environment(folder), returncode, 300)


def records(folder: Path) -> dict[Path, bytes]:
    """Return every record's content by its path; a new measurement would have different samples."""
    paths = sorted((folder / "results" / "raw").glob("*/r*.json"))
    return {path: path.read_bytes() for path in paths}
