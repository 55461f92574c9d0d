"""How policies do on the mini-batches that follow the one that learned ones learned on.

Of several seeds a cell shows the median, the smallest and the largest.

show: {graph: released}
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from harness.records.count_row import CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.table import Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import (
    batch_sizes,
    cell_over_seeds,
    released_counts,
    table_of_rows,
    two_decimals,
)
from plots.writing.table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    write_table_and_rows(table_of(artefact), rows_of(artefact), results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are models, columns policies under what is told of them."""
    policies, sizes = artefact.listed("policy"), batch_sizes(artefact)
    n_following = artefact.listed("n_following", "0")[0]
    parts = (
        ("batches / bound, first mini-batch", _ratio, two_decimals),
        (f"batches / bound, mean of the next {n_following}", _after, _three_decimals),
        ("decisions in unseen states (%)", _unseen, _two_decimals),
    )
    learned = {row.policy for row in artefact.counted if row.learning is not None}
    blocks = [
        (group, value, spell, policy)
        for group, value, spell in parts
        for policy in policies
        if policy in learned or value is not _unseen
    ]
    rows = []
    for size, model in product(sizes, artefact.listed("model")):
        cells = tuple(
            cell_over_seeds(
                artefact.counts_with(model=model, batch_size=size, policy=policy), value, spell
            )
            for _, value, spell, policy in blocks
        )
        rows.append((f"{artefact.label(model)}, B = {size}", cells))
    columns = [Column(group, policy) for group, *_, policy in blocks]
    return table_of_rows(artefact, "workload", columns, rows)


def _ratio(row: CountRow) -> float | None:
    return row.ratio_ed


def _after(row: CountRow) -> float | None:
    after = row.following_ed
    return None if after is None else after.ratio


def _unseen(row: CountRow) -> float | None:
    after = row.following_ed
    return None if after is None or after.unseen_share is None else 100 * after.unseen_share


def _three_decimals(value: float) -> str:
    return f"{value:.3f}"


def _two_decimals(value: float) -> str:
    return f"{value:.2f}"


def rows_of(artefact: Artefact) -> list[Row]:
    """A row per workload, policy and mini-batch; the mini-batch 0 is the one of learning."""
    rows: list[Row] = []
    for row in artefact.counts:
        after = row.following_ed if isinstance(row, CountRow) else None
        first = released_counts(row) | {"mini_batch": 0}
        unseen_share = None if after is None else after.unseen_share
        rows.append(first | {"unseen_share": unseen_share})
        if after is not None:
            counted = zip(after.n_batches, after.lower_bound, strict=True)
            rows += [
                first
                | {"mini_batch": place, "n_batches": n_batches, "lower_bound": bound}
                | {"unseen_share": unseen_share}
                for place, (n_batches, bound) in enumerate(counted, start=1)
            ]
    return rows
