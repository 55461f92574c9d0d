"""What a number was measured with, in the CSV beside a picture: when, and which versions."""

from __future__ import annotations

import csv
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.tidy import write_cells

COLUMNS = ("measured_on", "versions")


def add_facts(artefact: Artefact, path: Path) -> None:
    """Add the facts of its system to every row of a CSV that is of one; others stay as they are."""
    facts = facts_of(artefact)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    if not rows or "system" not in rows[0] or not facts:
        return
    place = rows[0].index("system")
    told = ([*row, *facts.get(row[place], ("", ""))] for row in rows[1:])
    write_cells(path, [*rows[0], *COLUMNS], told)


def facts_of(artefact: Artefact) -> dict[str, tuple[str, str]]:
    """By system: the days on which it was measured, and all its versions and build flags."""
    days: dict[str, set[str]] = {}
    versions: dict[str, dict[str, set[str]]] = {}
    for record in artefact.records:
        system = record.trial.system
        days.setdefault(system, set()).add(record.started_at[:10])
        for name, version in record.versions.items():
            versions.setdefault(system, {}).setdefault(name, set()).add(version)
    return {
        system: (" to ".join(dict.fromkeys((min(found), max(found)))), _words(versions[system]))
        for system, found in days.items()
        if system in versions
    }


def _words(versions: dict[str, set[str]]) -> str:
    return "; ".join(f"{name} {'/'.join(sorted(all_))}" for name, all_ in sorted(versions.items()))
