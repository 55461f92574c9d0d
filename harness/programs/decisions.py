"""Random decisions in place of those of a trained network, equal in all systems.

The generator is counter-based: each number is a hash of its key only, so the order of requests does
not matter. (ACRoBat draws from a single seeded stream, in an order that depends on its fibers, and
therefore reports means over 50 seeds: MLSys 2024, section 7.)

Source: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014), for the mixing.
"""

from __future__ import annotations

import zlib

from dynbatch.harness.values.arrays import IntArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw_chance(*key: int) -> float:
    """Return a number, uniform in [0, 1), that depends only on the key."""
    return draw_from_state(0, key)


def draw_from_state(state: int, key: tuple[int, ...]) -> float:
    """Return the number of a key whose first parts are already mixed into `state`."""
    return (mix_key(state, *key) >> 11) * 2.0**-53


def mix_key(state: int, *key: int) -> int:
    """Mix more numbers of a key into a state."""
    for part in key:
        state = ((state ^ part) + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def compute_checksum(*arrays: IntArray) -> int:
    """Return a checksum of an instance's arrays, which identifies it in any order of instances."""
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(array.astype("<i4").tobytes(), checksum)
    return checksum


class NumberAskedFor(Exception):  # noqa: N818 - control flow; the caller reports an error
    """Signal for a request without a key: the value itself is needed and cannot be drawn."""


class Drawn(dict[tuple[int, ...] | None, float]):
    """Decisions of one instance by key; each is drawn at its first lookup.

    Attributes:
        state: seed and instance, mixed; keys are mixed into it.

    Raises:
        NumberAskedFor: for the key None.
    """

    def __init__(self, seed: int, instance: int) -> None:
        super().__init__()
        self.state = mix_key(0, seed, instance)

    def __missing__(self, key: tuple[int, ...] | None) -> float:
        if key is None:
            raise NumberAskedFor
        self[key] = number = draw_from_state(self.state, key)
        return number
