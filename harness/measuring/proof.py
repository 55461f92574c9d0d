"""What a system has to prove before it is timed, one thing after the other; the first that fails
ends the trial as `wrong_result`.

1. It reads no clock (clock_readers). 2. Loss, outputs and gradients of a few instances are the
oracle's, and so is one step (check). 3. A whole mini-batch is the sum of its parts (whole). 4. Its
fingerprint of the timed mini-batches is that of other systems; where one differs, the oracle is
asked (records/agreement). 5. A step of a whole mini-batch is one by the gradients that were proved.
What it does in the timed passes is seen by the witness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from harness.contracts.system import System
from harness.measuring.answer import Answer
from harness.measuring.check import (
    FLOAT32,
    Step,
    Verdict,
    changed,
    check_answer,
    check_step,
    compare,
    run_once,
)
from harness.measuring.clock_readers import clock_fault
from harness.measuring.kinks import is_kinked
from harness.measuring.origin import origin_of_not_finite
from harness.measuring.whole import fingerprint_of, not_finite, parts_fault, step_of_whole_fault
from harness.records.fingerprint import Fingerprint, difference
from harness.trials.ids import n_lookups
from harness.trials.workload import Workload
from harness.values.precision import Tolerance

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
