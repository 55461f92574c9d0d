"""Whole mini-batches, as they are timed: against their parts, and as a fingerprint.

The oracle answers for a few instances only. Libraries take other kernels for many rows, and a
system may be wrong there: so loss, outputs and every gradient of a whole mini-batch must be those
of its parts, each as large as the oracle's mini-batch; and of all timed mini-batches a fingerprint
is kept, by which systems are compared with each other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.contracts.system import System
from harness.measuring.check import FLOAT32, Step, run_once, step_fault
from harness.measuring.kinks import is_kinked
from harness.measuring.sketch import added, kept, sketches_of
from harness.records.fingerprint import Fingerprint, Sketch, sketch_tolerance
from harness.trials.ids import n_lookups
from harness.trials.workload import Workload
from harness.values.precision import EXACT, Tolerance, is_exact

# Numbers of outputs and gradients of a pass that are sketched: DyNet copies them one by one, in a
# second. What does not fit is left out, but for the first mini-batch.
MAX_NUMBERS = 2**24


def parts_fault(
    system: System,
    instances: Sequence[Any],
    n_at_once: int,
    tolerance: Tolerance = FLOAT32,
    *,
    kinked: bool = False,
) -> str | None:
    """What is wrong with a whole mini-batch, compared with its parts; None if nothing is.

    kinked: whether the model's derivatives jump, see Fingerprint.
    n_at_once: instances of the smallest parts. Those of more than a few are made of, and compared
    with, parts of a size between, and the first of these with its own parts: what depends on the
    size shows, and few gradients are read.
    """
    n_parts = -(-len(instances) // n_at_once)
    between = n_at_once * math.isqrt(n_parts)
    fault = _sum_fault(system, instances, between, tolerance, kinked)
    return fault or _sum_fault(system, instances[:between], n_at_once, tolerance, kinked)


def _sum_fault(
    system: System, instances: Sequence[Any], n_at_once: int, tolerance: Tolerance, kinked: bool
) -> str | None:
    parts = [instances[k : k + n_at_once] for k in range(0, len(instances), n_at_once)]
    if len(parts) < 2:
        return None
    whole = _sketched(system, instances)
    sums = added(list(_sketched_parts(system, parts)))
    for name, found in whole.items():
        error = max(abs(a - b) for a, b in zip(found[1:], sums[name], strict=True))
        if not error <= sketch_tolerance(name, tolerance.array, kinked=kinked) * found[0]:
            return (
                f"{name} of {len(instances)} instances deviates by"
                f" {error / max(found[0], 1e-30):.2g} from that of their parts of {n_at_once}"
            )
    return None


def _sketched(system: System, instances: Sequence[Any]) -> dict[str, Sketch]:
    return sketches_of(run_once(system, instances, update=False).result())


def _sketched_parts(
    system: System, parts: Sequence[Sequence[Any]]
) -> Iterator[Mapping[str, Sketch]]:
    first_row = 0
    for part in parts:
        result = run_once(system, part, update=False).result()
        yield sketches_of(result, first_row)
        first_row += len(result.outputs)


def fingerprint_of(system: System, workload: Workload, name: str) -> Fingerprint:
    """Run every timed mini-batch once, without an update, and keep a few numbers of each.

    name: what the workload is called (see workload_sha256).
    """
    losses: list[float] = []
    sketches: dict[str, list[Sketch]] = {}
    n_numbers, fits = 0, True
    for k, mini_batch in enumerate(workload.mini_batches):
        run_once(system, mini_batch, update=False)
        losses.append(system.last_loss())
        fits = fits and n_numbers + n_numbers // max(k, 1) <= MAX_NUMBERS  # one more such as those
        if fits:
            result = system.result()
            n_numbers += result.outputs.size + sum(g.size for g in result.gradients.values())
            for array, found in sketches_of(result).items():
                sketches.setdefault(array, []).append(kept(found))
    return Fingerprint(
        workload=name,
        losses=kept(losses),
        sketches={array: tuple(found) for array, found in sketches.items() if array != "loss"},
        kinked=is_kinked(workload.model, workload.mini_batches[0]),
    )


class NotFinite(NamedTuple):
    """What is no number, in words, and of which mini-batch."""

    words: str
    mini_batch: int


def not_finite(fingerprint: Fingerprint) -> NotFinite | None:
    """What of a fingerprint is no number; None if all is."""
    for k, loss in enumerate(fingerprint.losses):
        if not np.isfinite(loss):
            return NotFinite(f"the loss of mini-batch {k} is {loss}", k)
    for name, sketches in fingerprint.sketches.items():
        for k, found in enumerate(sketches):
            if not np.all(np.isfinite(found)):
                return NotFinite(f"{name} of mini-batch {k} is not finite", k)
    return None


def workload_sha256(
    workload: Workload, mode: str, learning_rate: float, precision: str = EXACT
) -> str:
    """Hash what decides a fingerprint: mini-batches, model, initial weights, mode and step.

    Results of a lower precision are their own workload, since no exact system has the like.
    """
    model = workload.model
    options = sorted(model.options.items())
    text = f"{workload.inputs_sha256} {type(model).__module__} {options} {mode} {learning_rate!r}"
    digest = hashlib.sha256(f"{text}{'' if is_exact(precision) else precision}".encode())
    for name, value in workload.weights.items():
        digest.update(f"{name} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()[:16]


def step_of_whole_fault(
    system: System, workload: Workload, rate: float, tolerance: Tolerance = FLOAT32
) -> str | None:
    """What is wrong with a step of a timed mini-batch, by the system's own gradients; or None.

    Those are proved by then, and the weights may have been updated before.
    """
    instances = workload.mini_batches[0]
    before = {name: np.array(values) for name, values in system.parameters().items()}
    result = run_once(system, instances, update=False).result()
    gradients = {name: np.array(gradient) for name, gradient in result.gradients.items()}
    run_once(system, instances, update=True)
    n_rows = n_lookups(workload.model, instances)
    step = Step(before, gradients, rate, n_rows, tolerance=tolerance)
    fault = step_fault(system, step)
    return None if fault is None else f"of {len(instances)} instances, {fault}"
