"""How fast a core is, by a clock that a test moves."""

from __future__ import annotations

import numpy as np
import pytest

from harness.measuring import core_rate
from harness.measuring.core_rate import N_CALLS, N_WINDOWS, core_rate_per_s
from tests.support.fake_time import FakeTime


@pytest.fixture
def windows_ms(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeTime, list[float]]:
    """A clock, and how long each window takes by it."""
    time, takes_ms = FakeTime(), [2.0] * N_WINDOWS
    n_calls = 0
    exp = np.exp

    def slow(*arguments: object, **options: object) -> object:
        nonlocal n_calls
        time.move(takes_ms[n_calls // N_CALLS] / N_CALLS)
        n_calls += 1
        return exp(*arguments, **options)

    monkeypatch.setattr(core_rate.np, "exp", slow)
    return time, takes_ms


def test_the_rate_is_that_of_the_middle_window(windows_ms: tuple[FakeTime, list[float]]) -> None:
    time, takes_ms = windows_ms
    assert core_rate_per_s(time) == pytest.approx(N_CALLS / 0.002)
    assert len(takes_ms) == N_WINDOWS


def test_a_few_interrupted_windows_do_not_count(windows_ms: tuple[FakeTime, list[float]]) -> None:
    time, takes_ms = windows_ms
    takes_ms[:10] = [30.0] * 10
    assert core_rate_per_s(time) == pytest.approx(N_CALLS / 0.002)


def test_a_slower_core_shows(windows_ms: tuple[FakeTime, list[float]]) -> None:
    time, takes_ms = windows_ms
    takes_ms[:] = [3.0] * N_WINDOWS
    assert core_rate_per_s(time) == pytest.approx(N_CALLS / 0.003)
