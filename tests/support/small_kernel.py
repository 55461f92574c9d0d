"""Compiles a small kernel for an absent GPU, and prints whether it was compiled or cached.

    python -m tests.support.small_kernel [PATTERN=DAMAGE...]

Each damage is applied to the kernel that was compiled before, which is then requested again.
It runs in a separate process, because Triton's first import selects compilation or interpretation.
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.triton_setup import FOLDER, use_own_kernel_cache
from dynbatch.harness.machine.folders import make_user_folder
from tests.support.odd_files import DAMAGES

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def run(values):
    tl.store(values, tl.load(values) + 1.0)
"""


def main(*damages: str) -> None:
    use_own_kernel_cache()
    request()
    for pattern, _, damage in (text.partition("=") for text in damages):
        damaged = sorted(make_user_folder(FOLDER).rglob(pattern))
        assert damaged, pattern
        for path in damaged:
            DAMAGES[damage](path, path)
        request()


def request() -> None:
    """Compile the kernel, or find it in the cache."""
    load: Any = load_generated
    source = ASTSource(load(SOURCE, "run"), {"values": "*fp32"})
    stages: list[str] = []
    triton.knobs.compilation.listener = lambda times, **_: stages.extend(
        name for name, _ in times.lowering_stages
    )
    kernel: CompiledKernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print("compiled" if stages else "found", len(kernel.asm["cubin"]) > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
