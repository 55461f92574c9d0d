"""How long a policy takes to learn, and how many schedules it tries: ours and the paper's.

show: {graph: released, policy: fsm_sort, published: edbatch_learning}
"""

from __future__ import annotations

from pathlib import Path

from plots.artefact import Artefact
from plots.count_table import batch_sizes, cell_of, published_cell, ratio_text, table_of_rows
from plots.published_rows import PublishedRows, read_published_rows
from plots.table import Column, Table, three_digits
from plots.written_table import write_table_and_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    rows = [
        {
            "model": row.model,
            "dataset": row.dataset,
            "policy": row.policy,
            "batch_size": row.batch_size,
            "n_nodes": row.n_nodes_ed,
            "learn_s": row.learn_s_ed,
            "n_trials": row.n_trials_ed,
            "n_batches": row.n_batches_ed,
            "lower_bound": row.lower_bound_ed,
            "learn_s_published": published.value(row.model, "learn_s"),
            "n_trials_published": published.value(row.model, "n_trials"),
        }
        for row in artefact.counts
        if row.policy == artefact.presentation.show["policy"]
    ]
    write_table_and_rows(table_of(artefact, published), rows, results_dir / stem)


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
        found = artefact.count(model=model, batch_size=size, policy=policy)
        cells = [
            cell_of(found, lambda row: str(row.n_nodes_ed)),
            cell_of(found, lambda row: three_digits(row.learn_s_ed or 0.0)),
            cell_of(found, lambda row: str(row.n_trials_ed)),
            cell_of(found, lambda row: ratio_text(row.n_batches_ed, row.lower_bound_ed)),
            *(published_cell(published.value(model, name)) for name in ("learn_s", "n_trials")),
        ]
        rows.append((artefact.label(model), tuple(cells)))
    return table_of_rows(artefact, "workload", columns, rows, published)
