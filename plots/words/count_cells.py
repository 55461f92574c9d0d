"""What tables of batch counts share: their frame, and cells of what may be missing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from harness.records.count_row import AnyCount, CountRow
from plots.numbers.artefact import Artefact
from plots.numbers.points import NOT_MEASURED
from plots.numbers.published_rows import PublishedRows
from plots.numbers.table import EN_DASH, Cell, Column, Table, plain
from plots.words.notes import notes_of, subtitle_of, title_of

Rows = Sequence[tuple[str, tuple[Cell, ...]]]


def table_of_rows(
    artefact: Artefact,
    row_label: str,
    columns: Sequence[Column],
    rows: Rows,
    published: PublishedRows | None = None,
) -> Table:
    """A table under the artefact's words; `published` gets a footnote with its source."""
    notes = notes_of(artefact)
    if published is not None:
        notes = (*notes, f"{published.short[0].upper()}{published.short[1:]}: {published.source}.")
    return Table(
        title=title_of(artefact),
        subtitle=subtitle_of(artefact),
        row_label=row_label,
        columns=tuple(columns),
        rows=tuple(rows),
        notes=notes,
    )


def published_cell(value: float | None, spell: Callable[[float], str] = plain) -> Cell:
    """A published number; a dash where there is none."""
    return Cell(EN_DASH if value is None else spell(value))


def cell_of(row: AnyCount | None, spell: Callable[[CountRow], str | None]) -> Cell:
    """What `spell` makes of a row; the word for why there is no number where there is none."""
    text = spell(row) if isinstance(row, CountRow) else None
    return Cell(word_for(row) if text is None else text)


def word_for(row: AnyCount | None) -> str:
    """Why a number is missing: a status, or that the count was planned and is not there."""
    if row is None:
        return NOT_MEASURED
    return row.status_ed if isinstance(row, CountRow) else row.status


def cell_over_seeds(
    found: Sequence[AnyCount],
    value: Callable[[CountRow], float | None],
    spell: Callable[[float], str] | None = None,
) -> Cell:
    """The median over the seeds of a learned policy, and their range where they differ.

    found: a count for each seed; one for a policy that learns nothing. The word for why there is no
    number where any of them has none.
    """
    values = []
    for row in found or (None,):
        number = value(row) if isinstance(row, CountRow) else None
        if number is None:
            word = word_for(row)
            return Cell(EN_DASH if word == "ok" else word)  # a good count that does not tell this
        values.append(number)
    spell = spell or (lambda number: f"{number:.10g}")
    middle, low, high = map(spell, (statistics.median(values), min(values), max(values)))
    return Cell(middle if low == high else f"{middle} [{low} to {high}]")


def two_decimals(ratio: float) -> str:
    """Batches to the bound; "1" is exactly the bound."""
    return "1" if ratio == 1 else f"{ratio:.2f}"


def any_good(found: Iterable[AnyCount | None]) -> AnyCount | None:
    """A row that tells of the graph, whatever its policy: the first good one, else the first."""
    rows = list(found)
    return next((row for row in rows if isinstance(row, CountRow)), rows[0] if rows else None)


def ratio_text(n_batches: float | None, bound: float) -> str | None:
    """Batches to the bound with two decimals; "1" is exactly the bound, None stays None."""
    if n_batches is None:
        return None
    return two_decimals(n_batches / bound)


def batch_sizes(artefact: Artefact) -> tuple[int, ...]:
    """All batch sizes that were counted, ascending."""
    return tuple(sorted(int(size) for size in artefact.listed("batch_size")))


def released_counts(row: AnyCount) -> dict[str, object]:
    """One line of a CSV: which mini-batch, which policy, and counts as ED-Batch's release makes."""
    good = row if isinstance(row, CountRow) else None
    return {
        "model": row.model,
        "dataset": row.dataset,
        "split": row.split,
        "batch_size": row.batch_size,
        "policy": row.policy,
        "seed": None if row.learning is None else row.learning.seed,
        "status": row.status if good is None else good.status_ed,
        "n_batches": good and good.n_batches_ed,
        "lower_bound": good and good.lower_bound_ed,
    }
