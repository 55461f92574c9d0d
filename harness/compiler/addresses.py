"""Where arrays are in memory, told to Python in a tenth of the time that NumPy takes."""

from __future__ import annotations

from harness.compiler import pointers
from harness.compiler.compiled import compiled
from harness.compiler.kinds import AnyArray


@compiled
def address_of(array: AnyArray) -> int:
    """Return where the elements of an array begin."""
    return pointers.address_of(array)
