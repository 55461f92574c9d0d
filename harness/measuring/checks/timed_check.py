"""Validation of the timed passes: no skipped work, no untimed work, no reuse of earlier results.

Untimed calls must be nearly free, or they could hide work. `load` may convert instances into the
form in which a program of the framework would hold them. That cost is estimated by converting the
same instances into Python lists (measure_reading_s). The gap between two runs (`load`, waiting
before the clock starts, `last_loss`) may take READINGS of these conversions plus CALLS_S, or
HIDDEN_SHARE of the timed seconds if that is more; otherwise the trial is a `wrong_result`. A system
that exceeds the limit is measured again in N_PASSES_AGAIN passes, of which the shortest median
counts: background load lengthens the gaps of some passes, but hidden work those of all.

Every run must do its work: the loss of a mini-batch stays the same in inference and changes from
pass to pass in training, as the parameters do, unless the steps are too small for float32.

While other systems have their turn, a system must not compute: its process may use OUTSIDE_SHARE of
the CPU time of its own turns, plus OUTSIDE_S.

A system must be as fast on unseen mini-batches. Copies of some mini-batches' instances in another
order are the same amount of work, and no cache filled by the timed passes has a result, a graph or
a schedule for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.measuring.clock import pause_collector, time_call
from dynbatch.harness.measuring.passes import Passes
from dynbatch.harness.records.fingerprint import GRADIENT, Fingerprint, round_numbers
from dynbatch.harness.trials.workload import Workload
from dynbatch.harness.values.arrays import draw_permutation

READINGS = 5.0
CALLS_S = 100e-6
HIDDEN_SHARE = 0.05
N_PASSES_AGAIN = 5
OUTSIDE_SHARE, OUTSIDE_S = 0.1, 0.1
LOSS_TOLERANCE = 1e-4
# Relative change of a loss, 8 to 16 steps of float32: rounding hides and imitates smaller ones.
NOT_ROUNDING = 1e-6
N_KEPT_PASSES = 16  # passes whose losses are compared with other systems'
N_UNSEEN = 5  # most mini-batches to copy
N_ATTEMPTS = 8  # most repetitions, each with other copies, to exclude background load
# A copy is run once, with cold caches, and timed runs follow each other. Added to their seconds.
JITTER_S = 20e-6
# Largest median slowdown relative to the same instances when seen.
MAX_SLOWER = 2.0
_STILL = "two consecutive passes have equal losses, so no parameter changed"


def judge_unseen(
    passes: Passes, workload: Workload, samples_s: Sequence[float]
) -> tuple[str | None, float | None]:
    """Return the reason if unseen mini-batches are slower than timed ones, and their slowdown."""
    seen_s = np.median(np.reshape(samples_s, (-1, len(workload.mini_batches))), axis=0)
    ratio = measure_unseen_ratio(passes, workload.mini_batches, seen_s.tolist())
    return find_unseen_fault(ratio), ratio


def estimate_change(fingerprint: Fingerprint, learning_rate: float) -> float:
    """Return the largest relative change of a mini-batch's loss by its first step.

    To first order it is the learning rate times the squared norm of the gradient.
    """
    sketches = fingerprint.sketches.items()
    norms = [[s[0] for s in column] for name, column in sketches if name.startswith(GRADIENT)]
    squares = (sum(norm**2 for norm in of_one) for of_one in zip(*norms, strict=False))
    pairs = zip(squares, fingerprint.losses, strict=False)
    return max((learning_rate * square / abs(loss) for square, loss in pairs if loss), default=0.0)


def sum_pass_losses(losses: Sequence[float], n_mini_batches: int) -> tuple[float, ...]:
    """Return the summed loss of each of the first passes, up to the first that is not finite.

    Args:
        losses: Losses of all runs in their order.
    """
    n_passes = min(len(losses) // n_mini_batches, N_KEPT_PASSES)
    whole = np.reshape(losses[: n_passes * n_mini_batches], (n_passes, n_mini_batches)).sum(axis=1)
    n_finite = int(np.argmin(np.isfinite([*whole, np.nan])))
    return round_numbers(whole[:n_finite].tolist())


def judge_untimed_gap(
    passes: Passes,
    mini_batches: Sequence[Sequence[Any]],
    samples_s: Sequence[float],
    untimed_gap_s: float,
) -> tuple[str | None, float]:
    """Return the reason if work is done between runs, and the median gap between two runs.

    The gap is measured again if it exceeds the limit. The further passes use copies of the
    mini-batches, so that a system which caches its preparation of a mini-batch must prepare them
    again.

    Args:
        samples_s: Seconds of the timed runs.
        untimed_gap_s: Median gap in seconds in the timed passes.
    """
    if passes.system.places_inputs:
        return None, untimed_gap_s
    run_s, reading_s = float(np.median(samples_s)), measure_reading_s(mini_batches)
    if find_hidden_fault(untimed_gap_s, run_s, reading_s) is None:
        return None, untimed_gap_s
    gaps_s = []
    with pause_collector():
        for attempt in range(N_PASSES_AGAIN):
            run_copies(passes, mini_batches, attempt)
            gaps_s.append(float(np.median(passes.untimed_gap_s[-len(mini_batches) :])))
    return find_hidden_fault(min(gaps_s), run_s, reading_s), min(gaps_s)


def run_copies(passes: Passes, mini_batches: Sequence[Sequence[Any]], attempt: int) -> list[float]:
    """Run a pass over copies with shuffled instances; return the seconds of each run."""
    copies = [
        [deepcopy(mini_batch[i]) for i in draw_permutation(len(mini_batch), attempt)]
        for mini_batch in mini_batches
    ]
    for mini_batch in copies:
        passes.system.compile_for(mini_batch)
    return [sample.total_s for sample in passes.run(copies)]


def find_hidden_fault(untimed_gap_s: float, run_s: float, reading_s: float) -> str | None:
    """Return the reason if work is done between the timed runs, or None.

    All values are seconds per mini-batch.
    """
    if untimed_gap_s <= max(READINGS * reading_s + CALLS_S, HIDDEN_SHARE * run_s):
        return None
    return (
        f"load, synchronize and last_loss take {untimed_gap_s:.2g} s between runs of {run_s:.2g} s,"
        f" but reading the instances takes {reading_s:.2g} s; move the work into run"
    )


def find_first_loss_fault(losses: Sequence[float], expected: Sequence[float]) -> str | None:
    """Return the reason if the first run, at the initial weights, has another loss, or None.

    Args:
        losses: Losses of all runs, of a process that has not stepped before them.
        expected: Loss of each mini-batch at the initial weights.
    """
    if abs(losses[0] - expected[0]) <= LOSS_TOLERANCE * abs(expected[0]):
        return None
    return (
        f"the loss of mini-batch 0 is {losses[0]:.6g} in the first pass, expected"
        f" {expected[0]:.6g} as in the first round"
    )


def find_outside_fault(inside_s: float, outside_s: float) -> str | None:
    """Return the reason if a system used CPU time outside of its turns, or None.

    Args:
        inside_s: CPU seconds of the process in its turns.
        outside_s: CPU seconds of the process between them.
    """
    if outside_s <= OUTSIDE_SHARE * inside_s + OUTSIDE_S:
        return None
    return (
        f"used {outside_s:.2g} s of CPU time while other systems had their turn, and"
        f" {inside_s:.2g} s in its own turns; move the work into run"
    )


def measure_reading_s(mini_batches: Sequence[Sequence[Any]]) -> float:
    """Measure the median seconds of converting a mini-batch's arrays into Python lists."""

    def read(instances: Sequence[Any]) -> list[Any]:
        return [array.tolist() for instance in instances for array in _list_arrays(instance)]

    return float(
        np.median(
            [time_call(partial(read, mini_batch), lambda: None)[1] for mini_batch in mini_batches]
        )
    )


def _list_arrays(instance: Any) -> Iterator[Any]:
    for item in fields(instance):
        value = getattr(instance, item.name)
        if isinstance(value, np.ndarray):
            yield value
        elif is_dataclass(value):
            yield from _list_arrays(value)


def find_losses_fault(
    losses: Sequence[float], expected: Sequence[float], *, trains: bool, change: float = math.inf
) -> str | None:
    """Return the reason if runs skipped their work, or None.

    Args:
        losses: Losses of all runs, pass after pass.
        expected: Loss of each mini-batch before the passes, which inference must repeat.
        change: See estimate_change.
    """
    n = len(expected)
    passes = np.reshape(losses[: len(losses) // n * n], (-1, n))
    if trains:
        return _STILL if has_skipped_steps(passes, change) else None
    deviations = np.abs(passes - np.asarray(expected))
    wrong = ~(deviations <= LOSS_TOLERANCE * np.abs(expected))
    if not np.any(wrong):
        return None
    row, k = np.argwhere(wrong)[0].tolist()
    return (
        f"the loss of mini-batch {k} is {passes[row, k]:.6g} in pass {row + 1}, expected"
        f" {expected[k]:.6g}"
    )


def has_skipped_steps(passes: NDArray[np.floating[Any]], change: float) -> bool:
    """Return whether the losses of two consecutive passes are equal although steps change them.

    Steps that are too small for float32 may leave all losses equal. Therefore a loss must change by
    more than NOT_ROUNDING just before or after, or, if all passes are equal, the estimated change
    must be larger than that.

    Args:
        passes: Loss of each mini-batch, by pass.
        change: See estimate_change.
    """
    scale = np.maximum(np.abs(passes[:-1]), np.finfo(np.float32).tiny)
    changes = (np.abs(np.diff(passes, axis=0)) / scale).max(axis=1, initial=0.0)
    equal = changes == 0
    if len(equal) and equal.all():
        return change > NOT_ROUNDING
    large = changes > NOT_ROUNDING
    return bool((equal[1:] & large[:-1]).any() or (equal[:-1] & large[1:]).any())


def measure_unseen_ratio(
    passes: Passes, mini_batches: Sequence[Sequence[Any]], seen_s: Sequence[float]
) -> float:
    """Return the median slowdown of unseen mini-batches relative to the timed ones.

    The shortest times of several attempts count; attempts end when the slowdown is at most
    MAX_SLOWER. Each further attempt also times the seen mini-batches again, so that a machine that
    has become slower since the timed passes slows both sides. It uses the second of two passes,
    after caches have been refilled with data that the unseen mini-batches evicted.

    Args:
        passes: Passes of a prepared system, warm from the timed ones.
        mini_batches: Mini-batches of the timed passes.
        seen_s: Median seconds of a run of each mini-batch, from the same source of time.
    """
    chosen = mini_batches[:N_UNSEEN]
    unseen_s = np.full(len(chosen), np.inf)
    again_s = np.full(len(mini_batches), np.inf)
    in_passes_s = timed_s = np.maximum(seen_s, 1e-9)
    ratio = np.inf
    with pause_collector():
        for attempt in range(N_ATTEMPTS):
            if attempt:
                passes.run(mini_batches)
                again = [sample.total_s for sample in passes.run(mini_batches)]
                again_s = np.minimum(again_s, again)
                timed_s = np.maximum(in_passes_s, again_s)
            unseen_s = np.minimum(unseen_s, run_copies(passes, chosen, attempt))
            ratio = float(np.median(unseen_s / (timed_s[: len(chosen)] + JITTER_S)))
            if ratio <= MAX_SLOWER:
                break
    return ratio


def find_unseen_fault(ratio: float) -> str | None:
    """Return the reason if unseen mini-batches are too slow, or None."""
    if ratio <= MAX_SLOWER:
        return None
    return (
        f"unseen mini-batches take {ratio:.2g} times as long as timed ones (limit:"
        f" {MAX_SLOWER:g}); remove results that a run reuses from earlier ones"
    )
