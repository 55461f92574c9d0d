"""Thousands of steps of every system that is installed, twice with one seed.

Promised: the same losses and the same parameters to the last bit, finite ones, and no more memory
in the end than after the first hundreds of steps.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.values.places import CONF_DIR
from scripts.campaign_parts.case import OK, Case, Outcome, Run
from scripts.campaign_parts.judging import fault_of_ending, first_fault
from scripts.campaign_parts.place import Ended, Place, python

SYSTEMS = tuple(sorted(path.stem for path in (CONF_DIR / "system").glob("*.yaml")))
N_CASES = len(SYSTEMS)
N_STEPS = 3200
MOST_S = 40.0  # of stepping; slow systems make fewer steps in it
LIMIT_S = 120.0  # with imports and compiling
GROWTH_BYTES = 24 * 2**20


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """A system, and how many steps of it."""
    return {"system": SYSTEMS[number], "n_steps": N_STEPS}


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """The cases share a cache."""

    def run(case: Case, at: Path) -> Outcome:
        place = Place(at, folder / "cache")
        name, n_steps = case.does["system"], case.does["n_steps"]
        ended, found = _steps(place, name, n_steps)
        if found is None or "skipped" in found or found["n_steps"] == 0:
            return _without_steps(ended, found)
        # As many as the first had time for, however slow the machine is meanwhile.
        again_ended, again = _steps(place, name, found["n_steps"], seconds=LIMIT_S)
        if again is None:
            return _without_steps(again_ended, again)
        return judged(found, again, n_steps)

    yield run


def _steps(
    place: Place, name: str, n_steps: int, seconds: float = MOST_S
) -> tuple[Ended, dict[str, Any] | None]:
    command = python("scripts.campaign_parts.steps", name, str(n_steps), str(seconds))
    ended = place.run(command, LIMIT_S + MOST_S)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    return ended, json.loads(lines[-1]) if lines and ended.returncode == 0 else None


def _without_steps(ended: Ended, found: Mapping[str, Any] | None) -> Outcome:
    if found is None:
        return first_fault(fault_of_ending(ended, (0,)), Outcome("other", "nothing was told"))
    return Outcome("skipped", found.get("skipped", "no step was done in time"))


def judged(first: Mapping[str, Any], second: Mapping[str, Any], n_steps: int) -> Outcome:
    """The verdict on two runs with one seed."""
    n_done = first["n_steps"]
    for what in ("n_steps", "losses", "parameters"):
        if first[what] != second[what]:
            return Outcome("other", f"{what} of {n_done} steps differ between two runs")
    if not first["is_finite"]:
        return Outcome("other", f"a loss among {n_done} is not finite")
    grown = min(one["end_bytes"] - one["settled_bytes"] for one in (first, second))
    if grown > GROWTH_BYTES:
        return Outcome("other", f"memory grew by {grown / 2**20:.0f} MiB in {n_done} steps")
    return OK if n_done == n_steps else Outcome("ok", f"{n_done} steps of {n_steps} in its time")
