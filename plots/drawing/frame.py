"""Parts that every figure shares: axes of marks, status words, legends, head and foot."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from harness.records.stats import Summary
from plots.drawing.style import Look, looks_of
from plots.numbers.series import PUBLISHED, Panel, Series
from plots.numbers.table import plain
from plots.words.figure_text import FigureText

PANEL_WIDTH_IN, HEAD_IN, LINE_IN = 3.35, 0.62, 0.122
CAPTION_LINES = 3


def legend_height_in(panels: Sequence[Panel], n_columns: int = 2) -> float:
    """Room for the axis label and the longest legend below the axes."""
    n_rows = max((math.ceil(len(panel.series) / n_columns) for panel in panels), default=0)
    return 0.55 + 0.165 * n_rows


def wrapped_notes(notes: Sequence[str], width_in: float) -> list[str]:
    """The caption: as much of the notes, most important first, as a few lines of a figure hold.

    Report and artefacts/<name>.json have all.
    """
    n_characters = max(40, int(width_in * 17.5))
    text = " ".join(notes)
    lines = textwrap.wrap(text, n_characters, max_lines=CAPTION_LINES, placeholder=" ...")
    return list(lines)


def log_x(axes: Axes, values: Sequence[float], label: str) -> None:
    """A base-2 axis whose ticks are the measured values."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
    if values:
        axes.set_xlim(min(values) / 2**0.45, max(values) * 2**0.45)
    axes.set_xlabel(label)


def interval(summary: Summary) -> tuple[float, float]:
    """Ends of an error bar; both the median where a single round gives none."""
    if summary.low is None or summary.high is None:
        return summary.median, summary.median
    return summary.low, summary.high


def limits_of(panels: Sequence[Panel]) -> tuple[float, float]:
    """Limits of a log axis that shows all of these, with room below for status words."""
    marks = [mark for panel in panels for series in panel.series for mark in series.marks]
    bounds = [v for mark in marks if mark.summary is not None for v in interval(mark.summary)]
    values = [v for v in bounds if v > 0] or [1.0, 10.0]
    margin = max(1.2, (max(values) / min(values)) ** 0.06)
    low, high = min(values) / margin, max(values) * margin
    has_missing = any(mark.summary is None for mark in marks)
    return (low / (high / low) ** 0.22 if has_missing else low), high


def log_y(axes: Axes, limits: tuple[float, float]) -> None:
    """A decimal log axis with plain numbers; few decades get ticks in between."""
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    decades = math.log10(limits[1] / limits[0])
    subs = (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def shared_limits(panels: Sequence[Panel]) -> tuple[tuple[float, float], ...]:
    """Limits per panel: ours share theirs, published ones (other hardware) have their own."""
    ours = limits_of([panel for panel in panels if panel.group != PUBLISHED])
    return tuple(limits_of([panel]) if panel.group == PUBLISHED else ours for panel in panels)


def panel_looks(panel: Panel) -> dict[str, Look]:
    """Looks of a panel's systems, by name."""
    return looks_of([series.system for series in panel.series])


def draw_all_series(axes: Axes, panel: Panel) -> None:
    """Every series of a panel, each in its look."""
    looks = panel_looks(panel)
    for series in panel.series:
        draw_series(axes, series, looks[series.system])


def draw_series(axes: Axes, series: Series, look: Look) -> None:
    """A line with error bars (the ends over rounds, see Summary) through what was measured.

    Where nothing was measured the legend still names the system.
    """
    summaries = [mark.summary for mark in series.drawn if mark.summary is not None]
    ends = [interval(summary) for summary in summaries]
    below = [s.median - low for s, (low, _) in zip(summaries, ends, strict=True)]
    above = [high - s.median for s, (_, high) in zip(summaries, ends, strict=True)]
    axes.errorbar(
        [mark.x for mark in series.drawn],
        [summary.median for summary in summaries],
        yerr=[below, above] if any(below) or any(above) else None,
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label=series.label,
        elinewidth=1.0,
    )
    for mark in series.drawn:
        if mark.warnings and mark.summary is not None:
            (hollow,) = axes.plot(mark.x, mark.summary.median, look.marker, zorder=3)
            hollow.set(markerfacecolor="white", markeredgecolor=look.color)


def write_statuses(axes: Axes, panel: Panel) -> None:
    """Stand the status word of every missing mark on the x axis, in its system's colour."""
    n_at: dict[float, int] = {}
    looks = panel_looks(panel)
    for series in panel.series:
        for mark in series.missing:
            place = n_at[mark.x] = n_at.get(mark.x, 0) + 1
            axes.annotate(
                mark.status,
                xy=(mark.x, 0),
                xycoords=("data", "axes fraction"),
                xytext=(8 * (place - 1), 3),
                textcoords="offset points",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize=6.5,
                weight="bold",
                color=looks[series.system].color,
            )


def legend_below(axes: Axes, n_columns: int = 2) -> None:
    """Put the legend outside the data, a fixed distance below the axis label."""
    if axes.get_legend_handles_labels()[1]:
        box = axes.get_window_extent()
        axes_height_in = box.height / axes.figure.dpi
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(-0.02, -0.46 / axes_height_in),
            ncols=n_columns,
            columnspacing=1.2,
            labelspacing=0.35,
        )


def wrapped_subtitle(subtitle: str, width_in: float) -> list[str]:
    """Its lines, of about 0.06 inches a character of 8 points."""
    return textwrap.wrap(subtitle, int((width_in - 0.2) / 0.06)) or [""]


def head_and_foot(figure: Figure, text: FigureText) -> None:
    """Title and subtitle above, notes below; in inches, so that any height looks the same."""
    width, height = figure.get_size_inches()
    left = 0.09 / width
    figure.text(left, 1 - 0.08 / height, text.title, fontsize=11, weight="bold", va="top")
    subtitle = "\n".join(wrapped_subtitle(text.subtitle, width))
    figure.text(left, 1 - 0.30 / height, subtitle, fontsize=8, color="#555555", va="top")
    lines = wrapped_notes(text.notes, width)
    figure.text(left, 0.04 / height, "\n".join(lines), fontsize=7, color="#555555", va="bottom")
