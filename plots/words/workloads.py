"""Records of one workload side by side: what `bench` says behind them is said of each workload."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.contracts.options import in_word
from harness.records.record import Record
from plots.numbers.points import Point, point_of

# What two trials of one workload have alike; slow systems may be timed over fewer passes.
ALIKE: tuple[str, ...] = (
    "model",
    "model_options",
    "dataset",
    "dataset_options",
    "split",
    "order",
    "batch_size",
)
ALIKE += ("hidden_size", "embedding_size", "mode", "device", "threads", "seed")
OPTIONS = ("model_options", "dataset_options")


def by_workload(records: Iterable[Record]) -> Iterator[tuple[str, list[Point]]]:
    """Each workload in words, with a point for each system, policy and options measured there."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_workload(record), []).append(record)
    told = [_options(group[0]) for group in groups.values()]
    for group, options in zip(groups.values(), told, strict=True):
        yield _words(group[0], options, told), _points(group)


def _workload(record: Record) -> str:
    return json.dumps({key: record.config.get(key) for key in ALIKE}, sort_keys=True)


def _points(records: Sequence[Record]) -> list[Point]:
    """One for each system, policy and set of options, its rounds in order."""
    found: dict[tuple[str, str | None, str], dict[int, Record]] = {}
    for record in records:
        trial, options = record.trial, json.dumps(_of_system(record), sort_keys=True)
        found.setdefault((trial.system, trial.policy, options), {})[trial.round] = record
    firsts = [next(iter(rounds.values())) for rounds in found.values()]
    return [
        point_of(
            {"system": system, "policy": policy, "options": _apart(first, firsts)},
            tuple(rounds[k] for k in sorted(rounds)),
        )
        for (first, ((system, policy, _), rounds)) in zip(firsts, found.items(), strict=True)
    ]


def _of_system(record: Record) -> Mapping[str, Any]:
    options: Mapping[str, Any] = record.config.get("system_options") or {}
    return options


def _apart(record: Record, others: Sequence[Record]) -> str:
    """Its options that are not the same in all of its system and policy."""
    own, trial = _of_system(record), record.trial
    alike = [
        _of_system(one)
        for one in others
        if (one.trial.system, one.trial.policy) == (trial.system, trial.policy)
    ]
    names = dict.fromkeys(name for one in (own, *alike) for name in one)
    apart = [name for name in names if len({_said(one, name) for one in alike}) > 1]
    return " ".join(f"{name}={_said(own, name)}" for name in apart)


def _said(options: Mapping[str, Any], name: str) -> str:
    return in_word(options[name]) if name in options else "(unsaid)"


def _options(record: Record) -> dict[str, Any]:
    """What a trial's name does not tell, flat."""
    flat = {"order": record.config.get("order")}
    for key in OPTIONS:
        options = record.config.get(key) or {}
        flat |= {name: value for name, value in options.items() if not isinstance(value, Mapping)}
    return flat


def _words(record: Record, options: Mapping[str, Any], all_: Sequence[Mapping[str, Any]]) -> str:
    """Name a workload: its sizes, and those options in which the workloads differ."""
    trial = record.trial
    differ = [
        f"{name}={value}"
        for name, value in options.items()
        if any(name in other and other[name] != value for other in all_)
    ]
    sizes = f"bs={trial.batch_size} h={trial.hidden_size}"
    return " ".join([trial.model, trial.dataset, sizes, trial.mode, *differ])
