"""The machine's NVIDIA GPUs, as their driver tells of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU as its driver reports it; what the driver does not tell is None."""

    name: str
    memory_bytes: int | None
    driver: str
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None


def has_cuda_device() -> bool:
    """Return whether an NVIDIA device is there and visible, without loading any framework."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    return Path("/dev/nvidia0").exists() or bool(describe_gpus())


def describe_gpus() -> tuple[Gpu, ...]:
    """List the NVIDIA GPUs; empty where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def used_gpu() -> str | None:
    """Name the GPU that CUDA programs here take first: model and UUID; None for none."""
    try:
        with _first_visible() as handle:
            return f"{pynvml.nvmlDeviceGetName(handle)}, {pynvml.nvmlDeviceGetUUID(handle)}"
    except pynvml.NVMLError:
        return None


def gpu_is_throttled() -> bool:
    """Return whether that GPU runs slower now because of heat or power."""
    reasons = (
        pynvml.nvmlClocksThrottleReasonHwSlowdown
        | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | pynvml.nvmlClocksThrottleReasonSwPowerCap
    )
    try:
        with _first_visible() as handle:
            return bool(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & reasons)
    except pynvml.NVMLError:
        return False


def sm_clock_mhz() -> int | None:
    """Return how fast that GPU's processors run now; None where the driver does not tell."""
    try:
        with _first_visible() as handle:
            return int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return None


@contextmanager
def _first_visible() -> Iterator[Any]:
    """The driver's handle of the GPU that CUDA programs take first; raises NVMLError for none.

    Numbers are the driver's, which CUDA's are too where CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    pynvml.nvmlInit()
    try:
        if chosen.isdecimal():
            yield pynvml.nvmlDeviceGetHandleByIndex(int(chosen))
        else:
            yield pynvml.nvmlDeviceGetHandleByUUID(chosen)
    finally:
        pynvml.nvmlShutdown()


def _told(ask: Callable[[], int]) -> int | None:
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    clock = pynvml.NVML_CLOCK_SM
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=_told(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
        driver=str(pynvml.nvmlSystemGetDriverVersion()),
        sm_clock_mhz=_told(lambda: int(pynvml.nvmlDeviceGetClockInfo(handle, clock))),
        max_sm_clock_mhz=_told(lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, clock))),
    )
