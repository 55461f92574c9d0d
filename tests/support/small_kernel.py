"""Compiles a small kernel for an absent GPU, and prints whether it was compiled or cached.

It runs in a separate process, because Triton's first import selects compilation or interpretation.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.triton_setup import use_own_kernel_cache

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def run(values):
    tl.store(values, tl.load(values) + 1.0)
"""


def main() -> None:
    use_own_kernel_cache()
    load: Any = load_generated
    source = ASTSource(load(SOURCE, "run"), {"values": "*fp32"})
    stages: list[str] = []
    triton.knobs.compilation.listener = lambda times, **_: stages.extend(
        name for name, _ in times.lowering_stages
    )
    kernel: CompiledKernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print("compiled" if stages else "found", len(kernel.asm["cubin"]) > 0)


if __name__ == "__main__":
    main()
