"""What `bench` says behind an experiment: the best of all peers at each of its workloads.

Where the ceiling was measured, too, also what share of it is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.records.record import Record
from plots.numbers.best_peer import best_peer, peer_names, ratio_words
from plots.numbers.ceiling import calibration_names, ceiling_of, share_of
from plots.numbers.fastest import speed_of
from plots.numbers.gather import read_labels
from plots.numbers.points import Point
from plots.numbers.table import DAGGER
from plots.words.workloads import by_workload


def lines_of(records: Iterable[Record], base: str, conf_dir: Path) -> Iterator[str]:
    """A line for each workload at which the base and some peer have a number, one for its ceiling.

    base: the system that an experiment compares with its peers.
    """
    labels = read_labels(conf_dir)
    for workload, points in by_workload(records):
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
    mark = DAGGER if best.has_warnings else ""
    number = "the only peer" if best.n_peers == 1 else f"best of {best.n_peers} peers"
    return (
        f"{number} {labels[best.system]} with {best.speed.median:,.0f}{mark} instances/s;"
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
