"""Triton's interpreter without work that it repeats, which takes most of its time.

It replaces functions of triton.language before each launch, and again at each call from one
function of a kernel to another. It also looks for overflows of sums and products of integers, which
small tests do not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def use_quick_interpreter() -> None:
    """Replace once, for good, what functions of triton.language call; look for no overflows."""
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    interpreter._patch_lang(tl.sum.fn)
    interpreter.InterpretedFunction.__call__ = _call


def _call(function: interpreter.InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
    return function.rewrite()(*args, **kwargs)
