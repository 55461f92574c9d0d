"""Write the answers in README.md from the committed records: no number by hand.

python -m scripts.draw_answers
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.values.places import ROOT
from plots.numbers.best_peer import ratio_words
from plots.numbers.points import Measured
from plots.numbers.table import DAGGER
from plots.tables.answers import Answer, size_of, speed_of_best
from scripts.answer_folders import FOLDERS, Sitting, markdown, rows_of
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "README.md", "draw_answers")
COLUMNS = (
    "workload",
    "hidden",
    "scale",
    "CPU",
    "engine, instances/s",
    "best peer (of)",
    "its instances/s",
    "engine over it",
)


def table(folders: Sequence[Path] = FOLDERS) -> str:
    """A row for each workload of which the engine and a peer have a number."""
    return markdown(COLUMNS, rows_of(folders, _row))


def _row(answer: Answer, sitting: Sitting) -> Sequence[str] | None:
    best = answer.best
    if best is None or answer.engine.summary is None:
        return None
    return (
        answer.workload,
        size_of(answer, "hidden_size"),
        *sitting,
        _speed(answer.engine),
        f"{answer.headline.label(best.system)} ({best.n_peers})",
        _speed(speed_of_best(answer)),
        _gain(best.ratio),
    )


def _gain(ratio: Measured) -> str:
    """In bold where the engine is ahead in all of the interval."""
    words, summary = ratio_words(ratio), ratio.summary
    is_ahead = summary is not None and summary.low is not None and summary.low > 1
    return f"**{words}**" if is_ahead else words


def _speed(measured: Measured) -> str:
    assert measured.summary is not None
    return f"{measured.summary.median:,.0f}{DAGGER if measured.warnings else ''}"


def main() -> None:
    """Write the page again."""
    PAGE.write(table())


if __name__ == "__main__":
    main()
