"""`policy=auto` against every fixed choice: what it took, and how far behind the best it is.

show:
  settings:                      # words of a row: what its trials have
    Tree-LSTM training: {model: tree_lstm, mode: train}

The best fixed choice is that with the least median; behind it in percent: of both in each round,
then over rounds; below 0 where auto took less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.contracts.policy import AUTO
from plots.numbers.artefact import Artefact
from plots.numbers.points import NOT_PLANNED, Measured, Point, measure_of, speedup_of
from plots.numbers.table import EN_DASH, Cell, Column, Table, three_digits
from plots.numbers.tidy import Row
from plots.tables.walks import settings_of
from plots.words.count_cells import table_of_rows
from plots.words.trial_cells import measured_cell, numbers_of, points_with
from plots.writing.table import write_table_and_rows

TIME = "mini_batch_ms"
GRANULARITY = "system.options.granularity"
PLURAL = {"vertex": "vertices", "operator": "operators"}
COLUMNS = ("auto took", "auto (ms)", "best fixed", "best fixed (ms)", "auto behind it (%)")


@dataclass(frozen=True, slots=True)
class Line:
    """A row: the trial that chose, and the best of those with a fixed choice (None: no number)."""

    words: str
    auto: Point | None
    best: Point | None


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    write_table_and_rows(table_of(artefact), [*rows_of(artefact)], results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are workloads."""
    columns = [Column("", label) for label in COLUMNS]
    rows = [(line.words, _cells(line)) for line in lines_of(artefact)]
    return table_of_rows(artefact, "workload", columns, rows)


def lines_of(artefact: Artefact) -> list[Line]:
    """A line for each of the settings that the scale has trials of."""
    found = []
    for words, settings in settings_of(artefact).items():
        points = points_with(artefact, settings)
        auto = next((p for p in points if p.settings.get("policy") == AUTO), None)
        fixed = [p for p in points if p.settings.get("policy") != AUTO]
        found.append(Line(words, auto, min(fixed, key=_median, default=None)))
    return found


def _median(point: Point) -> float:
    summary = measure_of(point, TIME).summary
    return summary.median if summary else float("inf")


def taken(point: Point | None) -> str:
    """What auto chose, and in how many rounds where not in all alike."""
    records = [] if point is None else [r for r in point.records if r is not None]
    chosen = [r.choice.chosen for r in records if r.choice]
    names = Counter(f"{one.policy}, {PLURAL[one.granularity]}" for one in chosen)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{name} ({n} of {len(records)})" for name, n in names.most_common())


def behind(line: Line) -> Measured:
    """How much longer auto took than the best fixed choice, in percent."""
    ratio = speedup_of(line.auto, line.best, TIME)
    if ratio.summary is None:
        return ratio
    one = ratio.summary
    low, high = (None if end is None else 100 * (end - 1) for end in (one.low, one.high))
    return replace(ratio, summary=replace(one, median=100 * (one.median - 1), low=low, high=high))


def name_of(point: Point | None) -> str:
    """Policy and granularity of a fixed choice."""
    if point is None:
        return EN_DASH
    granularity = str(point.settings.get(GRANULARITY, "vertex"))
    return f"{point.settings['policy']}, {PLURAL[granularity]}"


def _cells(line: Line) -> tuple[Cell, ...]:
    auto, best = measure_of(line.auto, TIME), measure_of(line.best, TIME)
    return (
        Cell(taken(line.auto) or EN_DASH),
        measured_cell(auto),
        Cell(name_of(line.best)),
        measured_cell(best),
        _percent_cell(behind(line)),
    )


def _percent_cell(found: Measured) -> Cell:
    summary = found.summary
    if summary is None:
        return Cell(EN_DASH if found.status == NOT_PLANNED else found.status)
    text = f"{summary.median:+.1f}"
    if summary.low is not None and summary.high is not None:
        text += f" ({summary.low:+.1f} to {summary.high:+.1f})"
    return Cell(text, warned=bool(found.warnings))


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """Every trial of every workload, and what choosing took."""
    for line in lines_of(artefact):
        settings = settings_of(artefact)[line.words]
        for point in points_with(artefact, settings):
            named = {"setting": line.words, "policy": point.settings.get("policy")}
            named |= {"granularity": point.settings.get(GRANULARITY, "vertex")}
            if point is line.auto:
                named |= {"granularity": "", "chose": taken(point), "choose_s": _choose_s(point)}
            yield {**named, "quantity": TIME, **numbers_of(measure_of(point, TIME))}
        yield {"setting": line.words, "quantity": "behind the best (%)", **numbers_of(behind(line))}


def _choose_s(point: Point) -> str | None:
    """The median over rounds."""
    seconds = sorted(r.choose_s for r in point.records if r is not None and r.choose_s is not None)
    return three_digits(seconds[len(seconds) // 2]) if seconds else None
