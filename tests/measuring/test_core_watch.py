"""How fast a core is, by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.measuring import clock
from harness.measuring.clock import N_CALLS, PAUSE_NS, CoreWatch
from tests.support.fake_time import MS, FakeTime

Watched = Callable[[float], None]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Every call of the fixed work takes `takes_ms` by it."""
    time, exp = FakeTime(), np.exp
    time.takes_ms = 0.01  # type: ignore[attr-defined]

    def slow(*arguments: Any, **options: Any) -> Any:
        time.move(time.takes_ms)  # type: ignore[attr-defined]
        return exp(*arguments, **options)

    monkeypatch.setattr(clock.np, "exp", slow)
    return time


def looks(time: FakeTime, watch: CoreWatch, *takes_ms: float) -> None:
    for one in takes_ms:
        time.takes_ms = one  # type: ignore[attr-defined]
        time.move(PAUSE_NS / MS)
        watch.look()


def test_the_rate_is_calls_per_second(time: FakeTime) -> None:
    watch = CoreWatch(time)
    looks(time, watch, 0.01)
    assert watch.rate_per_s == pytest.approx(100_000)


def test_the_rate_is_that_of_the_middle_look(time: FakeTime) -> None:
    watch = CoreWatch(time)
    looks(time, watch, 0.01, 0.02, 9.0, 0.02, 0.01)
    assert watch.rate_per_s == pytest.approx(50_000)


def test_a_look_comes_no_sooner_than_the_pause(time: FakeTime) -> None:
    watch = CoreWatch(time)
    looks(time, watch, 0.01)
    for _ in range(5):
        before = time.now
        time.move(PAUSE_NS / MS / 10)
        watch.look()
        assert time.now - before == PAUSE_NS // 10, "nothing was done"
    assert watch.rate_per_s == pytest.approx(100_000)
    time.takes_ms = 0.03  # type: ignore[attr-defined]
    time.move(PAUSE_NS / MS)
    watch.look()
    assert watch.rate_per_s == pytest.approx(N_CALLS / (2e-3 * N_CALLS / 100))


def test_every_look_has_its_rate(time: FakeTime) -> None:
    watch = CoreWatch(time)
    looks(time, watch, 0.01, 0.0, 0.02)
    assert watch.rates_per_s == pytest.approx((100_000, 50_000))


def test_a_core_is_watched_without_a_pause() -> None:
    rates = clock.watch_core(5)
    assert len(rates) == 5
    assert min(rates) > 0


def test_nothing_is_told_of_no_look_and_of_a_clock_that_stands_still(time: FakeTime) -> None:
    watch = CoreWatch(time)
    assert watch.rate_per_s is None
    looks(time, watch, 0.0)
    assert watch.rate_per_s is None
