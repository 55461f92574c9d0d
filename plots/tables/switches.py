"""A cell under every combination of the subgraph switches: what each of them brings.

show: {switches: {layout: layout, ahead_of_time: ahead of time, pre_gather: pre-gather}}
"""

from __future__ import annotations

from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.table import EN_DASH, Cell, Column, Table
from plots.words.count_cells import table_of_rows
from plots.words.trial_cells import CELL, KEYS, PARTS, cell_of, find, listed, rows_of_trials
from plots.writing.table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    rows = rows_of_trials(artefact, KEYS, [quantity for quantity, *_ in PARTS])
    write_table_and_rows(table_of(artefact), rows, results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are cells and systems; columns the switches, then latency, kernels and copies."""
    switches: dict[str, str] = artefact.presentation.show["switches"]
    columns = [Column("switches", words) for words in switches.values()]
    columns += [Column("measured", words) for *_, words in PARTS]
    rows = []
    for cell in listed(artefact, CELL):
        for system in listed(artefact, "system"):
            point = find(artefact, system=system, **{CELL: cell})
            record = next((r for r in point.records if r is not None), None) if point else None
            options = record.config.get("system_options", {}) if record else {}
            cells = [Cell(_word(options.get(name))) for name in switches]
            cells += [cell_of(point, quantity) for quantity, *_ in PARTS]
            rows.append((f"{cell.replace('_', ' ')}, {artefact.label(system)}", tuple(cells)))
    return table_of_rows(artefact, "cell and system", columns, rows)


def _word(value: object) -> str:
    if value is None:
        return EN_DASH
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
