"""numba's way from a function to machine code, without what plain loops over numbers do not need.

Left out are passes that look for closures, `with`, array expressions, branches that a type decides
and literals to unroll; static single assignment, which LLVM makes anyway; and legalisation, which
writes where each variable ends. That is for those that count references, of which there are none
(_nrt=False): for others a variable's end is a store that LLVM reads and throws away.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.rewrites.static_raise import RewriteConstRaises
from numba.core.typed_passes import (
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
)
from numba.core.untyped_passes import (
    FixupArgs,
    IRProcessing,
    TranslateByteCode,
)


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
class StaticRaises(FunctionPass):
    """Errors that are raised with constants: of numba's rewrites the one that is needed."""

    _name = "static_raises"

    def __init__(self) -> None:
        FunctionPass.__init__(self)  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """Returns whether anything was changed."""
        rewrite_of: Any = RewriteConstRaises
        code, changed = state.func_ir, False
        for label, block in list(code.blocks.items()):
            rewrite = rewrite_of(state)
            if rewrite.match(code, block, None, None):
                code.blocks[label] = rewrite.apply()
                changed = True
        return changed


_PASSES: tuple[Any, ...] = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    StaticRaises,
    NopythonTypeInference,
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
