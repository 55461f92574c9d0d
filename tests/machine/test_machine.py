"""Facts about the machine, and its noise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml
import pytest

from dynbatch.harness.machine import facts, noise
from dynbatch.harness.machine.facts import (
    GpuReading,
    describe_driver,
    describe_machine,
    find_used_gpu,
    has_cuda_device,
    hash_cpu,
    measure_own_gpu_bytes,
    read_gpu,
)
from dynbatch.harness.machine.noise import Scheduling, judge_gpu
from dynbatch.harness.machine.process import (
    measure_peak_bytes,
    measure_resident_bytes,
    release_memory,
    reset_peak_memory,
)

Patch = pytest.MonkeyPatch
MIB = 2**20


def test_the_description_is_plain_and_complete() -> None:
    machine = describe_machine()
    plain = machine.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["cpu"]
    assert plain["memory_bytes"] > 0
    assert 1 <= len(plain["usable_cpus"]) <= plain["n_cpus"]


CPUS = (
    ("model name\t: Virtual CPU", "flags\t: avx2"),
    ("model name\t: Virtual CPU", "flags\t: avx2 avx512f"),
    ("model name\t: Another CPU", "flags\t: avx2"),
    ("Features\t: asimd", "CPU part\t: 0xd0c"),
    ("Features\t: asimd sve", "CPU part\t: 0xd0c"),
    ("Features\t: asimd", "CPU part\t: 0xd40"),
)


def test_a_cpu_of_another_name_or_other_instructions_is_another(monkeypatch: Patch) -> None:
    def fingerprint(cpu: tuple[str, ...], mhz: int) -> str:
        lines = [f"cpu MHz\t: {mhz}", *cpu, *cpu]
        monkeypatch.setattr(facts, "read_lines", lambda _: lines)
        return hash_cpu()

    first, later = ([fingerprint(cpu, mhz) for cpu in CPUS] for mhz in (2600, 3100))
    assert first == later
    assert len(set(first)) == len(CPUS)
    monkeypatch.setattr(facts, "read_lines", lambda _: [])
    assert hash_cpu(), "without /proc the name of the architecture is left"


HIDDEN = ["processor\t: 0", "cpu family\t: 25", "model\t\t: 1", "model name\t: AMD EPYC"]


def test_generations_with_one_name_differ_in_family_or_model(monkeypatch: Patch) -> None:
    later = [line.replace(": 1", ": 17") for line in HIDDEN]
    named = [*HIDDEN[:-1], "model name\t: AMD EPYC 7763 64-Core Processor"]
    arm = ["Features\t: asimd", "CPU part\t: 0xd0c"]
    names = []
    for lines in (HIDDEN, [*HIDDEN, *later], later, named, arm):
        monkeypatch.setattr(facts, "read_lines", lambda _, lines=lines: lines)
        names.append(facts.read_cpu_model())
    assert names[0] == names[1] == "AMD EPYC (family 25, model 1)", "of the first processor"
    assert names[2] == "AMD EPYC (family 25, model 17)"
    assert names[3] == "AMD EPYC 7763 64-Core Processor", "a number is enough"
    assert names[4], "Arm has no names"


def test_cuda_is_unavailable_without_visible_devices(monkeypatch: Patch) -> None:
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not has_cuda_device()


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
def test_the_peak_of_memory_is_that_since_the_reset() -> None:
    block = np.ones(64 * MIB // 8)
    assert measure_peak_bytes() >= block.nbytes
    del block
    release_memory()
    reset_peak_memory()
    before = measure_peak_bytes()
    block = np.ones(48 * MIB // 8)
    del block
    assert 40 * MIB <= measure_peak_bytes() - before <= 60 * MIB


@pytest.mark.skipif(not os.access("/proc/self/comm", os.W_OK), reason="needs Linux")
def test_memory_is_that_of_a_process_of_any_name() -> None:
    """Linux cuts names after 15 bytes, also within a character."""
    name, before = Path("/proc/self/comm"), Path("/proc/self/comm").read_bytes()
    name.write_bytes(b"caf\xc3")
    try:
        assert measure_resident_bytes() > MIB
    finally:
        name.write_bytes(before.strip())


@contextmanager
def child_that(work: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that has done its work and waits."""
    code = f"{work}\nprint('done', flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
        assert child.stdout.readline() == "done\n"
        yield child
        child.communicate("\n")


BURN = "import time\nwhile time.process_time() < 0.4: pass"


def test_work_of_a_child_is_our_own_while_it_lives_and_when_it_has_ended() -> None:
    before = noise._read_own_cpu_s()
    with child_that(BURN):
        assert noise._read_own_cpu_s() - before >= 0.35
    assert noise._read_own_cpu_s() - before >= 0.35


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux")
def test_memory_of_a_child_is_part_of_the_peak_that_the_reset_forgets() -> None:
    release_memory()
    reset_peak_memory()
    before = measure_resident_bytes(), measure_peak_bytes()
    with child_that(f"block = b'1' * {96 * MIB}"):
        assert measure_resident_bytes() - before[0] >= 90 * MIB
        assert measure_peak_bytes() - before[1] >= 90 * MIB
    with child_that(f"block = b'1' * {96 * MIB}\ndel block"):
        assert measure_peak_bytes() - before[1] >= 90 * MIB
        release_memory()
        reset_peak_memory()
        assert measure_peak_bytes() - before[1] <= 60 * MIB


def fake_cpu(monkeypatch: Patch, **readings: list[float]) -> None:
    """Replace the kernel's counters by sequences of readings."""
    for name, values in readings.items():
        source = iter(values)
        monkeypatch.setattr(noise, name, lambda source=source: next(source))


@pytest.mark.parametrize(
    ("all_s", "own_s", "cores"), [(12.0, 2.0, 0.0), (13.2, 2.0, 0.6), (12.0, 0.5, 0.75)]
)
def test_background_load_excludes_own_work(
    monkeypatch: Patch, all_s: float, own_s: float, cores: float
) -> None:
    fake_cpu(monkeypatch, _read_busy_cpu_s=[10.0, all_s], _read_own_cpu_s=[0.0, own_s])
    monkeypatch.setattr(noise.time, "monotonic", iter([100.0, 102.0]).__next__)
    assert noise.measure_other_cores(0.0) == pytest.approx(cores)


def test_throttling_is_noticed(monkeypatch: Patch) -> None:
    fake_cpu(monkeypatch, _count_throttles=[5, 5, 6])
    watch = noise.SlowdownWatch("cpu")
    assert watch.stop() == noise.Slowdown(is_throttled=False)
    assert watch.stop() == noise.Slowdown(is_throttled=True)


IDLE = GpuReading(1755, is_limited=False, limited_s={"power": 3.0}, processes=(os.getpid(),))
SLOWER = {"limited_s": {"power": 3.5}}
FOREIGN = {"processes": (os.getpid(), 2**22 + 1)}  # above the largest process id


@pytest.mark.parametrize(
    ("before", "after", "is_throttled", "others"),
    [
        ({}, {}, False, (0, 0)),
        ({}, SLOWER, True, (0, 0)),  # limited between the readings, at neither of them
        ({}, {"is_limited": True}, True, (0, 0)),
        ({"is_limited": True, "limited_s": {}}, {"limited_s": {}}, True, (0, 0)),
        (FOREIGN, {}, False, (1, 0)),
        ({}, FOREIGN, False, (0, 1)),
        ({}, {"processes": (os.getpid(), os.getppid())}, False, (0, 0)),  # of the same block
        ({"processes": (1, 2)}, {"processes": None}, False, (None, None)),  # a host's numbers
    ],
)
def test_what_happens_to_a_gpu_during_the_passes_is_noticed(
    monkeypatch: Patch,
    before: dict[str, Any],
    after: dict[str, Any],
    is_throttled: bool,
    others: tuple[int | None, int | None],
) -> None:
    readings = iter([replace(IDLE, **before), replace(IDLE, **after)])
    monkeypatch.setattr(noise, "read_gpu", lambda: next(readings))
    monkeypatch.setattr(noise, "_count_throttles", lambda: 0)
    seen = noise.SlowdownWatch("cuda").stop()
    assert (seen.is_throttled, seen.gpu_others) == (is_throttled, others)
    assert seen.is_gpu_shared == (1 in others)
    assert seen.gpu_clocks_mhz == (1755, 1755)
    counted = "limited_s" not in {**before} and after.get("limited_s") != {}
    expected = None if not counted else {"power": 0.5 if after is SLOWER else 0.0}
    assert seen.gpu_limited_s == expected


STILL = Scheduling(cpu_s=0.5, steal_s=0.0, wait_s=0.0, n_switches=0, n_paused=0)


@pytest.mark.parametrize(
    ("changes", "is_disturbed"),
    [
        ({}, False),
        ({"n_switches": 1000}, False),  # a switch that costs no time
        ({"wait_s": 0.019}, False),
        ({"wait_s": 0.021}, True),
        ({"steal_s": 0.021}, True),
        ({"n_paused": 1}, True),
        ({"wait_s": 0.5, "cpu_s": 1.01}, False),  # its threads waited for each other
        ({"wait_s": 0.5, "cpu_s": 0.981}, False),
        ({"wait_s": 0.5, "cpu_s": 0.979}, True),
        ({"wait_s": 0.5, "cpu_s": 1.97, "n_threads": 2}, True),
        ({"wait_s": 0.019, "cpu_s": 0.1}, False),  # it slept
    ],
)
def test_turn_kept_from_a_cpu_is_disturbed(changes: dict[str, float], is_disturbed: bool) -> None:
    changes = {"n_threads": 1} | changes
    n_threads = int(changes.pop("n_threads"))
    assert replace(STILL, **changes).is_disturbed(1.0, n_threads) == is_disturbed


def test_counters_advance_with_work() -> None:
    before = noise.read_scheduling()
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    spent = noise.read_scheduling().since(before)
    assert 0.05 <= spent.cpu_s < 5.0
    assert spent.wait_s >= 0.0


QUIET = replace(
    describe_machine(), governor="performance", cpu_quota=None, memory_bytes=100, gpus=()
)


@pytest.mark.parametrize(
    ("name", "machine", "readings", "value", "advice"),
    [
        ("other work", {}, {"cores": 1.0}, "1.00 cores", "stop other processes"),
        ("CPU quota", {"cpu_quota": 1.5}, {}, "1.5 cores", "give it whole CPUs"),
        ("governor", {"governor": "powersave"}, {}, "powersave", "choose `performance`"),
        ("governor", {"governor": None}, {}, "unknown", ""),
        ("turbo", {"turbo": True}, {}, "on", ""),
        ("huge pages", {}, {"pages": "never"}, "never", "echo madvise"),
        ("huge pages", {}, {"pages": None}, "unknown", ""),
        ("free memory", {}, {"free": 10}, "0.0 of 0.0 GiB", "stop other processes"),
        ("free memory", {"memory_bytes": 2**30}, {"free": 2**40}, "1.0 of 1.0 GiB", ""),
        ("swap used", {}, {"swapped": 2**30}, "1024 MiB", "free memory first"),
    ],
)
def test_only_noise_comes_with_advice(
    monkeypatch: Patch,
    name: str,
    machine: dict[str, Any],
    readings: dict[str, Any],
    value: str,
    advice: str,
) -> None:
    now = {"cores": 0.1, "pages": "madvise", "free": 90, "swapped": 0} | readings
    monkeypatch.setattr(noise, "measure_other_cores", lambda _: now["cores"])
    monkeypatch.setattr(noise, "read_huge_pages", lambda: now["pages"])
    memory, swap = SimpleNamespace(available=now["free"]), SimpleNamespace(used=now["swapped"])
    monkeypatch.setattr(noise.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(noise.psutil, "swap_memory", lambda: swap)
    findings = {finding.name: finding for finding in noise.check_noise(replace(QUIET, **machine))}
    assert findings[name].value == value
    assert advice in findings[name].advice
    assert [each.name for each in findings.values() if each.advice] == [name] * bool(advice)


def test_a_busy_or_slow_gpu_comes_with_advice() -> None:
    assert judge_gpu(replace(IDLE, processes=())).advice == ""
    assert "stop them first" in judge_gpu(IDLE).advice
    assert "cool it" in judge_gpu(replace(IDLE, processes=(), is_limited=True)).advice
    assert judge_gpu(None).value == "unknown to the driver"


NAMES = ("first", "second")
HOT = "GPU-second"  # slowed down by heat


@pytest.fixture
def driver(monkeypatch: Patch) -> Iterator[list[str]]:
    """Driver of two GPUs; yields the log of opening and closing it."""
    calls: list[str] = []

    def by_uuid(uuid: str) -> str:
        if uuid not in (f"GPU-{name}" for name in NAMES):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def limited_ns(handle: str, policy: int) -> SimpleNamespace:
        if policy == pynvml.NVML_PERF_POLICY_BOARD_LIMIT:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        is_hot = handle == HOT and policy == pynvml.NVML_PERF_POLICY_THERMAL
        return SimpleNamespace(violationTime=2 * 10**9 if is_hot else 0)

    slowed = pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
    fakes = {
        "nvmlInit": lambda: calls.append("open"),
        "nvmlShutdown": lambda: calls.append("close"),
        "nvmlDeviceGetHandleByIndex": lambda index: f"GPU-{NAMES[index]}",
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetName": lambda handle: handle.removeprefix("GPU-"),
        "nvmlDeviceGetUUID": lambda handle: handle,
        "nvmlDeviceGetClockInfo": lambda handle, _: 1980 if handle == HOT else 1755,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: slowed if handle == HOT else 0,
        "nvmlDeviceGetViolationStatus": limited_ns,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=9)],
        "nvmlSystemGetDriverVersion": lambda: "570.124.06",
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(pynvml, name, fake)
    yield calls
    assert calls == ["open", "close"] * (len(calls) // 2)


@pytest.mark.parametrize(
    ("visible", "used", "is_slow"),
    [
        (None, "first, GPU-first", False),
        ("1", "second, GPU-second", True),
        ("1,0", "second, GPU-second", True),
        ("0,1", "first, GPU-first", False),
        ("GPU-second", "second, GPU-second", True),
        ("GPU-unknown", None, False),
    ],
)
def test_the_first_visible_gpu_is_looked_at(
    driver: list[str], monkeypatch: Patch, visible: str | None, used: str | None, is_slow: bool
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_used_gpu() == used
    clock, heat_s = (1980, 2.0) if is_slow else (1755, 0.0)
    state = GpuReading(clock, is_slow, {"power": 0.0, "heat": heat_s}, (9,))
    assert read_gpu() == (None if used is None else state)
    assert describe_driver() == ("570.124.06", (12, 8))
    assert driver


@pytest.mark.parametrize(("shift", "n_bytes", "own"), [(0, 7, 7), (1, 7, None), (0, None, None)])
def test_memory_of_this_process_on_the_gpu(
    driver: list[str], monkeypatch: Patch, shift: int, n_bytes: int | None, own: int | None
) -> None:
    """In a container, the driver may number processes as its host does."""
    others = SimpleNamespace(pid=9, usedGpuMemory=2**30)
    mine = SimpleNamespace(pid=os.getpid() + shift, usedGpuMemory=n_bytes)
    name = "nvmlDeviceGetComputeRunningProcesses"
    monkeypatch.setattr(pynvml, name, lambda _: [others, mine])
    assert measure_own_gpu_bytes() == own


def test_without_a_driver_no_gpu_is_named_or_slow(monkeypatch: Patch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert find_used_gpu() is None
    assert read_gpu() is None
    assert measure_own_gpu_bytes() is None
    assert describe_driver() is None
