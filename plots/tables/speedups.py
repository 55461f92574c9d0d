"""An artefact as tables, one per comparison: times, speed-ups of the first system, the paper's."""

from __future__ import annotations

from pathlib import Path

from plots.numbers.artefact import SPEEDUP, Artefact
from plots.numbers.families import Family
from plots.numbers.lines import measured_lines, published_lines
from plots.numbers.series import GROUP_TITLES
from plots.numbers.table import EN_DASH, TIMES, Cell, Column, Table, plain
from plots.numbers.tidy import write_csv
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import measured_cell, ratio_cell
from plots.writing.table import write_table

WORDS = {
    "epoch_s": "time (s/epoch)",
    "computation_s": "computation (s/epoch)",
    "construction_s": "graph construction (s/epoch)",
    "computation_speedup": f"speed-up of {{}} ({TIMES}) over",
    "overall_speedup": f"overall speed-up of {{}} ({TIMES}) over",
}


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name>_<comparison> as .pdf, .png, .csv, .tex, .md and .html."""
    for stem, comparison in zip(artefact.presentation.stems, artefact.compare, strict=True):
        table = table_of(artefact, comparison)
        path = results_dir / stem
        write_table(table, path)
        write_csv(
            path.with_suffix(".csv"),
            [*measured_lines(artefact, comparison), *published_lines(artefact)],
        )


def table_of(artefact: Artefact, comparison: str) -> Table:
    """Rows are every x of ours and of the paper's; columns ours first, then the paper's."""
    published = artefact.presentation.published
    xs = sorted({*artefact.xs, *(published.xs if published else ())})
    ours = [_our_column(artefact, comparison, quantity) for quantity in _quantities(artefact)]
    theirs = [_published_columns(artefact, quantity) for quantity in _quantities(artefact)]
    blocks = [column for block in (*ours, *theirs) for column in block]
    return Table(
        title=f"{title_of(artefact)}: {GROUP_TITLES[comparison].lower()}",
        subtitle=subtitle_of(artefact),
        row_label=artefact.presentation.axis_label,
        columns=tuple(column for column, _, _ in blocks),
        rows=tuple(
            (plain(x), tuple(_cell(artefact, comparison, block, x) for block in blocks)) for x in xs
        ),
        notes=notes_of(artefact, comparison),
    )


Block = tuple[Column, str, Family]  # the column, its quantity, its system with all its variants


def _quantities(artefact: Artefact) -> tuple[str, ...]:
    return artefact.presentation.quantities


def _our_column(artefact: Artefact, comparison: str, quantity: str) -> list[Block]:
    base, *others = artefact.families(comparison)
    group = WORDS[quantity].format(artefact.label(base.name))
    families = others if quantity.endswith(SPEEDUP) else [base, *others]
    return [(Column(group, artefact.label(one.name)), quantity, one) for one in families]


def _published_columns(artefact: Artefact, quantity: str) -> list[Block]:
    published = artefact.presentation.published
    if published is None:
        return []
    base = next(iter(published.labels.values()))
    group = f"paper, {published.device}: {WORDS[quantity].format(base)}"
    return [
        (Column(group, label, published=True), quantity, Family(system, (system,)))
        for system, label in published.labels.items()
        if any((quantity, system, x) in published.values for x in published.xs)
    ]


def _cell(artefact: Artefact, comparison: str, block: Block, x: float) -> Cell:
    column, quantity, family = block
    if column.published:
        published = artefact.presentation.published
        value = published.value(quantity, family.name, x) if published else None
        return Cell(EN_DASH if value is None else plain(value))
    base = artefact.families(comparison)[0]
    system = artefact.fastest(family, x) or family.name
    measured = artefact.measured(quantity, system, x, artefact.fastest(base, x) or base.name)
    return ratio_cell(measured) if quantity.endswith(SPEEDUP) else measured_cell(measured)
