"""Published tables whose rows have names (workloads, cells), from plots/published/*.yaml.

Beside `paper`, `where`, `short` and `hardware` a file has `columns`, names of its numbers, and
`rows`, numbers by the name of a row; null is what was not published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.errors import ConfigError
from plots.numbers.published import FOLDER


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """Numbers by row and column; `short` heads their columns in a table."""

    short: str
    source: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]

    def value(self, row: str, column: str) -> float | None:
        """Return a number, None where none was published."""
        if row not in self.rows or column not in self.columns:
            return None
        return self.rows[row][self.columns.index(column)]


def read_published_rows(name: str, folder: Path = FOLDER) -> PublishedRows:
    """Read one table; raises ConfigError for an unknown name or a row of another length."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise ConfigError(f"published table {name} is unknown; choose one of: {known}")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    columns = tuple(content["columns"])
    for row, values in content["rows"].items():
        if len(values) != len(columns):
            raise ConfigError(
                f"published table {name}, row {row} has {len(values)} numbers for {len(columns)} "
                "columns; correct the file"
            )
    return PublishedRows(
        short=content["short"],
        source=f"{content['paper']}, {content['where']}; {content['hardware']}",
        columns=columns,
        rows={str(row): tuple(values) for row, values in content["rows"].items()},
    )
