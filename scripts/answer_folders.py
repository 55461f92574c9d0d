"""The committed folders that answer for the README, the latest first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.records.stats import Summary
from harness.values.places import ROOT
from plots.numbers.artefact import Artefact
from plots.numbers.drawable import drawable
from plots.numbers.gather import gather
from plots.numbers.sources import Elsewhere
from plots.tables.answers import Answer, answers_of

Cells = Sequence[str]

SITTING = ("scale", "CPU")  # columns with what a Sitting says

REFERENCE = ROOT / "results" / "reference"
# A workload's row is of the first folder that has it.
FOLDERS = (
    REFERENCE / "amd-epyc-2cpu-2026-11-24" / "paper_evening",
    REFERENCE / "amd-epyc-2cpu-2026-11-24" / "paper",
    REFERENCE / "amd-epyc-2cpu-2026-11-23" / "paper",
)
# The same of a second CPU, where another machine is as good as another day.
SECOND_CPU = (
    REFERENCE / "intel-xeon-2cpu-2026-11-25" / "paper",
    REFERENCE / "intel-xeon-2cpu-2026-11-25" / "medium",
)


class Sitting(NamedTuple):
    """Where the numbers of a folder are from: at which scale, and on which CPU."""

    scale: str
    cpu: str


def answers(folder: Path) -> tuple[Artefact, Sitting]:
    """The artefact of that name, from committed records."""
    found = drawable({"records": folder}, os.environ, "answers")
    part = found.drawn["answers"]
    artefact = gather("answers", found.choices, part.trials, part.sweeps, Elsewhere(found.held))
    cpu = str(found.held.records[0].machine["cpu"])
    return artefact, Sitting(artefact.scale, cpu_words(cpu))


def cpu_words(name: str) -> str:
    """A processor's name without what all of its maker's have in theirs."""
    return " ".join(re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b", " ", name).split())


def rows_of(
    folders: Sequence[Path], row_of: Callable[[Answer, Sitting], Cells | None]
) -> list[Cells]:
    """A row for each workload that has one, from the first folder that has it, headlines by name.

    row_of: the cells of a workload of a sitting; None where a number is missing for it.
    """
    found: dict[str, dict[str, Cells]] = {}
    for folder in folders:
        artefact, sitting = answers(folder)
        for one in answers_of(artefact):
            if row := row_of(one, sitting):
                found.setdefault(one.task, {}).setdefault(one.workload, row)
    return [row for task in sorted(found) for row in found[task].values()]


def is_beyond(summary: Summary, factor: float) -> bool:
    """Whether all of a ratio's interval is further from 1 than a factor."""
    if summary.low is None or summary.high is None:
        return False
    return summary.low > factor or summary.high < 1 / factor


def markdown(columns: Cells, rows: Iterable[Cells]) -> str:
    """A whole table, without the columns of a sitting that say the same in every row."""
    every = list(rows)
    told = [
        k
        for k, name in enumerate(columns)
        if name not in SITTING or len({row[k] for row in every}) > 1
    ]
    columns, *rows = [[cells[k] for k in told] for cells in (columns, *every)]
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(columns)}", *lines[1:]]) + "\n"
