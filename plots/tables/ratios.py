"""How far policies stay from the lower bound, by file and batch size, and on average.

show: {graph: released, policies: [those to show]}
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path

from harness.records.count_row import AnyCount, CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.table import Cell, Column, Table
from plots.words.count_cells import (
    any_good,
    batch_sizes,
    cell_of,
    cell_over_seeds,
    released_counts,
    table_of_rows,
    two_decimals,
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
                artefact.counts_with(model=model, split=split, batch_size=size, policy=policy)
                for policy in policies
            ]
            found_of_model.append(found)
            cells = [cell_of(any_good(chain(*found)), lambda row: str(row.lower_bound_ed))]
            cells += [cell_over_seeds(one, lambda row: row.ratio_ed, two_decimals) for one in found]
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


def _mean(found: tuple[Sequence[AnyCount], ...]) -> Cell:
    """The mean over mini-batches, over seeds the median; the first word where any is missing."""
    ratios = []
    for rows in found:
        of_seeds = []
        for row in rows or (None,):
            ratio = row.ratio_ed if isinstance(row, CountRow) else None
            if ratio is None:
                return Cell(word_for(row))
            of_seeds.append(ratio)
        ratios.append(statistics.median(of_seeds))
    mean = statistics.fmean(ratios)
    return Cell("1" if mean == 1 else f"{mean:.3f}")
