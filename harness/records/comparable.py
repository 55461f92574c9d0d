"""Which records may be compared: those of one machine, one set-up and one code.

A `group` names everything that must be equal for two records to stand in one table: CPU, memory,
usable CPUs, threads, device (with GPU and driver), Python, NumPy and the harness's own code. A
`build` names a system's side: its framework's versions and the measured code. Within a group every
system has one build per workload.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from harness.errors import RecordError
from harness.records.record import Record

_MACHINE_KEYS = ("cpu", "n_cores", "n_cpus", "os", "governor", "turbo")
_GIB = 2**30
_SHARED_VERSIONS = ("python", "numpy", "harness")


def machine_facts(record: Record) -> dict[str, Any]:
    """What must be equal in machines for them to be of one kind."""
    machine = record.machine
    facts = {key: machine.get(key) for key in _MACHINE_KEYS}
    # Nodes of one kind differ by kibibytes, which their firmware keeps for itself.
    facts["memory_gib"] = round(machine.get("memory_bytes", 0) / _GIB)
    facts["n_usable_cpus"] = len(machine.get("usable_cpus") or ())
    return facts


def group_facts(record: Record) -> dict[str, Any]:
    """What must be equal in all records of one table."""
    machine, facts = record.machine, machine_facts(record)
    facts["threads"] = record.trial.threads
    facts["device"] = record.trial.device
    if record.trial.device == "cuda":
        gpus = machine.get("gpus") or ()
        facts["gpus"] = [(gpu.get("name"), gpu.get("driver")) for gpu in gpus]
    return facts | {name: record.versions.get(name) for name in _SHARED_VERSIONS}


def build_facts(record: Record) -> dict[str, Any]:
    """What must, besides, be equal in all records of one system and workload."""
    return {"versions": record.versions, "source_sha256": record.source_sha256}


def group_of(record: Record) -> str:
    """Short hash of the facts of a group."""
    return _short_hash(group_facts(record))


def build_of(record: Record) -> str:
    """Short hash of the facts of a build."""
    return _short_hash(build_facts(record))


def _short_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def _subject(record: Record) -> tuple[str | None, ...]:
    trial = record.trial
    return (group_of(record), trial.system, trial.policy, trial.model, trial.dataset)


def check_builds(records: Iterable[Record]) -> None:
    """Raise RecordError, naming two records, where a group holds two builds of one subject.

    Records without a measurement bring no number into a table, so they are left out.
    """
    first: dict[tuple[str | None, ...], Record] = {}
    for record in records:
        if record.status != "ok":
            continue
        peer = first.setdefault(_subject(record), record)
        if build_of(peer) != build_of(record):
            raise RecordError(
                f"{record.trial.system} was measured with two builds: {_words(peer)} and"
                f" {_words(record)} differ in {_difference(peer, record)}; measure the older one"
                " again, or keep the newest build only (bench-collect --latest)"
            )


def check_comparable(records: Iterable[Record]) -> None:
    """Raise RecordError, naming two records and the fact, if they may not share a table.

    Records without a measurement bring no number, so they are left out.
    """
    measured = [record for record in records if record.status == "ok"]
    first: dict[str, Any] = group_facts(measured[0]) if measured else {}
    for record in measured[1:]:
        facts = group_facts(record)
        for name in sorted({*first, *facts}):
            if first.get(name) != facts.get(name):
                raise RecordError(
                    f"records {measured[0].trial_id} and {record.trial_id} have unlike {name}"
                    f" ({first.get(name)} and {facts.get(name)}); only like records share a table:"
                    " measure one of them again, or use another results_dir"
                )
    check_builds(measured)


def latest_builds(records: Sequence[Record]) -> list[Record]:
    """Leave out measurements whose subject was measured with another build later."""
    newest: dict[tuple[str | None, ...], Record] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        if record.status == "ok":
            newest[_subject(record)] = record
    return [
        record
        for record in records
        if record.status != "ok" or build_of(record) == build_of(newest[_subject(record)])
    ]


def _words(record: Record) -> str:
    return f"{record.trial_id} r{record.trial.round} ({record.started_at})"


def _difference(a: Record, b: Record) -> str:
    names = sorted(k for k in {*a.versions, *b.versions} if a.versions.get(k) != b.versions.get(k))
    code = [] if a.source_sha256 == b.source_sha256 else ["measured code"]
    return ", ".join([f"version of {name}" for name in names] + code)
