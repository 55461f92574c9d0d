"""Verification of a system before it is timed; the first failed check yields `wrong_result`.

1. The system reads no clock.
2. Loss, outputs and gradients of a few instances match the reference, and so does one step
   (reference_check).
3. A whole mini-batch matches the sum of its parts.
4. A step on a whole mini-batch matches the verified gradients.

The timed passes are validated afterwards (timed_check), and the system's fingerprint of the timed
mini-batches is compared with those of other systems; the reference resolves a difference.

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
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.contracts.system import Counters, Result, System
from dynbatch.harness.machine.caches import cache_on_disk
from dynbatch.harness.measuring.checks.reference import (
    Reference,
    ReferenceAnswer,
    find_not_finite_origin,
)
from dynbatch.harness.measuring.checks.reference_check import (
    FLOAT32,
    SgdStep,
    Verdict,
    check_answer,
    check_step,
    find_changed_parameter,
    find_step_fault,
    run_once,
)
from dynbatch.harness.records.fingerprint import (
    Fingerprint,
    Sketch,
    choose_sketch_tolerance,
    compute_relative_difference,
    find_difference,
    round_numbers,
    select_sketches,
    sketch_result,
    sum_sketches,
)
from dynbatch.harness.trials.sources import find_imported_files
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import Workload, build_run_settings, count_lookups
from dynbatch.harness.values.paths import is_part_of
from dynbatch.harness.values.precision import EXACT, TOLERANCES, Tolerance, is_exact

# Limit of outputs and gradients to sketch in a pass: DyNet copies them one by one, in a second.
# Mini-batches beyond it are not sketched, except the first one.
MAX_NUMBERS = 2**24
# Rounding ReLU inputs by 1e-6 of the largest changes the sign of about the same fraction of them.
# With fewer inputs than this, no change of sign is expected.
N_INPUTS = 100_000
# Modules and functions that read the time: a system must not be able to detect timed runs.
CLOCKS = (
    *("time", "timeit", "datetime", "asyncio", "cProfile", "os.times", "tensorflow.timestamp"),
    *("torch.utils.benchmark", "torch.profiler.profile", "torch.autograd.profiler.profile"),
    *("dynbatch.harness.measuring", "dynbatch.harness.machine.noise"),
)
# Names in any module or object: events on a GPU, clocks of processes, and "now" of arrays.
NAMES = (
    *("elapsed_time", "get_elapsed_time", "enable_timing", "do_bench"),
    *("cpu_times", "getrusage", "datetime64", "Timestamp"),
)
HARMLESS = ("time.sleep",)  # allowed if imported from its module


def prove(
    system: System, spec: TrialSpec, workload: Workload, reference: Reference
) -> tuple[Verdict, Fingerprint | None]:
    """Verify a system that is prepared for a workload.

    Checks 3 and 4 run in the first round only: their results do not depend on the round, and a
    system cannot know its round. The trial's requested precision alone determines the tolerance.

    Args:
        reference: The reference's results for a few instances.

    Returns:
        The verdict, and the fingerprint if check 2 passed and all mini-batches are finite.
    """
    fault = find_clock_fault(spec.adapter)
    if fault is not None:
        return Verdict("failed", None, fault), None
    tolerance, rate = TOLERANCES[spec.precision], build_run_settings(spec).learning_rate
    instances, answer, weights = reference.instances, reference.answer, workload.weights
    verdict = check_answer(system, instances, answer, tolerance)
    if not verdict.is_finite:
        origin = find_not_finite_origin(workload.model, weights, instances, spec.mode)
        verdict = replace(verdict, reason=f"{verdict.reason}; {origin}")
    if verdict.status == "failed":
        return verdict, None
    first, is_first = workload.mini_batches[0], spec.round == 0
    fault = find_changed_parameter(system, weights)
    name = hash_workload(workload, spec.mode, rate, spec.precision)
    fingerprint = compute_fingerprint(system, workload, name)
    lost = find_not_finite(fingerprint)
    if lost is not None:  # this fingerprint cannot be stored: JSON has no NaN
        words, k = lost
        lost_in = workload.mini_batches[k]
        origin = find_not_finite_origin(workload.model, weights, lost_in, spec.mode)
        reason = fault or f"{words}; {origin}"
        return Verdict("failed", verdict.max_rel_err, reason), None
    if is_first and fault is None:
        fault = find_parts_fault(system, first, len(instances), fingerprint, tolerance)
    fault = fault or find_changed_parameter(system, weights)
    if fault is None and spec.mode == "train":
        n_rows = count_lookups(workload.model, instances)
        step = SgdStep(weights, answer.gradients, rate, n_rows, answer.slack, tolerance)
        fault = check_step(system, instances, answer, step)
        if is_first:
            fault = fault or find_whole_step_fault(system, workload, rate, tolerance)
    if fault is not None:
        verdict = Verdict("failed", verdict.max_rel_err, fault)
    return verdict, fingerprint


def settle_contradiction(
    fingerprint: Fingerprint,
    workload: Workload,
    others: Sequence[Fingerprint],
    ask: Callable[[Sequence[Any]], ReferenceAnswer],
    tolerance: Tolerance,
) -> tuple[Fingerprint, str | None]:
    """Compare the first mini-batch on which another system differs, if any, with the reference.

    Systems of a block have their records only when their turns have ended, so this follows them.

    Args:
        others: Other systems' fingerprints of the workload.
        ask: Returns the reference's results for instances, at the initial weights.

    Returns:
        The fingerprint, marked as proved if the reference confirms it, and the difference or None.
    """
    differences = [find_difference(fingerprint, other) for other in others]
    at = [
        deviation.mini_batch
        for deviation in differences
        if deviation and deviation.mini_batch is not None
    ]
    if not at:
        return fingerprint, None
    k = min(at)
    answer = ask(workload.mini_batches[k])
    right = sketch_result(Result(answer.loss, answer.outputs, answer.gradients, Counters()))
    own = select_sketches(fingerprint, k)
    kinked, n_vertices = fingerprint.kinked, fingerprint.n_vertices
    for name, sketch in own.items():
        error = compute_relative_difference(sketch, right[name])
        allowed = choose_sketch_tolerance(
            name, tolerance.array, kinked=kinked, n_vertices=n_vertices
        )
        if not error <= allowed:
            reason = f"mini-batch {k} differs from other systems and the reference"
            return fingerprint, f"{reason}: {name} deviates by {error:.2g}"
    return fingerprint.model_copy(update={"proved": True}), None


def find_parts_fault(
    system: System,
    instances: Sequence[Any],
    n_at_once: int,
    fingerprint: Fingerprint,
    tolerance: Tolerance = FLOAT32,
) -> str | None:
    """Return how a whole mini-batch differs from the sum of its parts, or None.

    The mini-batch is compared with parts of an intermediate size, and the first of these with parts
    of the smallest size. This finds errors that depend on the size and reads few gradients.

    Args:
        n_at_once: Number of instances in the smallest parts.
        fingerprint: Fingerprint of mini-batches, of which these instances are the first.
    """
    sketches: Mapping[str, Sketch] = select_sketches(fingerprint, 0)
    n_parts = -(-len(instances) // n_at_once)
    between = n_at_once * math.isqrt(n_parts)
    for whole, size in ((instances, between), (instances[:between], n_at_once)):
        parts = [whole[k : k + size] for k in range(0, len(whole), size)]
        if len(parts) < 2:
            break
        n = fingerprint.n_vertices * len(whole) // len(instances)
        sketched = list(_sketch_parts(system, parts))
        sums = sum_sketches(sketched)
        for name, (norm, *products) in sketches.items():
            allowed = choose_sketch_tolerance(
                name, tolerance.array, kinked=fingerprint.kinked, n_vertices=n
            )
            deviation = max(abs(a - b) for a, b in zip(products, sums[name], strict=True))
            if not deviation <= allowed * norm:
                return (
                    f"{name} of {len(whole)} instances deviates by"
                    f" {deviation / max(norm, 1e-30):.2g} from the sum of parts of {size}"
                )
        sketches = sketched[0]  # of the first part, the next whole
    return None


def _sketch_parts(system: System, parts: Sequence[Sequence[Any]]) -> Iterator[Mapping[str, Sketch]]:
    first_row = 0
    for part in parts:
        result = run_once(system, part, update=False).result()
        yield sketch_result(result, first_row)
        first_row += len(result.outputs)


def compute_fingerprint(system: System, workload: Workload, name: str) -> Fingerprint:
    """Run every timed mini-batch once, without an update, and sketch its results.

    Args:
        name: Name of the workload (see hash_workload).
    """
    first = workload.mini_batches[0]
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
            for array, values in sketch_result(result).items():
                sketches.setdefault(array, []).append(round_numbers(values))
    return Fingerprint(
        workload=name,
        losses=round_numbers(losses),
        sketches={array: tuple(values) for array, values in sketches.items() if array != "loss"},
        kinked=is_kinked(workload.model, first),
        n_vertices=workload.model.mini_batch(first).graph.n_vertices,
    )


def find_not_finite(fingerprint: Fingerprint) -> tuple[str, int] | None:
    """Return the first value that is not finite, in words, and its mini-batch; None without one."""
    for k, loss in enumerate(fingerprint.losses):
        if not np.isfinite(loss):
            return f"the loss of mini-batch {k} is {loss}", k
    for name, sketches in fingerprint.sketches.items():
        for k, sketch in enumerate(sketches):
            if not np.all(np.isfinite(sketch)):
                return f"{name} of mini-batch {k} is not finite", k
    return None


def hash_workload(
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


def find_whole_step_fault(
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
    n_rows = count_lookups(workload.model, instances)
    step = SgdStep(before, gradients, rate, n_rows, tolerance=tolerance)
    fault = find_step_fault(system, step)
    return None if fault is None else f"with {len(instances)} instances, {fault}"


def is_kinked(model: Model, instances: Sequence[Any]) -> bool:
    """Return whether rounding changes gradients of a mini-batch more than its outputs.

    This is assumed from N_INPUTS inputs of relus on.
    """
    functions = trace_functions(model)
    widths = {
        name: sum(math.prod(node.shape) for node in function.nodes if node.op == "relu")
        for name, function in functions.items()
    }
    if not any(widths.values()):
        return False
    mini_batch = model.mini_batch(instances)
    counts = np.bincount(mini_batch.graph.types, minlength=len(model.vertex_types) + 1)[1:]
    n_inputs = sum(
        int(n) * widths[name] for n, name in zip(counts, model.vertex_types, strict=False)
    )
    return n_inputs + len(mini_batch.outputs) * widths["output"] >= N_INPUTS


def find_clock_fault(adapter: str) -> str | None:
    """Return the reason if a system reads the time, or None.

    The check covers its module and the modules that this imports from its own package and this
    project, except the harness and the datasets.
    """
    for name, path in sorted(find_imported_files([adapter]).items()):
        if not is_part_of(name, ("harness", "datasets")):
            reads = _find_clock_reads(path, "")
            if reads:
                return f"{name} reads a clock ({reads[0]}); only the harness may measure time"
    return None


@cache_on_disk
def _find_clock_reads(content: bytes, _: str) -> list[str]:
    return list(find_clock_reads(content))


def find_clock_reads(source: str | bytes) -> Iterator[str]:
    """Yield the names in a Python source text that may read the time.

    Names that are bound otherwise than by an import (`getattr`, `importlib`) are not resolved: the
    check is for mistakes of honest authors.
    """
    nodes = list(ast.walk(ast.parse(source)))
    bound: dict[str, str] = {}  # full names by the names that imports bind
    for node in nodes:
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
            bound |= {a.asname: a.name for a in node.names if a.asname}
            bound |= {package: package for package in (name.partition(".")[0] for name in named)}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            bound |= {a.asname or a.name: n for a, n in zip(node.names, named, strict=True)}
        else:
            continue
        yield from filter(_is_clock, named)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            name = f"{bound.get(first, '')}.{rest}"
            if _is_clock(name):
                yield name.strip(".")
        elif isinstance(node, ast.keyword) and node.arg in NAMES:
            yield node.arg


def _is_clock(name: str) -> bool:
    is_below = any(f"{name}.".startswith(f"{clock}.") for clock in CLOCKS)
    return name not in HARMLESS and (is_below or name.rpartition(".")[2] in NAMES)
