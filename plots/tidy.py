"""The data behind a figure or a table as one tidy CSV: a line per number, ours and the papers'."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One number; `source` is "measured" or where it was published.

    low, high: 95 % interval over rounds; empty from a single round and for a paper's number.
    """

    source: str
    comparison: str
    system: str
    axis: str
    x: float
    quantity: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    n_rounds: int | None
    status: str
    warnings: str


def write_csv(path: Path, lines: Iterable[Line]) -> None:
    """Write the lines in their order, numbers with all their digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([item.name for item in fields(Line)])
        for line in lines:
            writer.writerow(["" if value is None else value for value in astuple(line)])
