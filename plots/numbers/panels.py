"""Panels of an artefact: a panel per comparison, then one of what the paper published."""

from __future__ import annotations

from harness.records.stats import Summary
from plots.numbers.artefact import Artefact
from plots.numbers.series import GROUP_TITLES, PUBLISHED, Mark, Panel, Series


def panels_of(artefact: Artefact, quantity: str) -> list[Panel]:
    """All panels of one quantity; a comparison or a paper without numbers has none."""
    panels = [
        Panel(group, GROUP_TITLES[group], _all_series(artefact, quantity, systems))
        for group, systems in artefact.compare.items()
    ]
    published = _published_panel(artefact, quantity)
    return [*panels, published] if published else panels


def _all_series(artefact: Artefact, quantity: str, systems: tuple[str, ...]) -> tuple[Series, ...]:
    """A series per system that the grid measures at all, at this scale."""
    series = (_series(artefact, quantity, system) for system in systems)
    return tuple(one for one in series if one.marks)


def _series(artefact: Artefact, quantity: str, system: str) -> Series:
    marks = []
    for x in artefact.xs:
        if artefact.find(system, x) is not None:
            measured = artefact.measured(quantity, system, x)
            marks.append(Mark(x, measured.status, measured.summary, measured.warnings))
    return Series(system, artefact.label(system), tuple(marks))


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
