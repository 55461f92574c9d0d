"""From how a command ended, and what it left, to a verdict."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress

import psutil

from scripts.campaign_parts.case import OK, Outcome
from scripts.campaign_parts.kept import Kept, litter
from scripts.campaign_parts.place import Ended, Place

STACK = re.compile(r"^Traceback \(most recent call last\)|^  File \"[^\"]+\", line \d+", re.M)


def first_fault(*outcomes: Outcome | None) -> Outcome:
    """The first that is a fault, or that all is well."""
    return next((one for one in outcomes if one is not None), OK)


def fault_of_ending(ended: Ended, codes: Collection[int]) -> Outcome | None:
    """A hang, a stack or an exit code that was not promised."""
    if ended.returncode is None:
        return Outcome("hang", f"not done within {ended.seconds:.0f} s; {last_line(ended)}")
    if STACK.search(ended.stderr) or STACK.search(ended.stdout):
        return Outcome("traceback", last_line(ended))
    if ended.returncode not in codes:
        allowed = ", ".join(map(str, sorted(codes)))
        return Outcome("other", f"exit code {ended.returncode}, not {allowed}; {last_line(ended)}")
    return None


def fault_of_records(place: Place, before: Kept, expected: Collection[str]) -> Outcome | None:
    """What became of complete records, and whether all that were wanted are there in the end."""
    after = Kept.of(place.results)
    if (fault := after.fault_against(before)) is not None:
        return fault
    missing = sorted(set(expected) - set(after.complete))
    if missing:
        return Outcome("other", f"{len(missing)} records missing: {missing[0]}")
    return None


def fault_of_survivors(place: Place) -> Outcome | None:
    """Processes of a case that live on, which are ended."""
    survivors = place.survivors()
    if not survivors:
        return None
    words = str(survivors[0].pid)
    with suppress(psutil.Error):
        words = " ".join(survivors[0].cmdline())[:200]
    place.end_all()
    return Outcome("leftover", f"{len(survivors)} processes live on: {words}")


def fault_of_leftovers(place: Place, *, temporary: bool = True) -> Outcome | None:
    """Processes and half-written files that a case left; temporary: in its tmp, too."""
    survivors = fault_of_survivors(place)
    if survivors is not None:
        return survivors
    files = litter(place.results)
    if temporary and place.tmp.is_dir():
        files += sorted(path.name for path in place.tmp.iterdir())
    return Outcome("leftover", f"{len(files)} files: {files[0]}") if files else None


def last_line(ended: Ended) -> str:
    """The last that a command said, shortened."""
    lines = [line for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "without a word"
