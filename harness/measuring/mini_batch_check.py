"""Verification of a system before it is timed; the first failed check yields `wrong_result`.

1. The system reads no clock.
2. Loss, outputs and gradients of a few instances match the reference, and so does one step
   (reference_check).
3. A whole mini-batch matches the sum of its parts.
4. Its fingerprint of the timed mini-batches matches those of other systems; a difference is
   resolved by the reference (records/cross_check).
5. A step on a whole mini-batch matches the verified gradients.

The timed passes are validated afterwards (timed_check).

The reference computes a few instances only. Libraries select other kernels for many rows, and a
system may be wrong there. Therefore loss, outputs and every gradient of a whole mini-batch must
match those of its parts, each as large as the reference's mini-batch. A fingerprint of all timed
mini-batches is stored, by which systems are compared with each other.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from harness.contracts.model import Model, traced_functions
from harness.contracts.system import System
from harness.machine.caches import remembered
from harness.measuring.reference import Reference
from harness.measuring.reference_check import (
    FLOAT32,
    Step,
    Verdict,
    changed,
    check_answer,
    check_step,
    compare,
    run_once,
    step_fault,
)
from harness.records.fingerprint import (
    Fingerprint,
    Sketch,
    added,
    difference,
    kept,
    sketch_tolerance,
    sketches_of,
)
from harness.trials.sources import imported_files
from harness.trials.spec import TrialSpec
from harness.trials.workload import Workload, n_lookups, run_settings
from harness.values.precision import EXACT, TOLERANCES, Tolerance, is_exact
from harness.vertex.program import VertexFunction

Others = Callable[[str], Sequence[Fingerprint]]  # other systems' fingerprints by workload name

# Limit of outputs and gradients to sketch in a pass: DyNet copies them one by one, in a second.
# Mini-batches beyond it are not sketched, except the first one.
MAX_NUMBERS = 2**24
# Rounding ReLU inputs by 1e-6 of the largest changes the sign of about the same fraction of them.
# With fewer inputs than this, no change of sign is expected, and gradients are compared as closely
# as outputs.
N_INPUTS = 100_000
# Modules and names that read the time: a system must not be able to detect timed runs.
MODULES = ("time", "timeit", "datetime", "asyncio")
# PyTorch's CUDA events, process clocks and NumPy's "now".
NAMES = ("elapsed_time", "enable_timing", "cpu_times", "getrusage", "datetime64")
HARMLESS = ("time.sleep",)  # allowed if imported from its module


def prove(
    system: System, spec: TrialSpec, workload: Workload, reference: Reference, others: Others
) -> tuple[Verdict, Fingerprint | None]:
    """Verify a system that is prepared for a workload.

    Checks 3 and 5 run in the first round only: their results do not depend on the round, and a
    system cannot know its round. The trial's requested precision alone determines the tolerance.

    Args:
        reference: The reference's results for a few instances.
        others: Returns other systems' fingerprints of a workload.

    Returns:
        The verdict, and the fingerprint if check 2 passed and all mini-batches are finite.
    """
    fault = clock_fault(spec.adapter)
    if fault is not None:
        return Verdict("failed", None, fault), None
    tolerance, rate = TOLERANCES[spec.precision], run_settings(spec).learning_rate
    instances, answer, weights = reference.instances, reference.answer, workload.weights
    verdict = check_answer(system, instances, answer, tolerance)
    if not verdict.is_finite:
        origin = reference.origin_of_not_finite(instances)
        verdict = replace(verdict, reason=f"{verdict.reason}; {origin}")
    if verdict.status == "failed":
        return verdict, None
    first, is_first = workload.mini_batches[0], spec.round == 0
    kinked = is_kinked(workload.model, first)
    fault = changed(system, weights)
    if is_first:
        fault = fault or parts_fault(system, first, len(instances), tolerance, kinked=kinked)
    name = workload_sha256(workload, spec.mode, rate, spec.precision)
    found = fingerprint_of(system, workload, name, kinked=kinked)
    lost = not_finite(found)
    if lost is not None:  # this fingerprint cannot be stored: JSON has no NaN
        origin = reference.origin_of_not_finite(workload.mini_batches[lost.mini_batch])
        reason = fault or f"{lost.words}; {origin}"
        return Verdict("failed", verdict.max_rel_err, reason), None
    fault = fault or changed(system, weights)
    if fault is None:
        found, fault = _confirmed(system, workload, found, reference, others(name), tolerance)
    if fault is None and spec.mode == "train":
        n_rows = n_lookups(workload.model, instances)
        step = Step(weights, answer.gradients, rate, n_rows, answer.slack, tolerance)
        fault = check_step(system, instances, answer, step)
        if is_first:
            fault = fault or step_of_whole_fault(system, workload, rate, tolerance)
    if fault is not None:
        verdict = Verdict("failed", verdict.max_rel_err, fault)
    return verdict, found


def _confirmed(
    system: System,
    workload: Workload,
    found: Fingerprint,
    reference: Reference,
    others: Sequence[Fingerprint],
    tolerance: Tolerance,
) -> tuple[Fingerprint, str | None]:
    """Compare the first mini-batch on which another system differs, if any, with the reference.

    Returns:
        The fingerprint, marked as proved if it was compared, and the difference or None.
    """
    differences = [difference(found, other) for other in others]
    at = [one.mini_batch for one in differences if one and one.mini_batch is not None]
    if not at:
        return found, None
    k = min(at)
    mini_batch = workload.mini_batches[k]
    answer = reference.ask(mini_batch)
    result = run_once(system, mini_batch, update=False).result()
    verdict = compare(result, answer, tolerance)
    if verdict.status == "failed":
        reason = f"mini-batch {k} is not as other systems and the oracle have it: {verdict.reason}"
        return found, reason
    return found.model_copy(update={"proved": True}), None


def parts_fault(
    system: System,
    instances: Sequence[Any],
    n_at_once: int,
    tolerance: Tolerance = FLOAT32,
    *,
    kinked: bool = False,
) -> str | None:
    """Return how a whole mini-batch differs from the sum of its parts, or None.

    The mini-batch is compared with parts of an intermediate size, and the first of these with parts
    of the smallest size. This finds errors that depend on the size and reads few gradients.

    Args:
        n_at_once: Number of instances in the smallest parts.
        kinked: Whether the model's derivatives jump; see Fingerprint.
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


def fingerprint_of(
    system: System, workload: Workload, name: str, *, kinked: bool = False
) -> Fingerprint:
    """Run every timed mini-batch once, without an update, and sketch its results.

    Args:
        name: Name of the workload (see workload_sha256).
        kinked: See Fingerprint.
    """
    losses: list[float] = []
    sketches: dict[str, list[Sketch]] = {}
    n_numbers, fits = 0, True
    for k, mini_batch in enumerate(workload.mini_batches):
        run_once(system, mini_batch, update=False)
        losses.append(system.last_loss())
        fits = fits and n_numbers + n_numbers // max(k, 1) <= MAX_NUMBERS  # with one of mean size
        if fits:
            result = system.result()
            n_numbers += result.outputs.size + sum(g.size for g in result.gradients.values())
            for array, found in sketches_of(result).items():
                sketches.setdefault(array, []).append(kept(found))
    return Fingerprint(
        workload=name,
        losses=kept(losses),
        sketches={array: tuple(found) for array, found in sketches.items() if array != "loss"},
        kinked=kinked,
    )


class NotFinite(NamedTuple):
    """Description of a value that is not finite, and the index of its mini-batch."""

    words: str
    mini_batch: int


def not_finite(fingerprint: Fingerprint) -> NotFinite | None:
    """Return the first value of a fingerprint that is not finite, or None."""
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
    """Hash everything that determines a fingerprint.

    These are mini-batches, model, initial weights, mode and learning rate. A reduced precision
    makes a separate workload, because its results match those of no exact system.
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
    """Return how a step on a timed mini-batch differs from the system's gradients, or None.

    The gradients have been verified before, and the weights may have been updated before.
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


def is_kinked(model: Model, instances: Sequence[Any]) -> bool:
    """Return whether rounding changes gradients of a mini-batch more than its outputs.

    This is assumed from N_INPUTS inputs of relus on.
    """
    functions = traced_functions(model)
    widths = {name: _n_relus(function) for name, function in functions.items()}
    if not any(widths.values()):
        return False
    mini_batch = model.mini_batch(instances)
    counts = np.bincount(mini_batch.graph.types, minlength=len(model.vertex_types) + 1)[1:]
    n_inputs = sum(
        int(n) * widths[name] for n, name in zip(counts, model.vertex_types, strict=False)
    )
    return n_inputs + len(mini_batch.outputs) * widths["output"] >= N_INPUTS


def _n_relus(function: VertexFunction) -> int:
    return sum(math.prod(node.shape) for node in function.nodes if node.op == "relu")


def clock_fault(adapter: str) -> str | None:
    """Return the reason if a system reads the time, or None.

    The check covers its module and the modules that this imports from its own package and this
    project, except the harness and the datasets.
    """
    for name, path in sorted(imported_files([adapter]).items()):
        if name.partition(".")[0] not in ("harness", "datasets"):
            found = _readings(path, "")
            if found:
                return f"{name} reads the time ({found[0]}), which only the harness may"
    return None


@remembered
def _readings(content: bytes, _: str) -> list[str]:
    return list(readings(content.decode()))


def readings(source: str) -> Iterator[str]:
    """Yield the names in a Python source text that may read the time."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = (alias.name for alias in node.names)
            full = (f"{node.module}.{n}" for n in names if node.module in MODULES or n in NAMES)
            yield from (name for name in full if name not in HARMLESS)
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node.attr
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "os.times":
            yield "os.times"
        elif isinstance(node, ast.keyword) and node.arg in NAMES:
            yield node.arg
