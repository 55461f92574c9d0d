"""How exact products of matrices are, by name, and how far results may then be from the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

EXACT = "ieee"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a check lets pass.

    array: largest deviation over an array's largest entry, and root mean square over its own.
    noise: of a loss or of outputs, over their size: float32 sums of hundreds of terms.
    """

    array: float = 1e-4
    noise: float = 2e-6


# Factors have 24, about 22, 11 and 8 bits: what rounding takes goes through about a hundred
# products between a leaf and a gradient. Half precision (2e-4) does not pass for an exact one.
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
    """Whether results are checked as float32's are, so that their times may be compared."""
    return TOLERANCES[precision] == TOLERANCES[EXACT]
