"""How long a policy takes to learn, and how many schedules it tries: ours and the paper's.

Of several seeds a cell shows the median, the smallest and the largest.

show: {graph: released, policy: fsm_sort, published: edbatch_learning}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.records.count_row import AnyCount, CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.table import EN_DASH, Cell, Column, Table, three_digits
from plots.numbers.tidy import Row
from plots.words.count_cells import (
    batch_sizes,
    cell_of,
    cell_over_seeds,
    published_cell,
    released_counts,
    table_of_rows,
    two_decimals,
)
from plots.writing.table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    policy = artefact.presentation.show["policy"]
    rows = [_row(row, published) for row in artefact.counts if row.policy == policy]
    write_table_and_rows(table_of(artefact, published), rows, results_dir / stem)


def _row(row: AnyCount, published: PublishedRows) -> Row:
    good = row if isinstance(row, CountRow) else None
    return {
        **released_counts(row),
        "n_nodes": good and good.n_nodes_ed,
        "learn_s": good and good.learn_s_ed,
        "n_trials": good and good.n_trials_ed,
        "learn_s_published": published.value(row.model, "learn_s"),
        "n_trials_published": published.value(row.model, "n_trials"),
    }


def table_of(artefact: Artefact, published: PublishedRows) -> Table:
    """Rows are models, columns the learning on the largest mini-batch and the paper's."""
    policy, size = artefact.presentation.show["policy"], batch_sizes(artefact)[-1]
    group = f"{policy}, B = {size}"
    columns = [
        *(Column(group, label) for label in ("nodes", "learning (s)", "trials", "batches / bound")),
        *(Column(published.short, label, published=True) for label in ("learning (s)", "trials")),
    ]
    rows = []
    for model in artefact.listed("model"):
        found = artefact.counts_with(model=model, batch_size=size, policy=policy)
        cells = [
            cell_of(found[0] if found else None, lambda row: str(row.n_nodes_ed)),
            _told(found, lambda row: row.learn_s_ed, three_digits),
            _told(found, lambda row: row.n_trials_ed),
            cell_over_seeds(found, lambda row: row.ratio_ed, two_decimals),
            *(published_cell(published.value(model, name)) for name in ("learn_s", "n_trials")),
        ]
        rows.append((artefact.label(model), tuple(cells)))
    return table_of_rows(artefact, "workload", columns, rows, published)


def _told(
    found: Sequence[AnyCount],
    value: Callable[[CountRow], float | None],
    spell: Callable[[float], str] | None = None,
) -> Cell:
    """A dash for what a policy that was learned elsewhere does not tell."""
    if any(isinstance(row, CountRow) and value(row) is None for row in found):
        return Cell(EN_DASH)
    return cell_over_seeds(found, value, spell)
