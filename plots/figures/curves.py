"""An artefact as curves: one quantity against one axis, with its data as CSV."""

from __future__ import annotations

from pathlib import Path

from plots.drawing.curves import draw_curves
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.lines import write_lines
from plots.numbers.panels import panels_of
from plots.words.notes import Y_LABELS, text_of


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    (quantity,) = artefact.presentation.quantities
    figure = draw_curves(panels_of(artefact, quantity), text_of(artefact, Y_LABELS[quantity]))
    save_figure(figure, results_dir / stem)
    write_lines(artefact, results_dir / f"{stem}.csv")
