"""Proof of a system before it is timed: the first check that fails ends it as `wrong_result`.

1. It reads no clock. 2. Loss, outputs and gradients of a few instances are the oracle's, and so is
one step (reference_check). 3. A whole mini-batch is the sum of its parts. 4. Its fingerprint of the
timed mini-batches is that of other systems; where one differs, the oracle is asked
(records/cross_check). 5. A step of a whole mini-batch is one by the gradients that were proved.
What it does in the timed passes is judged afterwards (timed_check).

The oracle answers for a few instances only. Libraries take other kernels for many rows, and a
system may be wrong there: so loss, outputs and every gradient of a whole mini-batch must be those
of its parts, each as large as the oracle's mini-batch; and of all timed mini-batches a fingerprint
is kept, by which systems are compared with each other.
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
from harness.measuring.reference_check import (
    FLOAT32,
    Reference,
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

Others = Callable[[str], Sequence[Fingerprint]]  # by other systems, of a workload by its name

# Numbers of outputs and gradients of a pass that are sketched: DyNet copies them one by one, in a
# second. What does not fit is left out, but for the first mini-batch.
MAX_NUMBERS = 2**24
# Of inputs that are rounded by 1e-6 of the largest about as large a part changes its sign. With
# fewer inputs than these none is to be expected that does, and gradients are compared as closely as
# all else.
N_INPUTS = 100_000
# What reads a time, by module and by name: only the harness measures, and no system knows when.
MODULES = ("time", "timeit", "datetime", "asyncio")
# PyTorch's CUDA events, clocks of processes, NumPy's "now".
NAMES = ("elapsed_time", "enable_timing", "cpu_times", "getrusage", "datetime64")
HARMLESS = ("time.sleep",)  # as an import from the module


def prove(
    system: System, spec: TrialSpec, workload: Workload, reference: Reference, others: Others
) -> tuple[Verdict, Fingerprint | None]:
    """Go through the proof of a system that is prepared for a workload.

    What parts and whole steps show (3, 5) no other round of the trial can change, and systems do
    not know theirs: only the first is asked. The tolerance is that of the precision that the trial
    asks for; nothing that a system says changes it.

    Returns:
        The verdict; the fingerprint, if a few instances were right and all mini-batches finite.
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
    if lost is not None:  # such a fingerprint is not kept: JSON has no word for NaN
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
    """Ask the oracle about the first mini-batch on which another system differs, if one does."""
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


def fingerprint_of(
    system: System, workload: Workload, name: str, *, kinked: bool = False
) -> Fingerprint:
    """Run every timed mini-batch once, without an update, and keep a few numbers of each.

    name: what the workload is called (see workload_sha256). kinked: see Fingerprint.
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
        kinked=kinked,
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


def is_kinked(model: Model, instances: Sequence[Any]) -> bool:
    """Whether rounding moves gradients of a mini-batch by more than it moves its outputs."""
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
    """Say that a system reads the time, or None.

    Looked at are its module and all that it imports of the same package and ours, but the harness.
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
    """Everything in a file that may read a time, by the name under which it is found."""
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
