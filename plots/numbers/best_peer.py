"""Which of all peers is the fastest at one workload, and what is to be gained over it.

A peer is a system of kind `framework` (conf/system), the slow ones too. None is left out by name:
what an experiment measures and has a number takes part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.planning.kinds import read_systems
from harness.records.stats import Summary
from plots.numbers.fastest import TIME, TIMED_INSTANCES, fastest_first, speed_of
from plots.numbers.points import Measured, Point, speedup_of

PEER_KIND = "framework"


@dataclass(frozen=True, slots=True)
class BestPeer:
    """The fastest of n_peers peers at one workload.

    speed: its instances per second. ratio: the base's speed over it, over rounds.
    """

    system: str
    n_peers: int
    speed: Summary
    ratio: Measured


def peer_names(conf_dir: Path) -> frozenset[str]:
    """Names of all systems that are peers of the engine."""
    return frozenset(one.name for one in read_systems(conf_dir) if one.kind == PEER_KIND)


def best_peer(points: Iterable[Point], base: str, peers: Collection[str]) -> BestPeer | None:
    """The fastest peer of one workload's points; None where the base, or every peer, has no number.

    A system that was measured under several policies takes part with each.
    """
    found = list(points)
    bases = [p for p in found if p.settings["system"] == base and not p.settings.get("policy")]
    measured = fastest_first(found, peers)
    if not measured or not bases or speed_of(bases[0]) is None:
        return None
    best, speed = measured[0]
    ratio = speedup_of(best, bases[0], TIME, TIMED_INSTANCES)
    return BestPeer(str(best.settings["system"]), _n_systems(p for p, _ in measured), speed, ratio)


def _n_systems(points: Iterable[Point]) -> int:
    return len({point.settings["system"] for point in points})


def ratio_words(measured: Measured, n_decimals: int = 2) -> str:
    """Spell "1.83 [1.79-1.88]", or the word for why there is no ratio."""
    summary = measured.summary
    if summary is None:
        return measured.status
    interval: Sequence[float | None] = (summary.low, summary.high)
    told = [f"{value:.{n_decimals}f}" for value in interval if value is not None]
    return f"{summary.median:.{n_decimals}f}" + (f" [{'-'.join(told)}]" if told else "")
