"""Checks across records: agreement of results, and comparability in tables.

Agreement: contradictory results are not shown together. Of the records of one workload, those
confirmed by the reference are correct (Fingerprint.proved). Without a confirmation, the median of
the fingerprints of at least three frameworks counts as correct. Each framework has one vote,
because presets of one engine share its errors. A record that differs is shown as `wrong_result`. If
only two frameworks differ, neither is shown. A worker that finds a record with another fingerprint
consults the reference (harness/measuring/checks/mini_batch_check.py), so that these rules matter
only for records that were measured separately.

Comparability: a `group` identifies everything that must be equal for two records to share a table:
CPU, memory, usable CPUs, threads, device (with GPU and driver), Python, NumPy and the harness's
code. A `build` identifies the system: its framework's versions and the measured code. Within a
group every system has one build per workload.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dynbatch.harness.errors import RecordError
from dynbatch.harness.records.fingerprint import Fingerprint, Sketch, find_difference
from dynbatch.harness.records.record import Record, find_record
from dynbatch.harness.trials.spec import DEFAULT_LAST, DEFAULT_ORDER
from dynbatch.harness.values.paths import find_adapter_package

ENOUGH = 3  # frameworks needed for a vote
_MACHINE_KEYS = ("cpu", "n_cores", "n_cpus", "os", "governor", "turbo")
_GIB = 2**30
_SHARED_VERSIONS = ("python", "numpy", "harness")


def cross_check_rounds(
    trials: Sequence[tuple[Record | None, ...]],
) -> list[tuple[Record | None, ...]]:
    """Apply `cross_check_records` to the rounds of many trials; None means a missing record."""
    checked = iter(cross_check_records([r for rounds in trials for r in rounds if r is not None]))
    return [tuple(record and next(checked) for record in rounds) for rounds in trials]


def cross_check_records(records: Sequence[Record]) -> list[Record]:
    """Return the records, with status `wrong_result` if others contradict them.

    Only rounds with the same checks before their passes are compared: the steps of a check change
    the losses of passes.
    """
    workloads: dict[tuple[str, bool, bool], list[tuple[Record, Fingerprint]]] = {}
    for record in records:
        if record.status == "ok" and record.fingerprint is not None:
            is_checked = record.check is None or record.check.in_round is None
            key = (record.fingerprint.workload, record.trial.round == 0, is_checked)
            workloads.setdefault(key, []).append((record, record.fingerprint))
    faults = {
        id(faulty): reason for group in workloads.values() for faulty, reason in _find_faults(group)
    }
    return [
        record.model_copy(update={"status": "wrong_result", "reason": faults[id(record)]})
        if id(record) in faults
        else record
        for record in records
    ]


def find_other_fingerprints(raw: Path, trial_id: str, workload: str) -> list[Fingerprint]:
    """Return one fingerprint of each other trial with this workload in a directory of records."""
    model, dataset, batch, hidden, mode, _, seed, _ = trial_id.split("-")[-8:]
    alike = f"*-{model}-{dataset}-{batch}-{hidden}-{mode}-*-{seed}-*"
    folders = [folder for folder in sorted(raw.glob(alike)) if folder.name != trial_id]
    candidates = [next(_read_fingerprints(folder, workload), None) for folder in folders]
    return [fingerprint for fingerprint in candidates if fingerprint is not None]


def _read_fingerprints(folder: Path, workload: str) -> Iterator[Fingerprint]:
    for path in sorted(folder.glob("r[0-9]*.json")):
        record = find_record(path)
        fingerprint = record.fingerprint if record is not None and record.status == "ok" else None
        if fingerprint is not None and fingerprint.workload == workload:
            yield fingerprint


def _find_faults(group: Sequence[tuple[Record, Fingerprint]]) -> list[tuple[Record, str]]:
    votes: dict[str, Fingerprint] = {}
    for record, fingerprint in group:
        framework = find_adapter_package(str(record.config["adapter"]))
        votes.setdefault(framework, fingerprint)
    proved = [(record, fingerprint) for record, fingerprint in group if fingerprint.proved]
    if proved:
        right, trusted = proved[0][1], f"{proved[0][0].trial.system}, which the reference confirmed"
    elif len(votes) >= ENOUGH:
        right, trusted = (
            _compute_median_fingerprint(list(votes.values())),
            f"the median of {', '.join(sorted(votes))}",
        )
    else:
        return _find_disagreement(group)
    differences = [(record, find_difference(fingerprint, right)) for record, fingerprint in group]
    return [(record, f"differs from {trusted}: {fault}") for record, fault in differences if fault]


def _find_disagreement(group: Sequence[tuple[Record, Fingerprint]]) -> list[tuple[Record, str]]:
    first, expected = group[0]
    for record, fingerprint in group[1:]:
        fault = find_difference(fingerprint, expected)
        if fault is not None:
            pair = f"{first.trial.system} and {record.trial.system}"
            reason = f"{pair} differ ({fault}); measure one again to check it by the reference"
            return [(record, reason) for record, _ in group]
    return []


def _compute_median_fingerprint(fingerprints: Sequence[Fingerprint]) -> Fingerprint:
    """Return the median of each number that all fingerprints have."""
    groups = {
        name: zip(*(fingerprint.sketches[name] for fingerprint in fingerprints), strict=False)
        for name in set.intersection(*(set(fingerprint.sketches) for fingerprint in fingerprints))
    }
    sketches = {name: tuple(map(_compute_median_sketch, group)) for name, group in groups.items()}
    return Fingerprint(
        workload=fingerprints[0].workload,
        losses=_compute_median_sketch([fingerprint.losses for fingerprint in fingerprints]),
        sketches=sketches,
        pass_losses=_compute_median_sketch(
            [fingerprint.pass_losses for fingerprint in fingerprints]
        ),
    )


def _compute_median_sketch(sketches: Sequence[Sketch]) -> Sketch:
    n = min(map(len, sketches))
    return tuple(np.median([sketch[:n] for sketch in sketches], axis=0).tolist())


def collect_hardware_facts(machine: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return the facts of hardware and driver that must be equal for trials on a device."""
    facts = {key: machine.get(key) for key in _MACHINE_KEYS}
    # Machines of one kind differ by kibibytes, which their firmware reserves.
    facts["memory_gib"] = round(machine.get("memory_bytes", 0) / _GIB)
    facts["n_usable_cpus"] = len(machine.get("usable_cpus") or ())
    if machine.get("cpu_quota") is not None:
        facts["cpu_quota"] = machine["cpu_quota"]
    if device == "cuda":
        gpus = machine.get("gpus") or ()
        facts["gpus"] = [[gpu.get("name"), gpu.get("driver")] for gpu in gpus]
    return facts


def collect_group_facts(record: Record) -> dict[str, Any]:
    """Return the facts that must be equal for all records of one table."""
    trial = record.trial
    facts = collect_hardware_facts(record.machine, trial.device)
    facts |= {"threads": trial.threads, "device": trial.device}
    return facts | {name: record.versions.get(name) for name in _SHARED_VERSIONS}


def hash_declared_inputs(record: Record) -> str:
    """Return a short hash of the settings that determine which mini-batches a trial runs."""
    config, timing = record.config, record.config.get("timing") or {}
    size, n_instances = config.get("batch_size"), timing.get("n_instances") or 0
    return _hash_value(
        {
            **{name: config.get(name) for name in ("loader", "dataset_options", "split", "seed")},
            "order": config.get("order", DEFAULT_ORDER),
            "batch_size": size,
            "n": [n_instances, None if n_instances else timing.get("n_mini_batches")],
            "last": timing.get("last", DEFAULT_LAST),
        }
    )


def check_inputs(records: Iterable[Record]) -> None:
    """Check that measured records with equal settings ran equal inputs.

    They differ if a file without a checksum was edited, or data_root was another directory.
    """
    first: dict[str, Record] = {}
    for record in records:
        if record.inputs_sha256 is None:
            continue
        peer = first.setdefault(hash_declared_inputs(record), record)
        if peer.inputs_sha256 != record.inputs_sha256:
            raise RecordError(
                f"{_describe_record(peer)} and {_describe_record(record)} ran different"
                f" inputs of {record.trial.dataset}; measure one again or set another results_dir"
            )


def hash_group(record: Record) -> str:
    return _hash_value(collect_group_facts(record))


def hash_build(record: Record) -> str:
    return _hash_value({"versions": record.versions, "source_sha256": record.source_sha256})


def _hash_value(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def _identify_subject(record: Record) -> tuple[str | None, ...]:
    trial = record.trial
    return (hash_group(record), trial.system, trial.policy, trial.model, trial.dataset)


def check_builds(records: Iterable[Record]) -> None:
    """Check that each system and workload of a group has one build.

    Records without a measurement have no number in a table and are ignored.
    """
    first: dict[tuple[str | None, ...], Record] = {}
    for record in records:
        if record.status != "ok":
            continue
        peer = first.setdefault(_identify_subject(record), record)
        if hash_build(peer) != hash_build(record):
            raise RecordError(
                f"{record.trial.system} was measured with two builds: {_describe_record(peer)} and"
                f" {_describe_record(record)} differ in {_describe_difference(peer, record)};"
                " measure the older one again, or use only the newest build"
                " (bench-collect --latest)"
            )


def check_comparable(records: Iterable[Record]) -> None:
    """Check that records may share a table.

    Records without a measurement have no number in a table and are ignored.
    """
    measured = [record for record in records if record.status == "ok"]
    check_inputs(measured)
    first: dict[str, Any] = collect_group_facts(measured[0]) if measured else {}
    for record in measured[1:]:
        facts = collect_group_facts(record)
        for name in sorted({*first, *facts}):
            if first.get(name) != facts.get(name):
                raise RecordError(
                    f"records {measured[0].trial_id} and {record.trial_id} have different"
                    f" {name} ({first.get(name)} and {facts.get(name)}), so they cannot share a"
                    " table; measure one again or set another results_dir"
                )
    check_builds(measured)


def select_latest_builds(records: Sequence[Record]) -> list[Record]:
    """Drop measurements whose system and workload were measured later with another build."""
    newest: dict[tuple[str | None, ...], Record] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        if record.status == "ok":
            newest[_identify_subject(record)] = record
    return [
        record
        for record in records
        if record.status != "ok"
        or hash_build(record) == hash_build(newest[_identify_subject(record)])
    ]


def _describe_record(record: Record) -> str:
    return f"{record.trial_id} r{record.trial.round} ({record.started_at})"


def _describe_difference(a: Record, b: Record) -> str:
    names = sorted(k for k in {*a.versions, *b.versions} if a.versions.get(k) != b.versions.get(k))
    code = [] if a.source_sha256 == b.source_sha256 else ["measured code"]
    return ", ".join([f"version of {name}" for name in names] + code)
