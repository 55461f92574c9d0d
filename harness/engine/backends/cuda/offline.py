"""Kernels compiled for a GPU that need not be there, and what they take of its processors."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.compiler.registry import load_generated
from harness.engine.backends.cuda.backend import use_own_kernel_cache
from harness.engine.backends.cuda.launching import COOPERATIVE, OPTIONS
from harness.engine.backends.cuda.module import Module
from harness.errors import UnsupportedTrial

WARP_SIZE = 32
ARCHITECTURES = {"sm_80": 80, "sm_90": 90, "sm_100": 100}
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one kernel: registers and bytes of spills a thread, bytes of shared memory a program."""

    n_registers: int
    spilled_bytes: int
    shared_bytes: int


def resources_of(module: Module, architecture: str) -> Resources:
    """Compile a generated module as it is launched, and ask the assembler what it takes.

    Raises KeyError for an unknown architecture.
    """
    use_own_kernel_cache()
    source = ASTSource(*_typed(module))
    target = GPUTarget("cuda", ARCHITECTURES[architecture], WARP_SIZE)
    options = {**OPTIONS, **(COOPERATIVE if module.persistent else {})}
    compiled: Any = triton.compile(source, target=target, options=options)
    found = _usage(compiled.asm["cubin"], Path(triton.__file__).parent)
    # Shared memory is taken when a kernel is launched; the assembler sees none of it.
    return Resources(found[0], found[1], int(compiled.metadata.shared))


def _typed(module: Module) -> Sequence[Any]:
    """The function, types of its arguments, constants, and that pointers are aligned."""
    function = load_generated(module.text, "run")
    floats = {f"p{k}": "*fp32" for k in range(len(module.floats))}
    third = {"barrier": "*i32"} if module.persistent else {"phase": "i32"}
    signature = {"words": "*i32", "slot": "i32", **third, **floats}
    aligned = {
        (k,): [["tt.divisibility", 16]]
        for k, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    return function, signature, {}, aligned


def _usage(cubin: bytes, folder: Path) -> tuple[int, int]:
    """Registers, and bytes of the stack, which holds what registers have no room for."""
    tool = folder / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = [tuple(map(int, numbers)) for numbers in _USAGE.findall(said)]
    if not found:
        raise UnsupportedTrial(f"cuobjdump says nothing of registers: {said[:200]}")
    return max(one[0] for one in found), max(one[1] + one[3] for one in found)
