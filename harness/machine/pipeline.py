"""numba's way from a function to machine code, without what plain loops over numbers do not need.

Left out are passes that look for closures, `with`, array expressions, branches that a type decides
and literals to unroll, and static single assignment, which LLVM makes anyway: a third of the time
that a stage of a model takes to compile.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
)
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    RewriteDynamicRaises,
    TranslateByteCode,
)

_PASSES: tuple[Any, ...] = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    GenericRewrites,  # errors that are raised, constants as indices
    RewriteDynamicRaises,
    NopythonTypeInference,
    IRLegalization,
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
)


class Straight(CompilerBase):
    """Every variable has one type, wherever it is assigned to."""

    def define_pipelines(self) -> list[Any]:
        """One pipeline: without numba's fallback to its interpreter, either."""
        make: Any = PassManager
        passes = make("straight")
        for one in _PASSES:
            passes.add_pass(one, one.__name__)
        passes.finalize()
        return [passes]
