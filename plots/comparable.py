"""Which records may stand beside each other: those of one machine, one set-up and one code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.errors import RecordError
from harness.record import Record


def machine_facts(record: Record) -> dict[str, Any]:
    """What must be equal in all records of an artefact."""
    machine = record.machine
    gpus = machine.get("gpus") or ()
    return {
        "cpu": machine.get("cpu"),
        "n_cpus": machine.get("n_cpus"),
        "usable_cpus": len(machine.get("usable_cpus") or ()),
        "governor": machine.get("governor"),
        "turbo": machine.get("turbo"),
        "gpus": tuple((gpu.get("name"), gpu.get("driver")) for gpu in gpus),
        "threads": record.trial.threads,
        "device": record.trial.device,
        "mode": record.trial.mode,
    }


def system_facts(record: Record) -> dict[str, Any]:
    """What must, besides, be equal in all records of one system: its build and the code."""
    return {"versions": record.versions, "source_sha256": record.source_sha256}


def check_comparable(records: Iterable[Record]) -> None:
    """Raise RecordError, naming both records and the fact, where two may not share a column."""
    first: Record | None = None
    first_of_system: dict[str, Record] = {}
    for record in records:
        first = first or record
        _check_equal(first, record, machine_facts(first), machine_facts(record))
        if record.status == "ok":
            peer = first_of_system.setdefault(record.trial.system, record)
            _check_equal(peer, record, system_facts(peer), system_facts(record))


def _check_equal(a: Record, b: Record, facts_a: dict[str, Any], facts_b: dict[str, Any]) -> None:
    for name, value in facts_a.items():
        if facts_b[name] != value:
            raise RecordError(
                f"records {a.trial_id} and {b.trial_id} have unlike {name} "
                f"({value} and {facts_b[name]}); only like records share a table, "
                "so measure one of them again or use another results_dir"
            )
