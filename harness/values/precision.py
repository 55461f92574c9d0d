"""Precisions of matmuls by name, and the tolerances of checks for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

EXACT = "ieee"
ROUNDING = 2.0**-24  # largest relative error of a float32 addition


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerances of the checks.

    Attributes:
        array: Largest deviation relative to an array's largest entry, or root mean square relative
            to the array's root mean square.
        noise: Relative error of a loss or of outputs, from float32 sums of hundreds of terms.
    """

    array: float = 1e-4
    noise: float = 2e-6


# Factors have 24, about 22, 11 and 8 bits, and rounding errors pass through about a hundred
# matmuls between a leaf and a gradient. Half precision (2e-4) does not pass as exact.
TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        EXACT: Tolerance(),
        "tf32x3": Tolerance(),
        "tf32": Tolerance(array=2e-2, noise=1e-3),
        "bf16": Tolerance(array=1e-1, noise=1e-2),
    }
)
PRECISIONS = tuple(TOLERANCES)


def is_exact(precision: str) -> bool:
    """Return whether results must be as exact as in float32, so that times are comparable."""
    return TOLERANCES[precision] == TOLERANCES[EXACT]
