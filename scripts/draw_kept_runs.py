"""Write the tables of committed runs that no artefact draws into the README of their folders.

python -m scripts.draw_kept_runs
"""

from __future__ import annotations

from collections.abc import Callable

from harness.values.places import ROOT
from scripts.kept_runs import engine, programs
from scripts.kept_runs.run import Run, read_run
from scripts.marked_page import MarkedPage

REFERENCE = ROOT / "results" / "reference" / "amd-epyc-2cpu-2026-11-23"
TABLES: dict[str, Callable[[Run], str]] = {"engine": engine.tables, "programs": programs.tables}


def page_of(name: str) -> MarkedPage:
    """The README of a folder."""
    return MarkedPage(REFERENCE / name / "README.md", "draw_kept_runs")


def drawn(name: str) -> str:
    """What stands in it, from its records."""
    return TABLES[name](read_run(REFERENCE / name))


def main() -> None:
    """Write all of them again."""
    for name in TABLES:
        page_of(name).write(drawn(name))


if __name__ == "__main__":
    main()
