"""An artefact as curves: one quantity against one axis, with its data as CSV."""

from __future__ import annotations

from pathlib import Path

from plots.artefact import Artefact
from plots.curves import draw_curves
from plots.lines_of import measured_lines, published_lines
from plots.panels import FigureText
from plots.panels_of import panels_of
from plots.style import save_figure
from plots.tidy import write_csv
from plots.words import notes_of, subtitle_of, title_of

Y_LABELS = {"epoch_s": "time per epoch (s)", "construction_s": "graph construction (s/epoch)"}


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    (quantity,) = artefact.presentation.quantities
    figure = draw_curves(panels_of(artefact, quantity), text_of(artefact, Y_LABELS[quantity]))
    save_figure(figure, results_dir / stem)
    write_data(artefact, results_dir / f"{stem}.csv")


def text_of(artefact: Artefact, y_label: str) -> FigureText:
    """The words around an artefact's panels."""
    return FigureText(
        title=title_of(artefact),
        subtitle=subtitle_of(artefact),
        x_label=artefact.presentation.axis_label,
        y_label=y_label,
        notes=notes_of(artefact),
    )


def write_data(artefact: Artefact, path: Path) -> None:
    """Write every number that the figure shows."""
    lines = [
        line for group in artefact.presentation.compare for line in measured_lines(artefact, group)
    ]
    write_csv(path, [*lines, *published_lines(artefact)])
