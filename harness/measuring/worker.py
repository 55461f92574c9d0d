"""Worker process: measures one round of a trial in a block and writes its record.

    python -m dynbatch.harness.measuring.worker SPEC.json RECORD.json BLOCK DESCRIPTOR

The parent starts it through harness/measuring/processes/child.py and gives it turns through the
socket DESCRIPTOR (turns.py). The record has the name BLOCK, which all systems of the block share.

The first round of a trial proves that the system's results are correct. Later rounds of the same
code, data, machine and versions rely on it: they check the losses of their passes and a step.

Exit code 0 means that a record was written. REFUSED means that the configuration or the data is
wrong, or that the record cannot be written; one line on standard error and a file next to SPEC.json
have the reason. If the process ends in any other way, the parent writes the record.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dynbatch.harness.contracts.system import System, load_adapter
from dynbatch.harness.errors import BenchError, OutputError, ScheduleError, UnsupportedTrial
from dynbatch.harness.machine.facts import read_huge_pages
from dynbatch.harness.machine.noise import SlowdownWatch
from dynbatch.harness.machine.process import (
    freeze_new_objects,
    measure_peak_bytes,
    measure_resident_bytes,
    release_memory,
    reset_peak_memory,
)
from dynbatch.harness.measuring.checks.mini_batch_check import (
    find_whole_step_fault,
    prove,
    settle_contradiction,
)
from dynbatch.harness.measuring.checks.reference import Reference, ask_reference
from dynbatch.harness.measuring.checks.reference_check import Verdict, is_all_zero
from dynbatch.harness.measuring.checks.timed_check import (
    estimate_change,
    find_first_loss_fault,
    find_losses_fault,
    find_outside_fault,
    judge_unseen,
    judge_untimed_gap,
    sum_pass_losses,
)
from dynbatch.harness.measuring.clock import measure_empty_sample_s, time_call
from dynbatch.harness.measuring.passes import (
    Passes,
    TimedSamples,
    compute_mean_counters,
    compute_phase_medians,
    take_turns,
    warm_up,
)
from dynbatch.harness.measuring.processes.child import (
    LEFT_OUT,
    START,
    end_fork,
    is_out_of_memory,
    refuse,
)
from dynbatch.harness.measuring.surroundings import Surroundings, is_same_software, query_system
from dynbatch.harness.measuring.turns import Turns
from dynbatch.harness.records.record import (
    CheckVerdict,
    Measured,
    Record,
    build_record,
    compute_throughput,
    format_now,
    write_record,
)
from dynbatch.harness.records.stats import is_too_short
from dynbatch.harness.records.turns import are_mostly_disturbed
from dynbatch.harness.trials.sources import read_harness_versions
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import Workload, build_run_settings, load_workload
from dynbatch.harness.values.precision import TOLERANCES, is_exact


def main(arguments: Sequence[str]) -> int:
    """Measure the spec in the first file and write the record to the second."""
    spec_path, record_path, block, descriptor = arguments
    return write_measured(Path(spec_path), Path(record_path), block, Turns(int(descriptor)))


def write_measured(spec_path: Path, record_path: Path, block: str, turns: Turns) -> int:
    """Measure a spec in the turns of a block, and write its record; return the exit code.

    Running out of memory is a result. Other exceptions that are none of the harness's end the
    process.
    """
    spec = TrialSpec.from_dict(json.loads(spec_path.read_text(encoding="utf-8")))
    started_at = format_now()
    measured = Measured(block=block)
    versions: dict[str, str] = {}
    try:
        try:
            versions = measure(spec, measured, Surroundings(record_path, spec), turns)
        finally:
            end_fork()  # results of a fork are neither reported nor stored
    except UnsupportedTrial as error:
        measured.end("unsupported", str(error))
    except ScheduleError as error:
        measured.end("wrong_result", str(error))
    except BenchError as error:
        return refuse(spec_path, error)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        measured.end("oom", f"{type(error).__name__}: {error}")
    try:
        versions = read_harness_versions() | versions
        write_record(record_path, build_record(spec, measured, versions, started_at))
    except OutputError as error:
        return refuse(spec_path, error)
    return 0


def measure(
    spec: TrialSpec, measured: Measured, nearby: Surroundings, turns: Turns
) -> dict[str, str]:
    """Fill `measured` step by step, and return the versions of the system's software.

    Args:
        nearby: Records of the first round and of other systems.
        turns: When this system may run its timed passes.

    Raises:
        UnsupportedTrial: The system does not support the trial here.
    """
    with freeze_new_objects():
        workload = load_workload(spec)
        measured.inputs_sha256 = workload.inputs_sha256
        measured.n_mini_batches = len(workload.mini_batches)
        measured.n_instances = workload.n_instances
        adapter = load_adapter(spec.adapter)
        settings = build_run_settings(spec)
        adapter.options_of(settings)  # wrong options are reported before unsupported trials
        reason = adapter.skip(workload.model, settings)
    if reason is not None:
        raise UnsupportedTrial(reason)
    system = adapter(settings)
    first = nearby.find_proof(measured.inputs_sha256)
    release_memory()  # used by reading the data
    measured.baseline_memory_bytes = measure_resident_bytes()
    reference = Reference(spec, workload) if system.computes and first is None else None
    release_memory()  # used by the reference, unless its results came from the cache
    _prepare(workload, system, measured)
    if first is not None and not is_same_software(first, system):
        first, reference = None, Reference(spec, workload) if system.computes else None
    if first is not None and first.check is not None:
        measured.check = first.check.model_copy(update={"in_round": first.trial.round})
        measured.fingerprint = first.fingerprint
        measured.warnings = tuple({"unchecked_gradient"} & {*first.warnings})
    else:
        _check(spec, workload, system, reference, measured)
    del reference
    if measured.status == "ok":
        release_memory()  # used by the check; returned later, it would be faulted in in passes
        _time(spec, workload, system, measured, first, turns)
        turns.finish()
    if measured.status == "ok" and system.computes:
        _check_afterwards(spec, workload, system, measured, nearby, first)
    versions: dict[str, str] = query_system(system, "versions")
    return versions


def _prepare(workload: Workload, system: System, measured: Measured) -> None:
    prepare = partial(system.prepare, workload.model, workload.weights)
    _, measured.compile_s = time_call(prepare, system.synchronize)
    if system.learns:
        learn = partial(system.learn, workload.mini_batches[0])
        _, measured.learn_s = time_call(learn, system.synchronize)
    _compile(workload, system, measured)
    end_fork()
    measured.effective_options = list_effective_options(system)


def _check(
    spec: TrialSpec,
    workload: Workload,
    system: System,
    reference: Reference | None,
    measured: Measured,
) -> None:
    """Check a system's results; a system without arithmetic has no reference."""
    verdict = Verdict("skipped")
    if reference is not None:
        verdict, measured.fingerprint = prove(system, spec, workload, reference)
        measured.warnings = ("unchecked_gradient",) if is_all_zero(reference.answer) else ()
    end_fork()
    measured.check = CheckVerdict(status=verdict.status, max_rel_err=verdict.max_rel_err)
    if verdict.status == "failed":
        measured.end("wrong_result", verdict.reason or "the check failed")


def _compile(workload: Workload, system: System, measured: Measured) -> None:
    """Compile for the shapes of all mini-batches, which `prepare` does not know.

    This precedes the check, because compilations for the check's own shapes do not count.
    """
    for mini_batch in workload.mini_batches:
        _, seconds = time_call(partial(system.compile_for, mini_batch), system.synchronize)
        measured.compile_s = (measured.compile_s or 0.0) + seconds
    measured.n_compilations = query_system(system, "n_compilations")


def list_effective_options(system: System) -> dict[str, str]:
    """Return the system's effective options, how its process has started, and its environment."""
    options: dict[str, str] = query_system(system, "effective_options")
    process = {"start": START, "left out of the environment": LEFT_OUT}
    facts = {name: os.environ.get(key) for name, key in process.items()}
    facts["huge pages"] = read_huge_pages()
    return options | {name: text for name, text in facts.items() if text}


def _warm_up(
    spec: TrialSpec, workload: Workload, system: System, measured: Measured
) -> tuple[Passes, float]:
    """Warm a system up; return the runner of its passes, and the seconds of a warm pass."""
    passes = Passes(system)
    warmed = warm_up(passes, workload.mini_batches, spec.timing)
    end_fork()
    measured.n_warmup = warmed.n_passes
    for name, mean in compute_mean_counters(warmed.counters).items():
        setattr(measured, name, mean)
    return passes, warmed.last_s


def _time(
    spec: TrialSpec,
    workload: Workload,
    system: System,
    measured: Measured,
    first: Record | None,
    turns: Turns,
) -> None:
    n_at_first = query_system(system, "n_compilations")
    passes, warm_s = _warm_up(spec, workload, system, measured)
    reset_peak_memory()
    system.reset_peak_memory()
    n_before = query_system(system, "n_compilations")
    system.data_movement_fraction()  # discards the runs so far, which are not timed
    n_warm = len(passes.untimed_gap_s)
    measured.timer_overhead_s = measure_empty_sample_s(system.synchronize)
    watch = SlowdownWatch(spec.device)
    timed = take_turns(passes, workload.mini_batches, turns, spec.threads, warm_s)
    slowdown = watch.stop()
    for name in ("gpu_clocks_mhz", "gpu_limited_s", "gpu_others"):
        setattr(measured, name, getattr(slowdown, name))
    peak_bytes = query_system(system, "peak_memory_bytes")
    is_of_process = peak_bytes is None and spec.device == "cpu"
    measured.peak_memory_bytes = measure_peak_bytes() if is_of_process else peak_bytes
    n_at_last = query_system(system, "n_compilations") or 0
    if measured.n_compilations is not None:  # without those of the check
        measured.n_compilations += n_at_last - (n_at_first or 0)
    measured.data_movement_fraction = query_system(system, "data_movement_fraction")
    # A system may change its way of running during passes.
    measured.effective_options = list_effective_options(system)
    measured.passes_s = timed.sum_passes(len(workload.mini_batches))
    measured.turns = timed.turns
    measured.instances_per_s = compute_throughput(measured)
    measured.phases_s = compute_phase_medians(timed.phases_s, system.phases)
    signs = {
        "too_short": is_too_short(timed.runs_s, measured.timer_overhead_s),
        "throttled": slowdown.is_throttled,
        "gpu_shared": slowdown.is_gpu_shared,
        "disturbed": are_mostly_disturbed(timed.turns),
        "diverged": system.computes and not np.isfinite(system.last_loss()),
        "repeated_instances": workload.repeats_instances,
        "recompiled_while_timed": n_at_last > (n_before or 0),
        "reduced_precision": not is_exact(spec.precision),
    }
    measured.warnings += tuple(name for name, applies in signs.items() if applies)
    if system.computes:
        _judge(passes, n_warm, workload, measured, timed, first)


def _judge(
    passes: Passes,
    n_warm: int,
    workload: Workload,
    measured: Measured,
    timed: TimedSamples,
    first: Record | None,
) -> None:
    """Validate the losses and the untimed gaps of the passes.

    Args:
        first: Record of the first round, if it has proved the results of this one.
    """
    losses, untimed_gap_s = passes.summarize_runs(n_warm)
    fingerprint = measured.fingerprint
    assert fingerprint is not None  # else nothing is timed
    settings = passes.system.settings
    trains = settings.mode == "train"
    if trains:
        summed = sum_pass_losses(losses, len(workload.mini_batches))
        measured.fingerprint = fingerprint.model_copy(update={"pass_losses": summed})
    runs_s = timed.runs_s
    hidden, measured.untimed_gap_s = judge_untimed_gap(
        passes, workload.mini_batches, runs_s, untimed_gap_s
    )
    change = estimate_change(fingerprint, settings.learning_rate)
    skipped = find_losses_fault(losses, fingerprint.losses, trains=trains, change=change)
    fault = find_outside_fault(timed.inside_s, timed.outside_s) or skipped or hidden
    if first is not None:
        fault = fault or find_first_loss_fault(losses, fingerprint.losses)
    elif fault is None:
        fault, measured.unseen_slowdown = judge_unseen(passes, workload, runs_s)
    if fault is not None:
        measured.reject(fault)


def _check_afterwards(
    spec: TrialSpec,
    workload: Workload,
    system: System,
    measured: Measured,
    nearby: Surroundings,
    first: Record | None,
) -> None:
    """Check what the passes may not influence: a step, and contradictions with other systems.

    Args:
        first: Record of the first round, if it has proved the results; this round's step is then
            checked here.
    """
    fault, fingerprint = None, measured.fingerprint
    tolerance = TOLERANCES[spec.precision]
    if first is not None and spec.mode == "train" and np.isfinite(system.last_loss()):
        rate = build_run_settings(spec).learning_rate
        fault = find_whole_step_fault(system, workload, rate, tolerance)
    elif fingerprint is not None and first is None:
        others = nearby.find_fingerprints(fingerprint.workload)
        ask = partial(ask_reference, spec, workload)
        measured.fingerprint, fault = settle_contradiction(
            fingerprint, workload, others, ask, tolerance
        )
    if fault is not None:
        measured.reject(fault)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
