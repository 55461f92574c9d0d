"""One artefact, drawn: its tables and figures, their CSV with facts, and its sheet."""

from __future__ import annotations

import importlib
from pathlib import Path

from plots.drawing.style import use_style
from plots.numbers.artefact import Artefact
from plots.writing.facts import add_facts
from plots.writing.sheet import write_sheet


def draw_artefact(artefact: Artefact, results_dir: Path, command: str) -> None:
    """Write all files of an artefact; command: what would make it again."""
    use_style()
    importlib.import_module(artefact.presentation.draw).make(artefact, results_dir)
    for stem in artefact.presentation.stems:
        add_facts(artefact, results_dir / f"{stem}.csv")
    write_sheet(artefact, results_dir, command)
