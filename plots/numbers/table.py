"""A table as a value: grouped columns; cells print a number, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import RecordError

DAGGER, TIMES, EN_DASH = "\N{DAGGER}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the group that it stands under, its label, and whether a paper published it."""

    group: str
    label: str
    published: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What is printed; `warned` puts a dagger behind it."""

    text: str
    warned: bool = False

    def __str__(self) -> str:
        return self.text + (DAGGER if self.warned else "")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows are (header, cells); every row has one cell per column."""

    title: str
    subtitle: str
    row_label: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        for header, cells in self.rows:
            if len(cells) != len(self.columns):
                raise RecordError(
                    f"table row {header} has {len(cells)} cells for {len(self.columns)} columns; "
                    "give one cell per column"
                )

    @property
    def dash_note(self) -> tuple[str, ...]:
        """What a dash means; nothing in a table without one."""
        has_dash = any(cell.text == EN_DASH for _, cells in self.rows for cell in cells)
        return (f"{EN_DASH} not part of this scale, or not published.",) if has_dash else ()

    @property
    def footnotes(self) -> tuple[str, ...]:
        """All that is printed below the table."""
        return (*self.notes, *self.dash_note)

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Neighbouring columns of equal group: (group, number of columns)."""
        runs: list[tuple[str, int]] = []
        for column in self.columns:
            if runs and runs[-1][0] == column.group:
                runs[-1] = (column.group, runs[-1][1] + 1)
            else:
                runs.append((column.group, 1))
        return tuple(runs)


def three_digits(value: float) -> str:
    """Spell a positive number with three significant digits, without an exponent."""
    if value == 0:
        return "0"
    magnitude = f"{value:.3g}"
    return f"{float(magnitude):.0f}" if "e+" in magnitude else _without_exponent(magnitude, value)


def _without_exponent(text: str, value: float) -> str:
    if "e-" not in text:
        digits = len(text.replace(".", "").lstrip("0"))
        if digits >= 3 or value >= 100:
            return text
        return f"{value:#.3g}".rstrip(".")
    mantissa, exponent = text.split("e-")
    n_decimals = int(exponent) + len(mantissa.replace(".", "")) - 1
    return f"{value:.{n_decimals}f}"


def plain(value: float, _position: int | None = None) -> str:
    """Spell a number as people write it: 0.25, 4, 1500."""
    return f"{value:g}" if abs(value) < 1e5 else f"{value:.0e}"
