"""Checks across records: agreement of results, equal core speed, and comparability in tables.

Agreement: contradictory results are not shown together. Of the records of one workload, those
confirmed by the reference are correct (Fingerprint.proved). Without a confirmation, the median of
the fingerprints of at least three frameworks counts as correct. Each framework has one vote,
because presets of one engine share its errors. A record that differs is shown as `wrong_result`. If
only two frameworks differ, neither is shown. A worker that finds a record with another fingerprint
consults the reference (harness/measuring/mini_batch_check.py), so that these rules matter only for
records that were measured separately.

Core speed: a fixed piece of work runs between the timed passes of every trial
(harness/measuring/clock.py). A record whose rate differs from that of others gets a warning.

Comparability: a `group` identifies everything that must be equal for two records to share a table:
CPU, memory, usable CPUs, threads, device (with GPU and driver), Python, NumPy and the harness's
code. A `build` identifies the system: its framework's versions and the measured code. Within a
group every system has one build per workload.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import RecordError
from harness.records.fingerprint import Fingerprint, Sketch, difference
from harness.records.record import Record, find_record
from harness.trials.spec import DEFAULT_ORDER

ENOUGH = 3  # frameworks needed for a vote
UNEVEN = "uneven_core"
APART = 0.10  # relative to the median rate of comparable records
_MACHINE_KEYS = ("cpu", "n_cores", "n_cpus", "os", "governor", "turbo")
_GIB = 2**30
_SHARED_VERSIONS = ("python", "numpy", "harness")


def seen_together(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records with contradictions as `wrong_result`, and with core-speed warnings."""
    return with_uneven_cores_warned(judged(records))


def rounds_seen_together(
    trials: Sequence[tuple[Record | None, ...]],
) -> list[tuple[Record | None, ...]]:
    """Apply `seen_together` to the rounds of many trials; None means a missing record."""
    found = iter(seen_together([record for rounds in trials for record in rounds]))
    return [tuple(islice(found, len(rounds))) for rounds in trials]


def judged(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records, with status `wrong_result` if others contradict them.

    First rounds are compared only with each other: their verification runs one more step before the
    passes (harness.measuring.mini_batch_check), which changes the losses of passes.
    """
    workloads: dict[tuple[str, bool], list[tuple[Record, Fingerprint]]] = {}
    for record in records:
        if record is not None and record.status == "ok" and record.fingerprint is not None:
            key = (record.fingerprint.workload, record.trial.round == 0)
            workloads.setdefault(key, []).append((record, record.fingerprint))
    faults = {id(one): why for group in workloads.values() for one, why in _faults_in(group)}
    return [
        record
        if record is None or id(record) not in faults
        else record.model_copy(update={"status": "wrong_result", "reason": faults[id(record)]})
        for record in records
    ]


def fingerprints_beside(raw: Path, trial_id: str, workload: str) -> list[Fingerprint]:
    """Return one fingerprint of each other trial with this workload in a directory of records."""
    model, dataset, batch, hidden, mode, _, seed, _ = trial_id.split("-")[-8:]
    alike = f"*-{model}-{dataset}-{batch}-{hidden}-{mode}-*-{seed}-*"
    folders = [folder for folder in sorted(raw.glob(alike)) if folder.name != trial_id]
    found = [next(_fingerprints_in(folder, workload), None) for folder in folders]
    return [one for one in found if one is not None]


def _fingerprints_in(folder: Path, workload: str) -> Iterator[Fingerprint]:
    for path in sorted(folder.glob("r[0-9]*.json")):
        record = find_record(path)
        found = record.fingerprint if record is not None and record.status == "ok" else None
        if found is not None and found.workload == workload:
            yield found


def _faults_in(group: Sequence[tuple[Record, Fingerprint]]) -> list[tuple[Record, str]]:
    votes: dict[str, Fingerprint] = {}
    for record, found in group:
        votes.setdefault(framework_of(record), found)
    proved = [(record, found) for record, found in group if found.proved]
    if proved:
        right, who = proved[0][1], f"{proved[0][0].trial.system}, which the oracle confirmed"
    elif len(votes) >= ENOUGH:
        right, who = _median(list(votes.values())), f"the median of {', '.join(sorted(votes))}"
    else:
        return _undecided(group)
    differences = [(record, difference(found, right)) for record, found in group]
    return [(record, f"differs from {who}: {fault}") for record, fault in differences if fault]


def _undecided(group: Sequence[tuple[Record, Fingerprint]]) -> list[tuple[Record, str]]:
    first, expected = group[0]
    for record, found in group[1:]:
        fault = difference(found, expected)
        if fault is not None:
            pair = f"{first.trial.system} and {record.trial.system}"
            reason = f"{pair} differ ({fault}); measure one of them again, which asks the oracle"
            return [(record, reason) for record, _ in group]
    return []


def framework_of(record: Record) -> str:
    """Return the adapter's package: on_torch for systems.on_torch.levels, or my_system."""
    return str(record.config["adapter"]).removeprefix("systems.").partition(".")[0]


def _median(found: Sequence[Fingerprint]) -> Fingerprint:
    """Return the median of each number that all fingerprints have."""
    names = set.intersection(*(set(one.sketches) for one in found))
    return Fingerprint(
        workload=found[0].workload,
        losses=_middle([one.losses for one in found]),
        sketches={name: _middle_each([one.sketches[name] for one in found]) for name in names},
        pass_losses=_middle([one.pass_losses for one in found]),
    )


def _middle_each(found: Sequence[Sequence[Sketch]]) -> tuple[Sketch, ...]:
    return tuple(_middle(sketches) for sketches in zip(*found, strict=False))


def _middle(found: Sequence[Sketch]) -> Sketch:
    n = min(map(len, found))
    return tuple(np.median([one[:n] for one in found], axis=0).tolist())


def with_uneven_cores_warned(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records, with a warning if their core was unusually slow or fast.

    Comparable records are compared. Records without a rate stay unchanged.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    for one in records:
        if one is not None and one.status == "ok" and one.core_rate_per_s is not None:
            rates[group_of(one)].append(one.core_rate_per_s)
    usual = {group: statistics.median(found) for group, found in rates.items()}

    def warned(one: Record | None) -> Record | None:
        if one is None or one.status != "ok" or one.core_rate_per_s is None:
            return one
        usual_per_s = usual[group_of(one)]
        is_even = abs(one.core_rate_per_s - usual_per_s) <= APART * usual_per_s
        if is_even or UNEVEN in one.warnings:
            return one
        return one.model_copy(update={"warnings": (*one.warnings, UNEVEN)})

    return [warned(one) for one in records]


def machine_facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that are equal for all machines of one kind."""
    facts = {key: machine.get(key) for key in _MACHINE_KEYS}
    # Machines of one kind differ by kibibytes, which their firmware reserves.
    facts["memory_gib"] = round(machine.get("memory_bytes", 0) / _GIB)
    facts["n_usable_cpus"] = len(machine.get("usable_cpus") or ())
    return facts


def hardware_facts(machine: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return the facts of hardware and driver that must be equal for trials on a device."""
    facts = machine_facts(machine)
    if device == "cuda":
        gpus = machine.get("gpus") or ()
        facts["gpus"] = [[gpu.get("name"), gpu.get("driver")] for gpu in gpus]
    return facts


def group_facts(record: Record) -> dict[str, Any]:
    """Return the facts that must be equal for all records of one table."""
    trial = record.trial
    facts = hardware_facts(record.machine, trial.device)
    facts |= {"threads": trial.threads, "device": trial.device}
    return facts | {name: record.versions.get(name) for name in _SHARED_VERSIONS}


def declared_inputs(record: Record) -> str:
    """Return a short hash of the settings that determine which mini-batches a trial runs."""
    config, timing = record.config, record.config.get("timing") or {}
    size, n_instances = config.get("batch_size"), timing.get("n_instances") or 0
    return _short_hash(
        {
            **{name: config.get(name) for name in ("loader", "dataset_options", "split", "seed")},
            "order": config.get("order", DEFAULT_ORDER),
            "batch_size": size,
            "n": [n_instances, None if n_instances else timing.get("n_mini_batches")],
        }
    )


def are_comparable(a: Record, b: Record) -> bool:
    """Return whether two records of one point ran the same inputs on the same machine."""
    return a.inputs_sha256 == b.inputs_sha256 and group_facts(a) == group_facts(b)


def check_inputs(records: Iterable[Record]) -> None:
    """Check that records with equal settings ran equal inputs.

    They differ if a file without a checksum was edited, or data_root was another directory.

    Raises:
        RecordError: Two records differ; the message names them.
    """
    first: dict[str, Record] = {}
    for record in records:
        if record.status != "ok" or record.inputs_sha256 is None:
            continue
        peer = first.setdefault(declared_inputs(record), record)
        if peer.inputs_sha256 != record.inputs_sha256:
            raise RecordError(
                f"{_words(peer)} and {_words(record)} ran unlike inputs: {record.trial.dataset}"
                " held other data each time; measure one of them again, or use another results_dir"
            )


def group_of(record: Record) -> str:
    """Return a short hash of the facts of a record's group."""
    return _short_hash(group_facts(record))


def build_of(record: Record) -> str:
    """Return a short hash of the versions and the measured code of a record."""
    return _short_hash({"versions": record.versions, "source_sha256": record.source_sha256})


def _short_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def _subject(record: Record) -> tuple[str | None, ...]:
    trial = record.trial
    return (group_of(record), trial.system, trial.policy, trial.model, trial.dataset)


def check_builds(records: Iterable[Record]) -> None:
    """Check that each system and workload of a group has one build.

    Records without a measurement have no number in a table and are ignored.

    Raises:
        RecordError: Two records differ in their build; the message names them.
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
    """Check that records may share a table.

    Records without a measurement have no number in a table and are ignored.

    Raises:
        RecordError: Two records differ; the message names them and the differing fact.
    """
    measured = [record for record in records if record.status == "ok"]
    check_inputs(measured)
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
    """Drop measurements whose system and workload were measured later with another build."""
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
