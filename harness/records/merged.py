"""Results of several machines in one place: by kind of machine, and refused where they contradict.

Two records of one trial's round contradict each other where they were measured on other inputs, or
differ though they are of one kind of machine: which of them is shown would be chance. Counts are
exact, so that two of one mini-batch and code may differ in nothing but their seconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import RecordError
from harness.records.count_row import AnyCount, CountRow
from harness.records.cross_check import machine_facts
from harness.records.record import Record
from harness.records.stored import Held, held_in

T = TypeVar("T")
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_OF_THE_MACHINE = {"schedule_s", "learn_s", "learn_s_ed", "cpu", "counted_at"}
MOST_LETTERS = 60


def merged(places: Iterable[Path]) -> dict[str, Held]:
    """What all places hold, by kind of machine, with a path-safe name for each kind.

    Counts are with the kind whose CPU took their seconds; where that has none, with every kind.
    Raises RecordError, naming the record and both places, for a contradiction.
    """
    found = {place: held_in([place]) for place in dict.fromkeys(places)}
    records = _agreeing({p: held.records for p, held in found.items()}, _record_key, _same_record)
    _refuse_other_inputs({place: held.records for place, held in found.items()})
    counts = _agreeing({p: held.counts for p, held in found.items()}, _count_key, _same_count)
    if not records:
        return {"counts": Held((), tuple(counts))} if counts else {}
    by_kind: dict[str, list[Record]] = {}
    for record in records:
        by_kind.setdefault(kind_of(record), []).append(record)
    return {
        kind: Held(tuple(members), _counts_for(members, counts))
        for kind, members in sorted(by_kind.items())
    }


def kind_of(record: Record) -> str:
    """A kind of machine as a path-safe name: what computes, its CPUs, and a hash of its facts."""
    facts = machine_facts(record.machine)
    gpus = [gpu.get("name", "") for gpu in record.machine.get("gpus") or ()]
    words = gpus[0] if gpus and record.trial.device == "cuda" else str(facts["cpu"])
    # The kinds of GPU differ where one is used; the CPU beside it is among the facts.
    told = [facts, gpus if record.trial.device == "cuda" else []]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:6]
    name = _UNSAFE.sub("_", words).strip("_")[:MOST_LETTERS]
    return f"{name}-{facts['n_usable_cpus']}_cpus-{digest}"


def _record_key(record: Record) -> tuple[str, int, str]:
    return record.trial_id, record.trial.round, kind_of(record)


def _count_key(row: AnyCount) -> tuple[str, str]:
    return row.count_id, row.source_sha256


def _same_record(a: Record, b: Record) -> bool:
    return a == b


def _same_count(a: AnyCount, b: AnyCount) -> bool:
    if isinstance(a, CountRow) and isinstance(b, CountRow):
        return _counted(a) == _counted(b)
    return type(a) is not type(b) or a.status == b.status  # a failure says nothing of the count


def _counted(row: CountRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name not in _OF_THE_MACHINE}


def _agreeing(
    held: Mapping[Path, Iterable[T]], key: Callable[[T], Hashable], is_same: Callable[[T, T], bool]
) -> list[T]:
    """One item of each key, in order; raises RecordError for two that are not the same."""
    first: dict[Hashable, tuple[Path, T]] = {}
    for place, items in held.items():
        for item in items:
            known_place, known = first.setdefault(key(item), (place, item))
            if not is_same(known, item):
                raise RecordError(
                    f"{known_place} and {place} contradict each other in {_words(item)}, which both"
                    " have of one kind of machine and code; leave one of them out"
                )
    return [item for _, item in first.values()]


def _words(item: object) -> str:
    if isinstance(item, Record):
        return f"{item.trial_id}, round {item.trial.round}"
    return str(getattr(item, "count_id", item))


def _refuse_other_inputs(held: Mapping[Path, Iterable[Record]]) -> None:
    """Whatever the machine, one trial has one input."""
    first: dict[str, tuple[Path, Record]] = {}
    for place, records in held.items():
        for record in (one for one in records if one.inputs_sha256 is not None):
            known_place, known = first.setdefault(record.trial_id, (place, record))
            if known.inputs_sha256 != record.inputs_sha256:
                raise RecordError(
                    f"{known_place} and {place} contradict each other in {_words(record)}: its"
                    f" inputs are {str(known.inputs_sha256)[:12]} in the one and"
                    f" {str(record.inputs_sha256)[:12]} in the other; see that both read the same"
                    " data (bench-data), and measure one of them again"
                )


def _counts_for(records: Iterable[Record], counts: Iterable[AnyCount]) -> tuple[AnyCount, ...]:
    cpus = {record.machine.get("cpu") for record in records}
    here = [row for row in counts if row.cpu in cpus]
    named = {row.count_id for row in here}
    # A count of this CPU and one of another may be of other code: the own one is shown.
    return (*here, *(row for row in _one_each(counts) if row.count_id not in named))


def _one_each(counts: Iterable[AnyCount]) -> list[AnyCount]:
    return list({row.count_id: row for row in counts}.values())
