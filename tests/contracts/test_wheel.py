"""A wheel has every file that commands read, and runs the pipeline outside of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynbatch.harness.values.paths import ROOT

pytestmark = pytest.mark.slow  # it builds the package
READ = {
    "conf": (".yaml",),
    "plots": (".yaml", ".csv", ".mplstyle", ".html", ".css"),
    "workflow": (".smk", ".yaml"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files of a wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["build", "--build-base", str(folder / "base"), "--build-lib", str(folder / "lib")]
    info = ["egg_info", "--egg-base", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", *info, *build],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "lib"


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    places = {"PYTHONPATH": str(installed), "BENCH_DATA": str(folder / "data")}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=folder,
        env=os.environ | places,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wheel_has_the_files_that_commands_read(installed: Path) -> None:
    for name, suffixes in READ.items():
        files = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*")}
        wanted = {path for path in files if path.suffix in suffixes or path.name == "Snakefile"}
        assert wanted
        assert all((installed / path).is_file() for path in wanted), name


def test_a_wheel_names_its_snakefile(installed: Path, tmp_path: Path) -> None:
    bench = ["-m", "dynbatch.harness.commands.bench"]
    done = run(installed, tmp_path, *bench, "experiment=policies_ratios", "scale=smoke")
    file = installed / "workflow" / "Snakefile"
    command = f"snakemake draw_policies_ratios --snakefile {file} --config scale=smoke"
    assert f"experiment=policies_ratios has no trials; draw it with {command}\n" in done.stderr
    assert file.is_file()


def test_a_wheel_runs_the_pipeline_outside_of_a_checkout(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("snakemake")
    file = installed / "workflow" / "Snakefile"
    command = ["-m", "snakemake", "draw_cavs_lines_of_code", "--snakefile", str(file)]
    done = run(installed, tmp_path, *command, "--config", "scale=smoke")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "results" / "tables" / "cavs_lines_of_code.md").is_file()
