"""Ways to program a dynamic network, a row for each system that shows one: Cavs's landscape.

show:
  rows:
    - way: static unrolling          # what the paper calls it
      systems: [tf_static]           # a row each
      expresses: sequences           # in the paper's words
      batches: equal lengths         # words, as the next
      optimises: whole graph

What a way can express is the paper's word; what is run here follows from the models that a
system's YAML lists, and is less where none was written. The share of graph construction is
measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.contracts.model import model_class
from harness.planning.kinds import KnownSystem, read_systems
from harness.planning.yaml_files import read_mapping
from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, measure_of
from plots.numbers.table import EN_DASH, Cell, Column, Table
from plots.numbers.tidy import Row
from plots.words.count_cells import table_of_rows
from plots.words.trial_cells import find, measured_cell, numbers_of
from plots.writing.table import write_table_and_rows

SHARE = "construction_percent"
N_INSTANCES = 1  # a share of any epoch is that of all
RUN_HERE = {"chain": "sequences", "tree": "trees", "lattice": "lattices"}
YES, NO = "yes", "no"


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    write_table_and_rows(table_of(artefact), [*rows_of(artefact)], results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are systems under their way to program; columns words, and the measured share."""
    columns = [
        Column("paper", "expresses", published=True),
        *(Column("run here", words) for words in RUN_HERE.values()),
        Column("batches", "different graphs"),
        Column("graph construction", "% of a mini-batch"),
        Column("optimises", "ahead of time"),
    ]
    rows = []
    for row, system, found in _rows(artefact):
        cells = [
            Cell(row["expresses"]),
            *(Cell(_word(found, kind)) for kind in RUN_HERE),
            Cell(row["batches"]),
            measured_cell(_share(artefact, system)),
            Cell(row["optimises"]),
        ]
        rows.append((f"{row['way']}: {artefact.label(system)}", tuple(cells)))
    return table_of_rows(artefact, "way to program", columns, rows)


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """A row per system."""
    for row, system, found in _rows(artefact):
        words = {name: _word(found, kind) for kind, name in RUN_HERE.items()}
        said = {key: row[key] for key in ("way", "expresses", "batches", "optimises")}
        share = numbers_of(_share(artefact, system))
        yield {"system": system, **said, **words, "quantity": SHARE, **share}


def kinds_of(system: KnownSystem, conf_dir: Path) -> frozenset[str]:
    """Kinds of instances of the models that a system runs; nothing of its framework is loaded."""
    found = set()
    for path in sorted((conf_dir / "model").glob("*.yaml")):
        if system.runs(path.stem):
            found.add(model_class(read_mapping(path, "model")["model"]).instance_kind)
    return frozenset(found)


def _rows(artefact: Artefact) -> Iterator[tuple[Mapping[str, Any], str, frozenset[str] | None]]:
    """Every row of the YAML and system; None for one that conf/system has not."""
    known = {system.name: system for system in read_systems(artefact.conf_dir)}
    for row in artefact.presentation.show["rows"]:
        for system in row["systems"]:
            has = system in known
            yield row, system, kinds_of(known[system], artefact.conf_dir) if has else None


def _word(kinds: frozenset[str] | None, kind: str) -> str:
    if kinds is None:
        return EN_DASH
    return YES if kind in kinds else NO


def _share(artefact: Artefact, system: str) -> Measured:
    return measure_of(find(artefact, system=system), SHARE, N_INSTANCES)
