"""The parent's side: one fresh process per trial and round, under a time and a memory limit."""

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
_ANSWER_S = 30.0  # a Python starts in a fraction of a second, from a slow disk in some
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
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
    *("BENCH_CPU_NAME", "BENCH_CPU_FEATURES", "NPY_DISABLE_CPU_FEATURES"),
)


def _nothing(_: str) -> None:
    """Hear nothing."""


def run_worker(
    spec: TrialSpec,
    path: Path,
    log: Path,
    *,
    records_bad_data: bool = False,
    hear: Hear = _nothing,
) -> Record:
    """Measure a trial's round in a fresh process and return the record it left at `path`.

    log: takes what the worker prints; kept only when the trial failed.
    records_bad_data: whether data that is wrong leaves a record, too.
    hear: takes what the worker says of what it does now.

    Raises BenchError, with the worker's own line, when the configuration is wrong, DataError when
    data is and leaves no record, OutputError when the record or the log cannot be written. Whatever
    it raises, an interruption too, leaves no process, no log and nothing half-written.
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
        with suppress(OSError):  # the folder may be what is wrong
            drop_leftovers(path)
        _drop(log)
        raise
    if record.status != "crash":
        _drop(log)
    return record


def run_tracer(spec: TrialSpec, path: Path, log: Path) -> None:
    """Write the timeline of a trial's first mini-batch to `path`, in a process of its own.

    log: takes what it prints; kept only when it fails. Raises BenchError in one line, with nothing
    written, where there is no timeline or it cannot be written.
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
    """Have a module make the file at `path` of a trial; how it ended, and what it refused."""
    with temporary_folder() as folder:
        spec_path = folder / "spec.json"
        spec_path.write_text(json.dumps(spec.to_dict()), encoding="utf-8")
        child = (module, str(spec_path), str(path.resolve()))
        environment = worker_environment(spec)
        ending = supervise(interpreter_of(spec), child, environment, spec.limits, log, hear)
        return ending, read_refusal(spec_path, ending.returncode)


def _drop(log: Path) -> None:
    with suppress(OSError):  # its folder may be gone
        log.unlink()


def _measured(
    spec: TrialSpec, path: Path, log: Path, started_at: str, records_bad_data: bool, hear: Hear
) -> Record:
    before = _stamp(path)
    ending, refusal = _run(WORKER, spec, path, log, hear)
    drop_leftovers(path)  # of a worker that was ended while it wrote
    if refusal is not None and not (isinstance(refusal, DataError) and records_bad_data):
        raise refusal
    # A worker may fail after its record, while its framework shuts down: the record stands.
    record = find_record(path) if _stamp(path) != before else None
    if record is None:
        status, reason = _death(spec, ending, refusal, last_line(log))
        record = _write_unmeasured(spec, path, status, reason, started_at)
    return record


def record_unmeasured(spec: TrialSpec, path: Path, status: Status, reason: str) -> Record:
    """Leave a record at `path` of a trial's round that is not even begun, and return it."""
    return _write_unmeasured(spec, path, status, reason, now_text())


def _write_unmeasured(
    spec: TrialSpec, path: Path, status: Status, reason: str, started_at: str
) -> Record:
    inputs = OwnData().inputs_sha256(spec)  # otherwise the record would seem to be of other data
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


def _death(
    spec: TrialSpec, ending: Ending, refusal: BenchError | None, last_line: str
) -> tuple[Status, str]:
    """Why there is no record of the worker's, as a status and in one line."""
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
    """The interpreter that a trial's worker is started with."""
    return str(Path(spec.python).expanduser()) if spec.python else sys.executable


def why_not_startable(spec: TrialSpec) -> str | None:
    """Say why a trial's own interpreter cannot be started, or None."""
    if spec.python is None or shutil.which(interpreter_of(spec)):
        return None
    return no_python(spec, "no such program")


def why_no_python(spec: TrialSpec, last_words: str) -> str | None:
    """Say that a trial's own interpreter, whose worker died, is none, or None.

    Only a Python does a sum in Python; asked once a worker has died, since it costs a start.
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
    """Say that a trial's own interpreter does not start the worker."""
    return (
        f"system.python={spec.python} does not start the benchmark's worker ({why}); name the"
        " python of an environment that has the benchmark and the system's framework"
    )


def what_it_lacks(spec: TrialSpec, last_line: str) -> str | None:
    """Say what another interpreter lacks, if that is how its worker died, or None.

    A framework that is missing is told by the worker itself; this is a package of the benchmark.
    """
    found = _MISSING.match(last_line) if spec.python is not None else None
    if found is None:
        return None
    return (
        f"system.python={spec.python} lacks {found.group(1)}, which the benchmark needs there, too;"
        f" install both: {spec.python} -m pip install -e '.[EXTRA]', EXTRA as the framework"
    )
