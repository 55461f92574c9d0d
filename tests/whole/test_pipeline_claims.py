"""Target `claims`: it measures what decides claims at this scale and device, and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.values.paths import CONF_DIR
from tests.support.pipelines import HERE, SYSTEMS, edit_experiment, records, snakemake

ON_PAPER = ["scale=paper", *HERE[1:]]


def write_claim(folder: Path, name: str, size: int, **changes: Any) -> None:
    """Write a claim that compares the two systems at one batch size."""
    claim = {
        **{"claim": f"Batch size {size}", "authors": "Nobody", "paper": "None", "year": 2020},
        **{"location": "Table 0", "conditions": "none", "device": "cpu"},
        "published": {"text": "1", "number": 1},
        "answer": {
            **{"experiment": "small_table", "quantity": "instance_s", "substitution": "nothing"},
            "numerator": {"system": SYSTEMS[1]},
            "denominator": {"system": SYSTEMS[0]},
            "settings": {"batch_size": size},
        },
        "rule": {"at_least": 1, "rationale": "a claim about direction"},
        **changes,
    }
    (folder / f"conf/claims/{name}.yaml").write_text(yaml.safe_dump(claim))


@pytest.fixture
def claiming(folder: Path) -> Path:
    """Return a working directory with claims about one batch size on each device."""
    with edit_experiment(folder, "small_table") as content:
        content["scales"]["paper"] = content["scales"]["smoke"]
    (folder / "conf/experiment/small_curves.yaml").unlink()
    shutil.copy(CONF_DIR / "experiment/claims.yaml", folder / "conf/experiment/claims.yaml")
    shutil.rmtree(folder / "conf/claims")
    (folder / "conf/claims").mkdir()
    write_claim(folder, "small", 1)
    write_claim(folder, "large", 2, device="cuda")
    return folder


def read_work(printed: str) -> str:
    """Return what a run announces to measure."""
    return re.search(r"\d+ rounds of \d+ trials and counts to measure at \w+ scale", printed)[0]  # type: ignore[index]


@pytest.mark.slow
def test_other_targets_are_run_separately(claiming: Path) -> None:
    targets = ("claims", "draw_small_table")
    printed = snakemake(claiming, *targets, "--dry-run", config=ON_PAPER, returncode=1)
    assert "expected no other target, got draw_small_table; run them" in printed


@pytest.mark.slow
def test_only_missing_rounds_of_decidable_claims_are_measured(claiming: Path) -> None:
    printed = snakemake(claiming, "claims", config=ON_PAPER)
    # Two systems at one of two batch sizes, in two rounds.
    assert read_work(printed) == "4 rounds of 2 trials and counts to measure at paper scale"
    assert "measure claims" in printed
    assert "draw claims" in printed
    first = records(claiming)
    assert len(first) == 4
    table = (claiming / "results/tables/claims.md").read_text(encoding="utf-8")
    (small,) = (line for line in table.splitlines() if "Batch size 1" in line)
    (large,) = (line for line in table.splitlines() if "Batch size 2" in line)
    assert "not measurable here" not in small
    assert "not measurable here" in large

    lost = sorted(first)[0]
    lost.unlink()
    printed = snakemake(claiming, "claims", config=ON_PAPER)
    assert read_work(printed).startswith("1 rounds of 1 trials")
    second = records(claiming)
    assert set(second) == set(first)
    assert {path for path in first if second[path] != first[path]} == {lost}
