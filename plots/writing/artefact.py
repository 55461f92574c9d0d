"""One artefact, drawn: its tables and figures, their CSV with facts, and its sheet."""

from __future__ import annotations

import importlib
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.writing.facts import add_facts
from plots.writing.sheet import write_sheet

# Loaded by name, as what draws is: matplotlib is asked for when something is drawn.
STYLE = "plots.drawing.style"


def draw_artefact(artefact: Artefact, results_dir: Path, command: str) -> None:
    """Write all files of an artefact; command: what would make it again."""
    importlib.import_module(STYLE).use_style()
    importlib.import_module(artefact.presentation.draw).make(artefact, results_dir)
    for stem in artefact.presentation.stems:
        add_facts(artefact, results_dir / f"{stem}.csv")
    write_sheet(artefact, results_dir, command)
