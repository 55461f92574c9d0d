"""What trials achieve against what the machine gives: FLOP/s over FLOP per byte, under two roofs.

show:
  trials:                        # a mark each: in words, the settings of its trial
    training, h 256: {system: vertex, model: tree_lstm, mode: train, hidden_size: 256}
  bandwidth: {memory: {system: copies, system.options.n_bytes: 268435456}}   # roofs that lean
  products: [products, products_cut]       # systems, the fastest of whose trials is the flat roof

Source: Williams, Waterman and Patterson, "Roofline", CACM 2009. Bytes are those that the steps of
the engine's plans read and write, so that what stays in a cache may go faster than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.drawing.frame import head_and_foot, legend_below, legend_height_in, log_y
from plots.drawing.rows import Room, frame
from plots.drawing.saving import save_figure
from plots.drawing.style import SPARE_COLORS
from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, Point, measure_of
from plots.numbers.series import Panel, Series
from plots.numbers.table import plain
from plots.numbers.tidy import Row, write_rows
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import numbers_of, points_with

AXES_IN, WIDTH_IN, ROOM = 3.0, 7.0, 2.0
MARKERS = ("o", "s", "^", "D", "v", "P", "*", "X")  # told apart without their colours, too
GFLOP, GBYTE, INTENSITY = "gflop_per_s", "gbyte_per_s", "flop_per_byte"
X_LABEL = "operations of floats per byte that a step reads or writes"


@dataclass(frozen=True, slots=True)
class Roof:
    """A ceiling: GFLOP/s where it is flat, else GB/s."""

    words: str
    measured: Measured
    is_flat: bool

    @property
    def height(self) -> float | None:
        """Its median."""
        return self.measured.summary.median if self.measured.summary else None


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_roofline(artefact), results_dir / stem)
    write_rows(results_dir / f"{stem}.csv", [*rows_of(artefact)])


def draw_roofline(artefact: Artefact) -> Figure:
    """Roofs as lines, trials as marks."""
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", notes_of(artefact))
    marks = {words: point for words, point in trials_of(artefact).items() if _told(point)}
    names = Panel("", "", tuple(Series(words, words, ()) for words in (*marks, "", "")))
    figure = frame(text, 1, 1, Room(AXES_IN, legend_height_in([names])))
    width, height = WIDTH_IN, figure.get_size_inches()[1]
    figure.set_size_inches(width, height)
    figure.subplots_adjust(left=0.62 / width, right=1 - 0.15 / width)
    (axes,) = figure.axes
    intensities = [_median(point, INTENSITY) for point in marks.values()]
    roofs = [roof for roof in roofs_of(artefact) if roof.height is not None]
    span = (min(intensities, default=1.0) / 4, max(intensities, default=1.0) * 4)
    _draw_roofs(axes, roofs, span)
    for number, (words, point) in enumerate(marks.items()):
        color = SPARE_COLORS[number % len(SPARE_COLORS)]
        warned = bool(point.warnings)
        axes.plot(
            _median(point, INTENSITY),
            _median(point, GFLOP),
            marker=MARKERS[number % len(MARKERS)],
            linestyle="none",
            color=color,
            markerfacecolor="white" if warned else color,
            label=words,
            zorder=3,
        )
    heights = [_median(point, GFLOP) for point in marks.values()]
    heights += [roof.height for roof in roofs if roof.is_flat and roof.height]
    axes.set_xscale("log", base=2)
    axes.set_xlim(*span)
    axes.xaxis.set_major_formatter(lambda x, _: plain(x) if x >= 1 else f"1/{1 / x:.0f}")
    axes.set_xlabel(X_LABEL)
    log_y(axes, (min(heights, default=1.0) / ROOM, max(heights, default=1.0) * ROOM))
    axes.set_ylabel("GFLOP/s in forward and backward")
    legend_below(axes)
    head_and_foot(figure, text)
    return figure


def _draw_roofs(axes: Axes, roofs: list[Roof], span: tuple[float, float]) -> None:
    """Each leaning roof up to the flat one, with its words along it."""
    flat = next((roof.height for roof in roofs if roof.is_flat), None)
    xs = np.geomspace(*span, 200)
    for roof, line in zip(roofs, ("-", "--", "-.", ":", (0, (1, 3))), strict=False):
        assert roof.height is not None
        ys = np.full_like(xs, roof.height) if roof.is_flat else roof.height * xs
        if flat is not None:
            ys = np.minimum(ys, flat)
        unit = "GFLOP/s" if roof.is_flat else "GB/s"
        label = f"{roof.words}: {roof.height:.3g} {unit}"
        axes.plot(xs, ys, color="#444444", linestyle=line, linewidth=1.1, marker="", label=label)


def _told(point: Point | None) -> bool:
    return measure_of(point, GFLOP).summary is not None and point is not None


def _median(point: Point | None, quantity: str) -> float:
    summary = measure_of(point, quantity).summary
    return summary.median if summary else float("nan")


def trials_of(artefact: Artefact) -> dict[str, Point]:
    """Those that the scale has, by their words."""
    said: Mapping[str, Any] = artefact.presentation.show["trials"]
    found = {words: points_with(artefact, settings) for words, settings in said.items()}
    return {words: points[0] for words, points in found.items() if points}


def roofs_of(artefact: Artefact) -> list[Roof]:
    """The fastest products, then what copies reach."""
    show = artefact.presentation.show
    flat = [
        measure_of(point, GFLOP)
        for system in show["products"]
        for point in points_with(artefact, {"system": system})
    ]
    best = max(flat, key=lambda one: one.summary.median if one.summary else -1.0, default=None)
    roofs = [] if best is None else [Roof("matrix products alone", best, is_flat=True)]
    for words, settings in show["bandwidth"].items():
        for point in points_with(artefact, settings)[:1]:
            roofs.append(Roof(words, measure_of(point, GBYTE), is_flat=False))
    return roofs


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """Every roof, and every quantity of every trial."""
    for roof in roofs_of(artefact):
        quantity = GFLOP if roof.is_flat else GBYTE
        yield {"what": "roof", "of": roof.words, "quantity": quantity, **numbers_of(roof.measured)}
    for words, point in trials_of(artefact).items():
        for quantity in (GFLOP, GBYTE, INTENSITY):
            found = numbers_of(measure_of(point, quantity))
            yield {"what": "trial", "of": words, "quantity": quantity, **found}
