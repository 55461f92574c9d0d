"""Every policy on every model at either granularity: batches of one mini-batch.

Of a learned policy from several seeds a cell shows the median, the smallest and the largest.

show: {graph: vertex}
"""

from __future__ import annotations

from itertools import chain, product
from pathlib import Path

from harness.records.count_row import AnyCount, CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.table import Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import any_good, batch_sizes, cell_of, cell_over_seeds, table_of_rows
from plots.writing.table import write_table_and_rows

BOUND = "lower bound"


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    rows = [_row(row) for row in artefact.counts]
    write_table_and_rows(table_of(artefact), rows, results_dir / stem)


def _row(row: AnyCount) -> Row:
    good = row if isinstance(row, CountRow) else None
    return {
        "granularity": row.granularity,
        "model": row.model,
        "dataset": row.dataset,
        "split": row.split,
        "batch_size": row.batch_size,
        "policy": row.policy,
        "seed": None if row.learning is None else row.learning.seed,
        "status": row.status,
        "n_vertices": good and good.n_vertices,
        "n_batches": good and good.n_batches,
        "lower_bound": good and good.lower_bound,
        "schedule_s": good and good.schedule_s,
    }


def table_of(artefact: Artefact) -> Table:
    """Rows are policies and the bound, columns models under granularity and batch size."""
    policies = artefact.listed("policy")
    granularities = artefact.listed("granularity", "vertex")
    points = list(product(granularities, batch_sizes(artefact), artefact.listed("model")))
    columns = [
        Column(f"batches, {granularity} granularity, B = {size}", artefact.label(model))
        for granularity, size, model in points
    ]
    found = {
        policy: [
            artefact.counts_with(granularity=g, batch_size=size, model=model, policy=policy)
            for g, size, model in points
        ]
        for policy in policies
    }
    rows = [
        (policy, tuple(cell_over_seeds(one, lambda row: row.n_batches) for one in found[policy]))
        for policy in policies
    ]
    graphs = [any_good(chain(*column)) for column in zip(*found.values(), strict=True)]
    bound = tuple(cell_of(one, lambda row: str(row.lower_bound)) for one in graphs)
    return table_of_rows(artefact, "policy", columns, [*rows, (BOUND, bound)])
