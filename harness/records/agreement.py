"""Whether systems agree on the timed mini-batches: no number stands beside one that contradicts it.

Of the records of one workload, those are right that the oracle confirmed (Fingerprint.proved);
where it was not asked, those whose fingerprint is the median of at least three frameworks, a vote
each: presets of one engine have its faults in common. A record that differs from these is shown as
`wrong_result`. Where two frameworks differ and nothing tells which is right, neither is shown. A
worker that finds a record which differs from its own fingerprint asks the oracle
(harness/measuring/worker.py), so that this is left to records that were measured apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.records.fingerprint import Fingerprint, Sketch, difference
from harness.records.record import Record, find_record

ENOUGH = 3  # frameworks, for a vote


def judged(records: Sequence[Record | None]) -> list[Record | None]:
    """Return the records, `wrong_result` in place of those that others contradict."""
    faults = _faults([record for record in records if record is not None])
    return [
        record
        if record is None or id(record) not in faults
        else record.model_copy(update={"status": "wrong_result", "reason": faults[id(record)]})
        for record in records
    ]


def fingerprints_beside(raw: Path, trial_id: str, workload: str) -> list[Fingerprint]:
    """Return one fingerprint of every other trial with this workload in a folder of records."""
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


def _faults(records: Sequence[Record]) -> dict[int, str]:
    """Why records are wrong, by their id().

    First rounds among themselves: their proof makes a step more before the passes
    (harness.measuring.proof), so that the losses of passes are others.
    """
    workloads: dict[tuple[str, bool], list[tuple[Record, Fingerprint]]] = {}
    for record in records:
        if record.status == "ok" and record.fingerprint is not None:
            key = (record.fingerprint.workload, record.trial.round == 0)
            workloads.setdefault(key, []).append((record, record.fingerprint))
    return {
        id(record): reason for group in workloads.values() for record, reason in _faults_in(group)
    }


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
    """Return the package of the adapter: systems.on_torch.levels is on_torch, my_system itself."""
    return str(record.config["adapter"]).removeprefix("systems.").partition(".")[0]


def _median(found: Sequence[Fingerprint]) -> Fingerprint:
    """Return the median of each number, as far as all have it."""
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
