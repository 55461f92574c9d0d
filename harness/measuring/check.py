"""No time without agreement: a system's answers against the float64 oracle's.

Rule, per array (loss, outputs, gradient of each parameter): the largest deviation is at most
TOLERANCE of the array's largest entry; or else the root mean square of the deviation is at most
RMS_TOLERANCE of the array's own. Where the input of a relu is within float32 rounding of zero,
oracle and system may take different sides, which changes some entries of a gradient by more than
rounding: from the deviation of each entry is taken first what the oracle's own gradient changes
there when its relus open a little further or less (Answer.slack), which is nothing unless an input
is that near. All is relative, so batching order, size and scale of an array are not blamed (cf. the
rule of torch._dynamo.utils.same, which takes the distance from float64 as its measure, too).

The update is checked by the loss and the outputs after one step: their changes must agree with the
oracle's. That no parameter is left behind is proved with small models, where each one's step shows
(tests/systems/test_systems_agree.py).

The oracle's mini-batch is small. That a system computes whole mini-batches as it does small ones
(libraries take other kernels for many rows) is checked by their loss, which must be the sum of the
losses of their parts, each as large as the oracle's mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from harness.contracts.model import Model
from harness.contracts.system import Result, System
from harness.measuring.answer import Answer, Array
from harness.measuring.clock import NullClock

TOLERANCE = 1e-4
RMS_TOLERANCE = 5e-4
CHANGE_TOLERANCE = 0.05  # of the change of the loss or the outputs by one step
NOISE = 2e-6  # of the loss or the outputs: float32 sums of hundreds of terms
NOISE_GROWTH = 4.0  # deviation of the outputs' change, over that of the outputs before the step
MAX_CHECK_VERTICES = 1024  # keeps the oracle's one-vertex-at-a-time answer near a second


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a check; `reason` says what deviates first."""

    status: Literal["ok", "failed", "skipped"]
    max_rel_err: float | None = None
    reason: str | None = None


def check_system(system: System, instances: Sequence[Any], answer: Answer) -> Verdict:
    """Run the check mini-batch, and where the answer has gradients one step, and compare."""
    clock = NullClock()
    system.load(instances)
    system.run(clock, update=False)
    found = system.result()
    verdict = compare(found, answer)
    if verdict.status != "ok" or answer.loss_after_step is None:
        return verdict
    before = np.array(found.outputs)  # a copy: the next run may write where it lies
    system.run(clock, update=True)
    system.load(instances)
    system.run(clock, update=False)
    after = system.result()
    reason = _loss_fault(after.loss - found.loss, answer)
    reason = reason or _outputs_fault(before, np.asarray(after.outputs), answer)
    return verdict if reason is None else Verdict("failed", verdict.max_rel_err, reason)


def whole_fault(system: System, instances: Sequence[Any], n_at_once: int) -> str | None:
    """What is wrong with a whole mini-batch, compared with its parts; None if nothing is."""
    clock = NullClock()

    def loss_of(part: Sequence[Any]) -> float:
        system.load(part)
        system.run(clock, update=False)
        return system.last_loss()

    parts = [instances[k : k + n_at_once] for k in range(0, len(instances), n_at_once)]
    if len(parts) < 2:
        return None
    whole, expected = loss_of(instances), sum(map(loss_of, parts))
    if abs(whole - expected) <= TOLERANCE * abs(expected):
        return None
    return (
        f"the loss of {len(instances)} instances is {whole:.6g}, that of their parts of"
        f" {n_at_once} adds up to {expected:.6g}"
    )


def compare(found: Result, answer: Answer) -> Verdict:
    """Judge one result by the rule of this module."""
    missing = sorted(set(answer.gradients) - set(found.gradients))
    if missing:
        return Verdict("failed", None, f"no gradient of {', '.join(missing)}")
    errors: list[float] = []
    reason = None
    for name, ours, truth, slack in _pairs(found, answer):
        if ours.shape != truth.shape:
            return Verdict("failed", None, f"{name} has shape {ours.shape}, expected {truth.shape}")
        errors.append(relative_error(ours, truth))
        if reason is None and not agrees(ours, truth, slack):
            reason = f"{name} deviates by {errors[-1]:.2g} of its largest entry"
    finite = [error for error in errors if np.isfinite(error)]
    worst = max(finite) if len(finite) == len(errors) else None
    return Verdict("ok" if reason is None else "failed", worst, reason)


def proves_nothing(answer: Answer) -> bool:
    """Return whether the truth is all zeros (every relu of a tiny network can be off)."""
    return not any(np.any(array) for array in (answer.outputs, *answer.gradients.values()))


def agrees(found: Array, truth: Array, slack: Array | float = 0.0) -> bool:
    """Return whether an array passes the rule of this module; NaN and infinity never do."""
    if not np.all(np.isfinite(found)):
        return False
    if relative_error(found, truth) <= TOLERANCE:
        return True
    deviation = np.maximum(np.abs(found - truth) - slack, 0.0)
    if np.max(deviation) <= TOLERANCE * np.max(np.abs(truth)):
        return True
    return _rms(deviation) <= RMS_TOLERANCE * _rms(truth)


def relative_error(found: Array, truth: Array) -> float:
    """Largest deviation, relative to the largest entry of the truth."""
    if truth.size == 0:
        return 0.0
    scale = float(np.max(np.abs(truth)))
    return float(np.max(np.abs(found - truth))) / max(scale, 1e-30)


def _pairs(found: Result, answer: Answer) -> Iterator[tuple[str, Array, Array, Array | float]]:
    yield "loss", np.array([found.loss]), np.array([answer.loss]), 0.0
    yield "outputs", np.asarray(found.outputs), answer.outputs, 0.0
    for name, truth in answer.gradients.items():
        slack = answer.slack.get(name, 0.0)
        yield f"gradient of {name}", np.asarray(found.gradients[name]), truth, slack


def _loss_fault(change: float, answer: Answer) -> str | None:
    assert answer.loss_after_step is not None
    expected = answer.loss_after_step - answer.loss
    allowed = CHANGE_TOLERANCE * abs(expected) + NOISE * abs(answer.loss)
    if abs(change - expected) <= allowed:
        return None
    return f"one step changes the loss by {change:.3g}, expected {expected:.3g}"


def _outputs_fault(before: Array, after: Array, answer: Answer) -> str | None:
    assert answer.outputs_after_step is not None
    expected = answer.outputs_after_step - answer.outputs
    deviation = _rms((after - answer.outputs_after_step) - (before - answer.outputs))
    noise = NOISE * _rms(answer.outputs) + NOISE_GROWTH * _rms(before - answer.outputs)
    if deviation <= CHANGE_TOLERANCE * _rms(expected) + noise:
        return None
    return (
        f"one step changes the outputs by {_rms(expected):.3g} (root mean square), and by"
        f" {deviation:.3g} otherwise than expected"
    )


def _rms(array: Array) -> float:
    return float(np.sqrt(np.sum(np.square(array)) / max(array.size, 1)))


def choose_check_instances(model: Model, instances: Sequence[Any], n_wanted: int) -> Sequence[Any]:
    """Take the first few instances, fewer where the model's graphs of them are large, two at least.

    Raises ConfigError where the model does not take such instances.
    """
    n, vertices = 0, 0
    for instance in instances[:n_wanted]:
        vertices += model.mini_batch([instance]).graph.n_vertices
        if n >= 2 and vertices > MAX_CHECK_VERTICES:
            break
        n += 1
    return instances[:n]
