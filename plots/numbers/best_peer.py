"""Which of all peers is the fastest at one workload, and what is to be gained over it.

A peer is a system of kind `framework` (conf/system), the slow ones too. None is left out by name:
what an experiment measures and has a number takes part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.planning.kinds import read_systems
from harness.records.stats import Summary
from plots.numbers.fastest import TIME, TIMED_INSTANCES, fastest_first, speed_of
from plots.numbers.points import Measured, Point, speedup_of
from plots.numbers.table import DAGGER

PEER_KIND = "framework"


@dataclass(frozen=True, slots=True)
class BestPeer:
    """The fastest of some peers at one workload.

    peers: names of all that have a number. speed: its instances per second. ratio: the base's speed
    over it, over rounds. has_warnings: whether its own records carry any.
    """

    system: str
    peers: frozenset[str]
    speed: Summary
    ratio: Measured
    has_warnings: bool

    @property
    def n_peers(self) -> int:
        """How many have a number."""
        return len(self.peers)


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
    name, names = str(best.settings["system"]), {str(p.settings["system"]) for p, _ in measured}
    return BestPeer(name, frozenset(names), speed, ratio, has_warnings=bool(best.warnings))


def ratio_words(measured: Measured, n_decimals: int = 2) -> str:
    """Spell "1.83 [1.79-1.88]", with a dagger where records carry warnings; or why there is none.

    Ends are rounded outwards: 0.995 is no 1.00, which would leave out that nothing is gained.
    """
    summary = measured.summary
    if summary is None:
        return measured.status
    ends = ((math.floor, summary.low), (math.ceil, summary.high))
    unit = 10**n_decimals
    told = [
        f"{outwards(round(value * unit, 6)) / unit:.{n_decimals}f}"
        for outwards, value in ends
        if value is not None
    ]
    words = f"{summary.median:.{n_decimals}f}" + (f" [{'-'.join(told)}]" if told else "")
    return words + (DAGGER if measured.warnings else "")
