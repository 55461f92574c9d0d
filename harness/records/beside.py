"""What records are worth beside each other: nothing of it can be told from one alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from harness.records.agreement import judged
from harness.records.core_rates import with_uneven_cores_warned
from harness.records.record import Record

Rounds = tuple[Record | None, ...]  # None: there is no record of that round


def seen_together(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records: `wrong_result` where others contradict, warned of uneven cores."""
    return with_uneven_cores_warned(judged(records))


def rounds_seen_together(trials: Sequence[Rounds]) -> list[Rounds]:
    """See the records of many trials' rounds together."""
    found = seen_together([record for rounds in trials for record in rounds])
    ends = accumulate(len(rounds) for rounds in trials)
    return [tuple(found[end - len(rounds) : end]) for rounds, end in zip(trials, ends, strict=True)]
