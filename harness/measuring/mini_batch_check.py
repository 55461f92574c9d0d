"""What a system has to prove before it is timed, one thing after the other; the first that fails
ends the trial as `wrong_result`.

1. It reads no clock (clock_readers). 2. Loss, outputs and gradients of a few instances are the
oracle's, and so is one step (check). 3. A whole mini-batch is the sum of its parts (whole). 4. Its
fingerprint of the timed mini-batches is that of other systems; where one differs, the oracle is
asked (records/agreement). 5. A step of a whole mini-batch is one by the gradients that were proved.
What it does in the timed passes is seen by the witness.

Whole mini-batches, as they are timed: against their parts, and as a fingerprint.

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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from harness.contracts.model import Model, traced_functions
from harness.contracts.system import System
from harness.machine.remembered import remembered
from harness.measuring.reference_check import (
    FLOAT32,
    Answer,
    Step,
    Verdict,
    changed,
    check_answer,
    check_step,
    compare,
    origin_of_not_finite,
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
from harness.trials.workload import Workload, n_lookups
from harness.values.precision import EXACT, Tolerance, is_exact
from harness.vertex.program import VertexFunction

Ask = Callable[[Sequence[Any]], Answer]  # the oracle, of instances at the initial weights


@dataclass(frozen=True, slots=True)
class Claim:
    """What is to be proved of a system that is prepared for a workload.

    adapter: its module. instances: those that the oracle answers for. name: of the workload, as
    fingerprints have it. rate: of a step. is_first: whether this is the trial's first round; what
    parts and whole steps show (3, 5) no other round can change, and systems do not know theirs.
    tolerance: of the precision that the trial asks for; nothing that a system says changes it.
    """

    adapter: str
    workload: Workload
    instances: Sequence[Any]
    name: str
    mode: str
    rate: float
    is_first: bool
    tolerance: Tolerance = FLOAT32


class Proof(NamedTuple):
    """The verdict; the fingerprint where a few instances were right and all mini-batches finite."""

    verdict: Verdict
    fingerprint: Fingerprint | None = None


def prove(
    system: System, claim: Claim, answer: Answer, ask: Ask, others: Sequence[Fingerprint]
) -> Proof:
    """Go through the proof.

    answer: the oracle's for the claim's instances. others: fingerprints of the same workload by
    other systems.
    """
    fault = clock_fault(claim.adapter)
    if fault is not None:
        return Proof(Verdict("failed", None, fault))
    workload = claim.workload
    verdict = check_answer(system, claim.instances, answer, claim.tolerance)
    if not verdict.is_finite:
        origin = origin_of_not_finite(workload.model, workload.weights, claim.instances, claim.mode)
        verdict = replace(verdict, reason=f"{verdict.reason}; {origin}")
    if verdict.status == "failed":
        return Proof(verdict)
    fault = changed(system, workload.weights)
    if claim.is_first:
        fault = fault or parts_fault(
            system,
            workload.mini_batches[0],
            len(claim.instances),
            claim.tolerance,
            kinked=is_kinked(workload.model, workload.mini_batches[0]),
        )
    found = fingerprint_of(system, workload, claim.name)
    lost = _not_finite(found, claim)
    if lost is not None:  # such a fingerprint is not kept: JSON has no word for NaN
        return Proof(Verdict("failed", verdict.max_rel_err, fault or lost))
    fault = fault or changed(system, workload.weights)
    if fault is None:
        found, fault = _confirmed(system, claim, found, ask, others)
    if fault is None and claim.mode == "train":
        n_rows = n_lookups(workload.model, claim.instances)
        step = Step(workload.weights, answer.gradients, claim.rate, n_rows, answer.slack)
        step = replace(step, tolerance=claim.tolerance)
        fault = check_step(system, claim.instances, answer, step)
        if claim.is_first:
            fault = fault or step_of_whole_fault(system, workload, claim.rate, claim.tolerance)
    if fault is not None:
        return Proof(Verdict("failed", verdict.max_rel_err, fault), found)
    return Proof(verdict, found)


def _not_finite(found: Fingerprint, claim: Claim) -> str | None:
    """What of the timed mini-batches is no number, and where that comes from; None if all is."""
    lost = not_finite(found)
    if lost is None:
        return None
    workload = claim.workload
    of = workload.mini_batches[lost.mini_batch]
    origin = origin_of_not_finite(workload.model, workload.weights, of, claim.mode)
    return f"{lost.words}; {origin}"


def _confirmed(
    system: System,
    claim: Claim,
    found: Fingerprint,
    ask: Ask,
    others: Sequence[Fingerprint],
) -> tuple[Fingerprint, str | None]:
    """Ask the oracle about the first mini-batch on which another system differs, if one does."""
    differences = [difference(found, other) for other in others]
    at = [one.mini_batch for one in differences if one and one.mini_batch is not None]
    if not at:
        return found, None
    k = min(at)
    mini_batch = claim.workload.mini_batches[k]
    answer = ask(mini_batch)
    result = run_once(system, mini_batch, update=False).result()
    verdict = compare(result, answer, claim.tolerance)
    if verdict.status == "failed":
        reason = f"mini-batch {k} is not as other systems and the oracle have it: {verdict.reason}"
        return found, reason
    return found.model_copy(update={"proved": True}), None


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


# Of inputs that are rounded by 1e-6 of the largest about as large a part changes its sign. With
# fewer inputs than these none is to be expected that does, and gradients are compared as closely as
# all else.
N_INPUTS = 100_000


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


MODULES = ("time", "timeit")
# The stopwatch of PyTorch's CUDA events.
NAMES = ("elapsed_time", "enable_timing")
HARMLESS = ("time.sleep",)  # as an import from the module


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
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES and not node.level:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if name not in HARMLESS)
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in NAMES:
            yield node.arg
