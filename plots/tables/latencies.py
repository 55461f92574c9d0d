"""What a mini-batch takes, a row per workload, columns per system; a paper's numbers behind them.

show:
  rows: [model, batch_size]            # keys of the grid: a row for each combination that it has
  quantities: {mini_batch_ms: ms}      # of plots/numbers/points.py, or speedup, each with its words
  published:                           # or left out; rows named by their values, as "tree_lstm 8"
    table: acrobat_table8
    groups: {"paper, GPU": {dynet: DyNet, acrobat: ACRoBat}}

A table per comparison. speedup: the first system's speed over that of each other one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.series import GROUP_TITLES
from plots.numbers.table import Cell, Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import published_cell
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import measured_cell, numbers_of, ratio_cell
from plots.writing.table import write_table_and_rows

SPEEDUP, TIME = "speedup", "mini_batch_ms"
WORDS = {"batch_size": "batch size", "hidden_size": "hidden"}
Setting = tuple[object, ...]  # values of the rows' keys


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name>_<comparison> as .pdf, .png, .csv, .tex, .md and .html."""
    for stem, comparison in zip(artefact.presentation.stems, artefact.compare, strict=True):
        rows = [*rows_of(artefact, comparison)]
        write_table_and_rows(table_of(artefact, comparison), rows, results_dir / stem)


def table_of(artefact: Artefact, comparison: str) -> Table:
    """Rows are workloads; columns ours first, a group a quantity, then the paper's."""
    show, systems = artefact.presentation.show, artefact.compare[comparison]
    published, groups = _published(artefact)
    columns = [
        Column(words, artefact.label(system))
        for quantity, words in show["quantities"].items()
        for system in _shown(quantity, systems)
    ]
    columns += [
        Column(group, label, published=True)
        for group, labels in groups.items()
        for label in labels.values()
    ]
    rows = []
    for setting in settings_of(artefact):
        cells = [
            _cell(measured(artefact, systems, system, setting, quantity), quantity)
            for quantity in show["quantities"]
            for system in _shown(quantity, systems)
        ]
        cells += [
            published_cell(published.value(_name(setting), column) if published else None)
            for labels in groups.values()
            for column in labels
        ]
        rows.append((_words(artefact, setting), tuple(cells)))
    return Table(
        title=f"{title_of(artefact)}: {GROUP_TITLES[comparison].lower()}",
        subtitle=subtitle_of(artefact),
        row_label="workload",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(
            *notes_of(artefact, comparison),
            *((f"Paper: {published.source}.",) if published else ()),
        ),
    )


def settings_of(artefact: Artefact) -> list[Setting]:
    """What the rows are, in the grid's order."""
    keys = artefact.presentation.show["rows"]
    found = (tuple(point.settings.get(key) for key in keys) for point in artefact.points)
    return list(dict.fromkeys(found))


def measured(
    artefact: Artefact, systems: Sequence[str], system: str, setting: Setting, quantity: str
) -> Measured:
    """A quantity of one system in one row; of speed-ups the first system's over it."""
    point = _find(artefact, system, setting)
    if quantity == SPEEDUP:
        return speedup_of(point, _find(artefact, systems[0], setting), TIME)
    return measure_of(point, quantity)


def rows_of(artefact: Artefact, comparison: str) -> Iterator[Row]:
    """A row per workload, system and quantity, and the published ones."""
    show, systems = artefact.presentation.show, artefact.compare[comparison]
    published, groups = _published(artefact)
    keys = [key.rpartition(".")[2] for key in show["rows"]]
    for setting in settings_of(artefact):
        named = dict(zip(keys, setting, strict=True))
        for quantity in show["quantities"]:
            for system in _shown(quantity, systems):
                found = measured(artefact, systems, system, setting, quantity)
                yield {**named, "system": system, "quantity": quantity, **numbers_of(found)}
        for group, labels in groups.items():
            for column, label in labels.items():
                value = published.value(_name(setting), column) if published else None
                if value is not None:
                    one = {"system": f"{group}: {label}", "quantity": column, "value": value}
                    yield {**named, **one}


def _shown(quantity: str, systems: Sequence[str]) -> Sequence[str]:
    return systems[1:] if quantity == SPEEDUP else systems


def _find(artefact: Artefact, system: str, setting: Setting) -> Point | None:
    keys = ("system", *artefact.presentation.show["rows"])
    wanted = dict(zip(keys, (system, *setting), strict=True))
    for point in artefact.points:
        if all(point.settings.get(key) == value for key, value in wanted.items()):
            return point
    return None


def _cell(found: Measured, quantity: str) -> Cell:
    return ratio_cell(found) if quantity == SPEEDUP else measured_cell(found)


def _name(setting: Setting) -> str:
    """What a published table calls a row."""
    return " ".join(map(str, setting))


def _words(artefact: Artefact, setting: Setting) -> str:
    first, *others = zip(artefact.presentation.show["rows"], setting, strict=True)
    rest = [f"{WORDS.get(key, key.rpartition('.')[2])} {value}" for key, value in others]
    return ", ".join([artefact.label(str(first[1])), *rest])


def _published(artefact: Artefact) -> tuple[PublishedRows | None, dict[str, dict[str, str]]]:
    chosen = artefact.presentation.show.get("published")
    return (read_published_rows(chosen["table"]), chosen["groups"]) if chosen else (None, {})
