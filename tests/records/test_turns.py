"""Turns: which count, and ratios within the cycles of a block."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.records.turns import (
    collect_turn_seconds,
    compute_cpu_share,
    compute_pass_s,
    compute_ratio,
)
from tests.support.records import turn


def test_a_turn_of_several_passes_is_their_median() -> None:
    passes_s = [3.0, 3.0, 9.0, 5.0]  # three in the first turn, one in the second
    seconds = collect_turn_seconds(passes_s, [turn(0, 3), turn(2, 1, is_disturbed=True)])
    assert seconds == {0: (3.0, False), 2: (5.0, True)}


def test_without_turns_every_pass_is_one() -> None:
    assert collect_turn_seconds([3.0, 7.0], ()) == {0: (3.0, False), 1: (7.0, False)}


def test_turns_must_have_as_many_passes_as_there_are_times() -> None:
    with pytest.raises(ValueError, match="3 passes in turns: expected 2"):
        collect_turn_seconds([1.0, 2.0], [turn(0), turn(1, 2)])


@pytest.mark.parametrize(
    ("disturbed", "expected"),
    [
        ((), 3.0),
        ((4,), 2.5),  # of 1, 2, 3, 4
        ((2, 3, 4), 3.0),  # only two would remain
    ],
)
def test_disturbed_turns_do_not_count_if_enough_remain(
    disturbed: Sequence[int], expected: float
) -> None:
    seconds = {k: (k + 1.0, k in disturbed) for k in range(5)}
    assert compute_pass_s(seconds) == expected


def test_a_ratio_is_within_cycles_and_both_members_of_a_cycle_are_left_out() -> None:
    own = {0: (2.0, False), 1: (20.0, True), 2: (4.0, False), 3: (8.0, False), 9: (1.0, False)}
    base = {0: (1.0, False), 1: (10.0, False), 2: (2.2, False), 3: (3.0, True), 5: (1.0, False)}
    # Cycles 1 and 3 have a disturbed member; only two would remain, so that all four count.
    assert compute_ratio(own, base) == pytest.approx((2.0 + 2.0) / 2)
    own[4], base[4] = (3.0, False), (1.0, False)
    assert compute_ratio(own, base) == pytest.approx(2.0)
    assert compute_ratio({0: (1.0, False)}, {1: (1.0, False)}) is None


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.booleans(), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.floats(0.1, 10),
)
def test_the_rule_is_symmetric_and_what_slows_a_whole_cycle_cancels(
    cycles: list[tuple[float, float, bool, bool]], slowdown: float
) -> None:
    own = {k: (a, doubt) for k, (a, _, doubt, _) in enumerate(cycles)}
    base = {k: (b, doubt) for k, (_, b, _, doubt) in enumerate(cycles)}
    ratio = compute_ratio(own, base)
    assert ratio is not None
    slower = [
        {k: (s * (slowdown if k % 2 else 1), d) for k, (s, d) in side.items()}
        for side in (own, base)
    ]
    assert compute_ratio(*slower) == pytest.approx(ratio)
    if len(cycles) % 2 or ratio == 1:  # the median of an even number is a mean
        marks = sum(not (a or b) for *_, a, b in cycles)
        if (marks if marks >= 3 else len(cycles)) % 2:
            assert compute_ratio(base, own) == pytest.approx(1 / ratio)


def test_cpu_share() -> None:
    assert compute_cpu_share([turn(0, cpu_s=0.5), turn(1, cpu_s=1.5)]) == pytest.approx(1.0)
    assert compute_cpu_share([]) is None
