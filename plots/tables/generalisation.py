"""How policies do on the mini-batches that follow the one that learned ones learned on.

show: {graph: released}
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from harness.counts.row import CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.table import EN_DASH, Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import batch_sizes, cell_of, ratio_text, released_counts, table_of_rows
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
        ("batches / bound, first mini-batch", lambda row: _ratio(row)),
        (f"batches / bound, mean of the next {n_following}", lambda row: _after(row)),
        ("decisions in unseen states (%)", lambda row: _unseen(row)),
    )
    learned = {row.policy for row in artefact.counted if row.learning is not None}
    blocks = [
        (group, spell, policy)
        for group, spell in parts
        for policy in policies
        if policy in learned or spell is not parts[2][1]
    ]
    rows = []
    for size, model in product(sizes, artefact.listed("model")):
        cells = tuple(
            cell_of(artefact.count(model=model, batch_size=size, policy=policy), spell)
            for _, spell, policy in blocks
        )
        rows.append((f"{artefact.label(model)}, B = {size}", cells))
    columns = [Column(group, policy) for group, _, policy in blocks]
    return table_of_rows(artefact, "workload", columns, rows)


def _ratio(row: CountRow) -> str | None:
    return ratio_text(row.n_batches_ed, row.lower_bound_ed)


def _after(row: CountRow) -> str | None:
    after = row.following_ed
    return None if after is None else f"{after.ratio:.3f}"


def _unseen(row: CountRow) -> str | None:
    after = row.following_ed
    if after is None:
        return None
    return EN_DASH if after.unseen_share is None else f"{100 * after.unseen_share:.2f}"


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
