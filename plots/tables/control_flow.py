"""What control flow each model's program has, read from its code; the paper's words behind.

show:
  rows: # a model, and what the paper says of its family
    - {model: tree_lstm, paper: "REC, IFP, ICF, TCF"}
"""

from __future__ import annotations

from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.control_flow import ControlFlow, control_flow
from plots.numbers.table import Cell, Column, Table
from plots.words.count_cells import table_of_rows
from plots.writing.table import write_table_and_rows

COLUMNS = {
    "iterates": "iterates (ITE)",
    "recurses": "recurses (REC)",
    "waits": "waits for values (TDC)",
    "is_parallel": "parallel inside an instance (IFP)",
    "varies": "instances differ (ICF)",
    "varies_in_training": "in training, too (TCF)",
}


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    found = found_of(artefact)
    rows = [
        {"model": model, **{name: getattr(flow, name) for name in COLUMNS}, "paper": paper}
        for (model, paper), flow in found.items()
    ]
    write_table_and_rows(table_of(artefact), rows, results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are models."""
    columns = [*(Column("our program", words) for words in COLUMNS.values())]
    columns.append(Column("paper", "of the family", published=True))
    rows = []
    for (model, paper), flow in found_of(artefact).items():
        cells = [Cell("yes" if getattr(flow, name) else "no") for name in COLUMNS]
        rows.append((artefact.label(model), (*cells, Cell(paper))))
    return table_of_rows(artefact, "model", columns, rows)


def found_of(artefact: Artefact) -> dict[tuple[str, str], ControlFlow]:
    """By model and the paper's words."""
    return {
        (row["model"], row["paper"]): control_flow(artefact.conf_dir, row["model"])
        for row in artefact.presentation.show["rows"]
    }
