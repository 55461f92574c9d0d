"""Write the tables of committed runs that no artefact draws into the README of their folders.

python -m scripts.draw_kept_runs
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.values.places import ROOT
from scripts.kept_runs import engine, programs
from scripts.kept_runs.run import Run, read_run
from scripts.marked_page import MarkedPage

REFERENCE = ROOT / "results" / "reference"
TABLES: dict[str, Callable[[Run], str]] = {"engine": engine.tables, "programs": programs.tables}


def folders() -> list[Path]:
    """Those named after one of the tables, below every machine's."""
    return sorted(path for path in REFERENCE.glob("*/*") if path.name in TABLES)


def page_of(folder: Path) -> MarkedPage:
    """Its README."""
    return MarkedPage(folder / "README.md", "draw_kept_runs")


def drawn(folder: Path) -> str:
    """What stands in it, from its records."""
    return TABLES[folder.name](read_run(folder))


def main() -> None:
    """Write all of them again."""
    for folder in folders():
        page_of(folder).write(drawn(folder))


if __name__ == "__main__":
    main()
