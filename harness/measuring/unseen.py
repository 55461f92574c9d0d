"""Whether a system knows the timed mini-batches: it must be as fast on what it has not seen.

The instances of some mini-batches, copied and in another order, are as much work as before, and no
cache that is filled by the timed passes has an answer, a graph or a schedule for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from harness.contracts.system import System
from harness.measuring.clock import Now, PhaseClock, collector_paused, now_ns
from harness.measuring.passes import loaded
from harness.values.arrays import shuffled

N_UNSEEN = 5  # mini-batches at most
N_ATTEMPTS = 8  # each with other copies: others on the machine must not make a system guilty
# Of what the same instances take when seen, median over mini-batches.
MOST_SLOWER = 2.0


def unseen_ratio(
    system: System,
    mini_batches: Sequence[Sequence[Any]],
    seen_s: Sequence[float],
    now_ns: Now = now_ns,
) -> float:
    """Divide the time of unseen mini-batches by that of the timed ones; median over them.

    The least times of a few attempts count, as many as it takes to come below MOST_SLOWER. Each
    further attempt also times the seen mini-batches anew, so that a machine that has become slower
    since the timed passes slows both sides.

    Args:
        system: prepared, and warm from the timed passes.
        mini_batches: of the timed passes.
        seen_s: median seconds of a run of each mini-batch, timed by the same source of time.
        now_ns: the source of time.
    """
    chosen = mini_batches[:N_UNSEEN]
    clock = PhaseClock(system.synchronize, now_ns)
    unseen_s = np.full(len(chosen), np.inf)
    again_s = np.full(len(mini_batches), np.inf)
    in_passes_s = timed_s = np.maximum(seen_s, 1e-9)
    ratio = np.inf
    with collector_paused():
        for attempt in range(N_ATTEMPTS):
            if attempt:
                again_s = np.minimum(again_s, _time_seen_again(system, clock, mini_batches))
                timed_s = np.maximum(in_passes_s, again_s)
            copies = [copied(one, attempt) for one in chosen]
            for one in copies:
                system.compile_for(one)
            unseen_s = np.minimum(unseen_s, _time_pass(system, clock, copies))
            ratio = float(np.median(unseen_s / timed_s[: len(chosen)]))
            if ratio <= MOST_SLOWER:
                break
    return ratio


def unseen_fault(ratio: float) -> str | None:
    """Say that known mini-batches are answered faster than others, or None."""
    if ratio <= MOST_SLOWER:
        return None
    return (
        f"mini-batches that it has not seen take {ratio:.2g} times what those of the timed passes"
        " do; keep nothing from one run for the next"
    )


def copied(mini_batch: Sequence[Any], attempt: int) -> list[Any]:
    """Copies of its instances, in another order for every attempt."""
    return [deepcopy(mini_batch[i]) for i in shuffled(len(mini_batch), attempt)]


def _time_seen_again(
    system: System, clock: PhaseClock, mini_batches: Sequence[Sequence[Any]]
) -> list[float]:
    """Time the second of two passes: what the unseen ones drove out of a cache is back by then."""
    _time_pass(system, clock, mini_batches)
    return _time_pass(system, clock, mini_batches)


def _time_pass(
    system: System, clock: PhaseClock, mini_batches: Sequence[Sequence[Any]]
) -> list[float]:
    """Seconds of a run of each mini-batch."""
    seconds = []
    for _ in loaded(system, mini_batches):
        clock.start()
        system.run(clock)
        seconds.append(clock.stop().total_s)
    return seconds
