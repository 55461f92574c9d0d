"""How fast a core and the memory are, by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.measuring import machine_rates
from harness.measuring.machine_rates import (
    COPIED_BYTES,
    N_CALLS,
    N_CORE_WINDOWS,
    core_rate_per_s,
    memory_rate_bytes_per_s,
)
from harness.measuring.machine_rates import machine_rates as both_rates
from tests.support.fake_time import FakeTime

Takes = Callable[[str, list[float]], FakeTime]


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Takes:
    """Lets calls of a function of NumPy take milliseconds, the last for ever, by the clock."""
    time = FakeTime()

    def of(name: str, milliseconds: list[float]) -> FakeTime:
        real, source = getattr(np, name), iter(milliseconds)

        def slow(*arguments: Any, **options: Any) -> Any:
            time.move(next(source, milliseconds[-1]))
            return real(*arguments, **options)

        monkeypatch.setattr(machine_rates.np, name, slow)
        return time

    return of


@pytest.mark.parametrize("ms", [0.01, 0.015])
def test_the_cores_rate_is_calls_per_second(takes: Takes, ms: float) -> None:
    assert core_rate_per_s(takes("exp", [ms])) == pytest.approx(1000 / ms)


def test_a_few_interrupted_windows_do_not_count(takes: Takes) -> None:
    interrupted = [1.0] * N_CALLS * (N_CORE_WINDOWS // 3)
    assert core_rate_per_s(takes("exp", [*interrupted, 0.01])) == pytest.approx(100_000)


@pytest.mark.parametrize("ms", [4.0, 8.0])
def test_the_memorys_rate_is_bytes_per_second(takes: Takes, ms: float) -> None:
    time = takes("copyto", [1000.0, ms])  # the first makes pages
    assert memory_rate_bytes_per_s(time) == pytest.approx(COPIED_BYTES / (ms * 1e-3))


def test_no_memory_for_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(machine_rates.np, "ones", refused)
    assert both_rates() is None


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    rates = both_rates(FakeTime())
    assert rates is not None
    assert min(rates) > 0
