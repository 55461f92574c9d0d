"""How long it takes to batch and lay out a cell, ours and the paper's.

show: {published: edbatch_layout_time}
"""

from __future__ import annotations

from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.table import Column, Table
from plots.words.count_cells import published_cell, table_of_rows
from plots.words.trial_cells import CELL, KEYS, cell_of, find, listed, rows_of_trials
from plots.writing.table import write_table_and_rows

QUANTITY = "preparing_ms"


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    rows = rows_of_trials(artefact, KEYS, [QUANTITY])
    rows += [
        {"cell": cell, "system": published.short, "quantity": QUANTITY, "value": value}
        for cell, (value,) in published.rows.items()
    ]
    write_table_and_rows(table_of(artefact, published), rows, results_dir / stem)


def table_of(artefact: Artefact, published: PublishedRows) -> Table:
    """Rows are cells, columns systems and the paper."""
    systems = listed(artefact, "system")
    columns = [
        *(Column("search and layout (ms)", artefact.label(system)) for system in systems),
        Column("search and layout (ms)", published.short, published=True),
    ]
    rows = []
    for cell in listed(artefact, CELL):
        points = [find(artefact, system=system, **{CELL: cell}) for system in systems]
        cells = [cell_of(point, QUANTITY) for point in points]
        cells.append(published_cell(published.value(cell, "layout_ms")))
        rows.append((cell.replace("_", " "), tuple(cells)))
    return table_of_rows(artefact, "cell", columns, rows, published)
