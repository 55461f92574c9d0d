"""The parent's side: one fresh process per trial and round, under a time and a memory limit."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BenchError, DataError, OutputError
from harness.machine.regular_files import drop_leftovers
from harness.measuring.child_process import (
    LEFT_OUT,
    POLL_S,
    death_reason,
    memory_excess,
    timeout_reason,
)
from harness.measuring.findings import Findings, record_of
from harness.measuring.interpreter import (
    interpreter_of,
    no_python,
    what_it_lacks,
    why_not_startable,
)
from harness.records.record import Record, Status, find_record, now_text, write_record
from harness.records.whole_files import writing
from harness.trials.sources import WORKER, harness_versions
from harness.trials.spec import DATA_EXIT, OUTPUT_EXIT, USAGE_EXIT, TrialSpec
from harness.values.places import ROOT

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    *("NPROC", "PJRT_NPROC"),  # XLA's client for CPUs, under JAX
)
# The C library keeps what is freed: it would give blocks of 32 MiB and more back, so that the next
# mini-batch's logits fault in page by page (log-softmax of 1 344 x 10 000 under JAX: 160 against
# 115 ms). For all systems alike; frameworks that keep their own pools lose nothing.
_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
    "MALLOC_ARENA_MAX": "1",  # the arena of autograd's thread would give memory back
}
# Force kernels for another CPU than this one: OPENBLAS_CORETYPE=Haswell halves the speed of a CPU
# with AVX-512 for what multiplies with OpenBLAS, and leaves the rest as it is.
_KERNEL_VARIABLES = (
    *("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_VERBOSE"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR"),
    *("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"),
    *("TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_PLATFORMS", "NVIDIA_TF32_OVERRIDE"),
    *("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NPY_DISABLE_CPU_FEATURES"),
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended; `limit` names the one that the parent ended it for."""

    returncode: int
    limit: Status | None
    reason: str | None


def run_worker(spec: TrialSpec, path: Path, log: Path, *, records_bad_data: bool = False) -> Record:
    """Measure a trial's round in a fresh process and return the record it left at `path`.

    log: takes what the worker prints; kept only when the trial failed.
    records_bad_data: whether data that is wrong leaves a record, too.

    Raises BenchError, with the worker's own line, when the configuration is wrong, DataError when
    data is and leaves no record, OutputError when the record or the log cannot be written.
    """
    started_at = now_text()
    drop_leftovers(path)
    not_startable = why_not_startable(spec)
    if not_startable is not None:
        return _write_unsupported(spec, path, not_startable, started_at)
    before = _stamp(path)
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        spec_path = Path(folder) / "spec.json"
        spec_path.write_text(json.dumps(spec.to_dict()), encoding="utf-8")
        command = [interpreter_of(spec), "-m", WORKER, str(spec_path), str(path.resolve())]
        try:
            ending = _supervise(command, spec, log)
        except OSError as error:  # a file that is no program
            _drop(log)
            return _write_unsupported(spec, path, no_python(spec, str(error.strerror)), started_at)
    last_line = _last_line(log)
    if ending.returncode == OUTPUT_EXIT:
        _drop(log)
        raise OutputError(last_line or f"{path} cannot be written; make room, and run it again")
    wrong_data = ending.returncode == DATA_EXIT
    if ending.returncode == USAGE_EXIT or (wrong_data and not records_bad_data):
        _drop(log)
        raise (DataError if wrong_data else BenchError)(last_line)
    # A worker may fail after its record, while its framework shuts down: the record stands.
    record = find_record(path) if _stamp(path) != before else None
    if record is None:
        record = _record_of_death(spec, ending, last_line, started_at)
        write_record(path, record)
    if record.status != "crash":
        _drop(log)
    return record


def _write_unsupported(spec: TrialSpec, path: Path, reason: str, started_at: str) -> Record:
    findings = Findings(status="unsupported", reason=reason)
    record = record_of(spec, findings, harness_versions(), started_at)
    write_record(path, record)
    return record


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def worker_environment(spec: TrialSpec) -> dict[str, str]:
    """The environment of a worker: the trial's thread count everywhere, a fixed hash seed.

    What tells a library which kernels to take is left out, so that each takes those for this CPU.
    """
    threads = dict.fromkeys(_THREAD_VARIABLES, str(spec.threads))
    # A checkout need not be installed; an installation is found behind the standard library.
    root = None if str(ROOT) in site.getsitepackages() else str(ROOT)
    search = os.pathsep.join(entry for entry in (root, os.environ.get("PYTHONPATH")) if entry)
    # Safe path: a folder named "datasets" where one works must not hide ours.
    python = {"PYTHONHASHSEED": "0", "PYTHONPATH": search, "PYTHONSAFEPATH": "1"}
    # So that the number of a GPU means the same to CUDA as to the driver, which names it.
    gpus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    fixed = python | {"TF_NUM_INTEROP_THREADS": "1"} | gpus | _ALLOCATOR
    left_out = sorted(set(_KERNEL_VARIABLES) & set(os.environ))
    given = {k: v for k, v in os.environ.items() if k not in left_out}
    return given | threads | fixed | {LEFT_OUT: " ".join(left_out)}


def _supervise(command: list[str], spec: TrialSpec, log: Path) -> Ending:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=worker_environment(spec),
            start_new_session=True,  # so that a limit ends the worker's children, too
        )
        try:
            limit, reason = _watch(process, spec)
        finally:
            _end_group(process)
    return Ending(process.returncode, limit, reason)


def _watch(process: subprocess.Popen[bytes], spec: TrialSpec) -> tuple[Status | None, str | None]:
    """Wait for the worker to end, or for the first limit that it passes."""
    deadline = time.monotonic() + spec.limits.time_s
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=min(POLL_S, max(0.0, deadline - time.monotonic())))
            return None, None
        excess = memory_excess(process.pid, spec.limits)
        if excess is not None:
            return "oom", excess
        if time.monotonic() > deadline:
            return "timeout", timeout_reason(spec.limits)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # Also after a worker's own end: what it started must not run beside the next trial.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _record_of_death(spec: TrialSpec, ending: Ending, last_line: str, started_at: str) -> Record:
    lacks = what_it_lacks(spec, last_line)
    if lacks is None and spec.python is not None and ending.limit is None and not last_line:
        lacks = no_python(spec, f"ended with exit code {ending.returncode} without a word")
    if lacks is not None:
        findings = Findings(status="unsupported", reason=lacks)
    elif ending.returncode == DATA_EXIT:
        findings = Findings(status="bad_data", reason=last_line)
    else:
        reason = ending.reason or death_reason(ending.returncode, last_line)
        findings = Findings(status=ending.limit or "crash", reason=reason)
    return record_of(spec, findings, harness_versions(), started_at)


def _drop(log: Path) -> None:
    with suppress(OSError):  # its folder may be gone
        log.unlink()


def _last_line(log: Path) -> str:
    """What it said last; nothing where its log is gone."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    filled = [" ".join(line.split()) for line in lines if line.strip()]
    return filled[-1][:500] if filled else ""
