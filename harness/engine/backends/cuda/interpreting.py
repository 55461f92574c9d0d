"""Whether Triton interprets kernels, on the CPU, instead of compiling them, and whether it can."""

from __future__ import annotations

import os
from importlib import metadata

# An array of one number is no longer taken for the number, which Triton did until 3.7: interpreted
# with NumPy 2.3 all kernels are right in Triton 3.6, with 2.4 the first loop fails.
TRITON_SINCE, NUMPY_SINCE = (3, 7), (2, 4)


def is_interpreting() -> bool:
    """Whether the environment asks for it, which Triton decides by when it is first imported."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def why_not_interpreted() -> str | None:
    """What in these versions of Triton and NumPy stands against it; None where nothing does."""
    triton, numpy = _version("triton"), _version("numpy")
    if triton < TRITON_SINCE and numpy >= NUMPY_SINCE:
        return (
            f"the interpreter of Triton {metadata.version('triton')} does not go with NumPy"
            f" {metadata.version('numpy')}; install numpy<2.4, or Triton 3.7 or later"
        )
    return None


def _version(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in metadata.version(package).split(".")[:2])
