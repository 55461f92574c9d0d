"""The data behind a figure or a table as one tidy CSV: a line per number, ours and the papers'."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path

from harness.records.whole_files import replace_whole

Row = Mapping[str, object]  # of a table that is no quantity against an axis


@dataclass(frozen=True, slots=True)
class Line:
    """One number; `source` is "measured" or where it was published.

    low, high: see harness.records.stats.Summary; empty for a single round and a paper's number.
    interval: what they are, in words.
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
    interval: str
    n_rounds: int | None
    status: str
    warnings: str


def write_csv(path: Path, lines: Iterable[Line]) -> None:
    """Write the lines in their order, numbers with all their digits."""
    names = [item.name for item in fields(Line)]
    write_cells(path, names, (astuple(line) for line in lines))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, whose keys are the columns; what a row lacks or does not know stays empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    write_cells(path, columns, ([row.get(column) for column in columns] for row in rows))


def write_cells(path: Path, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV, whole or not at all; None is an empty cell.

    Raises OutputError where it cannot be written.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    replace_whole(path, text.getvalue())
