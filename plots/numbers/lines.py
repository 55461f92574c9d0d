"""Tidy lines of an artefact: the data of its figure or table, measured and published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plots.numbers.artefact import SPEEDUP, Artefact
from plots.numbers.points import Measured
from plots.numbers.series import PUBLISHED
from plots.numbers.tidy import Line, write_csv

UNITS = {"s": "s/epoch", "percent": "%", "speedup": "ratio", "throughput": "instances/s"}


def unit_of(quantity: str) -> str:
    """The unit is the last word of a quantity's name."""
    return UNITS[quantity.rpartition("_")[2]]


def measured_lines(artefact: Artefact, comparison: str) -> Iterator[Line]:
    """A line per system, x and quantity of one comparison; speed-ups over all but the first.

    Of variants the fastest at x has the line.
    """
    base, *others = artefact.families(comparison)
    for quantity in artefact.presentation.quantities:
        for family in others if quantity.endswith(SPEEDUP) else (base, *others):
            for x in artefact.xs:
                system = artefact.fastest(family, x)
                if system is not None:
                    over = artefact.fastest(base, x) or base.name
                    measured = artefact.measured(quantity, system, x, over)
                    yield _line(artefact, comparison, system, x, quantity, measured)


def _line(
    artefact: Artefact, comparison: str, system: str, x: float, quantity: str, measured: Measured
) -> Line:
    summary = measured.summary
    return Line(
        source="measured",
        comparison=comparison,
        system=system,
        axis=artefact.presentation.axis,
        x=x,
        quantity=quantity,
        unit=unit_of(quantity),
        value=summary.median if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        interval=summary.ends if summary else "",
        n_rounds=summary.n_rounds if summary else None,
        status=measured.status,
        warnings=" ".join(measured.warnings),
    )


def published_lines(artefact: Artefact) -> Iterator[Line]:
    """The paper's numbers for the same quantities, with their source."""
    published = artefact.presentation.published
    if published is None:
        return
    for quantity in artefact.presentation.quantities:
        for system in published.labels:
            for x in published.xs:
                value = published.value(quantity, system, x)
                if value is not None:
                    yield Line(
                        source=published.source,
                        comparison=PUBLISHED,
                        system=system,
                        axis=published.axis,
                        x=x,
                        quantity=quantity,
                        unit=unit_of(quantity),
                        value=value,
                        low=None,
                        high=None,
                        interval="",
                        n_rounds=None,
                        status="published",
                        warnings="",
                    )


def write_lines(artefact: Artefact, path: Path) -> None:
    """Write every number that the figure shows."""
    lines = [line for group in artefact.compare for line in measured_lines(artefact, group)]
    write_csv(path, [*lines, *published_lines(artefact)])
