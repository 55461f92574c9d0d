"""The engine and its peers, a row per system: what each does in a second, and how far it is behind.

A table per comparison; a group of columns for each setting of the workload that the scale has.

show:
  unit: sentences/s
  settings:                   # words of a group of columns: what its trials have
    10 000 words: {dataset.options.vocab_modulo: 0}
    the recurrent part: {dataset.options.vocab_modulo: 256}
  memory: true                # a column with what each needs at most; or left out

Strategies have one more column: what the engine copies only to bring operands together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.series import GROUP_TITLES, STRATEGIES
from plots.numbers.table import TIMES, Cell, Column, Table
from plots.numbers.tidy import Row
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import find, measured_cell, numbers_of, ratio_cell
from plots.writing.table import write_table_and_rows

THROUGHPUT, MEMORY, SPEEDUP = "throughput", "peak_memory_mib", "overall_speedup"
COPIED = "copied_kb"
# Times are only divided by each other, so an epoch may have one instance.
TIME, N_INSTANCES = "epoch_s", 1
WORDS = {SPEEDUP: f"speed-up ({TIMES})", MEMORY: "MiB", COPIED: "copied kB"}
NOTES = {
    MEMORY: "; MiB: what it needs at most, its imports left out",
    COPIED: "; copied: per mini-batch, only to bring operands together",
}

Settings = Mapping[str, object]


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name>_<comparison> as .pdf, .png, .csv, .tex, .md and .html."""
    for stem, comparison in zip(artefact.presentation.stems, artefact.compare, strict=True):
        table, rows = table_of(artefact, comparison), rows_of(artefact, comparison)
        write_table_and_rows(table, rows, results_dir / stem)


def table_of(artefact: Artefact, comparison: str) -> Table:
    """Rows are systems; the first is the one that the others are compared with."""
    base, *_ = systems = artefact.compare[comparison]
    words = {THROUGHPUT: artefact.presentation.show["unit"], **WORDS}
    settings, quantities = settings_of(artefact), quantities_of(artefact, comparison)
    notes = "".join(NOTES.get(name, "") for name in quantities)
    return Table(
        title=f"{title_of(artefact)}: {GROUP_TITLES[comparison].lower()}",
        subtitle=subtitle_of(artefact),
        row_label="system",
        columns=tuple(Column(group, words[name]) for group in settings for name in quantities),
        rows=tuple(
            (
                artefact.label(system),
                tuple(
                    _cell(artefact, (system, base), chosen, quantity)
                    for chosen in settings.values()
                    for quantity in quantities
                ),
            )
            for system in systems
        ),
        notes=(
            f"Speed-up: that of {artefact.label(base)} over the system{notes}.",
            *notes_of(artefact, comparison),
        ),
    )


def settings_of(artefact: Artefact) -> dict[str, Settings]:
    """Those groups of columns that have a trial at this scale."""
    chosen: Mapping[str, Settings] = artefact.presentation.show["settings"]
    return {
        words: settings for words, settings in chosen.items() if _find(artefact, None, settings)
    }


def quantities_of(artefact: Artefact, comparison: str) -> tuple[str, ...]:
    """Columns of each group."""
    memory = (MEMORY,) if artefact.presentation.show.get("memory") else ()
    return (THROUGHPUT, SPEEDUP, *memory, *((COPIED,) if comparison == STRATEGIES else ()))


def measured(
    artefact: Artefact, system: str, base: str, settings: Settings, quantity: str
) -> Measured:
    """A quantity of one system under one setting."""
    point = _find(artefact, system, settings)
    if quantity == SPEEDUP:
        return speedup_of(point, _find(artefact, base, settings), TIME, N_INSTANCES)
    return measure_of(point, quantity)


def _find(artefact: Artefact, system: str | None, settings: Settings) -> Point | None:
    return find(artefact, **({"system": system} if system else {}), **settings)


def _cell(
    artefact: Artefact, system_and_base: tuple[str, str], settings: Settings, quantity: str
) -> Cell:
    system, base = system_and_base
    number = measured(artefact, system, base, settings, quantity)
    if quantity == COPIED:  # counted: no disturbance changes it
        return measured_cell(replace(number, warnings=()))
    if quantity != SPEEDUP:
        return measured_cell(number)
    return Cell("1") if system == base and number.summary else ratio_cell(number)


def rows_of(artefact: Artefact, comparison: str) -> list[Row]:
    """A row per setting, system and quantity."""
    base, *_ = systems = artefact.compare[comparison]
    return [
        {
            "setting": words,
            **{key.rpartition(".")[2]: value for key, value in settings.items()},
            "system": system,
            "quantity": quantity,
            **numbers_of(measured(artefact, system, base, settings, quantity)),
        }
        for words, settings in settings_of(artefact).items()
        for system in systems
        for quantity in quantities_of(artefact, comparison)
    ]
