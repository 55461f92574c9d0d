"""Write the answers in README.md from the committed records: no number by hand.

python -m scripts.draw_answers
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from harness.planning.kinds import read_systems
from harness.values.places import CONF_DIR, ROOT
from plots.numbers.best_peer import ratio_words
from plots.numbers.points import Measured
from plots.numbers.table import DAGGER
from plots.tables.answers import Answer, size_of, speed_of_best
from scripts.answer_folders import FOLDERS, SITTING, Sitting, is_beyond, markdown, rows_of
from scripts.marked_page import MarkedPage

# By how much two peers, whose code stayed, moved against each other between two runs: DyNet C++
# by 1.19 and DyNet by 1.02 in Lattice-LSTM inference, morning and noon of 2026-11-23 (engine/ and
# paper/ of amd-epyc-2cpu-2026-11-23); less elsewhere.
BETWEEN_RUNS = 1.17
PAGE = MarkedPage(ROOT / "README.md", "draw_answers")
COLUMNS = (
    "workload",
    "hidden",
    *SITTING,
    "engine, instances/s",
    "best peer (of peers, frameworks)",
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
        f"{answer.headline.label(best.system)} ({best.n_peers}, {_n_frameworks(best.peers)})",
        _speed(speed_of_best(answer)),
        _gain(best.ratio),
    )


def _n_frameworks(names: Collection[str]) -> int:
    return len({one.framework for one in read_systems(CONF_DIR) if one.name in names})


def _gain(ratio: Measured) -> str:
    """In bold where one system is ahead by more than runs differ by, in all of the interval."""
    words, summary = ratio_words(ratio), ratio.summary
    is_sure = summary is not None and is_beyond(summary, BETWEEN_RUNS)
    return f"**{words}**" if is_sure else words


def _speed(measured: Measured) -> str:
    assert measured.summary is not None
    return f"{measured.summary.median:,.0f}{DAGGER if measured.warnings else ''}"


def main() -> None:
    """Write the page again."""
    PAGE.write(table())


if __name__ == "__main__":
    main()
