"""Worker processes of rounds: their environment, their start, and the records of how they ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dynbatch.harness.contracts.extras import PROJECT
from dynbatch.harness.errors import BenchError, DataError, OutputError
from dynbatch.harness.machine.files import drop_leftovers, read_stamp
from dynbatch.harness.measuring.processes.child import IMPORTED, LEFT_OUT, START, has_memory_error
from dynbatch.harness.measuring.processes.child_output import read_last_line, read_refusal
from dynbatch.harness.measuring.processes.fork_server import ForkedProcess, ForkServers, ServerKey
from dynbatch.harness.measuring.processes.process_tree import WORKER_MARK
from dynbatch.harness.measuring.processes.supervise import ChildProcess, Ending, explain_death
from dynbatch.harness.records.record import (
    Measured,
    Record,
    Status,
    build_record,
    find_record,
    format_now,
    write_record,
)
from dynbatch.harness.records.reuse import OwnData
from dynbatch.harness.trials.sources import WORKER, SourceHashes, read_harness_versions
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import IMPORT_ROOT, ROOT, expand_home, is_checkout

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
# Huge pages, from glibc 2.35 on. The engine, PyTorch, DyNet and C++ by hand are 1.2 to 1.6 times as
# fast with them on Tree-LSTM training and the parser (one core of a virtual machine on an Intel
# Xeon, ten processes that take turns).
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
# Variables of libraries: they select kernels for another CPU (OPENBLAS_CORETYPE=Haswell halves the
# speed of OpenBLAS on a CPU with AVX-512), turn compilation off, change precision, bind threads, or
# make a library check or print more than usual. TF_CLI_... and TF_VAR_... are Terraform's.
_LIBRARY_VARIABLE = re.compile(
    r"(ATEN|CUBLAS|CUDNN|DNNL|GOMP|GOTO|JAX|KERAS|KMP|MALLOC|MKL|NPY|NUMBA|NUMEXPR|OMP|ONEDNN"
    r"|OPENBLAS|PJRT|PYTORCH|TORCH\w*|TRITON|XLA)_\w+"
    r"|TF_(AUTO|CPP|CPU|CUBLAS|CUDNN|DETERMINISTIC|DISABLE|ENABLE|FORCE|FUNCTION|GPU|MKL|NUM|ONEDNN"
    r"|USE|XLA)_\w+"
)
# Variables of libraries without which some installations do not run at all.
_NEEDED = frozenset({"KMP_DUPLICATE_LIB_OK", "MKL_THREADING_LAYER", "OMP_STACKSIZE"})
_INTERPRET = "TRITON_INTERPRET"  # runs the engine's CUDA backend on a CPU, whatever the device
_PLACES = ("_HOME", "_PATH", "_PATHS", "_DIR")
_ALLOCATORS = ("LD_PRELOAD", "GLIBC_TUNABLES")  # left out if they choose a memory allocator
_OTHER_VARIABLES = frozenset(
    {
        *("NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"),
        *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_FORCE_PTX_JIT", "CUDA_CACHE_DISABLE"),
        *("BENCH_CPU_NAME", "BENCH_CPU_FEATURES"),
        *("PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONTRACEMALLOC", "PYTHONOPTIMIZE", "PYTHONINSPECT"),
        *("PYTHONWARNINGS", "PYTHONMALLOCSTATS", "PYTHONPERFSUPPORT", "PYTHONPROFILEIMPORTTIME"),
    }
)


@dataclass(frozen=True, slots=True)
class Launched:
    """Worker of one round, and the facts by which its outcome is found.

    Attributes:
        stamp: Identity of the record that was there before.
        mark: Value of WORKER_MARK in the environment of its processes.
    """

    spec: TrialSpec
    child: ChildProcess
    mark: str
    spec_path: Path
    stamp: tuple[int, int, int] | None
    started_at: str


def build_server_key(spec: TrialSpec) -> ServerKey | None:
    """Return the key of the fork server of a trial's worker, or None if there can be none.

    A CUDA context does not outlive a fork, and adapters may open one when they are imported. With
    several threads, NumPy's BLAS starts them when it is imported.
    """
    is_alone = spec.threads == 1 and spec.device == "cpu"
    if sys.platform != "linux" or spec.python is not None or not is_alone:
        return None
    environment = tuple(sorted(build_worker_environment(spec).items()))
    return ServerKey(spec.adapter, environment, spec.round)


def launch_worker(
    spec: TrialSpec,
    path: Path,
    log: Path,
    folder: Path,
    block: str,
    servers: ForkServers,
) -> Launched:
    """Start the worker of one round of a trial, which will write its record to `path`.

    Args:
        log: File for the worker's output.
        folder: Directory for its spec.
        block: Name of its block.
        servers: Fork servers, for workers that can be forked.

    Raises:
        OSError: The log cannot be written.
    """
    started_at = format_now()
    spec_path, mark = folder / "spec.json", str(folder)
    spec_path.write_text(json.dumps(spec.to_dict()), encoding="utf-8")
    arguments = (str(spec_path), str(path.resolve()), block)
    key = build_server_key(spec)

    def fork(channel: socket.socket) -> ForkedProcess | None:
        return None if key is None else servers.fork(key, arguments, {WORKER_MARK: mark}, channel)

    child = ChildProcess(
        find_interpreter(spec),
        (WORKER, *arguments),
        build_worker_environment(spec) | {WORKER_MARK: mark},
        spec.limits,
        log,
        fork=fork,
    )
    return Launched(spec, child, mark, spec_path, read_stamp(path), started_at)


def settle_round(
    worker: Launched, path: Path, log: Path, records_invalid_data: bool
) -> Record | BenchError:
    """Return the record of a worker that has ended, or the error with which it refused the trial.

    The log is deleted unless the trial crashed.

    Args:
        records_invalid_data: Whether invalid data yields a record instead of an error.

    Raises:
        OutputError: The worker could not write its record, or none can be written for it.
        OSError: The log cannot be written.
    """
    worker.child.end()
    drop_leftovers(path)  # from a worker that was killed while writing
    ending, spec = worker.child.ending, worker.spec
    refusal = read_refusal(worker.spec_path, ending.returncode)
    if isinstance(refusal, OutputError):
        raise refusal
    if refusal is not None and not (isinstance(refusal, DataError) and records_invalid_data):
        drop_log(log)
        return refusal
    # A worker may crash after writing its record, while its framework shuts down; then it counts.
    record = find_record(path) if read_stamp(path) != worker.stamp else None
    if record is None:
        status, reason = _classify_death(spec, ending, refusal, read_last_line(log))
        record = record_unmeasured(spec, path, status, reason, started_at=worker.started_at)
    if record.status != "crash":
        drop_log(log)
    return record


def drop_log(log: Path) -> None:
    with suppress(OSError):  # its directory may have been deleted
        log.unlink()


def record_unmeasured(
    spec: TrialSpec,
    path: Path,
    status: Status,
    reason: str,
    sources: SourceHashes | None = None,
    started_at: str | None = None,
) -> Record:
    """Write and return the record of a round without results.

    Args:
        sources: Hashes of the code, if already computed.
        started_at: See build_record; None if the round is not started.
    """
    inputs = OwnData().hash_inputs(spec)  # else the record would seem to be of other data
    measured = Measured(status=status, reason=reason, inputs_sha256=inputs)
    started_at = started_at or format_now()
    record = build_record(spec, measured, read_harness_versions(), started_at, sources)
    write_record(path, record)
    return record


def build_worker_environment(spec: TrialSpec) -> dict[str, str]:
    """Return a worker's environment: the trial's number of threads and a fixed hash seed.

    Variables that change how a library computes are removed: each trial runs as on a machine where
    nothing is set. They are listed in the record.
    """
    threads = dict.fromkeys(_THREAD_VARIABLES, str(spec.threads))
    folder = _find_import_folder()
    search = os.pathsep.join(entry for entry in (folder, os.environ.get("PYTHONPATH")) if entry)
    # Safe path: a directory named "dynbatch" in the working directory must not hide ours.
    python = {"PYTHONHASHSEED": "0", "PYTHONPATH": search, "PYTHONSAFEPATH": "1"}
    # CUDA must number GPUs as the driver does, which reports their names.
    gpus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # The systems of a block share a GPU, so none may reserve its memory in advance.
    gpus |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if spec.device == "cuda":  # only the GPU that the record names: TensorFlow would open all
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        gpus |= {"CUDA_VISIBLE_DEVICES": visible.partition(",")[0].strip()}
    fixed = python | {"TF_NUM_INTEROP_THREADS": "1"} | gpus | _ALLOCATOR
    kept = {*threads, *fixed} | ({_INTERPRET} if spec.device == "cpu" else set())
    left_out = sorted(filter(_decides_numbers, os.environ.keys() - kept))
    given = {k: v for k, v in os.environ.items() if k not in left_out}
    tunables = [text for text in (given.get("GLIBC_TUNABLES"), _HUGE_PAGES) if text]
    fixed |= {"GLIBC_TUNABLES": ":".join(tunables)}
    return given | threads | fixed | {LEFT_OUT: " ".join(left_out), START: IMPORTED}


def _find_import_folder() -> str | None:
    """Return the directory that makes this package importable; None if the interpreter has it.

    A checkout need not be installed. Its root would hide other packages of the names datasets or
    plots, which a system may import, from this worker; `src` has only a link to the package.
    """
    if is_checkout():
        return str(ROOT / "src")
    # An installed package is found after the standard library.
    return None if str(IMPORT_ROOT) in site.getsitepackages() else str(IMPORT_ROOT)


def _decides_numbers(variable: str) -> bool:
    """Return whether a variable of the shell may change what a library computes, or how."""
    if variable in _ALLOCATORS:
        return "malloc" in os.environ.get(variable, "")
    if variable in _NEEDED or variable.endswith(_PLACES):
        return False
    return variable in _OTHER_VARIABLES or _LIBRARY_VARIABLE.fullmatch(variable) is not None


def _classify_death(
    spec: TrialSpec, ending: Ending, refusal: BenchError | None, last_line: str
) -> tuple[Status, str]:
    """Return the status and the reason of a worker that left no record."""
    if ending.returncode is None:
        if spec.python is not None and ending.is_own_fault:
            return "unsupported", describe_bad_interpreter(spec, str(ending.reason))
        return ending.status or "unsupported", f"the worker cannot start: {ending.reason}"
    lacks = describe_missing_package(spec, last_line)
    if lacks is None and ending.status is None and refusal is None:
        lacks = find_interpreter_fault(spec, explain_death(ending.returncode, last_line))
    if lacks is not None:
        return "unsupported", lacks
    if refusal is not None:
        return "invalid_data", str(refusal)
    reason = ending.reason or explain_death(ending.returncode, last_line)
    if ending.status is None and last_line.startswith(RecursionError.__name__):
        return "unsupported", f"{reason}; some instance is deeper than the system's recursion"
    return ending.status or ("oom" if has_memory_error(last_line) else "crash"), reason


def find_interpreter(spec: TrialSpec) -> str:
    return str(expand_home("system.python", spec.python)) if spec.python else sys.executable


def explain_unstartable(spec: TrialSpec) -> str | None:
    """Return the reason why a trial's configured interpreter cannot be started, or None."""
    if spec.python is None or shutil.which(find_interpreter(spec)):
        return None
    return describe_bad_interpreter(spec, "program not found")


def find_interpreter_fault(spec: TrialSpec, last_words: str) -> str | None:
    """Return the reason if a trial's configured interpreter is not Python, or None.

    The interpreter is tested with a multiplication, and only after its worker has died, because the
    test starts a process.
    """
    if spec.python is None:
        return None
    command = [find_interpreter(spec), "-c", "print(6 * 7)"]
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
    return None if is_python else describe_bad_interpreter(spec, f"not Python: {last_words}")


def describe_bad_interpreter(spec: TrialSpec, reason: str) -> str:
    """Return the message for a configured interpreter that does not start the worker."""
    return (
        f"system.python={spec.python} does not start the benchmark's worker ({reason}); set the"
        " python of an environment with the benchmark and the system's framework"
    )


def describe_missing_package(spec: TrialSpec, last_line: str) -> str | None:
    """Return the message for a package missing from a configured interpreter, or None.

    This covers packages that the benchmark needs; the worker itself reports a missing framework.
    """
    match = _MISSING.match(last_line) if spec.python is not None else None
    if match is None:
        return None
    what = "-e '.[EXTRA]'" if is_checkout() else f"'{PROJECT}[EXTRA]'"
    return (
        f"system.python={spec.python} lacks {match.group(1)}, which the benchmark needs; run"
        f" {spec.python} -m pip install {what}, where EXTRA is the framework"
    )
