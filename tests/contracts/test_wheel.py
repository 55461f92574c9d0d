"""A wheel has every file that commands read, and runs the pipeline outside of a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dynbatch.harness.records.record import read_record
from dynbatch.harness.trials.sources import hash_trial_source
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import PACKAGE, ROOT

MINE = """
import datasets
from dynbatch.systems import null_system

class Adapter(null_system.Adapter):
    def versions(self):
        return {"theirs": datasets.LOADED}
"""
HASH = """
import json
from pathlib import Path
from dynbatch.harness.trials.sources import hash_trial_source
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import ROOT

print(ROOT, hash_trial_source(TrialSpec.from_dict(json.loads(Path("spec.json").read_text()))))
"""
ADVICE = """
from types import SimpleNamespace
from dynbatch.harness.commands.first_look import choose_command
from dynbatch.harness.measuring.processes.launch import describe_missing_package

print(choose_command("try"), choose_command("all"), sep="\\n")
missing = "ModuleNotFoundError: No module named 'numpy'"
print(describe_missing_package(SimpleNamespace(python="theirs"), missing))
"""
pytestmark = pytest.mark.slow  # it builds the package
FILES = {
    "conf": (".yaml",),
    **dict.fromkeys(("harness", "systems", "datasets"), (".py",)),
    "systems/native": (".cc", ".h"),
    "plots": (".py", ".yaml", ".csv", ".mplstyle", ".html", ".css"),
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


def run(
    installed: Path, folder: Path, *arguments: str, more: str = ""
) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(filter(None, [str(installed), more]))
    environment = os.environ | {"PYTHONPATH": search, "BENCH_DATA": str(folder / "data")}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_wheel_installs_one_name_and_every_file(installed: Path) -> None:
    """Other projects have packages named datasets or plots, too."""
    assert [path.name for path in installed.iterdir()] == [PACKAGE]
    for name, suffixes in FILES.items():
        files = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*")}
        wanted = {path for path in files if path.suffix in suffixes or path.name == "Snakefile"}
        assert wanted
        assert all((installed / PACKAGE / path).is_file() for path in wanted), name
    assert not [path for path in installed.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("place", ["wheel", "checkout"])
def test_packages_of_others_are_left_alone(installed: Path, tmp_path: Path, place: str) -> None:
    """A system may use another package named datasets, which its worker finds."""
    (tmp_path / "theirs" / "datasets").mkdir(parents=True)
    (tmp_path / "theirs" / "datasets" / "__init__.py").write_text("LOADED = 'theirs'\n")
    (tmp_path / "theirs" / "mine.py").write_text(MINE)
    tiny = ["hidden_size=4", "batch_size=1", "timing.min_seconds=0", "timing.n_mini_batches=1"]
    command = ["system=null", "system.adapter=mine", "dataset=sst_synthetic", *tiny]
    more = str(tmp_path / "theirs")
    ours = installed if place == "wheel" else ROOT / "src"
    done = run(ours, tmp_path, "-m", "dynbatch.harness.commands.bench", *command, more=more)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results" / "raw").rglob("r0.json")
    record = read_record(path)
    assert (record.status, record.versions["theirs"]) == ("ok", "theirs"), record.reason


def test_the_hash_of_measured_code_is_the_same_in_a_wheel(
    installed: Path, tmp_path: Path, make_spec: Callable[..., TrialSpec]
) -> None:
    spec = make_spec(adapter="dynbatch.systems.on_core.vertex", policy="agenda")
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    done = run(installed, tmp_path, "-c", HASH)
    assert done.stdout.split() == [str(installed / PACKAGE), hash_trial_source(spec)], done.stderr


def test_a_wheel_names_its_snakefile_and_no_checkout(installed: Path, tmp_path: Path) -> None:
    bench = ["-m", "dynbatch.harness.commands.bench"]
    done = run(installed, tmp_path, *bench, "experiment=policies_ratios", "scale=smoke")
    file = installed / PACKAGE / "workflow" / "Snakefile"
    command = f"snakemake draw_policies_ratios --snakefile {file} --config scale=smoke"
    assert f"experiment=policies_ratios has no trials; draw it with {command}\n" in done.stderr
    assert file.is_file()
    done = run(installed, tmp_path, "-c", ADVICE)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["bench-try", f"snakemake all --snakefile {file}"], done.stderr
    assert "theirs -m pip install 'dynamic-batching-benchmark[EXTRA]'" in lines[2]


def test_a_wheel_runs_the_pipeline_outside_of_a_checkout(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("snakemake")
    file = installed / PACKAGE / "workflow" / "Snakefile"
    command = ["-m", "snakemake", "draw_cavs_lines_of_code", "--snakefile", str(file)]
    done = run(installed, tmp_path, *command, "--config", "scale=smoke")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "results" / "tables" / "cavs_lines_of_code.md").is_file()
