"""What `bench` says behind an experiment: the best of all peers at each of its workloads.

Where the ceiling was measured, too, also what share of it is reached.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records.record import Record
from plots.numbers.best_peer import best_peer, peer_names, ratio_words
from plots.numbers.ceiling import calibration_names, ceiling_of, share_of
from plots.numbers.fastest import speed_of
from plots.numbers.gather import read_labels
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


def lines_of(records: Iterable[Record], base: str, conf_dir: Path) -> Iterator[str]:
    """A line for each workload at which the base and some peer have a number, one for its ceiling.

    base: the system that an experiment compares with its peers.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_workload(record), []).append(record)
    told = [_options(group[0]) for group in groups.values()]
    labels = read_labels(conf_dir)
    for group, options in zip(groups.values(), told, strict=True):
        workload, points = _words(group[0], options, told), _points(group)
        for words in (_peer_words, _ceiling_words):
            if said := words(points, base, labels, conf_dir):
                yield f"{workload}: {said}"


def _peer_words(
    points: Sequence[Point], base: str, labels: Mapping[str, str], conf_dir: Path
) -> str:
    """The best peer of a workload; nothing where there is none."""
    best = best_peer(points, base, peer_names(conf_dir))
    if best is None:
        return ""
    number = "the only peer" if best.n_peers == 1 else f"best of {best.n_peers} peers"
    return (
        f"{number} {labels[best.system]} with {best.speed.median:,.0f} instances/s;"
        f" {labels[base]} over it {ratio_words(best.ratio)}"
    )


def _ceiling_words(
    points: Sequence[Point], base: str, labels: Mapping[str, str], conf_dir: Path
) -> str:
    """The ceiling of a workload; nothing where either has no number."""
    ceiling = ceiling_of(points, calibration_names(conf_dir))
    bases = [p for p in points if p.settings["system"] == base and not p.settings.get("policy")]
    share = share_of(ceiling, bases[0] if bases else None)
    speed = None if ceiling is None else speed_of(ceiling)
    if ceiling is None or speed is None or share.summary is None:
        return ""
    return (
        f"ceiling {labels[str(ceiling.settings['system'])]} with {speed.median:,.0f} instances/s;"
        f" {labels[base]} reaches {ratio_words(share, n_decimals=1)} % of it"
    )


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
