"""Comparison of a system's results with the float64 reference, which must pass before timing.

Rule per array (loss, outputs, gradient of each parameter): the largest deviation is at most
Tolerance.array of the array's largest entry, or the root mean square of the deviation is at most
that fraction of the array's root mean square. Half precision (2e-4) does not pass. If the input of
a ReLU is within float32 rounding of zero, reference and system may see different signs, which
changes some entries of a gradient by more than rounding. Therefore each deviation is first reduced
by the change of the reference's gradient when its ReLUs open slightly earlier or later
(ReferenceAnswer.slack), which is zero unless an input is that close. All limits are relative, so
that batching order, size and scale of an array do not matter (cf. torch._dynamo.utils.same, which
also measures the distance from float64).

Runs without an update must leave every parameter unchanged, bit for bit. After one step every
parameter is read back: its change must be the reference's gradient times the learning rate, by the
same rule, apart from the rounding of the parameter itself. A system may compute from copies of its
parameters; therefore the changes of loss and outputs by the step must match the reference, too.

The reference's mini-batch is small; harness/measuring/checks/mini_batch_check.py checks whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.system import Parameters, Result, System
from dynbatch.harness.measuring.checks.reference import Array, ReferenceAnswer
from dynbatch.harness.measuring.clock import PhaseClock
from dynbatch.harness.values.precision import EXACT, ROUNDING, TOLERANCES, Tolerance

Rows = EllipsisType | NDArray[np.intp]  # rows of an array: all, or by index
EVERY = ...
FLOAT32 = TOLERANCES[EXACT]
N_ADDITIONS = 4  # most additions of a step to an entry outside of lookup tables
CHANGE_TOLERANCE = 0.05  # relative to the change of the loss or the outputs by one step
NOISE_GROWTH = 4.0  # deviation of the outputs' change, relative to that of the outputs before it


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a check.

    Attributes:
        max_rel_err: Largest relative error of all arrays; None if it is unknown or not finite.
        reason: First deviation, or None.
        is_finite: Whether the array of the first deviation is finite, in system and reference.
    """

    status: Literal["ok", "failed", "skipped"]
    max_rel_err: float | None = None
    reason: str | None = None
    is_finite: bool = True


def run_once(system: System, instances: Sequence[Any], *, update: bool) -> System:
    """Load and run a mini-batch as in the timed passes, without using the times."""
    clock = PhaseClock(system.synchronize)
    system.load(instances)
    clock.start()
    system.run(clock, update=update)
    clock.stop()
    return system


def check_answer(
    system: System,
    instances: Sequence[Any],
    answer: ReferenceAnswer,
    tolerance: Tolerance = FLOAT32,
) -> Verdict:
    return compare(run_once(system, instances, update=False).result(), answer, tolerance)


def check_step(
    system: System, instances: Sequence[Any], answer: ReferenceAnswer, step: SgdStep
) -> str | None:
    """Run one step from the initial weights; return how it deviates, or None."""
    result = run_once(system, instances, update=False).result()
    before = np.array(result.outputs)  # a copy: the next run may overwrite the array
    run_once(system, instances, update=True)
    fault = find_step_fault(system, step)
    if fault is not None:
        return fault
    after = run_once(system, instances, update=False).result()
    fault = _find_loss_fault(after.loss - result.loss, answer, step.tolerance)
    return fault or _find_outputs_fault(before, np.asarray(after.outputs), answer, step.tolerance)


def find_changed_parameter(system: System, weights: Parameters) -> str | None:
    """Return which parameter differs in any bit from the given weights, or None.

    Used after runs without an update.
    """
    parameters = system.parameters()
    reason = _find_parameter_difference(parameters, weights)
    for name in weights if reason is None else ():
        if not np.array_equal(parameters[name], weights[name]):
            return f"{name} changes in a run without an update"
    return reason


def _find_parameter_difference(parameters: Parameters, weights: Parameters) -> str | None:
    """Return the difference from the model's parameter names or shapes, or None."""
    if parameters.keys() != weights.keys():
        names = ", ".join(sorted(parameters.keys() ^ weights.keys()))
        return f"parameters() and the model differ in the names {names}"
    for name, values in weights.items():
        if np.shape(parameters[name]) != values.shape:
            return f"{name} has shape {np.shape(parameters[name])}, expected {values.shape}"
    return None


@dataclass(frozen=True, slots=True)
class SgdStep:
    """Expected effect of a step of plain SGD.

    Attributes:
        before: Parameters before the step.
        n_lookups: Number of lookups of each row by table, which bounds the additions to the row.
        slack: See ReferenceAnswer.
    """

    before: Parameters
    gradients: Mapping[str, Array]
    rate: float
    n_lookups: Mapping[str, NDArray[np.intp]]
    slack: Mapping[str, Array] = field(default_factory=dict)
    tolerance: Tolerance = FLOAT32

    def compute_rounding(self, name: str, rows: Rows = EVERY) -> Array:
        """Return the largest float32 rounding error of each entry, for some rows or all."""
        values = np.abs(np.asarray(self.before[name][rows], np.float64))
        if name not in self.n_lookups:
            return ROUNDING * N_ADDITIONS * values
        n_additions = N_ADDITIONS + self.n_lookups[name][rows]
        return ROUNDING * values * n_additions.reshape(-1, *[1] * (values.ndim - 1))


def find_step_fault(system: System, step: SgdStep) -> str | None:
    """Return which parameter a step did not change by rate times its gradient, or None."""
    # Plain arrays: an adapter's own array class could override comparisons.
    after = {name: np.asarray(values) for name, values in system.parameters().items()}
    reason = _find_parameter_difference(after, step.before)
    for name, all_rows in step.gradients.items() if reason is None and step.rate > 0 else ():
        rows = find_nonzero_rows(step.before[name] != after[name], all_rows)
        start = np.asarray(step.before[name][rows], np.float64)
        change = (start - np.asarray(after[name][rows], np.float64)) / step.rate
        slack = step.compute_rounding(name, rows) / step.rate
        slack = slack + _select_rows(step.slack.get(name, 0.0), rows)
        gradient = all_rows[rows]
        if not is_within_tolerance(change, gradient, slack, step.tolerance):
            error = compute_relative_error(change, np.asarray(gradient, np.float64))
            return f"one step changes {name} not by its gradient: relative error {error:.2g}"
    return reason


def compare(result: Result, answer: ReferenceAnswer, tolerance: Tolerance = FLOAT32) -> Verdict:
    """Compare a result with the reference by the rule of this module."""
    missing = sorted(set(answer.gradients) - set(result.gradients))
    if missing:
        return Verdict("failed", None, f"no gradient of {', '.join(missing)}")
    errors: list[float] = []
    reason, is_finite = None, True
    for name, ours, truth, slack in _match_arrays(result, answer):
        if ours.shape != truth.shape:
            return Verdict("failed", None, f"{name} has shape {ours.shape}, expected {truth.shape}")
        if name not in ("loss", "outputs"):
            rows = find_nonzero_rows(ours, truth)
            ours, truth, slack = ours[rows], truth[rows], _select_rows(slack, rows)
        errors.append(compute_relative_error(ours, truth))
        if reason is None and not is_within_tolerance(ours, truth, slack, tolerance):
            is_finite = bool(np.all(np.isfinite(ours)) and np.all(np.isfinite(truth)))
            by = f"deviates by {errors[-1]:.2g} of its largest entry"
            reason = f"{name} {by if is_finite else 'is not finite'}"
    finite = [error for error in errors if np.isfinite(error)]
    worst = max(finite) if len(finite) == len(errors) else None
    return Verdict("ok" if reason is None else "failed", worst, reason, is_finite)


def is_all_zero(answer: ReferenceAnswer) -> bool:
    """Return whether the reference is all zeros (every ReLU of a tiny network can be off)."""
    return not any(np.any(array) for array in (answer.outputs, *answer.gradients.values()))


def find_nonzero_rows(*arrays: Any) -> Rows:
    """Return the rows that have a nonzero entry in any of the arrays.

    Other rows cannot deviate; in an embedding table they are nearly all rows.
    """
    plain = [np.asarray(array) for array in arrays]
    if any(array.ndim == 0 or array.size == 0 for array in plain):
        return EVERY
    is_nonzero = np.logical_or.reduce(
        [values.reshape(len(values), -1).any(axis=1) for values in plain]
    )
    return EVERY if is_nonzero.all() else np.flatnonzero(is_nonzero)


def _select_rows(slack: Array | float, rows: Rows) -> Array | float:
    return slack[rows] if isinstance(slack, np.ndarray) else slack


def is_within_tolerance(
    values: Array, truth: Array, slack: Array | float = 0.0, tolerance: Tolerance = FLOAT32
) -> bool:
    """Return whether an array passes the rule of this module; NaN and infinity never do."""
    if not np.all(np.isfinite(values)):
        return False
    if compute_relative_error(values, truth) <= tolerance.array:
        return True
    deviation = np.maximum(np.abs(values - truth) - slack, 0.0)
    if np.max(deviation) <= tolerance.array * np.max(np.abs(truth)):
        return True
    return _compute_rms(deviation) <= tolerance.array * _compute_rms(truth)


def compute_relative_error(values: Array, truth: Array) -> float:
    """Return the largest deviation, relative to the largest entry of the reference."""
    if truth.size == 0:
        return 0.0
    scale = float(np.max(np.abs(truth)))
    return float(np.max(np.abs(values - truth))) / max(scale, 1e-30)


def _match_arrays(
    result: Result, answer: ReferenceAnswer
) -> Iterator[tuple[str, Array, Array, Array | float]]:
    yield "loss", np.array([result.loss]), np.array([answer.loss]), 0.0
    yield "outputs", np.asarray(result.outputs), answer.outputs, 0.0
    for name, truth in answer.gradients.items():
        slack = answer.slack.get(name, 0.0)
        yield f"gradient of {name}", np.asarray(result.gradients[name]), truth, slack


def _find_loss_fault(change: float, answer: ReferenceAnswer, tolerance: Tolerance) -> str | None:
    assert answer.loss_after_step is not None
    expected = answer.loss_after_step - answer.loss
    allowed = CHANGE_TOLERANCE * abs(expected) + tolerance.noise * abs(answer.loss)
    if abs(change - expected) <= allowed:
        return None
    return f"one step changes the loss by {change:.3g}, expected {expected:.3g}"


def _find_outputs_fault(
    before: Array, after: Array, answer: ReferenceAnswer, tolerance: Tolerance
) -> str | None:
    assert answer.outputs_after_step is not None
    expected = answer.outputs_after_step - answer.outputs
    deviation = _compute_rms((after - answer.outputs_after_step) - (before - answer.outputs))
    noise = tolerance.noise * _compute_rms(answer.outputs) + NOISE_GROWTH * _compute_rms(
        before - answer.outputs
    )
    if deviation <= CHANGE_TOLERANCE * _compute_rms(expected) + noise:
        return None
    return (
        f"one step changes the outputs by {_compute_rms(expected):.3g} (root mean square) with an"
        f" error of {deviation:.3g}"
    )


def _compute_rms(array: Array) -> float:
    return float(np.sqrt(np.sum(np.square(array)) / max(array.size, 1)))
