"""Seconds per epoch of moving data and of computing, in training and in inference.

show: {systems: {cavs: Cavs, dynet: DyNet}, published: cavs_table2}   # how each is called here

A system that does not tell what only moves data shows all its computation, as an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.points import NOT_SEPARABLE, Measured, arithmetic_of, measure_of
from plots.numbers.published_rows import PublishedRows, read_published_rows
from plots.numbers.table import Cell, Column, Table, three_digits
from plots.numbers.tidy import Row
from plots.words.count_cells import published_cell, table_of_rows
from plots.words.trial_cells import find, listed, measured_cell, numbers_of
from plots.writing.table import write_table_and_rows

AT_MOST = "\N{LESS-THAN OR EQUAL TO}"
MOVING, ARITHMETIC, ALL = "moving", "arithmetic", "computation"
PARTS = ((MOVING, "memory"), (ARITHMETIC, "computation"))
PROFILE = "+system.options.profile"  # a setting of trials that tell what moves
MODES = ("train", "infer")


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    published = read_published_rows(artefact.presentation.show["published"])
    table = table_of(artefact, published)
    write_table_and_rows(table, [*rows_of(artefact, published)], results_dir / stem)


def table_of(artefact: Artefact, published: PublishedRows) -> Table:
    """Rows are batch sizes; per part and mode a column for each system, then the paper's."""
    systems: dict[str, str] = artefact.presentation.show["systems"]
    columns = [
        Column(f"{source}{words}, {mode}", label, published=bool(source))
        for source in ("", f"{published.short}: ")
        for _, words in PARTS
        for mode in MODES
        for label in systems.values()
    ]
    rows = []
    for size in sizes_of(artefact, published):
        ours = [
            _cell(artefact, system, mode, size, part)
            for part, _ in PARTS
            for mode in MODES
            for system in systems
        ]
        theirs = [
            published_cell(published.value(str(size), f"{system}_{part}_{mode}"))
            for part, _ in PARTS
            for mode in MODES
            for system in systems
        ]
        rows.append((str(size), (*ours, *theirs)))
    return table_of_rows(artefact, "batch size", columns, rows, published)


def sizes_of(artefact: Artefact, published: PublishedRows) -> list[int]:
    """Batch sizes of ours and of the paper's."""
    return sorted({*map(int, listed(artefact, "batch_size")), *map(int, published.rows)})


def measured(artefact: Artefact, system: str, mode: str, size: int, part: str) -> Measured:
    """A part of a system's epoch: what moves from the trial that tells it, all else without it."""
    n_instances = artefact.presentation.epoch_n_instances
    plain, profiled = (
        find(artefact, system=system, mode=mode, batch_size=size, **{PROFILE: told})
        for told in (None, True)
    )
    if part == MOVING:
        return measure_of(profiled or plain, "moving_s", n_instances)
    if part == ARITHMETIC:
        return arithmetic_of(plain, profiled or plain, n_instances)
    return measure_of(plain, "computation_s", n_instances)


def _cell(artefact: Artefact, system: str, mode: str, size: int, part: str) -> Cell:
    found = measured(artefact, system, mode, size, part)
    if part == ARITHMETIC and found.status == NOT_SEPARABLE:
        whole = measured(artefact, system, mode, size, ALL)
        return measured_cell(whole, lambda value: f"{AT_MOST} {three_digits(value)}")
    return measured_cell(found)


def rows_of(artefact: Artefact, published: PublishedRows) -> Iterator[Row]:
    """A row per system, mode, batch size and part; all of the computation, too."""
    for system in artefact.presentation.show["systems"]:
        for mode in MODES:
            for size in map(int, listed(artefact, "batch_size")):
                for part in (MOVING, ARITHMETIC, ALL):
                    named = {"system": system, "mode": mode, "batch_size": size}
                    found = numbers_of(measured(artefact, system, mode, size, part))
                    yield {**named, "quantity": f"{part}_s", **found}
    for size_text, values in published.rows.items():
        for name, value in zip(published.columns, values, strict=True):
            system, part, mode = name.split("_")
            named = {"system": f"{published.short}: {system}", "mode": mode}
            yield {**named, "batch_size": size_text, "quantity": f"{part}_s", "value": value}
