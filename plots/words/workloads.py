"""Records of one workload side by side: what `bench` says behind them is said of each workload."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.records.record import Record
from plots.numbers.points import Point

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
    """Each workload in words, with a point for each system and policy that was measured there."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_workload(record), []).append(record)
    told = [_options(group[0]) for group in groups.values()]
    for group, options in zip(groups.values(), told, strict=True):
        yield _words(group[0], options, told), _points(group)


def _workload(record: Record) -> str:
    return json.dumps({key: record.config.get(key) for key in ALIKE}, sort_keys=True)


def _points(records: Sequence[Record]) -> list[Point]:
    """One for each system and policy, its rounds in order."""
    found: dict[tuple[str, str | None], dict[int, Record]] = {}
    for record in records:
        trial = record.trial
        found.setdefault((trial.system, trial.policy), {})[trial.round] = record
    return [
        Point({"system": system, "policy": policy}, tuple(rounds[k] for k in sorted(rounds)))
        for (system, policy), rounds in found.items()
    ]


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
