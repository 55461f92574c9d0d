"""Batches per policy as bars, a panel per workload, with the lower bound as a line.

show: {graph: released, batch_size: 32, families: {name: [policies that share a colour]}}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.records.count_row import AnyCount, CountRow
from plots.drawing.frame import HEAD_IN, LINE_IN, head_and_foot, wrapped_notes
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.tidy import write_rows
from plots.words.count_cells import any_good, released_counts, word_for
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of

N_COLUMNS, PANEL_IN, BAR_IN, NAMES_IN, LEGEND_IN = 3, 2.25, 0.17, 1.35, 0.32
# Okabe and Ito's colours, each with a hatch, for families in their order.
FAMILY_LOOKS = (("#CC79A7", ""), ("#009E73", "////"), ("#0072B2", "...."), ("#D55E00", "xxxx"))


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_counts(artefact), results_dir / stem)
    size = int(artefact.presentation.show["batch_size"])
    rows = [released_counts(row) for row in artefact.counts if row.batch_size == size]
    write_rows(results_dir / f"{stem}.csv", rows)


def draw_counts(artefact: Artefact) -> Figure:
    """Panels in rows of three, policy names at the left ones."""
    families: Mapping[str, list[str]] = artefact.presentation.show["families"]
    size = int(artefact.presentation.show["batch_size"])
    models = artefact.listed("model")
    policies = [policy for group in families.values() for policy in group]
    subtitle = f"{subtitle_of(artefact)}; batch size {size}"
    text = FigureText(title_of(artefact), subtitle, "", "", notes_of(artefact))
    figure, panels, bottom = _frame(text, len(models), len(policies))
    for place, (axes, model) in enumerate(zip(panels, models, strict=False)):
        found = {
            policy: artefact.counts_with(model=model, batch_size=size, policy=policy)
            for policy in policies
        }
        _draw_panel(axes, found, families, names=place % N_COLUMNS == 0)
        graph = any_good(chain(*found.values()))
        bound = graph.lower_bound_ed if isinstance(graph, CountRow) else word_for(graph)
        axes.set_title(f"{artefact.label(model)}, bound {bound}", fontsize=8.5)
    _legend(figure, families, bottom)
    head_and_foot(figure, text)
    return figure


def _frame(text: FigureText, n_panels: int, n_bars: int) -> tuple[Figure, list[Axes], float]:
    """Return the figure, its panels in order, and where its foot ends."""
    n_columns = min(N_COLUMNS, n_panels)
    n_rows = math.ceil(n_panels / n_columns)
    panel = BAR_IN * n_bars + 0.55
    width = NAMES_IN + n_columns * PANEL_IN
    foot = LINE_IN * len(wrapped_notes(text.notes, width)) + 0.15
    height = HEAD_IN + n_rows * panel + LEGEND_IN + foot
    figure, grid = plt.subplots(
        n_rows,
        n_columns,
        figsize=(width, height),
        squeeze=False,
        gridspec_kw={
            "left": NAMES_IN / width,
            "right": 1 - 0.12 / width,
            "top": 1 - (HEAD_IN + 0.2) / height,
            "bottom": (foot + LEGEND_IN + 0.15) / height,
            "hspace": 0.5 / (panel - 0.5),
            "wspace": 0.12,
        },
    )
    panels = list(grid.flat)
    for axes in panels[n_panels:]:
        axes.set_visible(False)
    return figure, panels, foot / height


def _draw_panel(
    axes: Axes,
    found: Mapping[str, Sequence[AnyCount]],
    families: Mapping[str, list[str]],
    *,
    names: bool,
) -> None:
    """Bars from top to bottom in the order of the families, each with its count behind it.

    Of a learned policy the median over its seeds, and a line from the smallest to the largest.
    """
    counts = {policy: _told(rows) for policy, rows in found.items()}
    place, highest = 0, max((max(told) for told in counts.values() if told), default=1)
    for (color, hatch), group in zip(FAMILY_LOOKS, families.values(), strict=False):
        for policy in group:
            told = counts[policy]
            value = statistics.median(told) if told else 0
            axes.barh(
                place, value, height=0.78, color=color, hatch=hatch, edgecolor="white", linewidth=0
            )
            end = max(told, default=0)
            if told and min(told) < end:
                axes.plot([min(told), end], [place, place], color="#000000", linewidth=1.0)
            axes.annotate(
                f"{value:.10g}" if told else word_for(next(iter(found[policy]), None)),
                (end, place),
                xytext=(2, 0),
                textcoords="offset points",
                va="center",
                fontsize=6.5,
                color="#333333",
            )
            place += 1
    graph = any_good(chain(*found.values()))
    if isinstance(graph, CountRow):
        bound = graph.lower_bound_ed
        axes.axvline(bound, color="#000000", linewidth=1.1, linestyle=(0, (4, 2)), zorder=3)
    axes.set_yticks(range(len(found)), list(found) if names else [""] * len(found))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(0, highest * 1.2)


def _told(rows: Sequence[AnyCount]) -> list[int]:
    """Batches by seed; empty where any of them has none."""
    counts = [row.n_batches_ed if isinstance(row, CountRow) else None for row in rows]
    told = [count for count in counts if count is not None]
    return told if len(told) == len(counts) else []


def _legend(figure: Figure, families: Mapping[str, list[str]], bottom: float) -> None:
    handles: list[object] = [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", label=name)
        for (color, hatch), name in zip(FAMILY_LOOKS, families, strict=False)
    ]
    handles.append(Line2D([], [], color="#000000", linestyle="--", label="lower bound"))
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, bottom),
        ncols=len(handles),
    )
