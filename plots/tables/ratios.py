"""How far policies stay from the lower bound, by file and batch size, and on average.

show: {graph: released, policies: [those to show]}
"""

from __future__ import annotations

import statistics
from itertools import product
from pathlib import Path

from harness.counts.row import AnyCount, CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.table import Cell, Column, Table
from plots.words.count_cells import (
    any_good,
    batch_sizes,
    cell_of,
    ratio_text,
    released_counts,
    table_of_rows,
    word_for,
)
from plots.writing.table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    rows = [
        {**released_counts(row), "ratio": row.ratio_ed if isinstance(row, CountRow) else None}
        for row in artefact.counts
        if row.policy in artefact.presentation.show["policies"]
    ]
    write_table_and_rows(table_of(artefact), rows, results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are mini-batches and, per model, their mean; columns the bound, then policies."""
    policies = artefact.presentation.show["policies"]
    columns = [
        Column("batches", "bound"),
        *(Column("batches / bound", policy) for policy in policies),
    ]
    rows = []
    for model in artefact.listed("model"):
        found_of_model = []
        for split, size in product(artefact.listed("split", "train"), batch_sizes(artefact)):
            if not _is_planned(artefact, model, split, size):
                continue
            found = [
                artefact.count(model=model, split=split, batch_size=size, policy=policy)
                for policy in policies
            ]
            found_of_model.append(found)
            cells = [cell_of(any_good(found), lambda row: str(row.lower_bound_ed))]
            cells += [cell_of(one, _ratio) for one in found]
            rows.append((f"{artefact.label(model)}, {split}, B = {size}", tuple(cells)))
        means = (_mean(column) for column in zip(*found_of_model, strict=True))
        rows.append((f"{artefact.label(model)}, mean", (Cell(""), *means)))
    return table_of_rows(artefact, "mini-batch", columns, rows)


def _is_planned(artefact: Artefact, model: str, split: str, size: int) -> bool:
    """Whether a sweep counts it: small files have no large mini-batches."""
    return any(
        model in sweep.values("model")
        and split in sweep.values("split", "train")
        and str(size) in sweep.values("batch_size")
        for sweep in artefact.sweeps
    )


def _ratio(row: CountRow) -> str | None:
    return ratio_text(row.n_batches_ed, row.lower_bound_ed)


def _mean(rows: tuple[AnyCount | None, ...]) -> Cell:
    """The mean over mini-batches; the first word for a missing one where any is missing."""
    ratios = []
    for row in rows:
        ratio = row.ratio_ed if isinstance(row, CountRow) else None
        if ratio is None:
            return Cell(word_for(row))
        ratios.append(ratio)
    mean = statistics.fmean(ratios)
    return Cell("1" if mean == 1 else f"{mean:.3f}")
