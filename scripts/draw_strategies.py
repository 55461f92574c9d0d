"""Write what strategies come to on one engine into README.md, from the committed records.

python -m scripts.draw_strategies
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.planning.kinds import read_systems
from harness.values.places import CONF_DIR, ROOT
from plots.numbers.fastest import TIME, TIMED_INSTANCES
from plots.numbers.points import speedup_of
from plots.numbers.table import DAGGER, EN_DASH, three_digits
from plots.tables.answers import Answer
from plots.words.trial_cells import find
from scripts.answer_folders import FOLDERS, SITTING, Sitting, is_beyond, markdown, rows_of
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "README.md", "draw_strategies")
KIND, BASE = "strategy", "vertex"
N_STRATEGIES = 3  # with fewer it is no comparison of strategies


def table(folders: Sequence[Path] = FOLDERS) -> str:
    """A row for each workload of which the engine and several strategies of others have a number.

    A strategy without any number has no column.
    """
    others = [one for one in read_systems(CONF_DIR) if one.kind == KIND and one.name != BASE]

    def row_of(answer: Answer, sitting: Sitting) -> list[str] | None:
        gains = [_gain(answer, one.name) for one in others]
        if sum(gain != EN_DASH for gain in gains) < N_STRATEGIES:
            return None
        return [answer.workload, *sitting, *gains]

    rows = rows_of(folders, row_of)
    columns = ["workload", *SITTING, *(one.label.removesuffix(f" {KIND}") for one in others)]
    told = [k for k in range(len(columns)) if any(row[k] != EN_DASH for row in rows)]
    return markdown([columns[k] for k in told], ([row[k] for k in told] for row in rows))


def _gain(answer: Answer, preset: str) -> str:
    """The engine's speed over a preset's."""
    ours, its = (find(answer.headline, system=one, **answer.settings) for one in (BASE, preset))
    gain = speedup_of(its, ours, TIME, TIMED_INSTANCES)
    if gain.summary is None:
        return EN_DASH
    words = three_digits(gain.summary.median) + (DAGGER if gain.warnings else "")
    return f"**{words}**" if is_beyond(gain.summary, 1) else words


def main() -> None:
    """Write the page again."""
    PAGE.write(table())


if __name__ == "__main__":
    main()
