"""What is measured where time is limited: one round of everything, what matters most first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.errors import ConfigError
from harness.planning.durations import words_of
from harness.values.checked import YEAR_S

_PARTS = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class Step(NamedTuple):
    """A round of a trial, or a count (round 0), that is not there yet."""

    name: str
    round: int


def seconds_of(text: str, key: str = "budget") -> float:
    """Read "45m", "1h30m" or "90s"; raises ConfigError, naming the key, for anything else."""
    found = _PARTS.fullmatch(text.strip())
    parts = {unit: float(n) for unit, n in found.groupdict().items() if n} if found else {}
    seconds = sum(n * _SECONDS[unit] for unit, n in parts.items())
    if not 0 < seconds <= YEAR_S:
        raise ConfigError(
            f"{key}={text} is no length of time; write 45m, 1h30m or 90s, a year at most"
        )
    return seconds


def within(
    budget_s: float, artefacts: Mapping[str, Sequence[Step]], seconds: Mapping[Step, float]
) -> frozenset[Step]:
    """Choose the steps that fit in a budget: round after round, artefact after artefact.

    artefacts: what each lacks, what matters most first. seconds: of every step. A round of an
    artefact is taken as a whole or not at all, so that its table compares all systems; where one
    does not fit, a later, shorter one may. Raises ConfigError where none fits at all.
    """
    chosen: set[Step] = set()
    left = budget_s
    shortest: tuple[float, str] | None = None
    for round_ in sorted({step.round for steps in artefacts.values() for step in steps}):
        for name, steps in artefacts.items():
            new = {step for step in steps if step.round == round_} - chosen
            cost = _total(new, seconds)
            if new and cost <= left:
                chosen |= new
                left -= cost
            elif new and not chosen:
                shortest = min(shortest or (cost, name), (cost, name))
    if shortest and not chosen:
        cost, name = shortest
        raise ConfigError(
            f"a budget of {words_of(budget_s)} is too short for a round of anything; the shortest,"
            f" of {name}, takes about {words_of(cost)}: give more"
        )
    return frozenset(chosen)


def _total(steps: Iterable[Step], seconds: Mapping[Step, float]) -> float:
    return sum(seconds[step] for step in steps)
