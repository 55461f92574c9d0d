"""An artefact as a cost and its share of the epoch, with its data as CSV."""

from __future__ import annotations

from pathlib import Path

from plots.drawing.saving import save_figure
from plots.drawing.shares import draw_shares
from plots.numbers.artefact import Artefact
from plots.numbers.lines import write_lines
from plots.numbers.panels import panels_of
from plots.words.notes import Y_LABELS, text_of


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    cost, share = artefact.presentation.quantities
    figure = draw_shares(
        panels_of(artefact, cost), panels_of(artefact, share), text_of(artefact, Y_LABELS[cost])
    )
    save_figure(figure, results_dir / stem)
    write_lines(artefact, results_dir / f"{stem}.csv")
