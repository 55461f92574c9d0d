"""A figure as a file: whole or not at all, and equal for equal data."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from harness.records.whole_files import replace_whole

# No dates and no program versions inside: equal data give equal bytes.
FIXED_METADATA: dict[str, dict[str, str | None]] = {
    ".pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}
OF_OTHERS: dict[str, str | None] = {"Date": None, "Creator": None}  # .svg


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure, whose file's suffix names the format, and close it.

    Raises OutputError where the file cannot be written.
    """
    content = BytesIO()
    metadata = FIXED_METADATA.get(path.suffix, OF_OTHERS)
    try:
        figure.savefig(content, format=path.suffix.removeprefix("."), metadata=metadata)
    finally:
        plt.close(figure)
    replace_whole(path, content.getvalue())


def save_figure(figure: Figure, stem: Path) -> tuple[Path, ...]:
    """Write STEM.pdf and STEM.png; raises OutputError as save_picture does."""
    paths = tuple(stem.with_suffix(suffix) for suffix in FIXED_METADATA)
    for path in paths:
        save_picture(figure, path)
    return paths
