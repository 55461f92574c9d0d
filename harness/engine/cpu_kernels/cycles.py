"""The processor's own counter: shares of a run, never a duration."""

from __future__ import annotations

import platform

from harness.compiler.compiled import compiled
from harness.compiler.pointers import count_cycles

# Elsewhere reading it needs a privilege.
READABLE = platform.machine() in ("x86_64", "AMD64")


@compiled
def now() -> int:
    """Return ticks since the processor started, at a constant rate."""
    return count_cycles()
