"""Workers that fail in every way: each leaves a record, and none keeps running."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dynbatch.harness.measuring.processes.child import FORKED, LEFT_OUT
from dynbatch.harness.measuring.processes.launch import build_worker_environment
from dynbatch.harness.measuring.processes.supervise import compute_memory_limit
from dynbatch.harness.records.record import Record, read_record
from dynbatch.harness.trials.spec import Limits
from tests.support.measured import MakeSpec, measure_alone
from tests.support.odd_system import FIRST, FLOOD_BYTES, LAST
from tests.support.processes import end_python, wait_until

Patch = pytest.MonkeyPatch
Run = Callable[..., Record]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_servers")]


@pytest.fixture
def run(make_spec: MakeSpec, tmp_path: Path) -> Run:
    """Return a function that measures a trial, and checks the files that it leaves."""
    path, log = tmp_path / "raw" / "r0.json", tmp_path / "logs" / "r0.log"

    def measured(**changes: Any) -> Record:
        record = measure_alone(make_spec(**changes), path, log)
        assert read_record(path) == record
        assert [each.name for each in path.parent.iterdir()] == ["r0.json"]
        assert log.exists() == (record.status == "crash")
        return record

    return measured


@pytest.mark.parametrize(
    ("fault", "at", "status", "reason"),
    [
        ("signal:40", "prepare", "crash", "killed by signal 40 (SIGRTMIN+6)"),
        ("say_and_exit:64", "prepare", "crash", "no refusal of the harness"),
        ("raise:value", "prepare", "crash", "ValueError: a fault over two lines"),
        ("raise:enomem", "__init__", "oom", "OSError: [Errno 12] Cannot allocate memory"),
        ("raise:numpy", "__init__", "oom", "MemoryError: Unable to allocate"),
        ("raise:caused_by_memory", "__init__", "oom", "ValueError: the compiler gave up"),
        ("raise:recursion", "load", "unsupported", "RecursionError: maximum recursion depth"),
        ("bad_alloc", "prepare", "oom", "killed by SIGABRT; last line: terminate called"),
    ],
)
def test_whatever_ends_a_process_leaves_a_record(
    run: Run, fault: str, at: str, status: str, reason: str
) -> None:
    # A configured interpreter is not blamed for it.
    python = sys.executable if fault == "raise:value" else None
    options = {"fault": fault, "at": at}
    record = run(python=python, system_options=options)
    assert record.status == status
    assert str(record.reason).startswith(reason)
    assert "\n" not in str(record.reason)


@pytest.mark.parametrize("name", ["dynbatch", "datasets"])
def test_a_folder_of_our_name_does_no_harm(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: Patch, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_VARIABLE", name)  # a fork server of its own
    record = measure_alone(make_spec(), Path("r0.json"), Path("r0.log"))
    assert record.status == "ok"


def test_a_record_names_the_variables_that_its_worker_did_not_get(
    make_spec: MakeSpec, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    record = measure_alone(make_spec(), Path("r0.json"), Path("r0.log"))
    assert "OPENBLAS_CORETYPE" in record.effective_options["left out of the environment"]


@pytest.mark.parametrize(
    "typed",
    [
        *("TORCHDYNAMO_DISABLE", "JAX_DISABLE_JIT", "OMP_PROC_BIND", "PYTHONDEVMODE", "NUMBA_OPT"),
        *("TORCHINDUCTOR_MAX_AUTOTUNE", "JAX_DISABLE_MOST_OPTIMIZATIONS", "TF_DETERMINISTIC_OPS"),
        *("KERAS_BACKEND", "ONEDNN_DEFAULT_FPMATH_MODE", "MKL_DOMAIN_NUM_THREADS", "XLA_FLAGS"),
        *("MALLOC_PERTURB_", "PYTHONWARNINGS", "OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"),
        "TRITON_F32_DEFAULT",
        *("LD_PRELOAD=/usr/lib/libtcmalloc.so.4", "GLIBC_TUNABLES=glibc.malloc.arena_max=8"),
    ],
)
def test_shell_variables_are_removed_from_worker_environment(
    typed: str, make_spec: MakeSpec, monkeypatch: Patch
) -> None:
    variable, _, value = typed.partition("=")
    monkeypatch.setenv(variable, value or "1")
    environment = build_worker_environment(make_spec())
    assert environment.get(variable) in (None, "glibc.malloc.hugetlb=1")
    assert variable in environment[LEFT_OUT].split()


@pytest.mark.parametrize(
    "variable",
    [
        *("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET", "TF_CLI_CONFIG_FILE", "BENCH_DATA"),
        *("TORCH_HOME", "CUDNN_PATH", "NUMBA_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "LD_PRELOAD"),
    ],
)
def test_other_variables_stay(variable: str, make_spec: MakeSpec, monkeypatch: Patch) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # replaced by the trial's number
    environment = build_worker_environment(make_spec(threads=2))
    assert (environment[variable], environment["OMP_NUM_THREADS"]) == ("1", "2")
    assert not {variable, "OMP_NUM_THREADS"} & set(environment[LEFT_OUT].split())


@pytest.mark.parametrize(
    ("visible", "seen"), [(None, "0"), ("1, 0", "1"), ("GPU-a,GPU-b", "GPU-a")]
)
def test_a_worker_on_cuda_sees_one_gpu(
    make_spec: MakeSpec, monkeypatch: Patch, visible: str | None, seen: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # as for another trial, on the CPU
    environment = build_worker_environment(make_spec(device="cuda"))
    assert environment["CUDA_VISIBLE_DEVICES"] == seen
    assert "TRITON_INTERPRET" not in environment
    assert build_worker_environment(make_spec()).get("CUDA_VISIBLE_DEVICES") == visible


def test_huge_pages_join_tunables_that_choose_no_allocator(
    make_spec: MakeSpec, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.x86_shstk=off")
    environment = build_worker_environment(make_spec())
    assert environment["GLIBC_TUNABLES"] == "glibc.cpu.x86_shstk=off:glibc.malloc.hugetlb=1"
    assert "GLIBC_TUNABLES" not in environment[LEFT_OUT].split()


def test_threads_reach_every_library_and_one_allocator_serves_all(make_spec: MakeSpec) -> None:
    environment = build_worker_environment(make_spec(threads=3))
    names = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    assert {environment[f"{name}_NUM_THREADS"] for name in names} == {"3"}
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["MALLOC_MMAP_MAX_"] == "0"  # memory is not returned between mini-batches
    assert "PATH" in environment


def test_the_memory_limit_is_a_share_of_the_machine_unless_given() -> None:
    total = psutil.virtual_memory().total
    assert 0 < compute_memory_limit(Limits()) < total
    assert compute_memory_limit(Limits(memory_bytes=5)) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize("is_killed_at_once", [True, False])
def test_a_worker_whose_parent_ended_before_it_could_ask_ends_at_once(
    make_spec: MakeSpec, tmp_path: Path, is_killed_at_once: bool
) -> None:
    """The parent ends before the worker's Python has started, or while it starts."""
    (tmp_path / "spec.json").write_text(json.dumps(make_spec().to_dict()))
    record = tmp_path / "r0.json"
    worker = ["dynbatch.harness.measuring.worker", str(tmp_path / "spec.json"), str(record)]
    program = (
        "import os, subprocess, sys, time;"
        "from dynbatch.harness.measuring.processes.supervise import BEGIN;"
        f"command = [sys.executable, '-m', BEGIN, str(os.getpid()), *{worker}];"
        "print(subprocess.Popen(command, start_new_session=True).pid, flush=True);"
        f"time.sleep({0 if is_killed_at_once else 0.2});"
        "os.kill(os.getpid(), 9)"
    )
    parent = end_python("-c", program)
    # No process holds the pipe that the worker printed to any more, and nothing was measured.
    assert parent.returncode == -signal.SIGKILL
    worker_pid = int(parent.stdout)
    assert wait_until(lambda: not psutil.pid_exists(worker_pid))
    assert not record.exists()


def test_a_worker_started_through_a_script_lives_while_its_ancestor_does(
    run: Run, tmp_path: Path
) -> None:
    script, trace = tmp_path / "python", tmp_path / "was_here"
    script.write_text(f'#!/bin/sh\ntouch {trace}\n{sys.executable} "$@"\nexit $?\n')
    script.chmod(0o755)
    assert run(python=str(script)).status == "ok"
    assert trace.exists()


@pytest.mark.parametrize("what", ["adapter", "loader", "model_module"])
def test_out_of_memory_before_trial_start_is_recorded_as_oom(
    run: Run, make_module: Callable[[str], str], what: str
) -> None:
    record = run(**{what: make_module("import numpy as np\n\nTABLE = np.ones(2**58)\n")})
    assert record.status == "oom"
    assert "Unable to allocate" in str(record.reason)


def test_the_log_of_a_flood_has_its_first_and_its_last_words(run: Run, tmp_path: Path) -> None:
    assert run(system_options={"fault": "flood_and_abort:stdout"}).status == "crash"
    log = (tmp_path / "logs" / "r0.log").read_bytes()
    assert len(log) < FLOOD_BYTES // 16
    assert log.startswith(FIRST)
    assert LAST in log[-100_000:]
    assert b"bytes omitted" in log


@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives orphans to who asks for them")
@pytest.mark.parametrize("fault", ["detach", "detach_bare"])
def test_detached_process_is_terminated_with_its_trial(
    run: Run, tmp_path: Path, fault: str
) -> None:
    pid_file = tmp_path / "pid"
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        assert run(system_options={"fault": fault, "file": str(pid_file)}).status == "ok"
        assert not psutil.pid_exists(int(pid_file.read_text()))
        assert bystander.poll() is None, "what was there before is not its own"
    finally:
        bystander.kill()
        bystander.wait()


def test_a_fork_that_comes_back_leaves_no_record(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert run(system_options={"fault": "fork", "file": str(pid_file)}).status == "ok"
    assert os.waitstatus_to_exitcode(int(pid_file.read_text())) == FORKED


def test_memory_of_detached_child_counts_toward_limit(run: Run, tmp_path: Path) -> None:
    """The memory of a child that detaches itself counts in the limit of the process tree."""
    program = tmp_path / "eats.py"
    program.write_text("import time\nheld = b'x' * 2**30\ntime.sleep(600)\n")
    script = f"setsid sh -c '{sys.executable} {program} & exit' >/dev/null 2>&1; exec sleep 600\n"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}")
    python.chmod(0o755)
    limits = Limits(time_s=60.0, memory_bytes=600 * 2**20)
    record = run(python=str(python), limits=limits)
    assert record.status == "oom"
    assert str(record.reason).endswith("limits.memory_bytes is 629145600")


def test_a_flood_is_harmless_unless_the_disk_is_full(
    run: Run, make_spec: MakeSpec, tmp_path: Path
) -> None:
    """A full disk, simulated by /dev/full, ends the run without a record."""
    options = {"fault": "flood:stdout"}
    assert run(system_options=options).status == "ok"
    assert not list((tmp_path / "logs").iterdir())
    spec, folder, log = make_spec(system_options=options), tmp_path / "full", tmp_path / "log"
    folder.mkdir()
    log.symlink_to("/dev/full")
    started, others = time.monotonic(), psutil.Process().children(recursive=True)
    with pytest.raises(OSError, match="No space left on device"):
        measure_alone(spec, folder / "r0.json", log)
    assert time.monotonic() - started < spec.limits.time_s
    assert not list(folder.iterdir())
    assert set(psutil.Process().children(recursive=True)) <= set(others)


@pytest.mark.parametrize(
    ("error", "python", "status", "advice"),
    [
        (errno.ENOMEM, None, "oom", ""),
        (errno.EMFILE, None, "unsupported", "; raise `ulimit -n` and rerun"),
        (errno.ENFILE, sys.executable, "unsupported", "; raise `ulimit -n` and rerun"),
        (errno.EACCES, None, "unsupported", ""),  # without a configured interpreter to name
    ],
)
def test_os_failure_to_start_worker_is_not_blamed_on_python(
    run: Run, monkeypatch: Patch, error: int, python: str | None, status: str, advice: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("SOME_VARIABLE", str(error))  # which no running fork server has
    record = run(python=python)
    assert record.status == status
    assert record.reason == f"the worker cannot start: {os.strerror(error)}{advice}"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("no/python", "program not found"),
        ("", ""),
        ("#!/bin/sh\nexit 3\n", "not Python"),
        ("cat", "not Python"),  # interprets `-m` in another way
        ("echo", "not Python"),
    ],
)
def test_invalid_python_executable_gives_unsupported_record(
    run: Run, tmp_path: Path, program: str, why: str
) -> None:
    other = Path(shutil.which(program) or tmp_path / "python")
    if other.parent == tmp_path and program != "no/python":
        other.write_text(program)
        other.chmod(0o755)
    record = run(python=str(other))
    assert record.status == "unsupported"
    start = f"system.python={other} does not start the benchmark's worker ({why}"
    assert str(record.reason).startswith(start)


def test_one_without_the_benchmarks_packages_is_a_record(run: Run, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    record = run(python=str(python))
    assert record.status == "unsupported"
    assert record.reason.startswith(f"system.python={python} lacks ")
    assert f"{python} -m pip install -e '.[EXTRA]'" in record.reason


def test_one_without_the_framework_names_its_extra(
    run: Run, make_module: Callable[[str], str]
) -> None:
    adapter = make_module("import a_framework_that_is_not_installed")
    record = run(python=sys.executable, adapter=adapter)
    assert record.status == "unsupported"
    assert record.reason == ("a_framework_that_is_not_installed is not installed; install it")
