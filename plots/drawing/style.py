"""The look of figures: one style sheet, one look per system, equal files for equal data."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import yaml
from matplotlib.figure import Figure

HERE = Path(__file__).parent
# No dates and no program versions inside: equal data give equal bytes.
FIXED_METADATA: dict[str, dict[str, str | None]] = {
    ".pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}
SPARE_LOOKS = tuple(
    (color, marker)
    for marker in ("p", "h", "*", "<", ">")
    for color in ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
)
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


def look_of(system: str) -> Look:
    """Return the look of a system; one that looks.yaml does not name gets one by its name."""
    known = yaml.safe_load((HERE / "looks.yaml").read_text())
    if system in known:
        return Look(**known[system])
    key = zlib.crc32(system.encode())
    color, marker = SPARE_LOOKS[key % len(SPARE_LOOKS)]
    return Look(color, marker, SPARE_LINES[key % len(SPARE_LINES)])


def save_figure(figure: Figure, stem: Path) -> tuple[Path, ...]:
    """Write STEM.pdf and STEM.png; equal figures give equal files."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = tuple(stem.with_suffix(suffix) for suffix in FIXED_METADATA)
    for path in paths:
        figure.savefig(path, metadata=FIXED_METADATA[path.suffix])
    plt.close(figure)
    return paths
