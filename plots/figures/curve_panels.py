"""Panels of curves, each named at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynbatch.plots.figures import page
from dynbatch.plots.figures.page import Look

LEFT_IN, TITLE_IN, BELOW_IN, LABEL_IN = 0.6, 0.24, 0.22, 0.15
NARROW_IN, LOW_IN, HIGH_IN, PAGE_IN = 1.0, 0.9, 2.0, 4.8  # bounds of axes; of a column
PAD_IN, SHIFT_IN = 0.13, 0.035  # from marks to the ends of an axis; between curves
TICK_IN = 0.28  # minimum distance of y ticks
LINE_IN, NAME_IN = 1.3 * page.TEXT_PT / 72, 0.34  # between two names; from axes to names
TILTED: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
Names = Sequence[tuple[str, str]]  # pairs of a curve, or an empty text, and its label


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves in one pair of axes.

    Attributes:
        points: `curve`, `name`, `x`, `tick` (text at x) and the columns of numbers.
        looks: look of each curve.
        scale: panels with equal scales share their limits.
        marked: y values with a horizontal line.
        is_joined: True if lines join the points of a curve.
    """

    title: str
    x_label: str
    y_label: str
    points: pd.DataFrame
    looks: Mapping[str, Look]
    scale: tuple[object, ...]
    marked: tuple[float, ...] = ()
    is_joined: bool = True

    @property
    def is_shown(self) -> pd.Series:
        """Mask of points whose curve has any value."""
        return self.points.value.notna().groupby(self.points.curve).transform("any")

    @property
    def lost(self) -> pd.DataFrame:
        """Points without a value, of curves that have others."""
        return self.points[self.is_shown & self.points.value.isna()]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Curves and their names; those without any value come last, after their status."""
        heads = self.points.assign(is_shown=self.is_shown).drop_duplicates("curve")
        shown, absent = heads[heads.is_shown], heads[~heads.is_shown]
        names = list(zip(shown.curve, shown["name"], strict=True))
        for status, group in absent.groupby("status", sort=False):
            names += [("", f"{status}:"), *zip(group.curve, group["name"], strict=True)]
        return names


def draw_panels(columns: Sequence[Sequence[Panel]]) -> Figure:
    """Draw columns of panels side by side.

    If all columns have the same curves and names make axes too narrow, only the last has names.
    """
    texts = [[text for panel in column for _, text in panel.names] for column in columns]
    widths = [NAME_IN + 0.05 + max(map(page.measure_text, column)) for column in texts]
    for first in (0, len(columns) - 1):  # first column with names
        rights = [PAD_IN] * first + widths[first:]
        width = (page.WIDTH_IN - sum(rights)) / len(columns) - LEFT_IN
        if width >= NARROW_IN or columns[0][0].looks != columns[-1][0].looks:
            break
    width = max(width, NARROW_IN)
    panels = [panel for column in columns for panel in column]
    n_rows = max(map(len, columns))
    names_in = LINE_IN * max(len(panel.names) for panel in panels)
    height = max(LOW_IN, min(HIGH_IN, PAGE_IN / n_rows), names_in)
    tilted = [text for panel in panels if not panel.is_joined for text in panel.points.tick]
    below = BELOW_IN + 0.5 * max(map(page.measure_text, tilted), default=0.0)
    step = TITLE_IN + height + below
    total_width = sum(rights) + (LEFT_IN + width) * len(columns)
    figure = page.start_figure(n_rows * step + LABEL_IN, total_width)
    for n, column in enumerate(columns):
        left = LEFT_IN + sum(rights[:n]) + (LEFT_IN + width) * n
        for row, panel in enumerate(column):
            axes = page.place_axes(figure, left, row * step + TITLE_IN, width, height)
            _set_axes(axes, panel, [other for other in panels if other.scale == panel.scale])
            ends = _draw_curves(axes, panel)
            add_statuses(axes, panel.lost, panel.looks)
            add_names(axes, panel.names if n >= first else (), panel.looks, ends)
            axes.set_xlabel(panel.x_label if panel is column[-1] else "")
            axes.set_ylabel(panel.y_label)
    return figure


def _set_axes(axes: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    """Set ticks, and limits that all panels of a scale share, with space for marks and statuses.

    Args:
        alike: all panels of the same scale.
    """
    width, height = page.measure_axes(axes)
    side = PAD_IN + min(SHIFT_IN * len(panel.looks) / 2, width / 6)
    xs = [x for other in alike if other.x_label == panel.x_label for x in other.points.x]
    xlim = _pad(xs, width, side, side)
    statuses = [text for other in alike for text in other.lost.status]
    room = max((page.measure_text(f"9 {text}", page.SMALL_PT) for text in statuses), default=0.0)
    ys = pd.concat([other.points[["value", "low", "high"]] for other in alike]).to_numpy(float)
    ylim = _pad([*ys[ys > 0], *panel.marked], height, PAD_IN + min(room, height / 2), PAD_IN)
    axes.set(xscale="log", yscale="log", xlim=xlim, ylim=ylim, title=panel.title)
    page.set_ticks(axes.yaxis, page.choose_log_ticks(*ylim, round(height / TICK_IN)))
    texts = dict(sorted(zip(panel.points.x, panel.points.tick, strict=True), reverse=True))
    style = {} if panel.is_joined else TILTED
    room = LINE_IN if style else 0.06 + max(page.measure_text(text) for text in texts.values())
    ticks: list[float] = []  # from the largest down, without overlap of texts
    for x in texts:
        if not ticks or ticks[-1] > x * (xlim[1] / xlim[0]) ** (room / width):
            ticks.append(x)
    axes.set_xticks(ticks, [texts[x] for x in ticks], **style)
    axes.xaxis.minorticks_off()
    for y in panel.marked:
        axes.axhline(y, color=page.GRAY, linewidth=0.8, zorder=1)


def _pad(ends: Sequence[float], size: float, before: float, after: float) -> tuple[float, float]:
    """Return limits of a logarithmic axis with margins, in inches, before and after all numbers.

    Args:
        ends: numbers between the margins.
        size: length of the axis in inches.
    """
    low, high = min(ends, default=1.0), max(ends, default=10.0)
    if high < low * 1.2:
        low, high = low / 1.1, high * 1.1
    per_inch = (high / low) ** (1 / (size - before - after))
    return float(low / per_inch**before), float(high * per_inch**after)


def _draw_curves(axes: Axes, panel: Panel) -> dict[str, tuple[float, float]]:
    """Draw marks, error bars and lines; return the last point of each curve.

    Curves are shifted so that no mark hides another, by at most a third of the way to the next x.
    """
    points = panel.points.dropna(subset="value")
    curves = list(dict.fromkeys(points.curve))
    low, high = np.log(axes.get_xlim())
    gaps = np.diff(np.log(np.sort(points.x.unique())))
    shift = (high - low) * SHIFT_IN * (1 if panel.is_joined else 2) / page.measure_axes(axes)[0]
    shift = min(shift, 0.35 * gaps.min(initial=np.inf) / max(1, len(curves) - 1))
    ends = {}
    for n, curve in enumerate(curves):
        part, look = points[points.curve == curve].sort_values("x"), panel.looks[curve]
        x = part.x * np.exp(shift * (n - (len(curves) - 1) / 2))
        line = look.line if panel.is_joined and len(part) > 1 else "none"
        axes.plot(x, part.value, zorder=3, **{**look.mark, "linestyle": line})
        axes.vlines(x, part.low, part.high, color=look.color, linewidth=0.9, zorder=2)
        ends[curve] = (float(x.iloc[-1]), float(part.value.iloc[-1]))
    return ends


def add_names(
    axes: Axes,
    names: Names,
    looks: Mapping[str, Look],
    ends: Mapping[str, tuple[float, float]],
) -> None:
    """Write names to the right of axes without overlap, each with a thin line from its curve.

    Args:
        names: curves and texts; those without an end are below all others, in this order.
        ends: last point of each curve.
    """
    width, height = page.measure_axes(axes)
    points = {curve: (axes.transData - axes.transAxes).transform(ends[curve]) for curve in ends}
    wanted = [points[name][1] if name in ends else -n for n, (name, _) in enumerate(names)]
    half = LINE_IN / 2 / height
    places = page.spread(wanted, 2 * half, half, 1 - half)
    for (curve, text), position in zip(names, places, strict=True):
        color = looks[curve].color if curve in looks else page.DIM
        if curve in ends:
            x, y = points[curve]
            axes.plot(
                (x, 1, 1 + (NAME_IN - 0.07) / width), (y, y, position), transform=axes.transAxes,
                color=color, linewidth=0.5, linestyle=(0, (1, 2)), marker=looks[curve].marker,
                markevery=[2], markersize=3.4, clip_on=False, zorder=1,
            )  # fmt: skip
        axes.text(
            1 + NAME_IN / width, position, text,
            transform=axes.transAxes, va="center_baseline", color=color,
        )  # fmt: skip


def add_statuses(axes: Axes, lost: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    """Write the statuses of points without a value vertically at the x axis."""
    width, height = page.measure_axes(axes)
    groups = [points for _, points in lost.groupby(["x", "status"])]
    low, high = np.log(axes.get_xlim())
    wanted = [(np.log(points.x.iloc[0]) - low) / (high - low) for points in groups]
    for position, points in zip(page.spread(wanted, LINE_IN / width, 0, 1), groups, strict=True):
        text, color = str(points.status.iloc[0]), looks[points.curve.iloc[0]].color
        if len(points) > 1:
            text, color = f"{len(points)} {text}", page.DIM
        axes.text(
            position, 0.03 / height, text, transform=axes.transAxes,
            rotation=90, ha="center", va="bottom", color=color, fontsize=page.SMALL_PT,
        )  # fmt: skip
