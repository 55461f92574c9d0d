"""The processor's own counter, read inside compiled code: shares of a run, never a duration."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from harness.machine.compiled import compiled

# Elsewhere reading it needs a privilege.
READABLE = platform.machine() in ("x86_64", "AMD64")


@intrinsic
def cycles(_typing: Any) -> Any:
    """Ticks since the processor started, at a constant rate."""

    def read(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        name = "llvm.readcyclecounter"
        counter = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, name
        )
        return builder.call(counter, [])

    return types.int64(), read


@compiled
def now() -> int:  # pragma: no cover - compiled
    """The same, from Python."""
    found: int = cycles()  # type: ignore[call-arg]
    return found
