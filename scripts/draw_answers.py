"""Write the answers in README.md from the committed records: no number by hand.

python -m scripts.draw_answers
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness.values.places import ROOT
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import ratio_words
from plots.numbers.drawable import drawable
from plots.numbers.gather import gather
from plots.numbers.points import Measured
from plots.numbers.sources import Elsewhere
from plots.numbers.table import DAGGER
from plots.tables.answers import Answer, answers_of, size_of, speed_of_best
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "README.md", "draw_answers")
REFERENCE = ROOT / "results" / "reference"
# The latest first: all rows of a headline are of the first folder that has any.
FOLDERS = (
    REFERENCE / "amd-epyc-2cpu-2026-11-23" / "headlines",
    REFERENCE / "amd-epyc-2cpu" / "medium",
)
COLUMNS = (
    "workload",
    "hidden",
    "scale",
    "engine, instances/s",
    "best peer (of)",
    "its instances/s",
    "engine over it",
)


def answers(folder: Path) -> Artefact:
    """The artefact of that name, from committed records."""
    found = drawable({"records": folder}, os.environ, "answers")
    part = found.drawn["answers"]
    return gather("answers", found.choices, part.trials, part.sweeps, Elsewhere(found.held))


def rows_of(folders: Sequence[Path]) -> list[str]:
    """A row for each workload of which the engine and a peer have a number."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        of_folder: dict[str, list[str]] = {}
        artefact = answers(folder)
        for one in answers_of(artefact):
            if row := _row(one, artefact.scale):
                of_folder.setdefault(one.task, []).append(row)
        found = of_folder | found
    return [row for rows in found.values() for row in rows]


def table(folders: Sequence[Path] = FOLDERS) -> str:
    """The whole table."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join([*lines, *rows_of(folders)]) + "\n"


def _row(answer: Answer, scale: str) -> str | None:
    best = answer.best
    if best is None or answer.engine.summary is None:
        return None
    cells = (
        answer.workload,
        size_of(answer, "hidden_size"),
        scale,
        _speed(answer.engine),
        f"{answer.headline.label(best.system)} ({best.n_peers})",
        _speed(speed_of_best(answer)),
        f"**{ratio_words(best.ratio)}**",
    )
    return f"| {' | '.join(cells)} |"


def _speed(measured: Measured) -> str:
    assert measured.summary is not None
    return f"{measured.summary.median:,.0f}{DAGGER if measured.warnings else ''}"


def main() -> None:
    """Write the page again."""
    PAGE.write(table())


if __name__ == "__main__":
    main()
