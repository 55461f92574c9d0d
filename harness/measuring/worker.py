"""Worker process: measures one round of a trial and writes its record.

    python -m harness.measuring.worker SPEC.json RECORD.json

The parent starts it through harness/measuring/child.py. Exit code 0 means that a record was
written. REFUSED means that the configuration or the data is wrong, or that the record cannot be
written; one line on standard error and a file next to SPEC.json have the reason. If the process
ends in any other way, the parent writes the record.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from pydantic import ConfigDict, TypeAdapter, ValidationError

from harness.contracts.system import System, load_adapter
from harness.errors import BenchError, OutputError, ScheduleError, UnsupportedTrial
from harness.machine.facts import read_sm_clock_mhz
from harness.machine.noise import Disturbance
from harness.machine.process import (
    freeze_new_objects,
    measure_peak_bytes,
    measure_resident_bytes,
    release_memory,
    reset_peak_memory,
)
from harness.measuring.child import LEFT_OUT, end_fork, is_out_of_memory, refuse, report_progress
from harness.measuring.clock import CoreWatch, make_stopwatch, measure_empty_sample_s, time_call
from harness.measuring.mini_batch_check import Others, prove
from harness.measuring.passes import (
    Passes,
    TimedSamples,
    compute_mean_counters,
    compute_phase_medians,
    compute_throughput,
    time_passes,
    warm_up,
)
from harness.measuring.reference import Reference
from harness.measuring.reference_check import Verdict, is_all_zero
from harness.measuring.timed_check import settle_untimed_gap_s, sum_pass_losses, validate_passes
from harness.records.cross_check import find_other_fingerprints
from harness.records.record import (
    CheckVerdict,
    Measured,
    build_record,
    build_record_path,
    format_now,
    write_record,
)
from harness.records.stats import find_sample_warnings
from harness.trials.sources import read_harness_versions
from harness.trials.spec import TrialSpec
from harness.trials.workload import Workload, build_run_settings, load_workload
from harness.values.precision import is_exact


def main(arguments: Sequence[str]) -> int:
    """Measure the spec in the first file and write the record to the second."""
    spec_path, record_path = (Path(argument) for argument in arguments)
    spec = TrialSpec.from_dict(json.loads(spec_path.read_text(encoding="utf-8")))
    started_at = format_now()
    measured = Measured()
    try:
        versions = measure(spec, measured, make_fingerprint_lookup(record_path, spec))
    except UnsupportedTrial as error:
        versions = read_harness_versions()
        measured.end("unsupported", str(error))
    except ScheduleError as error:
        versions = read_harness_versions()
        measured.end("wrong_result", str(error))
    except BenchError as error:
        return refuse(spec_path, error)
    try:
        write_record(record_path, build_record(spec, measured, versions, started_at))
    except OutputError as error:
        return refuse(spec_path, error)
    return 0


def measure(spec: TrialSpec, measured: Measured, others: Others) -> dict[str, str]:
    """Fill `measured` step by step; return the versions of the measured software.

    Running out of memory is a result. Any other exception of the system ends the process.

    Args:
        others: Returns other systems' fingerprints of a workload by its name.

    Raises:
        UnsupportedTrial: The system does not support the trial here.
        ConfigError: The configuration is wrong.
        DataError: The data is invalid.
        ScheduleError: A policy returned an invalid schedule.
    """
    try:
        return _measure(spec, measured, others)
    except BenchError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        measured.end("oom", f"{type(error).__name__}: {error}")
        return read_harness_versions()
    finally:
        end_fork()  # results of a fork are neither reported nor stored


def _measure(spec: TrialSpec, measured: Measured, others: Others) -> dict[str, str]:
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
    _check_and_time(spec, workload, system, measured, others)
    versions: dict[str, str] = query_system(system, "versions")
    return read_harness_versions() | versions


def _check_and_time(
    spec: TrialSpec, workload: Workload, system: System, measured: Measured, others: Others
) -> None:
    reference = Reference(spec, workload) if system.computes else None
    release_memory()  # used by the reference, unless its results came from the cache
    measured.baseline_memory_bytes = measure_resident_bytes()
    prepare = partial(system.prepare, workload.model, workload.weights)
    _, measured.compile_s = time_call(prepare, system.synchronize)
    if system.learns:
        learn = partial(system.learn, workload.mini_batches[0])
        _, measured.learn_s = time_call(learn, system.synchronize)
    if system.chooses:
        stopwatch = make_stopwatch(system.synchronize)
        choose = partial(system.choose, workload.mini_batches, stopwatch, report_progress)
        measured.policy_choice, measured.policy_search_s = time_call(choose, system.synchronize)
    _compile(workload, system, measured)
    end_fork()
    measured.effective_options = list_effective_options(system)
    verdict = Verdict("skipped")
    if reference is not None:
        verdict, measured.fingerprint = prove(system, spec, workload, reference, others)
        measured.warnings = ("unchecked_gradient",) if is_all_zero(reference.answer) else ()
    del reference
    end_fork()
    measured.check = CheckVerdict(status=verdict.status, max_rel_err=verdict.max_rel_err)
    if verdict.status == "failed":
        measured.end("wrong_result", verdict.reason or "the check failed")
        return
    release_memory()  # used by the check; returned later, it would be faulted in again in passes
    passes = Passes(system)
    warmed = warm_up(passes, workload.mini_batches, spec.timing)
    end_fork()
    measured.n_warmup = warmed.n_passes
    for name, mean in compute_mean_counters(warmed.counters).items():
        setattr(measured, name, mean)
    _time(spec, workload, passes, measured)


def make_fingerprint_lookup(record_path: Path, spec: TrialSpec) -> Others:
    """Return the lookup of other trials' fingerprints in the directory of this trial's record."""
    raw = record_path.resolve().parent.parent
    if record_path != build_record_path(raw.parent, spec.trial_id, spec.round):
        return lambda _: ()  # the record is written outside of a results directory
    return lambda name: find_other_fingerprints(raw, spec.trial_id, name)


def _compile(workload: Workload, system: System, measured: Measured) -> None:
    """Compile for the shapes of all mini-batches, which `prepare` does not know.

    This precedes the check, because compilations for the check's own shapes do not count.
    """
    for mini_batch in workload.mini_batches:
        _, seconds = time_call(partial(system.compile_for, mini_batch), system.synchronize)
        measured.compile_s = (measured.compile_s or 0.0) + seconds
    measured.n_compilations = query_system(system, "n_compilations")


def list_effective_options(system: System) -> dict[str, str]:
    """Return the system's effective options and the variables removed from its environment."""
    left_out = os.environ.get(LEFT_OUT, "")
    options: dict[str, str] = query_system(system, "effective_options")
    return options | ({"left out of the environment": left_out} if left_out else {})


def _time(spec: TrialSpec, workload: Workload, passes: Passes, measured: Measured) -> None:
    system = passes.system
    reset_peak_memory()
    system.reset_peak_memory()
    n_before = query_system(system, "n_compilations")
    system.data_movement_fraction()  # discards the runs so far, which are not timed
    n_warm = len(passes.untimed_gap_s)
    nothing_s = measured.timer_overhead_s = measure_empty_sample_s(system.synchronize)
    clock_mhz = read_sm_clock_mhz() if spec.device == "cuda" else None
    watch, disturbance = CoreWatch(), Disturbance(spec.device)
    timed_runs = time_passes(passes, workload.mini_batches, spec.timing, between=watch.look)
    disturbances, measured.core_rate_per_s = disturbance.list_warnings(), watch.rate_per_s
    if clock_mhz is not None:
        measured.gpu_clocks_mhz = (clock_mhz, read_sm_clock_mhz())
    peak_bytes = query_system(system, "peak_memory_bytes")
    measured.peak_memory_bytes = measure_peak_bytes() if peak_bytes is None else peak_bytes
    n_in_passes = (query_system(system, "n_compilations") or 0) - (n_before or 0)
    if measured.n_compilations is not None:
        measured.n_compilations += n_in_passes
    measured.data_movement_fraction = query_system(system, "data_movement_fraction")
    measured.effective_options = list_effective_options(
        system
    )  # a system may change its way of running during passes
    _keep_times(timed_runs, workload, system, measured)
    diverged = system.computes and not np.isfinite(system.last_loss())
    measured.warnings = (
        *find_sample_warnings(measured.samples_s, len(workload.mini_batches), nothing_s),
        *measured.warnings,
        *disturbances,
        *(("diverged",) if diverged else ()),
        *(("repeated_instances",) if workload.repeats_instances else ()),
        *(("recompiled_while_timed",) if n_in_passes else ()),
        *(() if is_exact(spec.precision) else ("reduced_precision",)),
    )
    if system.computes:
        _judge(passes, n_warm, workload, measured)


def _keep_times(runs: TimedSamples, workload: Workload, system: System, measured: Measured) -> None:
    seconds = measured.samples_s = tuple(sample.total_s for sample in runs.whole)
    measured.phase_samples_s = tuple(sample.total_s for sample in runs.marked)
    n_mini_batches = len(workload.mini_batches)
    measured.instances_per_s = compute_throughput(seconds, n_mini_batches, workload.n_instances)
    measured.phases_s = compute_phase_medians(runs.marked, system.phases)


def _judge(passes: Passes, n_warm: int, workload: Workload, measured: Measured) -> None:
    """Validate the losses and the untimed gaps of the passes.

    Args:
        n_warm: Number of warm-up runs.
    """
    losses, untimed_gap_s = passes.summarize_runs(n_warm)
    fingerprint = measured.fingerprint
    assert fingerprint is not None  # else nothing is timed
    if passes.system.settings.mode == "train":
        summed = sum_pass_losses(losses, len(workload.mini_batches))
        measured.fingerprint = fingerprint.model_copy(update={"pass_losses": summed})
    samples_s = measured.samples_s
    untimed_gap_s = settle_untimed_gap_s(passes, workload.mini_batches, samples_s, untimed_gap_s)
    measured.untimed_gap_s = untimed_gap_s
    fault, measured.unseen_slowdown = validate_passes(
        passes, workload, fingerprint, samples_s, untimed_gap_s
    )
    if fault is not None:
        measured.discard_times()
        measured.end("wrong_result", fault)


def query_system(system: System, method: str) -> Any:
    """Return the validated value of a method by which a system reports facts about itself.

    Raises:
        TypeError: The contract does not allow the value; the message names the method, the value
            and the allowed ones, which an error at the time of the record could not.
    """
    value = getattr(system, method)()
    kind, allowed = _REPORTED[method]
    try:
        return kind.validate_python(value.item() if isinstance(value, np.generic) else value)
    except ValidationError:
        shown = " ".join(repr(value).split())
        shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
        module = type(system).__module__
        line = f"{module}: {method}() returned {shown}: expected {allowed}"
        raise TypeError(line) from None


_MAX_SHOWN = 100  # characters of the returned value in messages
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_TEXTS = TypeAdapter(dict[str, str], config=_STRICT), "a dict of strings by name"
_COUNT = (
    TypeAdapter(Annotated[int, Ge(0)] | None, config=_STRICT),
    "a whole number of at least 0, or None",
)
_SHARE = (
    TypeAdapter(Annotated[float, Ge(0), Le(1)] | None, config=_STRICT),
    "a number from 0 to 1, or None",
)
_REPORTED: dict[str, tuple[TypeAdapter[Any], str]] = {
    "versions": _TEXTS,
    "effective_options": _TEXTS,
    "n_compilations": _COUNT,
    "peak_memory_bytes": _COUNT,
    "data_movement_fraction": _SHARE,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
