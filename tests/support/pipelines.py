"""The pipeline in miniature: its artefacts, and how it is called."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.values.places import ROOT

SYSTEMS = ["null", "reference"]  # need no framework, and one of them computes


def experiment(draw: str, quantities: list[str], **base: object) -> dict[str, object]:
    """An artefact of two systems at two batch sizes, in two rounds of milliseconds."""
    timing = {"timing.min_seconds": 0, "timing.n_mini_batches": 1, "timing.min_passes": 1}
    return {
        "title": "Tree-LSTM in miniature",
        "paper": "none",
        "draw": draw,
        "quantities": quantities,
        "axis": "batch_size",
        "axis_label": "batch size",
        "epoch": {"n_instances": 100, "words": "100 trees"},
        "compare": {"systems": SYSTEMS},
        "published": {"table": "cavs_short_table1", "model": "tree_lstm"},
        "scales": {
            "smoke": {
                "rounds": 2,
                "base": {
                    "model": "tree_lstm",
                    "dataset": "sst",
                    "hidden_size": 4,
                    **timing,
                    **base,
                },
                "blocks": [{"system": SYSTEMS, "batch_size": [1, 2]}],
            }
        },
    }


HERE = ("scale=smoke", "device=cpu", "conf_dir=conf", "data_root=no_data")


def command(*arguments: str, config: Sequence[str] = HERE) -> list[str]:
    """How Snakemake is started."""
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    return [*snakemake, *arguments, "--config", *config]


def environment(folder: Path) -> dict[str, str]:
    """Modules are found in the repository, then in the working folder."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONSAFEPATH": "1"}


def snakemake(
    folder: Path, *arguments: str, config: Sequence[str] = HERE
) -> subprocess.CompletedProcess[str]:
    """Run it to its end in a working folder."""
    return subprocess.run(
        command(*arguments, config=config),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def records(folder: Path) -> dict[Path, bytes]:
    """Every record's content by its path; its samples would differ if it were measured again."""
    paths = sorted((folder / "results" / "raw").glob("*/r*.json"))
    return {path: path.read_bytes() for path in paths}
