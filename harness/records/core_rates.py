"""Which numbers were measured on a slower or faster core than those that they stand beside.

A fixed piece of work is done between the timed passes of every trial
(harness/measuring/core_watch.py).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from harness.records.comparable import group_of
from harness.records.record import Record

UNEVEN = "uneven_core"
APART = 0.10  # of the median rate of the records that may share a table


def with_uneven_cores_warned(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records, warned where the core was slower or faster than beside them.

    Records that may share a table are compared. Those without a rate are left as they are.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    groups = ["" if one is None else group_of(one) for one in records]
    for group, one in zip(groups, records, strict=True):
        if one is not None and one.status == "ok" and one.core_rate_per_s is not None:
            rates[group].append(one.core_rate_per_s)
    usual = {group: statistics.median(found) for group, found in rates.items()}
    return [
        one if one is None or one.status != "ok" else _judged(one, usual.get(group, 0.0))
        for group, one in zip(groups, records, strict=True)
    ]


def _judged(record: Record, usual_per_s: float) -> Record:
    rate = record.core_rate_per_s
    if rate is None or abs(rate - usual_per_s) <= APART * usual_per_s or UNEVEN in record.warnings:
        return record
    return record.model_copy(update={"warnings": (*record.warnings, UNEVEN)})
