"""Adapters that misbehave, each beside a good trial of the same sweep.

Promised: a record with the right status, a log of bounded size, no survivor, and the next trial as
if nothing had been.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.terminal.ending import FAILED
from scripts.campaign_parts.case import Case, Outcome, Run
from scripts.campaign_parts.judging import (
    fault_of_ending,
    fault_of_leftovers,
    first_fault,
)
from scripts.campaign_parts.kept import Kept
from scripts.campaign_parts.place import Ended, Place
from scripts.campaign_parts.small_bench import LIMIT_S, MISBEHAVING, bench

MOST_LOG_BYTES = 2**20
TIME_LIMIT_S = 5  # of a trial, where it would never end
MEMORY_LIMIT_BYTES = 600 * 2**20
METHODS = (
    *("__init__", "skip", "prepare", "compile_for", "n_compilations", "load", "upcoming", "run"),
    *("result", "parameters", "last_loss", "counters", "moving_share", "peak_memory_bytes"),
    *("forget_peak_memory", "synchronize", "in_force", "versions"),
)
EXIT_CODES = (0, 1, 2, 3, 64, 65, 130, 137)
SIGNALS = (
    *(int(getattr(signal, f"SIG{name}")) for name in ("TERM", "INT", "KILL", "SEGV", "ABRT")),
    *(int(signal.SIGRTMIN), int(signal.SIGRTMIN) + 5, int(signal.SIGRTMAX)),
)
WRONG = (
    *("wrong_loss", "nan_loss", "wrong_outputs", "few_outputs", "nan_outputs"),
    *("wrong_gradient", "no_gradients", "nan_gradient", "no_update"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong in which method, and the statuses that say so rightly."""

    fault: str
    at: str
    statuses: tuple[str, ...]


def _faults() -> list[Fault]:
    """Every case: what is the right status does not depend on chance."""
    found = [Fault("raise:value", method, ("crash",)) for method in METHODS]
    early = ("__init__", "skip", "prepare", "run")
    found += [
        Fault(f"raise:{what}", method, ("oom",))
        for what in ("memory", "enomem", "numpy")
        for method in early
    ]
    found += [
        Fault(f"raise:{what}", "prepare", ("crash",)) for what in ("unicode", "surrogate", "stop")
    ]
    found += [Fault(f"exit:{code}", "prepare", ("crash",)) for code in EXIT_CODES]
    found += [Fault(f"sys_exit:{code}", "prepare", ("crash",)) for code in (0, 64, 65)]
    found += [Fault(f"signal:{number}", "run", ("crash",)) for number in SIGNALS]
    found += [Fault(f"flood:{where}", "prepare", ("ok", "crash")) for where in ("stdout", "stderr")]
    found += [Fault("detach:600", "prepare", ("ok",))]
    found += [Fault(fault, "run", ("timeout",)) for fault in ("loop", "wait", "stubborn")]
    found += [Fault("hog", "prepare", ("oom",))]
    found += [Fault(fault, "result", ("wrong_result",)) for fault in WRONG]
    return found


FAULTS = _faults()
N_CASES = len(FAULTS)


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """A fault, first or last of the sweep."""
    one = FAULTS[number]
    is_first = rng.random() < 0.5
    return {"fault": one.fault, "at": one.at, "statuses": list(one.statuses), "first": is_first}


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """The cases share a cache."""

    def run(case: Case, place: Path) -> Outcome:
        return _beside_a_good_one(case, Place(place, folder / "cache"))

    yield run


def _beside_a_good_one(case: Case, place: Place) -> Outcome:
    fault = case.does["fault"]
    pair = [f'"{fault}"', "none"] if case.does["first"] else ["none", f'"{fault}"']
    limits = [f"limits.time_s={TIME_LIMIT_S}"] if case.does["statuses"] == ["timeout"] else []
    limits += [f"limits.memory_bytes={MEMORY_LIMIT_BYTES}"] if fault == "hog" else []
    # What comes next is told only where anything does.
    limits += ["timing.n_mini_batches=2"] if case.does["at"] == "upcoming" else []
    options = [f"+system.options.fault={','.join(pair)}", f"+system.options.at={case.does['at']}"]
    ended = place.run(bench(place, *MISBEHAVING, *options, *limits, sweep=True), LIMIT_S)
    return first_fault(
        fault_of_ending(ended, (0, FAILED)),
        _fault_of_log(place),
        fault_of_leftovers(place),
        _fault_of_statuses(case, place, ended),
    )


def _fault_of_log(place: Place) -> Outcome | None:
    logs = place.results.glob("logs/**/*.log")
    sizes = [path.stat().st_size for path in logs if path.is_file()]
    most = max(sizes, default=0)
    return Outcome("other", f"a log of {most} bytes") if most > MOST_LOG_BYTES else None


def _fault_of_statuses(case: Case, place: Place, ended: Ended) -> Outcome | None:
    kept = Kept.of(place.results)
    statuses = sorted(kept.status(name) for name in kept.complete)
    wanted = [sorted([status, "ok"]) for status in case.does["statuses"]]
    if statuses in wanted:
        return None
    words = f"records say {statuses}, not {' or '.join(map(str, wanted))}; {ended.stdout[-200:]}"
    is_accepted = statuses == ["ok", "ok"]
    return Outcome("accepted" if is_accepted else "other", " ".join(words.split()))
