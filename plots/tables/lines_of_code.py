"""How many lines of code a model takes in each system, and how many times the first system's.

show:
  models: [var_lstm, tree_lstm]           # a group of columns each
  code:                                   # a row each; the first is what others are compared with
    vertex: {package: harness.models}     # see plots/numbers/code_lines.py
    torch_levels: {package: systems.on_torch.models, entry: Levels}
  published: cavs_lines_of_code           # columns of a paper's ratios, by system
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness.planning.kinds import read_systems
from plots.numbers.artefact import Artefact
from plots.numbers.code_lines import CodeLines, CodeOf, code_lines
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.table import EN_DASH, TIMES, Cell, Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import published_cell, table_of_rows
from plots.writing.table import write_table_and_rows

RULE = (
    "Lines are statements: no imports, docstrings, comments, and a wrapped line is one. Own: in the"
    " model's file; all: with the bricks that it shares with other models, without what runs them"
    f" all; {TIMES}: all lines over those of {{}}. A dash of ours: not written for the system."
)
Counted = dict[tuple[str, str], CodeLines | None]


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    table = table_of(artefact, published)
    write_table_and_rows(table, [*rows_of(artefact, published)], results_dir / stem)


def table_of(artefact: Artefact, published: PublishedRows) -> Table:
    """Rows are systems; per model own lines, all, and their ratio; then the paper's ratios."""
    show, counted = artefact.presentation.show, counted_of(artefact)
    base = next(iter(show["code"]))
    columns = [
        Column(artefact.label(model), label)
        for model in show["models"]
        for label in ("own", "all", TIMES)
    ]
    columns += [Column(published.short, name, published=True) for name in published.columns]
    rows = []
    for system in show["code"]:
        cells = [
            cell
            for model in show["models"]
            for cell in _cells(counted[system, model], counted[base, model])
        ]
        cells += [published_cell(published.value(system, name)) for name in published.columns]
        rows.append((artefact.label(system), tuple(cells)))
    table = table_of_rows(artefact, "system", columns, rows, published)
    return replace(table, notes=(RULE.format(artefact.label(base)), *table.notes))


def counted_of(artefact: Artefact) -> Counted:
    """Lines of every model in every system; None where the system does not run it.

    Two systems may have their models in one package, each its own.
    """
    show = artefact.presentation.show
    known = {system.name: system for system in read_systems(artefact.conf_dir)}
    return {
        (system, model): code_lines(CodeOf(**where), model) if known[system].runs(model) else None
        for system, where in show["code"].items()
        for model in show["models"]
    }


def _cells(lines: CodeLines | None, base: CodeLines | None) -> list[Cell]:
    if lines is None:
        return [Cell(EN_DASH)] * 3
    ratio = Cell(EN_DASH if base is None else f"{lines.with_shared / base.with_shared:.1f}")
    return [Cell(str(lines.own)), Cell(str(lines.with_shared)), ratio]


def rows_of(artefact: Artefact, published: PublishedRows) -> Iterator[Row]:
    """A row per system and model, then the paper's ratios."""
    for (system, model), lines in counted_of(artefact).items():
        yield {
            "system": system,
            "model": model,
            "own": lines and lines.own,
            "all": lines and lines.with_shared,
            "files": " ".join(lines.files) if lines else f"not written for {system}",
        }
    for system, values in published.rows.items():
        for name, value in zip(published.columns, values, strict=True):
            yield {"system": system, "quantity": f"{published.short}: {name}", "value": value}
