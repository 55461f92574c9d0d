"""Panels of an artefact: a panel per comparison, then one of what the paper published."""

from __future__ import annotations

from harness.records.stats import Summary
from plots.numbers.artefact import Artefact
from plots.numbers.families import Family
from plots.numbers.series import GROUP_TITLES, PUBLISHED, Mark, Panel, Series


def panels_of(artefact: Artefact, quantity: str) -> list[Panel]:
    """All panels of one quantity; a comparison or a paper without numbers has none."""
    panels = [
        Panel(group, GROUP_TITLES[group], _all_series(artefact, quantity, group))
        for group in artefact.compare
    ]
    published = _published_panel(artefact, quantity)
    return [*panels, published] if published else panels


def _all_series(artefact: Artefact, quantity: str, group: str) -> tuple[Series, ...]:
    """A series per system that the grid measures at all, at this scale; variants share one."""
    series = (_series(artefact, quantity, family) for family in artefact.families(group))
    return tuple(one for one in series if one.marks)


def _series(artefact: Artefact, quantity: str, family: Family) -> Series:
    marks = []
    for x in artefact.xs:
        system = artefact.fastest(family, x)
        if system is not None:
            measured = artefact.measured(quantity, system, x)
            marks.append(Mark(x, measured.status, measured.summary, measured.warnings))
    return Series(family.name, artefact.label(family.name), tuple(marks))


def _published_panel(artefact: Artefact, quantity: str) -> Panel | None:
    published = artefact.presentation.published
    if published is None:
        return None
    series = []
    for system, label in published.labels.items():
        values = {x: published.value(quantity, system, x) for x in published.xs}
        marks = [
            Mark(x, "ok", Summary(v, None, None, 1)) for x, v in values.items() if v is not None
        ]
        series.append(Series(system, label, tuple(marks)))
    title = f"{GROUP_TITLES[PUBLISHED]} ({published.device})"
    return Panel(PUBLISHED, title, tuple(series))
