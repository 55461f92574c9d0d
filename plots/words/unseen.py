"""How much longer systems take on mini-batches that they had not seen than on the timed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, measure_of
from plots.numbers.table import TIMES
from plots.words.trial_cells import find

UNSEEN = "unseen_ratio"


def unseen_of(
    artefact: Artefact, systems: Sequence[str], settings: Mapping[str, object]
) -> Iterator[tuple[str, Measured]]:
    """Those systems whose records tell it, each with its ratio."""
    for system in systems:
        number = measure_of(find(artefact, system=system, **settings), UNSEEN)
        if number.summary is not None:
            yield system, number


def unseen_notes(
    artefact: Artefact, systems: Sequence[str], all_settings: Iterable[Mapping[str, object]]
) -> tuple[str, ...]:
    """One line with the range of the medians, and whose the largest is; none where none is told."""
    found = [
        (number.summary.median, artefact.label(system))
        for settings in all_settings
        for system, number in unseen_of(artefact, systems, settings)
        if number.summary is not None
    ]
    if not found:
        return ()
    least, (most, slowest) = min(found)[0], max(found)
    words = f"{least:.2f} to {most:.2f} {TIMES} the time of the timed ones"
    return (
        f"On copies of mini-batches, in another order and not seen before: {words} ({slowest}).",
    )
