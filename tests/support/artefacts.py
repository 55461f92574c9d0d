"""An artefact with made-up records, and the command that draws it."""

from __future__ import annotations

import csv
from pathlib import Path

from harness.commands import draw
from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact, plan_counts
from harness.planning.compose import Composer
from plots.numbers.presentation import read_presentation
from tests.support.made_up_counts import write_made_up_counts, write_real_counts
from tests.support.made_up_records import Change, write_made_up_records

FIGURE, TABLE = "cavs_fig8d", "cavs_table1_tree_lstm"
KEYS = ("scale", "device", "data-root", "results-dir", "conf-dir")


def measured(
    name: str, choices: Choices, composer: Composer, change: Change | None = None
) -> tuple[PlannedTrial, ...]:
    """Plan an artefact and leave made-up records for it."""
    trials = plan_artefact(name, choices, composer)
    write_made_up_records(trials, choices, change)
    is_graph = read_presentation(name, choices.conf_dir).show.get("graph") == "plain"
    write_counts = write_real_counts if is_graph else write_made_up_counts
    write_counts(plan_counts(name, choices), choices.results_dir)
    return trials


def run_draw(name: str, choices: Choices) -> int:
    """Run the command that draws an artefact; returns its exit code."""
    said = {key: getattr(choices, key.replace("-", "_")) for key in KEYS}
    return draw.main([name, *(f"--{key}={value}" for key, value in said.items())])


def lines_of(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
