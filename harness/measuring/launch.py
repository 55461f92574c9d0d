"""Start of worker processes: a fresh one per trial and round, with time and memory limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness.errors import BenchError, DataError
from harness.machine.files import drop_leftovers
from harness.machine.folders import temporary_folder
from harness.measuring.child import LEFT_OUT, tells_of_memory
from harness.measuring.supervise import Ending, death_reason, last_line, read_refusal, supervise
from harness.records.files import writing
from harness.records.record import (
    Measured,
    Record,
    Status,
    build_record,
    find_record,
    now_text,
    write_record,
)
from harness.records.reuse import OwnData
from harness.trials.sources import WORKER, harness_versions
from harness.trials.spec import TrialSpec
from harness.values.places import ROOT

Hear = Callable[[str], None]

TRACER = "harness.measuring.tracer"
_ANSWER_S = 30.0  # Python starts in a fraction of a second, or in several from a slow disk
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    *("NPROC", "PJRT_NPROC"),  # XLA's client for CPUs, under JAX
)
# Make the C library reuse freed memory. By default it returns blocks of 32 MiB and more, so that
# the next mini-batch's logits fault in page by page (log-softmax of 1,344 x 10,000 under JAX:
# 160 instead of 115 ms). Set for all systems; frameworks with their own pools lose nothing.
_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
    "MALLOC_ARENA_MAX": "1",  # a separate arena for autograd's thread would return memory
}
# Variables that select kernels for another CPU: OPENBLAS_CORETYPE=Haswell halves the speed of
# OpenBLAS on a CPU with AVX-512 and does not affect other libraries.
_KERNEL_VARIABLES = (
    *("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_VERBOSE"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR"),
    *("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"),
    *("TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_PLATFORMS", "NVIDIA_TF32_OVERRIDE"),
    *("BENCH_CPU_NAME", "BENCH_CPU_FEATURES", "NPY_DISABLE_CPU_FEATURES"),
)


def _nothing(_: str) -> None:
    """Ignore a progress line."""


def run_worker(
    spec: TrialSpec,
    path: Path,
    log: Path,
    *,
    records_bad_data: bool = False,
    hear: Hear = _nothing,
) -> Record:
    """Measure one round of a trial in a fresh process; return its record, written to `path`.

    No exception, including an interruption, leaves a process, a log or a partial file.

    Args:
        log: File for the worker's output; deleted unless the trial crashed.
        records_bad_data: Whether invalid data yields a record instead of an error.
        hear: Receives the worker's progress lines.

    Raises:
        BenchError: The configuration is wrong; has the worker's message.
        DataError: The data is invalid and is not recorded.
        OutputError: The record or the log cannot be written.
    """
    started_at = now_text()
    drop_leftovers(path)
    not_startable = why_not_startable(spec)
    if not_startable is not None:
        return record_unmeasured(spec, path, "unsupported", not_startable)
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    try:
        record = _measured(spec, path, log, started_at, records_bad_data, hear)
    except BaseException:
        with suppress(OSError):  # the directory itself may have caused the error
            drop_leftovers(path)
        _drop(log)
        raise
    if record.status != "crash":
        _drop(log)
    return record


def run_tracer(spec: TrialSpec, path: Path, log: Path) -> None:
    """Write the timeline of a trial's first mini-batch to `path`, using a separate process.

    Args:
        log: File for the process's output; deleted unless the process fails.

    Raises:
        BenchError: The timeline cannot be made or written; nothing is written then.
    """
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
    try:
        ending, refusal = _run(TRACER, spec, path, log)
    finally:
        drop_leftovers(path)
    if refusal is not None:
        _drop(log)
        raise refusal
    if ending.returncode != 0:
        reason = ending.reason or death_reason(ending.returncode or 0, last_line(log))
        raise BenchError(f"trace={path} was not written: {reason}; {log} tells more")
    _drop(log)


def _run(
    module: str, spec: TrialSpec, path: Path, log: Path, hear: Hear = _nothing
) -> tuple[Ending, BenchError | None]:
    """Run a module that writes a trial's file to `path`; return its ending and its refusal."""
    with temporary_folder() as folder:
        spec_path = folder / "spec.json"
        spec_path.write_text(json.dumps(spec.to_dict()), encoding="utf-8")
        child = (module, str(spec_path), str(path.resolve()))
        environment = worker_environment(spec)
        ending = supervise(interpreter_of(spec), child, environment, spec.limits, log, hear)
        return ending, read_refusal(spec_path, ending.returncode)


def _drop(log: Path) -> None:
    with suppress(OSError):  # its directory may have been deleted
        log.unlink()


def _measured(
    spec: TrialSpec, path: Path, log: Path, started_at: str, records_bad_data: bool, hear: Hear
) -> Record:
    before = _stamp(path)
    ending, refusal = _run(WORKER, spec, path, log, hear)
    drop_leftovers(path)  # from a worker that was killed while writing
    if refusal is not None and not (isinstance(refusal, DataError) and records_bad_data):
        raise refusal
    # A worker may crash after writing its record, while its framework shuts down; then it counts.
    record = find_record(path) if _stamp(path) != before else None
    if record is None:
        status, reason = _death(spec, ending, refusal, last_line(log))
        record = _write_unmeasured(spec, path, status, reason, started_at)
    return record


def record_unmeasured(spec: TrialSpec, path: Path, status: Status, reason: str) -> Record:
    """Write and return the record of a round that is not started."""
    return _write_unmeasured(spec, path, status, reason, now_text())


def _write_unmeasured(
    spec: TrialSpec, path: Path, status: Status, reason: str, started_at: str
) -> Record:
    inputs = OwnData().inputs_sha256(spec)  # else the record would seem to be of other data
    measured = Measured(status=status, reason=reason, inputs_sha256=inputs)
    record = build_record(spec, measured, harness_versions(), started_at)
    write_record(path, record)
    return record


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def worker_environment(spec: TrialSpec) -> dict[str, str]:
    """Return a worker's environment: the trial's number of threads and a fixed hash seed.

    Variables that select a library's kernels are removed, so that it selects those for this CPU.
    """
    threads = dict.fromkeys(_THREAD_VARIABLES, str(spec.threads))
    # A checkout need not be installed; an installed package is found after the standard library.
    root = None if str(ROOT) in site.getsitepackages() else str(ROOT)
    search = os.pathsep.join(entry for entry in (root, os.environ.get("PYTHONPATH")) if entry)
    # Safe path: a directory named "datasets" in the working directory must not hide ours.
    python = {"PYTHONHASHSEED": "0", "PYTHONPATH": search, "PYTHONSAFEPATH": "1"}
    # CUDA must number GPUs as the driver does, which reports their names.
    gpus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    fixed = python | {"TF_NUM_INTEROP_THREADS": "1"} | gpus | _ALLOCATOR
    left_out = sorted(set(_KERNEL_VARIABLES) & set(os.environ))
    given = {k: v for k, v in os.environ.items() if k not in left_out}
    return given | threads | fixed | {LEFT_OUT: " ".join(left_out)}


def _death(
    spec: TrialSpec, ending: Ending, refusal: BenchError | None, last_line: str
) -> tuple[Status, str]:
    """Return the status and the reason of a worker that left no record."""
    if ending.returncode is None:
        if spec.python is not None and ending.is_own_fault:
            return "unsupported", no_python(spec, str(ending.reason))
        return ending.status or "unsupported", f"the worker cannot be started: {ending.reason}"
    lacks = what_it_lacks(spec, last_line)
    if lacks is None and ending.status is None and refusal is None:
        lacks = why_no_python(spec, death_reason(ending.returncode, last_line))
    if lacks is not None:
        return "unsupported", lacks
    if refusal is not None:
        return "bad_data", str(refusal)
    reason = ending.reason or death_reason(ending.returncode, last_line)
    return ending.status or ("oom" if tells_of_memory(last_line) else "crash"), reason


def interpreter_of(spec: TrialSpec) -> str:
    """Return the interpreter of a trial's worker."""
    return str(Path(spec.python).expanduser()) if spec.python else sys.executable


def why_not_startable(spec: TrialSpec) -> str | None:
    """Return the reason why a trial's configured interpreter cannot be started, or None."""
    if spec.python is None or shutil.which(interpreter_of(spec)):
        return None
    return no_python(spec, "no such program")


def why_no_python(spec: TrialSpec, last_words: str) -> str | None:
    """Return the reason if a trial's configured interpreter is not Python, or None.

    The interpreter is tested with a multiplication, and only after its worker has died, because the
    test starts a process.
    """
    if spec.python is None:
        return None
    command = [interpreter_of(spec), "-c", "print(6 * 7)"]
    answer = b""
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_S,
            check=False,
        ).stdout
    is_python = answer.split() == [b"42"]
    return None if is_python else no_python(spec, f"it is no Python: {last_words}")


def no_python(spec: TrialSpec, why: str) -> str:
    """Return the message for a configured interpreter that does not start the worker."""
    return (
        f"system.python={spec.python} does not start the benchmark's worker ({why}); name the"
        " python of an environment that has the benchmark and the system's framework"
    )


def what_it_lacks(spec: TrialSpec, last_line: str) -> str | None:
    """Return the message for a package missing from a configured interpreter, or None.

    This covers packages that the benchmark needs; the worker itself reports a missing framework.
    """
    found = _MISSING.match(last_line) if spec.python is not None else None
    if found is None:
        return None
    return (
        f"system.python={spec.python} lacks {found.group(1)}, which the benchmark needs there, too;"
        f" install both: {spec.python} -m pip install -e '.[EXTRA]', EXTRA as the framework"
    )
