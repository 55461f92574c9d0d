"""Policies on one engine, nothing else changed: time, of which scheduling, batches, and the bound.

show:
  base: critical_share         # whose time the others' is compared with
  modes: {train: training, infer: inference}

Rows are models and policies. A learned policy is measured from several seeds (learning.seed): its
cells show the median over seeds, the smallest and the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.seeds import SEED, over_seeds
from plots.numbers.table import TIMES, Cell, Column, Table, plain, three_digits
from plots.numbers.tidy import Row
from plots.words.count_cells import table_of_rows
from plots.words.trial_cells import listed, measured_cell, numbers_of, ratio_cell
from plots.writing.table import write_table_and_rows

TIME, SCHEDULE, SPEEDUP = "mini_batch_ms", "schedule_ms", "speed_up"
TIMED = {
    TIME: "ms per mini-batch",
    SCHEDULE: "of which scheduling",
    SPEEDUP: f"{{}} over it ({TIMES})",
}
COUNTED = {"n_batches": "batches", "over_bound": "over the bound"}


@dataclass(frozen=True, slots=True)
class Line:
    """A row: a model under a policy."""

    model: str
    policy: str


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write tables/<name> as .pdf, .png, .csv, .tex, .md and .html."""
    (stem,) = artefact.presentation.stems
    rows = [*rows_of(artefact)]
    write_table_and_rows(table_of(artefact), rows, results_dir / stem)


def table_of(artefact: Artefact) -> Table:
    """Rows are models and policies; a group of columns for each mode, then what is counted."""
    modes, base = modes_of(artefact), artefact.presentation.show["base"]
    labels = [label.format(base) for label in TIMED.values()]
    columns = [Column(words, label) for words in modes.values() for label in labels]
    columns += [Column("a mini-batch", label) for label in COUNTED.values()]
    rows = []
    for line in lines_of(artefact):
        cells = [_timed_cell(artefact, line, mode, name) for mode in modes for name in TIMED]
        cells += [_counted_cell(artefact, line, name) for name in COUNTED]
        rows.append((f"{artefact.label(line.model)}, {line.policy}", tuple(cells)))
    return table_of_rows(artefact, "model and policy", columns, rows)


def modes_of(artefact: Artefact) -> dict[str, str]:
    """Modes that this scale has, and their words."""
    words: Mapping[str, str] = artefact.presentation.show["modes"]
    return {mode: words[mode] for mode in words if mode in listed(artefact, "mode")}


def lines_of(artefact: Artefact) -> list[Line]:
    """Every model under every policy that it was measured with, in the order of the grid."""
    pairs = ((str(p.settings["model"]), str(p.settings["policy"])) for p in artefact.points)
    found = dict.fromkeys(pairs)
    models = dict.fromkeys(model for model, _ in found)
    return [Line(model, policy) for model in models for of, policy in found if of == model]


def measured(artefact: Artefact, line: Line, mode: str, quantity: str) -> Measured:
    """A quantity of a row in one mode, over the seeds of a learned policy."""
    points = points_of(artefact, line, mode)
    if quantity != SPEEDUP:
        return over_seeds([measure_of(point, quantity) for point in points])
    own = replace(line, policy=artefact.presentation.show["base"])
    base = next(iter(points_of(artefact, own, mode)), None)
    return over_seeds([speedup_of(point, base, TIME) for point in points])


def points_of(artefact: Artefact, line: Line, mode: str) -> list[Point]:
    """Its points, one for each seed."""
    wanted = {"model": line.model, "policy": line.policy, "mode": mode}
    return [
        point
        for point in artefact.points
        if all(str(point.settings.get(key)) == value for key, value in wanted.items())
    ]


def _timed_cell(artefact: Artefact, line: Line, mode: str, quantity: str) -> Cell:
    found = measured(artefact, line, mode, quantity)
    if quantity == SPEEDUP:
        is_base = line.policy == artefact.presentation.show["base"]
        return Cell("1") if is_base and found.summary else ratio_cell(found)
    return _with_spread(artefact, line, mode, found, three_digits)


def _counted_cell(artefact: Artefact, line: Line, quantity: str) -> Cell:
    """What is counted is the same in every mode, and no disturbance changes it."""
    mode = next(mode for mode in modes_of(artefact) if points_of(artefact, line, mode))
    found = replace(measured(artefact, line, mode, quantity), warnings=())
    spell = _two_decimals if quantity == "over_bound" else _whole
    return _with_spread(artefact, line, mode, found, spell)


def _with_spread(
    artefact: Artefact, line: Line, mode: str, found: Measured, spell: Callable[[float], str]
) -> Cell:
    """The number; of several seeds with their range, where that shows."""
    cell, summary = measured_cell(found, spell), found.summary
    if summary is None or len(points_of(artefact, line, mode)) < 2:
        return cell
    low, high = (spell(value) for value in (summary.low, summary.high) if value is not None)
    return cell if low == high else replace(cell, text=f"{cell.text} [{low} to {high}]")


def _whole(value: float) -> str:
    return plain(round(value, 1))


def _two_decimals(value: float) -> str:
    return "1" if value == 1 else f"{value:.2f}"


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """A row per model, policy, mode and quantity; of several seeds, low and high are theirs."""
    for line in lines_of(artefact):
        for mode in modes_of(artefact):
            points = points_of(artefact, line, mode)
            if not points:
                continue
            seeds: Sequence[object] = [p.settings[SEED] for p in points if SEED in p.settings]
            for quantity in (*TIMED, *COUNTED):
                found = numbers_of(measured(artefact, line, mode, quantity))
                named = {"model": line.model, "policy": line.policy, "mode": mode}
                yield {**named, "n_seeds": max(1, len(seeds)), "quantity": quantity, **found}
