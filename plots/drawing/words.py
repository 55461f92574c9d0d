"""Words in place of a picture that cannot be drawn: which policy failed, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from plots.drawing.saving import save_picture
from plots.drawing.style import use_style

WIDTH_IN, HEIGHT_IN, CHARACTER_IN = 6.2, 1.6, 0.075


def draw_words(reasons: Mapping[str, str], path: Path, title: str) -> None:
    """Write a picture of nothing but names and reasons; the suffix names the format."""
    use_style()
    figure, axes = plt.subplots(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    write_words(axes, "\n".join(f"{name}: {why}" for name, why in reasons.items()), WIDTH_IN)
    figure.suptitle(title)
    save_picture(figure, path)


def write_words(axes: Axes, words: str, width_in: float) -> None:
    """Fill empty axes with text, wrapped to their width."""
    n_characters = max(12, int(width_in / CHARACTER_IN))
    lines = [textwrap.fill(line, n_characters) for line in words.split("\n")]
    text = "\n".join(lines)
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=8, transform=axes.transAxes)
    axes.set_axis_off()
