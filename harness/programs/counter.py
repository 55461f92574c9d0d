"""The depth counter that is threaded through a program: round, phase and depth in one number.

Whatever is recorded earlier in the order of execution has the smaller number, so that a join takes
the maximum, a step adds one, and an operand is ready where its number is smaller.

Source: ACRoBat, MLSys 2024, sections 4.1 and B.3.
"""

from __future__ import annotations

import numpy as np

from harness.values.arrays import IntArray, int_array

DEPTH_BITS, PHASE_BITS = 28, 12
ONE_PHASE = 1 << DEPTH_BITS
ONE_ROUND = 1 << (DEPTH_BITS + PHASE_BITS)
MOST_DEPTHS, MOST_PHASES = ONE_PHASE, 1 << PHASE_BITS


def phase_of(counter: int) -> int:
    """The program's stage, from 0."""
    return (counter >> DEPTH_BITS) & (MOST_PHASES - 1)


def depth_of(counter: int) -> int:
    """Steps within the phase (of the round)."""
    return counter & (ONE_PHASE - 1)


def next_phase(counter: int) -> int:
    """Where the next phase of the same round begins."""
    return (counter | (ONE_PHASE - 1)) + 1


def taken_apart(counters: list[int]) -> tuple[IntArray, IntArray, IntArray]:
    """Rounds, phases and depths of many counters (n,)."""
    numbers = np.array(counters, dtype=np.int64)
    rounds = numbers >> (DEPTH_BITS + PHASE_BITS)
    phases = (numbers >> DEPTH_BITS) & (MOST_PHASES - 1)
    return int_array(rounds), int_array(phases), int_array(numbers & (ONE_PHASE - 1))
