"""Validation of timed passes, with a fake source of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.system import Clock, RunSettings
from dynbatch.harness.measuring.checks.timed_check import (
    CALLS_S,
    HIDDEN_SHARE,
    MAX_SLOWER,
    N_PASSES_AGAIN,
    READINGS,
    estimate_change,
    find_hidden_fault,
    find_losses_fault,
    find_unseen_fault,
    judge_untimed_gap,
    measure_reading_s,
    measure_unseen_ratio,
    sum_pass_losses,
)
from dynbatch.harness.measuring.passes import Passes
from dynbatch.harness.records.fingerprint import Fingerprint
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.null_system import Control
from tests.support.engine_models import tree


class Slow(Control):
    """System with configured seconds for each call; unseen: for lists not seen before."""

    def __init__(self, load: float = 0.0, wait: float = 0.0, ask: float = 0.0) -> None:
        super().__init__(RunSettings("infer", "cpu", 1, 1, 0.1, 0))
        self.now_s = 100.0
        self.costs = {"load": load, "wait": wait, "ask": ask}
        self.waits = False
        self.run_s, self.unseen_s = 2.0, 2.0
        self.seen: list[int] = []

    def now_ns(self) -> int:
        return round(self.now_s * 1e9)

    def load(self, instances: Sequence[Any]) -> None:
        self.now_s += self.costs["load"]
        self.instances, self.waits = instances, True

    def synchronize(self) -> None:
        self.now_s += self.costs["wait"] if self.waits else 0.0
        self.waits = False

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.now_s += self.run_s if id(self.instances) in self.seen else self.unseen_s

    def last_loss(self) -> float:
        self.now_s += self.costs["ask"]
        return float(len(self.instances))


JITTER = 1e-4  # 20 us, of runs that take 1 s and more
MINI_BATCHES = ("ab", "cde", "f")
TREES = tuple([tree([1], [-1], [-1])] * n for n in (2, 3, 1))


@pytest.mark.parametrize("kind", ["load", "wait", "ask"])
def test_time_between_runs_is_reported_as_untimed_gap(kind: str) -> None:
    system = Slow(**{kind: 0.5})
    passes = Passes(system, system.now_ns)
    samples = passes.run((*MINI_BATCHES, "warm"))
    assert [sample.total_s for sample in samples] == pytest.approx([2.0] * 4)
    losses, untimed_gap_s = passes.summarize_runs(n_warm=1)
    assert [*losses] == [2.0, 3.0, 1.0, 4.0]
    assert untimed_gap_s == pytest.approx(0.5)
    assert passes.untimed_gap_s[1:] == pytest.approx([0.5] * 3)


class Disturbed(Slow):
    """System whose loads take the given times in turn, and then the last one."""

    def __init__(self, *loads: float) -> None:
        super().__init__()
        self.loads = list(loads)

    def load(self, instances: Sequence[Any]) -> None:
        super().load(instances)
        self.now_s += self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]


class KeepsTwo(Slow):
    """System that caches its preparation of the last two lists."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def load(self, instances: Sequence[Any]) -> None:
        super().load(instances)
        if not any(one is instances for one in self.kept):
            self.now_s += 0.15
        self.kept = [*self.kept[-1:], instances]


def settled(system: Slow, untimed_gap_s: float) -> tuple[float, int]:
    """Return the settled gap for runs of 2 s, whose limit is 0.1 s, and the number of runs."""
    passes = Passes(system, system.now_ns)
    fault, found = judge_untimed_gap(passes, TREES, [2.0] * 3, untimed_gap_s)
    assert (fault is None) == (found <= 0.1)
    return found, len(passes.untimed_gap_s)


@pytest.mark.parametrize("before_s", [0.11, 0.3, 30.0])
@pytest.mark.parametrize(
    ("loads", "found"),
    [
        ([0.05], 0.05),
        ([0.15] * 12 + [0.05], 0.05),  # four passes of five are disturbed
        ([0.15, 0.15, 0.05] * 5, 0.15),  # and some loads of each
        ([0.15], 0.15),
    ],
)
def test_a_gap_above_the_limit_is_measured_again(
    loads: list[float], found: float, before_s: float
) -> None:
    """Background load may lengthen a gap by any factor, but does not last in every pass."""
    assert settled(Disturbed(*loads), before_s) == (pytest.approx(found), 3 * N_PASSES_AGAIN)


def test_repeated_gap_measurement_defeats_caches() -> None:
    assert settled(KeepsTwo(), 0.15)[0] == pytest.approx(0.15)


@pytest.mark.parametrize("untimed_gap_s", [0.01, 0.1])
def test_a_gap_within_the_limit_is_not_measured_again(untimed_gap_s: float) -> None:
    assert settled(Disturbed(0.05), untimed_gap_s) == (untimed_gap_s, 0)


@pytest.mark.parametrize(
    ("untimed_gap_s", "run_s", "reading", "is_wrong"),
    [
        (READINGS * 0.1, 1.0, 0.1, False),  # no longer than reading
        (READINGS * 0.1 + 2 * CALLS_S, 1.0, 0.1, True),
        (HIDDEN_SHARE * 1.0, 1.0, 0.001, False),  # too short to affect any number
        (HIDDEN_SHARE * 1.0 + 0.01, 1.0, 0.001, True),
        (CALLS_S, 1e-6, 0.0, False),  # a few calls from Python
    ],
)
def test_untimed_work_beyond_reading_time_is_a_fault(
    untimed_gap_s: float, run_s: float, reading: float, is_wrong: bool
) -> None:
    fault = find_hidden_fault(untimed_gap_s, run_s, reading)
    assert (fault is not None) == is_wrong


def test_reading_time_grows_with_input_size() -> None:
    short, long = (
        [Chain(words=np.zeros(n, int), labels=np.zeros(n, int))] * 50 for n in (10, 5000)
    )
    assert 0 < measure_reading_s([short] * 5) < measure_reading_s([long] * 5)


@pytest.mark.parametrize(
    ("losses", "trains", "words"),
    [
        ([5.0, 7.0, 5.0, 7.0], False, None),
        ([5.0, 7.0, 5.0001, 7.0], False, None),
        ([5.0, 7.0, 5.0, 5.0], False, "the loss of mini-batch 1 is 5 in pass 2, expected 7"),
        ([5.0, float("nan")], False, "the loss of mini-batch 1 is nan in pass 1"),
        ([5.0, 7.0, 4.9, 7.0], True, None),
        ([5.0, 7.0, 5.0, 7.0], True, "two consecutive passes have equal losses"),
        ([5.1, 7.1, 5.0, 7.0, 5.0, 7.0], True, "two consecutive passes have equal losses"),
        ([5.0, 7.0], True, None),  # a single pass cannot be compared
        ([5.0, 7.0, float("nan"), float("nan")], True, None),  # has a separate warning
    ],
)
def test_every_run_does_its_work(losses: list[float], trains: bool, words: str | None) -> None:
    fault = find_losses_fault(losses, [5.0, 7.0], trains=trains)
    assert (fault is None) == (words is None)
    assert words is None or words in str(fault)


ULP = float(np.spacing(np.float32(5.0)))  # 1e-7 of the loss


@pytest.mark.parametrize(
    ("losses", "change", "is_wrong"),
    [
        ([5.0, 5.0, 5.0 - ULP, 5.0 - ULP, 5.0 - 2 * ULP], 1e-7, False),  # too small for float32
        ([5.0] * 9, 1e-9, False),
        ([5.0] * 9, 1e-3, True),
        ([5.0, 5.0 - 3e-5, *[5.0 - 6e-5] * 7], 1e-5, True),  # steps are skipped after warm-up
        ([0.0, 0.0, 0.0], 0.0, False),
        ([5.0, 4.9, 4.9, 4.8, 4.8], 1e-2, True),  # every other step is skipped
        ([float(np.float32(4 + np.exp(-i))) for i in range(40)], 0.2, False),  # it converges
        ([5.0, 4.9, *[4.8] * 40], 1e-2, True),  # steps end, not their effect
    ],
)
def test_steps_too_small_for_float32_are_no_fault(
    losses: list[float], change: float, is_wrong: bool
) -> None:
    assert (find_losses_fault(losses, [5.0], trains=True, change=change) is not None) == is_wrong


def test_the_change_of_a_loss_is_estimated_from_gradients() -> None:
    sketches = {
        "outputs": ((9.0, 1.0, 1.0),) * 2,
        "gradient of W": ((3.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        "gradient of b": ((1.0, 1.0, 1.0), (2.0, 0.0, 0.0)),
    }
    fingerprint = Fingerprint(workload="", losses=(5.0, 8.0, 1.0), sketches=sketches)
    assert estimate_change(fingerprint, 0.1) == pytest.approx(0.1 * 10 / 5)
    assert estimate_change(fingerprint.model_copy(update={"sketches": {}}), 0.1) == 0


def test_pass_losses_are_kept_until_one_is_not_finite() -> None:
    assert sum_pass_losses([1.0, 2.0, 3.0, 4.0, 5.0], 2) == (3.0, 7.0)
    assert sum_pass_losses([1.0, 2.0, float("nan"), 4.0, 5.0, 6.0], 2) == (3.0,)
    assert len(sum_pass_losses([1.0] * 99, 1)) == 16


def ratio_of(system: Slow, seen_s: float = 2.0) -> float:
    """Return the slowdown of unseen mini-batches, by the time of seen ones in the timed passes."""
    return measure_unseen_ratio(Passes(system, system.now_ns), MINI_BATCHES, [seen_s] * 3)


@pytest.mark.parametrize("slowdown", [1, 3])
@pytest.mark.parametrize(("slower", "is_wrong"), [(0.9, False), (1.5, False), (9.0, True)])
def test_slower_unseen_inputs_are_detected(slower: float, is_wrong: bool, slowdown: int) -> None:
    """Also after a slowdown of the machine, for which no system is at fault."""
    system = Slow()
    system.seen = [id(mini_batch) for mini_batch in MINI_BATCHES]
    system.run_s *= slowdown
    system.unseen_s = slower * system.run_s
    ratio = ratio_of(system)
    assert ratio == pytest.approx(slower, rel=JITTER)
    assert (find_unseen_fault(ratio) is not None) == is_wrong == (slower > MAX_SLOWER)


def test_others_on_the_machine_make_nobody_guilty() -> None:
    """A delay that occurs once per mini-batch is not a violation."""

    class Disturbed(Slow):
        def run(self, clock: Clock, *, update: bool = True) -> None:
            self.unseen_s = 90.0 if len(self.seen) < 3 else 2.0
            self.seen.append(-1)
            super().run(clock, update=update)

    assert find_unseen_fault(ratio_of(Disturbed())) is None


def test_microseconds_of_cold_caches_are_no_fault() -> None:
    """Timed runs of 1 us follow each other; a copy is run once, and takes 5 us."""
    system = Slow()
    system.run_s, system.unseen_s = 1e-6, 5e-6
    assert find_unseen_fault(ratio_of(system, seen_s=1e-6)) is None


def test_shape_compilation_does_not_count_as_slow_unseen_inputs() -> None:
    """The system compiles for the shapes of each mini-batch and each copy before its run."""

    class Compiles(Slow):
        def compile_for(self, instances: Sequence[Any]) -> None:
            self.seen.append(id(instances))

    system = Compiles()
    system.seen = [id(mini_batch) for mini_batch in MINI_BATCHES]
    system.unseen_s = 9 * system.run_s
    assert ratio_of(system) == pytest.approx(1.0, rel=JITTER)


def test_a_cache_as_large_as_a_pass_is_found_while_times_are_taken_again() -> None:
    """The system caches the last three mini-batches, so that unseen ones evict the seen ones."""

    class KeepsThree(Slow):
        def run(self, clock: Clock, *, update: bool = True) -> None:
            super().run(clock, update=update)
            self.seen = [*self.seen, id(self.instances)][-3:]

    system = KeepsThree()
    system.seen = [id(mini_batch) for mini_batch in MINI_BATCHES]
    system.unseen_s = 3 * system.run_s
    assert find_unseen_fault(ratio_of(system)) is not None
