"""Single cells under two layouts: latency, memory kernels and copied kB, beside the paper's.

show: {published: edbatch_table2, dynet: subgraph_dynet, pq: subgraph_pq}   # two systems
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.points import speedup_of
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.table import Cell, Column, Table
from plots.words.count_cells import published_cell, table_of_rows
from plots.words.trial_cells import (
    CELL,
    EXACT,
    KEYS,
    PARTS,
    cell_of,
    find,
    listed,
    measured_cell,
    rows_of_trials,
)
from plots.writing.table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    rows = rows_of_trials(artefact, KEYS, [quantity for quantity, *_ in PARTS])
    rows += [
        {"cell": cell, "system": published.short, "quantity": column, "value": value}
        for cell, values in published.rows.items()
        for column, value in zip(published.columns, values, strict=True)
    ]
    write_table_and_rows(table_of(artefact, published), rows, results_dir / stem)


def table_of(artefact: Artefact, published: PublishedRows) -> Table:
    """Rows are cells; per quantity DyNet's layout, the PQ tree's and their ratio, then the same
    of the paper.
    """
    columns: list[Column] = []
    for _, _, words in PARTS:
        for group, is_published in ((words, False), (f"{published.short}, {words}", True)):
            columns += [Column(group, label, is_published) for label in ("DyNet", "PQ", "ratio")]
    rows = []
    for cell in listed(artefact, CELL):
        cells: list[Cell] = []
        for quantity, name, _ in PARTS:
            cells += [*_our_cells(artefact, cell, quantity), *_their_cells(published, cell, name)]
        rows.append((cell.replace("_", " "), tuple(cells)))
    return table_of_rows(artefact, "cell", columns, rows, published)


def _our_cells(artefact: Artefact, cell: str, quantity: str) -> list[Cell]:
    show = artefact.presentation.show
    dynet, pq = (find(artefact, system=show[name], **{CELL: cell}) for name in ("dynet", "pq"))
    ratio = speedup_of(dynet, pq, quantity)
    if quantity in EXACT:
        ratio = replace(ratio, warnings=())
    return [cell_of(dynet, quantity), cell_of(pq, quantity), measured_cell(ratio, _hundredths)]


def _hundredths(value: float) -> str:
    return f"{value:.2f}"


def _their_cells(published: PublishedRows, cell: str, name: str) -> list[Cell]:
    a, b = (published.value(cell, f"{layout}_{name}") for layout in ("dynet", "pq"))
    printed = published.value(cell, f"ratio_{name}")  # where it does not follow from the two
    ratio = a / b if printed is None and a is not None and b else printed
    return [published_cell(a), published_cell(b), published_cell(ratio, _hundredths)]
