"""Write the answers in README.md from the committed records: no number by hand.

python -m scripts.draw_answers
"""

from __future__ import annotations

import os

from harness.values.places import ROOT
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import ratio_words
from plots.numbers.drawable import drawable
from plots.numbers.gather import gather
from plots.numbers.sources import Elsewhere
from plots.numbers.table import DAGGER
from plots.tables.answers import Answer, answers_of
from scripts.marked_page import MarkedPage

PAGE = MarkedPage(ROOT / "README.md", "draw_answers")
RECORDS = ROOT / "results" / "reference" / "amd-epyc-2cpu" / "medium"


def answers() -> Artefact:
    """The artefact of that name, from the committed records."""
    found = drawable({"records": RECORDS}, os.environ, "answers")
    part = found.drawn["answers"]
    return gather("answers", found.choices, part.trials, part.sweeps, Elsewhere(found.held))


def table(artefact: Artefact) -> str:
    """A row for each workload of which the engine and a peer have a number."""
    lines = [
        "| workload | engine, instances/s | best peer (of) | its instances/s | engine over it |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(row for one in answers_of(artefact) if (row := _row(one)))]) + "\n"


def _row(answer: Answer) -> str | None:
    best, engine = answer.best, answer.engine.summary
    if best is None or engine is None:
        return None
    cells = (
        answer.workload,
        f"{engine.median:,.0f}",
        f"{answer.headline.label(best.system)} ({best.n_peers})",
        f"{best.speed.median:,.0f}",
        f"**{ratio_words(best.ratio)}**{DAGGER if best.ratio.warnings else ''}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the page again."""
    PAGE.write(table(answers()))


if __name__ == "__main__":
    main()
