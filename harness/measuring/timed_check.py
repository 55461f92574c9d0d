"""Checks of the timed passes: all work was done, inside the timed region, and nothing was known.

Untimed calls must cost next to nothing, or work hides in them. `load` may bring instances into the
form in which a program of the framework would hold them; what that costs is measured with the same
instances, turned into Python lists (reading_s). What all calls between two runs (`load`, waiting
before the clock starts, `last_loss`) take beyond READINGS of those and CALLS_S, is work that was
not timed: where it is more than HIDDEN_SHARE of the timed time, the trial is a `wrong_result`.
A system near the limit, below NEAR times, is asked again in N_PASSES_AGAIN passes, whose median
counts: others on the machine must not make a system guilty.

Every run must do its work: in inference the loss of a mini-batch is always the same, and in
training it changes from pass to pass, as the parameters do.

A system must be as fast on mini-batches that it has not seen. The instances of some mini-batches,
copied and in another order, are as much work as before, and no cache that is filled by the timed
passes has an answer, a graph or a schedule for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from harness.measuring.clock import collector_paused, timed
from harness.measuring.passes import Passes
from harness.records.fingerprint import Fingerprint, kept
from harness.trials.workload import Workload
from harness.values.arrays import shuffled

READINGS = 5.0
CALLS_S = 100e-6
HIDDEN_SHARE = 0.05
NEAR = 2.0
N_PASSES_AGAIN = 5
LOSS_TOLERANCE = 1e-4
N_KEPT_PASSES = 16  # of which the losses are compared with other systems'
N_UNSEEN = 5  # mini-batches at most
N_ATTEMPTS = 8  # each with other copies: others on the machine must not make a system guilty
# Of what the same instances take when seen, median over mini-batches.
MOST_SLOWER = 2.0


def judged_passes(
    passes: Passes,
    workload: Workload,
    fingerprint: Fingerprint,
    samples_s: Sequence[float],
    between_s: float,
) -> tuple[str | None, float | None]:
    """Hold the passes against what they should have been.

    Args:
        passes: warm-up and timed ones.
        samples_s: of timed runs.
        between_s: see settled_between_s.

    Returns:
        What is wrong with them, or None; and unseen_ratio, if it was taken.
    """
    trains = passes.system.settings.mode == "train"
    still = trains and not has_gradients(fingerprint)  # then no step changes anything
    fault = None if still else losses_fault(passes.losses, fingerprint.losses, trains=trains)
    run_s = float(np.median(samples_s))
    if fault is None and not passes.system.places_inputs:
        fault = hidden_fault(between_s, run_s, reading_s(workload.mini_batches))
    if fault is not None:
        return fault, None
    seen_s = np.median(np.reshape(samples_s, (-1, len(workload.mini_batches))), axis=0)
    ratio = unseen_ratio(passes, workload.mini_batches, seen_s.tolist())
    return unseen_fault(ratio), ratio


def has_gradients(fingerprint: Fingerprint) -> bool:
    """Whether any gradient is not zero everywhere."""
    gradients = (found for name, found in fingerprint.sketches.items() if name != "outputs")
    return any(sketch[0] > 0 for found in gradients for sketch in found)


def pass_losses(losses: Sequence[float], n_mini_batches: int) -> tuple[float, ...]:
    """Sum the losses of each of the first passes; losses: of all runs, in their order.

    A pass in which one is not finite is left out, and all behind it.
    """
    n_passes = min(len(losses) // n_mini_batches, N_KEPT_PASSES)
    whole = np.reshape(losses[: n_passes * n_mini_batches], (n_passes, n_mini_batches)).sum(axis=1)
    n_finite = int(np.argmin(np.isfinite([*whole, np.nan])))
    return kept(whole[:n_finite].tolist())


def most_between_s(run_s: float, reading_s: float) -> float:
    """The limit of what may be spent between two runs; all are seconds a mini-batch."""
    return max(READINGS * reading_s + CALLS_S, HIDDEN_SHARE * run_s)


def is_near(between_s: float, run_s: float, reading_s: float) -> bool:
    """Whether it is above the limit by so little that a disturbance may have done it."""
    limit = most_between_s(run_s, reading_s)
    return limit < between_s < NEAR * limit


def settled_between_s(
    passes: Passes,
    mini_batches: Sequence[Sequence[Any]],
    samples_s: Sequence[float],
    between_s: float,
) -> float:
    """Return the median seconds between two runs that count.

    Those of the timed passes, as they were found, or of other passes, where they were near the
    limit: as many mini-batches, and copies, since a system that keeps what it prepared for one must
    prepare these again.
    """
    run_s, reading = float(np.median(samples_s)), reading_s(mini_batches)
    if passes.system.places_inputs or not is_near(between_s, run_s, reading):
        return between_s
    found = []
    with collector_paused():
        for attempt in range(N_PASSES_AGAIN):
            run_copies(passes, mini_batches, attempt)
            found.append(float(np.median(passes.between_s[-len(mini_batches) :])))
    return float(np.median(found))


def run_copies(passes: Passes, mini_batches: Sequence[Sequence[Any]], attempt: int) -> list[float]:
    """Run a pass over copies in an order of their own; return the seconds of each run."""
    copies = [[deepcopy(one[i]) for i in shuffled(len(one), attempt)] for one in mini_batches]
    for one in copies:
        passes.system.compile_for(one)
    return [sample.total_s for sample in passes.run(copies)]


def hidden_fault(between_s: float, run_s: float, reading_s: float) -> str | None:
    """Say that work is done between the timed runs, or None; all are seconds a mini-batch."""
    if between_s <= most_between_s(run_s, reading_s):
        return None
    return (
        f"load, synchronize and last_loss take {between_s:.2g} s between two runs of {run_s:.2g} s,"
        f" where reading the instances takes {reading_s:.2g} s; do the work in run"
    )


def reading_s(mini_batches: Sequence[Sequence[Any]]) -> float:
    """Median seconds of turning the arrays of a mini-batch into Python lists."""

    def read(instances: Sequence[Any]) -> list[Any]:
        return [array.tolist() for instance in instances for array in _arrays(instance)]

    return float(np.median([timed(partial(read, one), _no_wait)[1] for one in mini_batches]))


def _arrays(instance: Any) -> Iterator[Any]:
    for item in fields(instance):
        value = getattr(instance, item.name)
        if isinstance(value, np.ndarray):
            yield value
        elif is_dataclass(value):
            yield from _arrays(value)


def _no_wait() -> None:
    """Nothing was started that goes on."""


def losses_fault(losses: Sequence[float], expected: Sequence[float], *, trains: bool) -> str | None:
    """Say that runs did not do their work, or None.

    losses: of all runs, pass after pass, in inference near the `expected` of each mini-batch.
    """
    n = len(expected)
    passes = np.reshape(losses[: len(losses) // n * n], (-1, n))
    if trains:
        still = any(np.array_equal(one, next_) for one, next_ in pairwise(passes))
        return "no loss changes from pass to pass, as if no parameter did" if still else None
    deviations = np.abs(passes - np.asarray(expected))
    wrong = ~(deviations <= LOSS_TOLERANCE * np.abs(expected))
    if not np.any(wrong):
        return None
    row, k = np.argwhere(wrong)[0].tolist()
    return (
        f"the loss of mini-batch {k} is {passes[row, k]:.6g} in pass {row + 1} and was"
        f" {expected[k]:.6g} before"
    )


def unseen_ratio(
    passes: Passes, mini_batches: Sequence[Sequence[Any]], seen_s: Sequence[float]
) -> float:
    """Divide the time of unseen mini-batches by that of the timed ones; median over them.

    The least times of a few attempts count, as many as it takes to come below MOST_SLOWER. Each
    further attempt also times the seen mini-batches anew, so that a machine that has become slower
    since the timed passes slows both sides: the second of two passes, when what the unseen ones
    drove out of a cache is back.

    Args:
        passes: of a system that is prepared, and warm from the timed passes.
        mini_batches: of the timed passes.
        seen_s: median seconds of a run of each mini-batch, timed by the same source of time.
    """
    chosen = mini_batches[:N_UNSEEN]
    unseen_s = np.full(len(chosen), np.inf)
    again_s = np.full(len(mini_batches), np.inf)
    in_passes_s = timed_s = np.maximum(seen_s, 1e-9)
    ratio = np.inf
    with collector_paused():
        for attempt in range(N_ATTEMPTS):
            if attempt:
                passes.run(mini_batches)
                again = [sample.total_s for sample in passes.run(mini_batches)]
                again_s = np.minimum(again_s, again)
                timed_s = np.maximum(in_passes_s, again_s)
            unseen_s = np.minimum(unseen_s, run_copies(passes, chosen, attempt))
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
