"""The engine and its peers, a row per system: what each does in a second, and how far it is behind.

A table per comparison; a group of columns for each setting of the workload that the scale has.

show:
  unit: sentences/s
  settings:                   # words of a group of columns: what its trials have
    10 000 words: {dataset.options.vocab_modulo: 0}
    the recurrent part: {dataset.options.vocab_modulo: 256}
  memory: true                # a column with what each needs at most; or left out
  preparing: true             # a column with what it takes before the first mini-batch; or left out
  ceiling: true               # a column with each one's share of the ceiling, and a row with the
                              # ceiling itself, where the scale has a calibration; or left out

Strategies have one more column: what the engine copies only to bring operands together. Systems
have one more row: the best of all peers in each setting, by name, and what the first gains over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.planning.kinds import read_systems
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import PEER_KIND, BestPeer, best_peer, peer_names
from plots.numbers.ceiling import ceiling_beside, share_of
from plots.numbers.fastest import TIME, TIMED_INSTANCES
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.series import GROUP_TITLES, STRATEGIES, SYSTEMS
from plots.numbers.table import EN_DASH, TIMES, Cell, Column, Table, three_digits
from plots.numbers.tidy import Row
from plots.words.ceiling_cells import (
    CEILING,
    SHARE,
    SHARE_LABEL,
    ceiling_at,
    ceiling_cell,
    ceiling_notes,
    ceiling_row,
    has_ceiling,
)
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import find, measured_cell, numbers_of, points_with, ratio_cell
from plots.words.unseen import UNSEEN, unseen_notes, unseen_of
from plots.writing.table import write_table_and_rows

THROUGHPUT, MEMORY, SPEEDUP = "throughput", "peak_memory_mib", "overall_speedup"
COPIED, PREPARING = "copied_kb", "preparing_s"
WORDS = {
    SPEEDUP: f"speed-up ({TIMES})",
    SHARE: SHARE_LABEL,
    MEMORY: "MiB",
    PREPARING: "prepare (s)",
    COPIED: "copied kB",
}
BEST, OVER_BEST = "best of all peers", "over_best_peer"
NOTES = {
    MEMORY: "; MiB: what it needs at most, without its imports, but for DyNet's, which is imported"
    " when it gets the weights",
    PREPARING: "; prepare: once a process, compiling, folding and loading weights, compiled code of"
    " earlier processes reused where a system keeps it",
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
        )
        + _best_row(artefact, comparison, quantities)
        + _ceiling_row(artefact, quantities),
        notes=(
            f"Speed-up: that of {artefact.label(base)} over the system{notes}.",
            *ceiling_notes(artefact, _shares(artefact, comparison)),
            *_on_fewer(artefact, comparison),
            *(unseen_notes(artefact, systems, settings.values()) if comparison == SYSTEMS else ()),
            *_left_out(artefact, comparison),
            *_not_yet(artefact),
            *notes_of(artefact, comparison),
        ),
    )


def _shares(artefact: Artefact, comparison: str) -> Iterator[Measured]:
    for settings in settings_of(artefact).values():
        for system in artefact.compare[comparison]:
            yield measured(artefact, system, system, settings, SHARE)


def _left_out(artefact: Artefact, comparison: str) -> tuple[str, ...]:
    missing = peers_left_out(artefact) if comparison == SYSTEMS else ()
    return (f"Peers without a trial at this scale: {', '.join(missing)}.",) if missing else ()


def _not_yet(artefact: Artefact) -> tuple[str, ...]:
    missing = _planned(artefact).keys() - settings_of(artefact).keys()
    return (f"Not measured yet: {', '.join(sorted(missing))}.",) if missing else ()


def peers_left_out(artefact: Artefact) -> tuple[str, ...]:
    """Peers that run a model of this table, but have no trial at this scale."""
    models = {str(point.settings["model"]) for point in artefact.points}
    measured = {point.settings["system"] for point in artefact.points}
    return tuple(
        system.label
        for system in read_systems(artefact.conf_dir)
        if system.kind == PEER_KIND
        and system.name not in measured
        and any(system.runs(model) for model in models)
    )


def _best_row(
    artefact: Artefact, comparison: str, quantities: Sequence[str]
) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    """The fastest peer of each setting, and the first system's speed over it."""
    if comparison != SYSTEMS:
        return ()
    best = best_peers_of(artefact)
    return (
        (BEST, tuple(_best_cell(artefact, one, q) for one in best.values() for q in quantities)),
    )


def _best_cell(artefact: Artefact, best: BestPeer | None, quantity: str) -> Cell:
    if best is None:
        return Cell(EN_DASH if quantity in (THROUGHPUT, SPEEDUP) else "")
    if quantity == THROUGHPUT:
        words = f"{artefact.label(best.system)}: {three_digits(best.speed.median)}"
        return Cell(words, warned=best.has_warnings)
    return ratio_cell(best.ratio) if quantity == SPEEDUP else Cell("")


def _ceiling_row(
    artefact: Artefact, quantities: Sequence[str]
) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    """The ceiling of each setting, by name."""
    if SHARE not in quantities:
        return ()
    cells = [
        _ceiling_cell(artefact, settings, quantity)
        for settings in settings_of(artefact).values()
        for quantity in quantities
    ]
    return ((CEILING, tuple(cells)),)


def _ceiling_cell(artefact: Artefact, settings: Settings, quantity: str) -> Cell:
    ceiling = ceiling_at(artefact, settings)
    if quantity == THROUGHPUT:
        return ceiling_cell(artefact, ceiling, THROUGHPUT)
    has_number = measure_of(ceiling, THROUGHPUT).summary is not None
    return Cell("100" if quantity == SHARE and has_number else "")


def best_peers_of(artefact: Artefact) -> dict[str, BestPeer | None]:
    """The fastest peer of each group of columns."""
    base, *_ = artefact.compare[SYSTEMS]
    peers = peer_names(artefact.conf_dir)
    return {
        words: best_peer(points_with(artefact, settings), base, peers)
        for words, settings in settings_of(artefact).items()
    }


def settings_of(artefact: Artefact) -> dict[str, Settings]:
    """Those groups of columns that have a trial at this scale, and a record where any has one."""
    planned = _planned(artefact)
    return {
        words: settings
        for words, settings in planned.items()
        if any(any(point.records) for point in points_with(artefact, settings))
    } or planned


def _planned(artefact: Artefact) -> dict[str, Settings]:
    chosen: Mapping[str, Settings] = artefact.presentation.show["settings"]
    return {words: at for words, at in chosen.items() if points_with(artefact, at)}


def quantities_of(artefact: Artefact, comparison: str) -> tuple[str, ...]:
    """Columns of each group."""
    show = artefact.presentation.show
    told = {
        SHARE: has_ceiling(artefact),
        MEMORY: show.get("memory"),
        PREPARING: show.get("preparing"),
        COPIED: comparison == STRATEGIES,
    }
    return (THROUGHPUT, SPEEDUP, *(quantity for quantity, is_told in told.items() if is_told))


def measured(
    artefact: Artefact, system: str, base: str, settings: Settings, quantity: str
) -> Measured:
    """A quantity of one system under one setting."""
    point = _find(artefact, system, settings)
    if quantity == SPEEDUP:
        return speedup_of(point, _find(artefact, base, settings), TIME, TIMED_INSTANCES)
    if quantity == SHARE:
        return share_of(ceiling_beside(artefact, point), point)
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
    if quantity == THROUGHPUT:
        cell, mark = measured_cell(number), _rounds_mark(_find(artefact, system, settings))
        return replace(cell, text=f"{cell.text} {mark}".strip())
    if quantity != SPEEDUP:
        return measured_cell(number)
    return Cell("1") if system == base and number.summary else ratio_cell(number)


def _rounds_mark(point: Point | None) -> str:
    """The rounds that the number of who was called off stands on, in brackets; else nothing."""
    if point is None or not point.is_called_off or point.status != "ok":
        return ""
    return f"[{len(point.records)}]"


def _on_fewer(artefact: Artefact, comparison: str) -> tuple[str, ...]:
    marks = {
        _rounds_mark(_find(artefact, system, settings))
        for settings in settings_of(artefact).values()
        for system in artefact.compare[comparison]
    }
    told = sorted(marks - {""})
    return (f"{', '.join(told)}: of so many rounds alone.",) if told else ()


def rows_of(artefact: Artefact, comparison: str) -> list[Row]:
    """A row per setting, system and quantity, of the first over the best peer, of the ceiling."""
    base, *_ = systems = artefact.compare[comparison]
    best = best_peers_of(artefact) if comparison == SYSTEMS else {}
    rows: list[Row] = []
    for words, settings in settings_of(artefact).items():
        chosen = {key.rpartition(".")[2]: value for key, value in settings.items()}
        rows += (
            {
                "setting": words,
                **chosen,
                "system": system,
                "quantity": quantity,
                **numbers_of(measured(artefact, system, base, settings, quantity)),
            }
            for system in systems
            for quantity in quantities_of(artefact, comparison)
        )
        rows += (
            {"setting": words, **chosen, "system": system, "quantity": UNSEEN, **numbers_of(number)}
            for system, number in unseen_of(artefact, systems, settings)
        )
        if found := best.get(words):
            named = {"setting": words, **chosen, "system": found.system, "quantity": OVER_BEST}
            rows.append({**named, **numbers_of(found.ratio)})
        if has_ceiling(artefact):
            ceiling = ceiling_row(ceiling_at(artefact, settings), THROUGHPUT)
            rows.append({"setting": words, **chosen, **ceiling})
    return rows
