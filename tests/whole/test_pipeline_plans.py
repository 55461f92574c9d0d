"""What the pipeline would do: dry runs, and wrong experiments."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.pipelines import command, environment, snakemake


def test_dry_run_plans_every_trial_and_touches_nothing(folder: Path) -> None:
    done = snakemake(folder, "all", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "results").exists()


@pytest.mark.slow
def test_the_shipped_pipeline_plans(tmp_path: Path) -> None:
    # The paper's scale has thousands of trials; test_artefact_plans plans them without Snakemake.
    config = ["scale=smoke", "device=cpu", "data_root=no_data"]
    done = subprocess.run(
        [*command("all", "--dry-run", "--quiet")[:-5], "--config", *config],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint(folder: Path) -> None:
    done = snakemake(folder, "--lint")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_experiment_is_told_in_one_line(folder: Path) -> None:
    (folder / "conf/experiment/small_table.yaml").write_text("title: nothing else\n")
    done = snakemake(folder, "all", "--dry-run")
    assert done.returncode == 1
    assert "small_table.yaml has no paper" in done.stdout + done.stderr
