"""Decisions that stand in for those that a trained network would make, equal in all systems.

A counter-based generator: each number is a hash of its key alone, so that no order of asking
changes it (ACRoBat draws from one seeded stream, which its fibers draw from in another order; it
therefore reports means over 50 seeds: MLSys 2024, section 7). The mixing is SplitMix64's (Steele,
Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import zlib

from harness.values.arrays import IntArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def chance(*key: int) -> float:
    """Return a number, uniform in [0, 1), that depends on the key's numbers alone."""
    return chance_from(0, key)


def chance_from(state: int, key: tuple[int, ...]) -> float:
    """Return the same, if the first numbers of the key are mixed already."""
    return (mixed(state, *key) >> 11) * 2.0**-53


def mixed(state: int, *key: int) -> int:
    """Mix more numbers of a key into a state."""
    for part in key:
        state = ((state ^ part) + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def key_of(*arrays: IntArray) -> int:
    """Return a checksum of an instance's arrays as its number, whatever the order of instances."""
    found = 0
    for array in arrays:
        found = zlib.crc32(array.astype("<i4").tobytes(), found)
    return found


class NumberAskedFor(Exception):  # noqa: N818 - whoever asks says what is wrong
    """There is no key: what is asked for is not drawn."""


class Drawn(dict[tuple[int, ...] | None, float]):
    """The numbers of one instance by key; each is drawn when it is first asked for.

    state: seed and instance, mixed; numbers of a key are mixed into it. Raises NumberAskedFor for
    no key.
    """

    def __init__(self, seed: int, instance: int) -> None:
        super().__init__()
        self.state = mixed(0, seed, instance)

    def __missing__(self, key: tuple[int, ...] | None) -> float:
        if key is None:
            raise NumberAskedFor
        self[key] = found = chance_from(self.state, key)
        return found
