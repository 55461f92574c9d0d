"""Which numbers were measured while their core was slower than before, or than beside others.

A fixed piece of work is timed right before and right behind the timed passes of every trial
(harness/measuring/core_rate.py).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from harness.records.comparable import group_of
from harness.records.record import Record

UNEVEN = "uneven_core"
APART = 0.10  # of the faster rate, and of the median of the records that it is compared with

Rates = tuple[float, float]  # of the fixed work, before and behind the passes


def rate_warnings(rates_per_s: Rates) -> tuple[str, ...]:
    """Return what is doubtful about one round whose core had these rates."""
    return (UNEVEN,) if min(rates_per_s) < (1 - APART) * max(rates_per_s) else ()


def with_slow_cores_warned(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records, with a warning where the core was slower than in most beside them.

    Compared are records that may share a table. Those without rates are left as they are.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    groups = [group_of(one) if one is not None else "" for one in records]
    for group, one in zip(groups, records, strict=True):
        if one is not None and one.core_rates_per_s is not None:
            rates[group].append(min(one.core_rates_per_s))
    usual = {group: statistics.median(found) for group, found in rates.items()}
    return [
        _warned(one) if one is not None and _is_slow(one, usual.get(group, 0.0)) else one
        for group, one in zip(groups, records, strict=True)
    ]


def _is_slow(record: Record, usual_per_s: float) -> bool:
    rates = record.core_rates_per_s
    return rates is not None and min(rates) < (1 - APART) * usual_per_s


def _warned(record: Record) -> Record:
    if UNEVEN in record.warnings:
        return record
    return record.model_copy(update={"warnings": (*record.warnings, UNEVEN)})
