"""Refuses to draw numbers beside each other that were not measured alike."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import RecordError
from harness.records.comparable import check_builds, group_facts
from harness.records.record import Record


def check_one_table(records: Iterable[Record]) -> None:
    """Raise RecordError, naming two records and the fact, where they may not share a table.

    Records without a measurement bring no number, so they are left out.
    """
    measured = [record for record in records if record.status == "ok"]
    for record in measured[1:]:
        _check_alike(measured[0], record)
    check_builds(measured)


def _check_alike(a: Record, b: Record) -> None:
    facts_a, facts_b = group_facts(a), group_facts(b)
    for name in sorted({*facts_a, *facts_b}):
        if facts_a.get(name) != facts_b.get(name):
            raise RecordError(
                f"records {a.trial_id} and {b.trial_id} have unlike {name} ({facts_a.get(name)} "
                f"and {facts_b.get(name)}); only like records share a table: measure one of them "
                "again, or use another results_dir"
            )
