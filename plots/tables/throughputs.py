"""Instances per second: a row per workload, a column per system, a paper's numbers behind them.

A table per comparison. A system that the grid runs under several policies has a column for each.

show:
  rows: model
  unit: sentences/s
  published:                  # or left out; columns of a table whose rows are those of ours
    table: dynet_table1
    groups: {"paper, CPU": {cpu_off: NoAuto, cpu_agenda: Agenda}}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.points import Point, measure_of
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.series import GROUP_TITLES
from plots.numbers.table import Cell, Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import published_cell
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import listed, measured_cell, rows_of_trials
from plots.writing.table import write_table_and_rows

QUANTITY = "throughput"


@dataclass(frozen=True, slots=True)
class Variant:
    """A system, under a policy of its own where `policy` is None."""

    system: str
    policy: str | None

    def is_of(self, point: Point) -> bool:
        """Whether a point was measured so."""
        settings = point.settings
        return (settings["system"], settings.get("policy")) == (self.system, self.policy)


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name>_<comparison> as .pdf, .png, .csv, .tex, .md and .html."""
    key = artefact.presentation.show["rows"]
    measured = rows_of_trials(artefact, (key, "system", "policy", *SIZES), [QUANTITY])
    for stem, comparison in zip(artefact.presentation.stems, artefact.compare, strict=True):
        systems = artefact.compare[comparison]
        rows = [row for row in measured if row["system"] in systems]
        table = table_of(artefact, comparison)
        write_table_and_rows(table, [*rows, *_published_rows(artefact)], results_dir / stem)


SIZES = ("dataset", "batch_size", "hidden_size")


def table_of(artefact: Artefact, comparison: str) -> Table:
    """Rows are workloads; columns ours first, then the paper's."""
    key, variants = artefact.presentation.show["rows"], variants_of(artefact, comparison)
    published, groups = _published(artefact)
    columns = [Column(artefact.presentation.show["unit"], _label(artefact, v)) for v in variants]
    columns += [
        Column(group, label, published=True)
        for group, labels in groups.items()
        for label in labels.values()
    ]
    rows = []
    for value in listed(artefact, key):
        points = [point for point in artefact.points if str(point.settings[key]) == value]
        cells = [_cell(points, variant) for variant in variants]
        cells += [
            published_cell(published.value(value, column) if published else None)
            for labels in groups.values()
            for column in labels
        ]
        rows.append((artefact.label(value), tuple(cells)))
    source = (f"Paper: {published.source}.",) if published else ()
    return Table(
        title=f"{title_of(artefact)}: {GROUP_TITLES[comparison].lower()}",
        subtitle=subtitle_of(artefact),
        row_label="workload",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(*notes_of(artefact, comparison), *source),
    )


def variants_of(artefact: Artefact, comparison: str) -> list[Variant]:
    """Systems of a comparison in its order, each under the policies that the grid gives it."""
    variants = []
    for system in artefact.compare[comparison]:
        of_system = [p for p in artefact.points if p.settings["system"] == system]
        policies = dict.fromkeys(point.settings.get("policy") for point in of_system)
        variants += [Variant(system, policy) for policy in policies]
    return variants


def _label(artefact: Artefact, variant: Variant) -> str:
    label = artefact.label(variant.system)
    return label if variant.policy is None else f"{label}: {variant.policy}"


def _cell(points: Sequence[Point], variant: Variant) -> Cell:
    found = [point for point in points if variant.is_of(point)]
    return measured_cell(measure_of(found[0] if found else None, QUANTITY))


def _published(artefact: Artefact) -> tuple[PublishedRows | None, dict[str, dict[str, str]]]:
    chosen = artefact.presentation.show.get("published")
    return (read_published_rows(chosen["table"]), chosen["groups"]) if chosen else (None, {})


def _published_rows(artefact: Artefact) -> list[Row]:
    published, groups = _published(artefact)
    if published is None:
        return []
    key = artefact.presentation.show["rows"].rpartition(".")[2]
    return [
        {key: value, "system": f"{group}: {label}", "quantity": QUANTITY, "value": number}
        for value in published.rows
        for group, labels in groups.items()
        for column, label in labels.items()
        if (number := published.value(value, column)) is not None
    ]
