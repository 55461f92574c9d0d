"""The look of figures: one style sheet, one look per system."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import yaml

HERE = Path(__file__).parent
# For systems that looks.yaml does not name: eight colours of Paul Tol's, then those of looks.yaml.
SPARE_COLORS = (
    *("#332288", "#44AA99", "#999933", "#882255", "#117733", "#DDCC77", "#CC6677", "#88CCEE"),
    *("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#777777"),
)
SPARE_MARKERS = ("p", "h", "*", "<", ">", "d", "8", "^", "H", "v", "s", "o")
SPARE_LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, marker and line style of one system."""

    color: str
    marker: str
    line: str


def use_style() -> None:
    """Draw off screen, with the style sheet of this package."""
    mpl.use("Agg")
    plt.style.use(HERE / "bench.mplstyle")


def looks_of(systems: Sequence[str]) -> dict[str, Look]:
    """Looks of the systems of one panel, no two with the same colour or marker while both last.

    Then no two with the same colour, and then none with the same of both.
    A system that looks.yaml names keeps its look, unless one before it in the panel has it; any
    other gets one by its name, the same wherever nobody else in the panel has it.
    """
    named: dict[str, dict[str, str]] = yaml.safe_load((HERE / "looks.yaml").read_text())
    looks: dict[str, Look] = {}
    for system in (*(s for s in systems if s in named), *sorted(set(systems) - set(named))):
        own = [Look(**named[system])] if system in named else []
        free = [look for look in (*own, *_spare_looks(system)) if look not in looks.values()]
        looks[system] = min(free, key=lambda look: _likeness(look, looks.values()))
    return looks


def _likeness(look: Look, taken: Collection[Look]) -> int:
    """How hard it is to tell from those that are taken; 0: nothing of it is."""
    same_color = any(look.color == other.color for other in taken)
    same_marker = any(look.marker == other.marker for other in taken)
    same_both = any((look.color, look.marker) == (one.color, one.marker) for one in taken)
    return same_marker + 2 * same_color + 4 * same_both


def _spare_looks(system: str) -> list[Look]:
    """All spare looks in an order that follows from the name; its first are unlike in colour."""
    start = zlib.crc32(system.encode())
    colors, markers = _turned(SPARE_COLORS, start), _turned(SPARE_MARKERS, start)
    return [
        Look(color, marker, line)
        for line in _turned(SPARE_LINES, start)
        for marker in markers
        for color in colors
    ]


def _turned(values: tuple[str, ...], start: int) -> tuple[str, ...]:
    """The same values from another start on."""
    first = start % len(values)
    return values[first:] + values[:first]
