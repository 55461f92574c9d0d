"""A budget of the pipeline: what fits is measured and drawn, the next run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.planning.durations import DRAWN_S, usual_s
from harness.planning.yaml_files import read_mapping
from harness.values.places import CONF_DIR
from tests.support.pipelines import HERE, SYSTEMS, records, snakemake

ADAPTERS = [read_mapping(CONF_DIR / "system" / f"{name}.yaml")["adapter"] for name in SYSTEMS]
ROUND_S = 2 * sum(usual_s(adapter, 0.0) for adapter in ADAPTERS)  # of two batch sizes
N_EXPERIMENTS = 2


def budget(n_rounds: float) -> tuple[str, ...]:
    return (*HERE, f"budget={n_rounds * ROUND_S + N_EXPERIMENTS * DRAWN_S:.0f}s")


@pytest.mark.slow
def test_what_fits_is_drawn_and_the_next_run_goes_on(folder: Path) -> None:
    done = snakemake(folder, "all", config=budget(1.5))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert (
        "4 rounds of 4 trials and counts to measure at smoke scale, 2 experiments to draw" in said
    )
    assert "4 more are left for the next run" in said
    assert "[4/4]" in said, "every process says how far the run is"
    first = records(folder)
    assert {path.name for path in first} == {"r0.json"}
    page = (folder / "results/report.html").read_text(encoding="utf-8")
    assert "Tree-LSTM in miniature" in page

    again = snakemake(folder, "all")
    assert again.returncode == 0, again.stdout + again.stderr
    both = records(folder)
    assert len(both) == 8
    assert first.items() <= both.items(), "nothing is measured twice"


def test_a_budget_for_nothing_says_what_is_needed(folder: Path) -> None:
    done = snakemake(folder, "all", config=budget(0.5))
    assert done.returncode == 1
    assert "is too short for a round of anything" in done.stdout + done.stderr
    assert not records(folder)


def test_a_mistyped_key_is_told(folder: Path) -> None:
    done = snakemake(folder, "all", config=(*HERE, "bugdet=45m"))
    assert done.returncode == 1
    assert "--config bugdet is unknown, did you mean budget?" in done.stdout + done.stderr
