"""An artefact as a cost and its share of the epoch, with its data as CSV."""

from __future__ import annotations

from pathlib import Path

from plots.artefact import Artefact
from plots.figure_of_curves import Y_LABELS, text_of, write_data
from plots.panels_of import panels_of
from plots.shares import draw_shares
from plots.style import save_figure


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    cost, share = artefact.presentation.quantities
    figure = draw_shares(
        panels_of(artefact, cost), panels_of(artefact, share), text_of(artefact, Y_LABELS[cost])
    )
    save_figure(figure, results_dir / stem)
    write_data(artefact, results_dir / f"{stem}.csv")
