"""Draw docs/map.svg and the table of folders in docs/map.md from the code: no picture by hand.

A box is a folder of a layer (tests/support/layers.py), its words the first line of its
`__init__.py`. An arrow is an import, left out where others lead the same way. Run it
after a folder changed:

    python -m scripts.write_map
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from harness.records.files import replace_whole
from harness.values.places import ROOT
from scripts.marked_page import MarkedPage
from tests.support.layers import LAYERS, MODULES, PACKAGES, imported_at_run_time, reachable

PICTURE = ROOT / "docs" / "map.svg"
PAGE = MarkedPage(ROOT / "docs" / "map.md", "write_map")
ADDED = ("datasets", "harness/models", "harness/policies", "systems")  # one file a thing
MOST_IN_A_ROW = 4
BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, GAP, LANE = 160, 56, 88, 14, 8
LEAST_WIDTH = 790  # fuller rows make it wider
FILLS = {True: "#fde7c7", False: "#e3eef8"}  # differ in lightness of the border, too
SWEEPS = 25  # odd: the last goes up
LINE = 'fill="none" stroke="#444" stroke-width="1"'

Edges = Mapping[str, set[str]]


@dataclass(eq=False)
class Spot:
    """Where a box stands, or ("" for name) where an arrow passes a row that it does not end in."""

    name: str
    row: int
    x: float = 0.0
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)

    @property
    def width(self) -> int:
        return BOX_WIDTH if self.name else LANE

    @property
    def y(self) -> int:
        return self.row * ROW_HEIGHT + 8


def box_of(module: str) -> str | None:
    """The box of a module, as a path; None for the bare packages."""
    prefixes = [p.rstrip(".") for layer in LAYERS for p in layer if p not in PACKAGES]
    fits = [p for p in prefixes if f"{module}.".startswith(f"{p}.")]
    return max(fits, key=len).replace(".", "/") if fits and module != "harness" else None


def boxes() -> list[str]:
    """All boxes in the order of the layers."""
    there = {box_of(module) for module in MODULES}
    prefixes = (prefix for layer in LAYERS for prefix in layer if prefix not in PACKAGES)
    names = (prefix.rstrip(".").replace(".", "/") for prefix in prefixes)
    return [name for name in names if name in there]


def imports() -> dict[str, set[str]]:
    """Which boxes a box imports, at run time."""
    edges: dict[str, set[str]] = {name: set() for name in boxes()}
    for module in MODULES:
        source = box_of(module)
        targets = {box_of(name) for name in imported_at_run_time(module)}
        if source is not None:
            edges[source] |= {t for t in targets if t is not None and t != source}
    return edges


def without_detours(edges: Edges) -> dict[str, set[str]]:
    """The fewest arrows that lead the same ways: a transitive reduction."""
    kept = {}
    for name, targets in edges.items():
        beyond: set[str] = set()
        for target in targets:
            beyond |= reachable(dict(edges), target)
        kept[name] = targets - beyond
    return kept


def rows_of(names: Sequence[str], edges: Edges) -> list[list[str]]:
    """Boxes in rows, the lowest layer first: a row imports from rows below it only."""
    rows: list[list[str]] = [[]]
    for name in names:
        if len(rows[-1]) == MOST_IN_A_ROW or any(other in edges[name] for other in rows[-1]):
            rows.append([])
        rows[-1].append(name)
    return rows


def placed(rows: Sequence[Sequence[str]], edges: Edges) -> list[list[Spot]]:
    """Spots by row from the top, arrows short and with few crossings (Sugiyama's method)."""
    n_rows = len(rows)
    grid = [[Spot(name, n_rows - 1 - i) for name in row] for i, row in enumerate(rows)][::-1]
    spots = {spot.name: spot for row in grid for spot in row}
    lanes: dict[tuple[str, int], Spot] = {}
    for source in sorted(spots.values(), key=lambda spot: spot.row):
        for name in sorted(edges[source.name]):
            _lead(source, spots[name], grid, lanes)
    width = max(LEAST_WIDTH, *(sum(spot.width + GAP for spot in row) for row in grid))
    for row in grid:
        _spread(row, width)
    for sweep in range(SWEEPS):
        for row in grid if sweep % 2 else grid[::-1]:
            wishes = {id(spot): _wish(spot, sweep) for spot in row}
            row.sort(key=lambda spot: wishes[id(spot)])
            for spot in row:
                spot.x = wishes[id(spot)]
            _spread(row, width)
    return grid


def _lead(
    source: Spot, target: Spot, grid: list[list[Spot]], lanes: dict[tuple[str, int], Spot]
) -> None:
    """Lead an arrow down to its target; all that pass a row on the way to one box share a lane."""
    spot = source
    for row in range(source.row + 1, target.row + 1):
        below = target if row == target.row else lanes.get((target.name, row))
        if below is None:
            below = lanes[target.name, row] = Spot("", row)
            grid[row].append(below)
        if below not in spot.below:
            spot.below.append(below)
            below.above.append(spot)
        spot = below


def _wish(spot: Spot, sweep: int) -> float:
    """The mean place of its neighbours; in the last sweeps of both sides, and lanes straighten."""
    near = spot.above if sweep % 2 else spot.below
    if sweep >= SWEEPS - 7:
        near = [*spot.above, *spot.below] if spot.name else spot.below
    return sum(other.x for other in near) / len(near) if near else spot.x


def _spread(row: Sequence[Spot], width: float) -> None:
    """Move the spots of a row apart, none beyond the margins, each as little as possible."""
    left = 0.0
    for spot in row:
        spot.x = max(spot.x, left + spot.width / 2)
        left = spot.x + spot.width / 2 + GAP
    right = width
    for spot in reversed(row):
        spot.x = round(min(spot.x, right - spot.width / 2), 1)
        right = spot.x - spot.width / 2 - GAP


def words_of(folder: str) -> str:
    """What a folder or a module says of itself in its first line, without the full stop."""
    path = ROOT / folder / "__init__.py"
    text = (path if path.exists() else ROOT / f"{folder}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).rstrip(".")


def path_of(box: str) -> str:
    """How a box is written in text: folders end in a slash."""
    return f"{box}/" if (ROOT / box).is_dir() else f"{box}.py"


def svg() -> str:
    """The picture."""
    edges = imports()
    grid = placed(rows_of(boxes(), edges), without_detours(edges))
    spots = [spot for row in grid for spot in row if spot.name]
    left = min(spot.x - spot.width / 2 for row in grid for spot in row) - 4
    width = max(spot.x + spot.width / 2 for row in grid for spot in row) + 4 - left
    height = (len(grid) - 1) * ROW_HEIGHT + BOX_HEIGHT + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} 0 {width:g} {height}"'
        f' width="{width:g}" height="{height}" font-family="Helvetica, Arial, sans-serif">',
        "<title>Folders in layers; arrows are imports, and all point down</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0,1 L7,4 L0,7 z" fill="#444"/></marker></defs>',
        f'<rect x="{left:g}" width="100%" height="100%" fill="#ffffff"/>',
        *(arrow for row in grid for spot in row for arrow in _arrows(spot)),
        *(line for spot in spots for line in _box(spot)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _arrows(source: Spot) -> list[str]:
    """The ways from a spot to those below; a tip where a box is met, and a line across a lane."""
    arrows = []
    bottom = source.y + BOX_HEIGHT
    for target in source.below:
        x, end = _port(source, target, source.below), _port(target, source, target.above)
        middle = (bottom + target.y) / 2
        path = f"M{x:g},{bottom} C{x:g},{middle:g} {end:g},{middle:g} {end:g},{target.y}"
        if target.name:
            arrows.append(f'<path d="{path}" {LINE} marker-end="url(#tip)"/>')
        else:
            arrows.append(f'<path d="{path} V{target.y + BOX_HEIGHT}" {LINE}/>')
    return arrows


def _port(spot: Spot, other: Spot, side: Sequence[Spot]) -> float:
    """Where on its edge a box is left or met, in the order of what is at the other ends."""
    if not spot.name:
        return spot.x
    order = sorted(side, key=lambda one: one.x)
    share = (order.index(other) + 1) / (len(order) + 1)
    return round(spot.x + (share - 0.5) * BOX_WIDTH, 1)


def _box(spot: Spot) -> list[str]:
    added = spot.name in ADDED
    x, stroke = spot.x - BOX_WIDTH / 2, 2.5 if added else 1
    texts = textwrap.wrap(re.split("; |[.] ", words_of(spot.name))[0], 26)
    assert len(texts) <= 3, f"{spot.name}: the first line of its docstring is too long to be drawn"
    return [
        f'<rect x="{x:g}" y="{spot.y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"'
        f' fill="{FILLS[added]}" stroke="#222" stroke-width="{stroke}"/>',
        f'<text x="{x + 7:g}" y="{spot.y + 15}" font-size="12" font-weight="bold">'
        f"{escape(path_of(spot.name))}</text>",
        *(
            f'<text x="{x + 7:g}" y="{spot.y + 28 + 12 * i}" font-size="10">{escape(text)}</text>'
            for i, text in enumerate(texts)
        ),
    ]


def table() -> str:
    """Every folder in one line, users above what they use; folders in folders below theirs."""
    lines = ["| folder | what is in it |", "|---|---|"]
    for box in reversed(boxes()):
        inner = sorted(
            str(path.parent.relative_to(ROOT))
            for path in (ROOT / box).rglob("__init__.py")
            if path.parent != ROOT / box
        )
        for folder in (box, *inner):
            lines.append(f"| `{path_of(folder)}` | {words_of(folder)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both."""
    replace_whole(PICTURE, svg())
    PAGE.write(table())


if __name__ == "__main__":
    main()
