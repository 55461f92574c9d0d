"""Which numbers were measured while the machine was slower than before, or than beside others.

Fixed pieces of work are timed before the warm-up and behind the timed passes of every trial
(harness/measuring/machine_rates.py).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from harness.records.comparable import group_of
from harness.records.record import Record

Rates = tuple[float, float]  # of one piece of work, before and behind the passes


class HasRates(Protocol):
    """What a record and the findings for it have in common here."""

    @property
    def core_rates_per_s(self) -> Rates | None: ...
    @property
    def memory_rates_bytes_per_s(self) -> Rates | None: ...


# How far a rate may be below the faster of the two, and below what is usual beside it.
APART: Mapping[str, float] = {"uneven_core": 0.10, "uneven_memory": 0.25}


def rate_warnings(one: HasRates) -> tuple[str, ...]:
    """Return what is doubtful about one round that the machine had these rates in."""
    rates = _rates_of(one)
    return tuple(name for name, found in rates.items() if _is_slow(name, found, max(found)))


def with_slow_machines_warned(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records, warned where the machine was slower than in most beside them.

    Compared are records that may share a table. Those without rates are left as they are.
    """
    groups = [None if one is None else group_of(one) for one in records]
    found: dict[tuple[str | None, str], list[float]] = defaultdict(list)
    for group, one in zip(groups, records, strict=True):
        for name, rates in ({} if one is None else _rates_of(one)).items():
            found[group, name].append(min(rates))
    usual = {key: statistics.median(rates) for key, rates in found.items()}
    return [
        one if one is None else _warned(one, {name: usual.get((group, name)) for name in APART})
        for group, one in zip(groups, records, strict=True)
    ]


def _warned(record: Record, usual: Mapping[str, float | None]) -> Record:
    slow = [
        name
        for name, rates in _rates_of(record).items()
        if _is_slow(name, rates, usual[name] or 0.0) and name not in record.warnings
    ]
    if not slow:
        return record
    return record.model_copy(update={"warnings": (*record.warnings, *slow)})


def _rates_of(one: HasRates) -> dict[str, Rates]:
    rates = dict(zip(APART, (one.core_rates_per_s, one.memory_rates_bytes_per_s), strict=True))
    return {name: found for name, found in rates.items() if found is not None}


def _is_slow(name: str, rates: Rates, than: float) -> bool:
    return min(rates) < (1 - APART[name]) * than
