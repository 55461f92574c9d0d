"""A table in every format at once, with its data as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.records.whole_files import replace_whole
from plots.drawing.saving import save_figure
from plots.drawing.table import draw_table
from plots.numbers.table import Table
from plots.numbers.tidy import Row, write_rows
from plots.writing.render import to_html, to_latex, to_markdown


def write_table(table: Table, path: Path) -> None:
    """Write path with the suffixes .pdf, .png, .tex, .md and .html."""
    save_figure(draw_table(table), path)
    for suffix, text in (
        (".tex", to_latex(table)),
        (".md", to_markdown(table)),
        (".html", to_html(table)),
    ):
        replace_whole(path.with_suffix(suffix), text)


def write_table_and_rows(table: Table, rows: Sequence[Row], path: Path) -> None:
    """Write the table, and its numbers as .csv."""
    write_table(table, path)
    write_rows(path.with_suffix(".csv"), rows)
