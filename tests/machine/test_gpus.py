"""Which GPU is looked at: the one that CUDA programs take first, and no other."""

from __future__ import annotations

from collections.abc import Iterator

import pynvml
import pytest

from harness.machine.facts import gpu_is_throttled, sm_clock_mhz, used_gpu

NAMES = ("first", "second")
HOT = "GPU-second"  # slowed down by heat


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A driver of two GPUs; what is opened and closed."""
    calls: list[str] = []

    def by_uuid(uuid: str) -> str:
        if uuid not in (f"GPU-{name}" for name in NAMES):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

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
    driver: list[str],
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    used: str | None,
    is_slow: bool,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert used_gpu() == used
    assert gpu_is_throttled() is is_slow
    assert sm_clock_mhz() == (None if used is None else 1980 if is_slow else 1755)
    assert driver


def test_without_a_driver_no_gpu_is_named_or_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    assert used_gpu() is None
    assert gpu_is_throttled() is False
    assert sm_clock_mhz() is None
