"""What tables of trials share where rows and columns are no quantity against one axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from plots.numbers.artefact import Artefact
from plots.numbers.points import NOT_PLANNED, Measured, Point, measure_of
from plots.numbers.table import EN_DASH, Cell, plain, three_digits
from plots.numbers.tidy import Row


def find(artefact: Artefact, **wanted: object) -> Point | None:
    """The point whose settings are as wanted (`__` for a dot), or None where there is none."""
    keys = {key.replace("__", "."): value for key, value in wanted.items()}
    for point in artefact.points:
        if all(point.settings.get(key) == value for key, value in keys.items()):
            return point
    return None


def points_with(artefact: Artefact, settings: Mapping[str, object]) -> list[Point]:
    """All points with these settings: one workload's, where a group of columns is one."""
    return [
        point
        for point in artefact.points
        if all(point.settings.get(key) == value for key, value in settings.items())
    ]


def listed(artefact: Artefact, key: str) -> list[str]:
    """All values that the points give a key, in their order."""
    return list(dict.fromkeys(str(p.settings[key]) for p in artefact.points if key in p.settings))


CELL = "model.options.cell"
# Of a cell by itself: quantity of ours, name in the published columns, words.
PARTS = (
    ("latency_ms", "latency_ms", "latency (ms)"),
    ("n_copies", "kernels", "memory kernels"),
    ("copied_kb", "copied_kb", "copied (kB)"),
)
KEYS = (CELL, "system", "batch_size", "hidden_size")
EXACT = ("n_copies", "copied_kb")  # counted, so that no disturbance changes them


def cell_of(point: Point | None, quantity: str) -> Cell:
    """A quantity of a point: what is counted as it is, what is measured with three digits."""
    measured = measure_of(point, quantity)
    if quantity in EXACT:
        return measured_cell(replace(measured, warnings=()), plain)
    return measured_cell(measured)


def measured_cell(measured: Measured, spell: Callable[[float], str] = three_digits) -> Cell:
    """The median, with a dagger where it carries warnings; else the word for why there is none."""
    if measured.summary is None:
        return Cell(EN_DASH if measured.status == NOT_PLANNED else measured.status)
    return Cell(spell(measured.summary.median), warned=bool(measured.warnings))


def ratio_cell(measured: Measured) -> Cell:
    """A ratio with its ends (see Summary), since whether they enclose 1 is what matters."""
    cell, summary = measured_cell(measured), measured.summary
    if summary is None or summary.low is None or summary.high is None:
        return cell
    interval = f"({three_digits(summary.low)} to {three_digits(summary.high)})"
    return replace(cell, text=f"{cell.text} {interval}")


def numbers_of(measured: Measured) -> Row:
    """What a row of a CSV tells of one number."""
    summary = measured.summary
    return {
        "value": summary.median if summary else None,
        "low": summary.low if summary else None,
        "high": summary.high if summary else None,
        "interval": summary.ends if summary else "",
        "n_rounds": summary.n_rounds if summary else None,
        "status": measured.status,
        "warnings": " ".join(measured.warnings),
    }


def rows_of_trials(artefact: Artefact, keys: Sequence[str], quantities: Sequence[str]) -> list[Row]:
    """A row per trial and quantity: its settings, the median and its ends over rounds."""
    rows: list[Row] = []
    for point in artefact.points:
        settings = {key.rpartition(".")[2]: point.settings.get(key) for key in keys}
        for quantity in quantities:
            rows.append(
                {
                    **settings,
                    "quantity": quantity,
                    **numbers_of(measure_of(point, quantity)),
                    "n_rounds": len(point.records),
                }
            )
    return rows
