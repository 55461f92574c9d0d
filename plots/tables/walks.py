"""From one preset to another, a switch at a time: what each difference between them is worth.

show:
  settings:                    # words of a group of columns: what its trials have
    Tree-LSTM training: {model: tree_lstm, mode: train}
  ceiling: true                # a column with each one's share of the ceiling, and a row with the
                               # ceiling itself, where the scale has a calibration; or left out

The walks are the experiment's own (harness/planning/walks.py). Speed-ups are above 1 where the step
makes a mini-batch faster, whichever way it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.planning.grid import read_experiment
from harness.planning.walks import Walk, read_walks
from plots.numbers.artefact import Artefact
from plots.numbers.ceiling import ceiling_beside, share_of
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.table import EN_DASH, TIMES, Cell, Column, Table
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
from plots.words.count_cells import table_of_rows
from plots.words.trial_cells import measured_cell, numbers_of, ratio_cell
from plots.writing.table import write_table_and_rows

TIME = "mini_batch_ms"
COLUMNS = {
    "ms": "ms per mini-batch",
    "so_far": f"so far ({TIMES})",
    "added_first": f"added first ({TIMES})",
    "removed_last": f"removed last ({TIMES})",
}
CEILING_COLUMN = {SHARE: SHARE_LABEL}  # behind them, where it is shown
OPTION = "system.options."

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """A row: where a walk stands. place: of its step; None at the start."""

    walk: Walk
    place: int | None

    @property
    def words(self) -> str:
        """The switch that the step turns, and how."""
        if self.place is None:
            return ""
        step = self.walk.steps[self.place]
        return f"{step.option}: {_word(step.before)} to {_word(step.after)}"


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    lines = lines_of(artefact)
    rows = [*rows_of(artefact, lines)]
    write_table_and_rows(table_of(artefact, lines), rows, results_dir / stem)


def lines_of(artefact: Artefact) -> list[Line]:
    """The start of every walk of this scale, and each of its steps."""
    content = read_experiment(artefact.name, artefact.conf_dir)
    walks = read_walks(artefact.name, content, artefact.conf_dir).values()
    started = {point.settings["system"] for point in artefact.points}
    return [
        Line(walk, place)
        for walk in walks
        if walk.start in started
        for place in (None, *range(len(walk.steps)))
    ]


def table_of(artefact: Artefact, lines: list[Line]) -> Table:
    """Rows are the steps of each walk; a group of columns for each workload."""
    settings, labels = settings_of(artefact), columns_of(artefact)
    columns = [Column(words, label) for words in settings for label in labels.values()]
    rows = [
        (
            _header(artefact, line),
            tuple(
                _cell(measured(artefact, line, chosen, column), column)
                for chosen in settings.values()
                for column in labels
            ),
        )
        for line in lines
    ]
    if has_ceiling(artefact):
        rows.append((CEILING, _ceiling_cells(artefact, settings)))
    table = table_of_rows(artefact, "step", columns, rows)
    shares = (
        found
        for line in lines
        for chosen in settings.values()
        if (found := measured(artefact, line, chosen, SHARE))
    )
    return replace(table, notes=(*ceiling_notes(artefact, shares), *table.notes))


def columns_of(artefact: Artefact) -> dict[str, str]:
    """Columns of each group, and their labels."""
    return COLUMNS | CEILING_COLUMN if has_ceiling(artefact) else COLUMNS


def _ceiling_cells(artefact: Artefact, settings: Mapping[str, Settings]) -> tuple[Cell, ...]:
    """The ceiling of each workload, by name."""
    blank = [Cell("")] * (len(columns_of(artefact)) - 1)
    times = (ceiling_cell(artefact, ceiling_at(artefact, s), TIME) for s in settings.values())
    return tuple(cell for time in times for cell in (time, *blank))


def settings_of(artefact: Artefact) -> dict[str, Settings]:
    """Those groups of columns that have a trial at this scale."""
    chosen: Mapping[str, Settings] = artefact.presentation.show["settings"]
    return {
        words: settings
        for words, settings in chosen.items()
        if any(_has(point, settings) for point in artefact.points)
    }


def measured(artefact: Artefact, line: Line, settings: Settings, column: str) -> Measured | None:
    """What stands in a column; None where the start of a walk has nothing there."""
    walk, place = line.walk, line.place
    here = find_step(artefact, walk.walked(0 if place is None else place + 1), settings)
    if column == "ms":
        return measure_of(here, TIME)
    if column == SHARE:
        return share_of(ceiling_beside(artefact, here), here)
    if place is None:
        return None
    first, last = (find_step(artefact, walk.walked(n), settings) for n in (0, len(walk.steps)))
    if column == "so_far":
        return speedup_of(first, here, TIME)
    if column == "added_first":
        return speedup_of(first, find_step(artefact, walk.added_first(place), settings), TIME)
    return speedup_of(find_step(artefact, walk.removed_last(place), settings), last, TIME)


def find_step(artefact: Artefact, trial: Settings, settings: Settings) -> Point | None:
    """The point of a workload with just these options changed."""
    for point in artefact.points:
        changed = {k: v for k, v in point.settings.items() if k.startswith(OPTION) or k == "system"}
        if changed == trial and _has(point, settings):
            return point
    return None


def _has(point: Point, settings: Settings) -> bool:
    return all(point.settings.get(key) == value for key, value in settings.items())


def _header(artefact: Artefact, line: Line) -> str:
    if line.place is None:
        return f"{artefact.label(line.walk.start)}"
    end = f" = {artefact.label(line.walk.end)}" * (line.place == len(line.walk.steps) - 1)
    return f"{line.words}{end}"


def _cell(found: Measured | None, column: str) -> Cell:
    if found is None:
        return Cell(EN_DASH)
    return measured_cell(found) if column in ("ms", SHARE) else ratio_cell(found)


def _word(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def rows_of(artefact: Artefact, lines: list[Line]) -> Iterator[Row]:
    """A row per workload, step and column, and of the ceiling."""
    for words, settings in settings_of(artefact).items():
        for line in lines:
            for column in columns_of(artefact):
                found = measured(artefact, line, settings, column)
                if found is not None:
                    named = {"setting": words, "walk": line.walk.start, "to": line.walk.end}
                    number = 0 if line.place is None else line.place + 1
                    step = {"step": number, "switch": line.words, "quantity": column}
                    yield {**named, **step, **numbers_of(found)}
        if has_ceiling(artefact):
            yield {"setting": words, **ceiling_row(ceiling_at(artefact, settings), TIME)}
