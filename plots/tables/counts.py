"""Batch counts per workload and policy as a table, an independent simulation beside them.

show: {graph: released, published: simulated_batch_counts}
"""

from __future__ import annotations

from functools import partial
from itertools import chain, product
from pathlib import Path

from harness.records.count_row import AnyCount, CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.table import Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import (
    any_good,
    batch_sizes,
    cell_of,
    cell_over_seeds,
    published_cell,
    released_counts,
    table_of_rows,
)
from plots.writing.table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    write_table_and_rows(
        table_of(artefact, published), rows_of(artefact, published), results_dir / stem
    )


def table_of(artefact: Artefact, published: PublishedRows) -> Table:
    """Rows are batch size and model, ours above the simulation's; columns are policies.

    A cell of ours counts all batches, and those of no parameter.
    """
    policies = artefact.listed("policy")
    columns = [
        *(Column("graph", label) for label in ("nodes", "parameters")),
        *(Column("batches (without those of parameters)", name) for name in ("bound", *policies)),
    ]
    rows = []
    for size, model in product(batch_sizes(artefact), artefact.listed("model")):
        found = [
            artefact.counts_with(model=model, batch_size=size, policy=name) for name in policies
        ]
        graph = any_good(chain(*found))
        parameters = graph.n_unbatchable_ed if isinstance(graph, CountRow) else 0
        cells = [
            cell_of(graph, lambda row: str(row.n_nodes_ed)),
            cell_of(graph, lambda row: str(row.n_unbatchable_ed)),
            cell_of(graph, lambda row: _both(row.lower_bound_ed, row.n_unbatchable_ed)),
            *(
                cell_over_seeds(
                    one, lambda row: row.n_batches_ed, partial(_both, n_parameters=parameters)
                )
                for one in found
            ),
        ]
        rows.append((f"{artefact.label(model)}, B = {size}", tuple(cells)))
        key = f"{model}/{size}"
        if key in published.rows:
            names = ("n_nodes", "", "lower_bound", *policies)
            simulated = (published_cell(published.value(key, name)) for name in names)
            rows.append((published.short, tuple(simulated)))
    return table_of_rows(artefact, "workload", columns, rows, published)


def _both(whole: float, n_parameters: int) -> str:
    return f"{whole:.10g} ({whole - n_parameters:.10g})"


def rows_of(artefact: Artefact, published: PublishedRows) -> list[Row]:
    """The numbers of the table, a row per workload and policy."""
    return [_row(row, published) for row in artefact.counts]


def _row(row: AnyCount, published: PublishedRows) -> Row:
    key = f"{row.model}/{row.batch_size}"
    simulated = {
        "n_batches_simulated": published.value(key, row.policy),
        "lower_bound_simulated": published.value(key, "lower_bound"),
    }
    ours = released_counts(row)
    if not isinstance(row, CountRow):
        return ours | simulated
    parameters = row.n_unbatchable_ed
    n_batches = row.n_batches_ed
    return {
        **ours,
        "n_nodes": row.n_nodes_ed,
        "n_parameters": parameters,
        "n_batches_without_parameters": None if n_batches is None else n_batches - parameters,
        "lower_bound_without_parameters": row.lower_bound_ed - parameters,
        **simulated,
    }
