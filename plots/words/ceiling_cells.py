"""What tables print of the ceiling: each system's share of it, a row that names it, a note.

A table shows it where the experiment says `show: {ceiling: true}` and its scale has a calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plots.numbers.artefact import Artefact
from plots.numbers.ceiling import calibrations_of, ceiling_beside
from plots.numbers.points import Measured, Point, measure_of
from plots.numbers.table import EN_DASH, Cell
from plots.numbers.tidy import Row
from plots.words.trial_cells import measured_cell, numbers_of, points_with

SHARE, SHARE_LABEL = "of_ceiling", "of ceiling (%)"
CEILING = "ceiling"
NOTE = (
    "Of ceiling: speed over that of the workload's matrix products alone, each parameter once for"
    " all vertices, at their fastest"
)
BEYOND = "; more than 100 % where a system leaves products out or multiplies with another library"
NO_CEILING = "Share of the ceiling: not measured at this scale."


def has_ceiling(artefact: Artefact) -> bool:
    """Whether the experiment shows it, and its scale has a calibration."""
    return bool(calibrations_of(artefact))


def ceiling_at(artefact: Artefact, settings: Mapping[str, object]) -> Point | None:
    """The ceiling of a group of columns; None where it was not planned."""
    return ceiling_beside(artefact, next(iter(points_with(artefact, settings)), None))


def ceiling_cell(artefact: Artefact, ceiling: Point | None, quantity: str) -> Cell:
    """Which calibration it is, and its number; a dash or a word where there is none."""
    cell = measured_cell(measure_of(ceiling, quantity))
    if ceiling is None or cell.text == EN_DASH:
        return cell
    label = artefact.label(str(ceiling.settings["system"]))
    return Cell(f"{label}: {cell.text}", cell.warned)


def ceiling_row(ceiling: Point | None, quantity: str) -> Row:
    """What a CSV tells of it."""
    system = None if ceiling is None else ceiling.settings["system"]
    return {"system": system, "quantity": CEILING, **numbers_of(measure_of(ceiling, quantity))}


def ceiling_notes(artefact: Artefact, shares: Iterable[Measured]) -> tuple[str, ...]:
    """What the column is, or that it is missing. shares: all that the table shows."""
    if not artefact.presentation.shows_ceiling:
        return ()
    if not has_ceiling(artefact):
        return (NO_CEILING,)
    beyond = any(share.summary and share.summary.median > 100 for share in shares)
    return (f"{NOTE}{BEYOND * beyond}.",)
