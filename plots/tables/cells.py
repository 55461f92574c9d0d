"""Tables as text: numbers of a tidy frame, formatted and pivoted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.records.numbers import NOT_PLANNED, WIDE_INTERVAL
from dynbatch.plots.declaration import CEILING, OVER
from dynbatch.plots.published import PUBLISHED

DAGGER, EN_DASH, TIMES = "\N{DAGGER}", "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
PAPER = "paper: "  # prefix of labels of published numbers
# Counted, not timed: exact under any background load.
COUNTED = (
    *("n_batches", "lower_bound", "n_nodes", "n_parameters", "n_tried"),
    *("n_launches", "n_copies", "copied_kb"),
)
# Of a process, or of short phases: often vary by more than 5 %, so that a range says more.
SHOWN_AS_RANGES = {
    *("preparing_s", "peak_memory_mib", "schedule_ms"),
    *("construct_ms", "construction_s", "construction_percent"),
}
MAX_COLUMNS, MAX_LETTERS = 8, 130  # of a table that fits a page


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its numbers.

    Attributes:
        stem: path without suffix, relative to the results directory.
        numbers: rows of the CSV.
        cells: formatted texts, in the order in which they are printed; the names of the axes are
            their headers. With two levels of columns, the first is a group of columns.
        notes: footnotes, the most important first.
        is_text: True if cells are mostly text, which wraps; such tables are not split into parts.
    """

    stem: str
    title: str
    numbers: pd.DataFrame
    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    is_text: bool = False

    def split_parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield parts of the table that fit a page, each with its heading: a group of columns."""
        cells = self.cells
        groups = cells.columns.get_level_values(0).unique() if cells.columns.nlevels > 1 else [""]
        if self.is_text or (fits_page(cells) and len(groups) > 1):
            yield "", cells
            return
        for group in groups:
            part = pd.DataFrame(cells[group]) if group else cells
            is_filled = (part != EN_DASH).any(axis=1)
            part = part[is_filled] if len(groups) > 1 and is_filled.any() else part
            runs = _split_columns(part)
            for n, run in enumerate(runs, 1):
                yield f"{group} ({n} of {len(runs)})".strip() if len(runs) > 1 else group, run


def fits_page(cells: pd.DataFrame) -> bool:
    """Return whether a table is narrow enough for a page."""
    heads = [": ".join(key) if isinstance(key, tuple) else str(key) for key in cells]
    widths = [max(map(len, (head, *cells.iloc[:, n]))) for n, head in enumerate(heads)]
    keys = cells.index.to_frame().astype(str)
    widths += [int(keys[name].str.len().max()) for name in keys] if len(keys) else []
    return cells.shape[1] <= MAX_COLUMNS and sum(widths) + 3 * len(widths) <= MAX_LETTERS


def _split_columns(cells: pd.DataFrame) -> list[pd.DataFrame]:
    """Split columns into as few runs of about equal length as fit a page."""
    for n_runs in range(1, cells.shape[1] + 1):
        width = math.ceil(cells.shape[1] / n_runs)
        runs = [cells.iloc[:, n : n + width] for n in range(0, cells.shape[1], width)]
        if all(map(fits_page, runs)):
            return runs
    return runs


def format_significant(value: float) -> str:
    """Format a number with three significant digits, thousands separators and no exponent."""
    if value == 0 or math.isnan(value):
        return "0" if value == 0 else EN_DASH
    rounded = float(f"{value:.3g}")
    n_decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{n_decimals}f}"


def format_plain(value: float) -> str:
    """Format a number without trailing zeros: 0.25, 4, 1,500."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def format_interval(low: float, high: float, n_decimals: int) -> str:
    """Format the ends of an interval, rounded outward so that it never looks too narrow."""
    unit = 10**n_decimals
    ends = (math.floor(round(low * unit, 6)) / unit, math.ceil(round(high * unit, 6)) / unit)
    return f"{ends[0]:.{n_decimals}f} to {ends[1]:.{n_decimals}f}"


def format_ratio(value: float, low: float, high: float, warnings: str = "") -> str:
    """Format a ratio as "1.83 (1.79 to 1.88)†"; that of a single round has no interval."""
    n_decimals = 2 if value < 10 else 1 if value < 100 else 0
    interval = "" if pd.isna(low) else f" ({format_interval(low, high, n_decimals)})"
    return f"{value:.{n_decimals}f}{interval}" + DAGGER * bool(warnings)


def format_exact(value: float) -> str:
    """Format a count, a mean of counts, or batches over their bound; only an exact 1 is "1"."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.{1 if value >= 100 else 2}f}"


def format_number(number: pd.Series) -> str:
    """Format a row of numbers, or its status; a fraction of the matmul bound is in percent."""
    if number.status == PUBLISHED:
        return format_plain(number.value)  # no more digits than the paper
    if number.status != "ok":
        return EN_DASH if number.status == NOT_PLANNED else str(number.status)
    quantity, over, side = str(number.quantity).partition(OVER)
    mark = DAGGER * bool(number.warnings)
    if side == CEILING:
        return format_significant(100 * number.value) + mark
    if quantity in COUNTED or quantity.endswith("over_bound"):
        return _format_spread(number, format_exact)
    if over:
        ends = (number.low, number.high, number.warnings)
        return "1" if number.value == 1 else format_ratio(number.value, *ends)
    rounds = f" [{number.n_rounds:.0f}]" if number.is_partial else ""
    if is_range(number):
        return format_range(number.low, number.high) + rounds
    return _format_spread(number, format_significant) + mark + rounds


def is_range(number: pd.Series) -> bool:
    """Return whether a number is shown as its interval, because that is wide."""
    is_wide = number.status == "ok" and number.warnings == WIDE_INTERVAL
    return is_wide and number.quantity in SHOWN_AS_RANGES


def format_range(low: float, high: float) -> str:
    """Format the ends of a wide interval with three significant digits, rounded outward."""
    exponent = math.floor(math.log10(max(abs(low), abs(high)))) - 2
    ends = math.floor(low / 10**exponent), math.ceil(high / 10**exponent)
    return " to ".join(f"{end * 10**exponent:,.{max(0, -exponent)}f}" for end in ends)


def _format_spread(number: pd.Series, format_value: Callable[[float], str]) -> str:
    """Format a number, with the smallest and the largest if there are several learning seeds."""
    text = format_value(number.value)
    if number.get("n_seeds", 1) > 1 and number.low != number.high:
        return f"{text} ({format_value(number.low)} to {format_value(number.high)})"
    return text


def pivot_numbers(
    numbers: pd.DataFrame,
    rows: Mapping[str, str],
    columns: Sequence[str],
    format_row: Callable[[pd.Series], str] = format_number,
) -> pd.DataFrame:
    """Arrange numbers as cells, in order of appearance.

    Args:
        rows: columns of `numbers` that head rows, with their printed headers.
        columns: columns of `numbers` that head columns, the outermost first; those after the first
            share a label. Categories are printed in their order.
        format_row: formats a row of `numbers`.
    """
    keys = [*rows, *columns]
    for _, number in numbers[numbers.duplicated(keys)].iterrows():
        cell = ", ".join(f"{key}={number[key]}" for key in keys)
        raise ConfigError(f"two numbers for the cell {cell}; add a key to rows or columns")
    heads = numbers[keys].copy()
    for key in keys:
        if not isinstance(heads[key].dtype, pd.CategoricalDtype):
            values = heads[key].astype(object).where(heads[key].notna(), "")
            heads[key] = pd.Categorical(values, values.unique())
    texts = [format_row(number) for _, number in numbers.iterrows()]
    index = pd.MultiIndex.from_frame(heads)
    wide = pd.Series(texts, index, dtype=object).unstack([*columns])  # noqa: PD010
    wide = wide.sort_index().sort_index(axis=1).fillna(EN_DASH)
    wide.index = pd.Index(list(wide.index)).set_names([*rows.values()])
    labels: list[Any] = list(wide.columns)
    if len(columns) > 1:
        labels = [(first, ", ".join(filter(None, others))) for first, *others in labels]
    return wide.set_axis(pd.Index(labels), axis=1)
