"""Stacked horizontal bars: where a time goes, a bar per system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

# Name, colour and hatch of each part; TOGETHER: parts that a system cannot tell apart, TOTAL: a
# whole of which no parts were published.
LOOKS = {
    "construct": ("construction", "#E69F00", "////"),
    "schedule": ("scheduling", "#0072B2", "...."),
    "execution": ("execution", "#BBBBBB", ""),
    "execution_together": ("scheduling and execution, not told apart", "#BBBBBB", "xxxx"),
    "forward": ("forward", "#56B4E9", ""),
    "forward_together": ("scheduling and forward, not told apart", "#56B4E9", "xxxx"),
    "backward": ("backward", "#CC79A7", "\\\\\\\\"),
    "update": ("update", "#333333", ""),
    "total": ("published total", "#CCCCCC", "----"),
}
TOGETHER, TOTAL = "_together", "total"
BAR_IN = 0.24


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its parts by the names of LOOKS, and the words behind it."""

    label: str
    parts: Mapping[str, float]
    words: str

    @property
    def length(self) -> float:
        return sum(self.parts.values())


def draw_bars(axes: Axes, bars: Sequence[Bar], longest: float) -> None:
    """Bars from top to bottom; the axis ends behind the longest."""
    for place, bar in enumerate(bars):
        left = 0.0
        for name, width in bar.parts.items():
            _, color, hatch = LOOKS[name]
            axes.barh(
                place, width, left=left, height=0.7, color=color, hatch=hatch, ec="white", lw=0
            )
            left += width
        axes.annotate(
            bar.words,
            (left, place),
            xytext=(2, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, 1.22 * (longest or 1.0))


def legend_of_parts(figure: Figure, names: Sequence[str], n_columns: int) -> None:
    """Name the parts that occur, below the last axes."""
    looks = [look for name, look in LOOKS.items() if name in names]
    bottom = figure.axes[-1].get_position().y0
    figure.legend(
        handles=[Patch(fc=c, hatch=h, ec="white", label=words) for words, c, h in looks],
        loc="upper center",
        bbox_to_anchor=(0.5, bottom - 0.48 / figure.get_figheight()),
        ncols=n_columns,
        columnspacing=1.2,
    )
