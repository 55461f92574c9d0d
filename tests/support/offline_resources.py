"""Compiles kernels of Tree-LSTM training for an H200; prints resources and PTX lint as JSON.

    python -m tests.support.offline_resources PRECISION:KERNEL...

It runs in a separate process, because Triton's first import selects compilation or interpretation.
The lint checks that each call of a kind begins with a barrier: all kinds of a kernel use the same
shared memory, and a call may follow any other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.launching import OPTIONS
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.backends.cuda.triton_setup import use_own_kernel_cache
from tests.support.walked_backend import modules_of

HIDDEN_SIZE = 256
H200 = GPUTarget("cuda", 90, 32)
_FUNCTION = re.compile(r"(?m)^(?=\.(?:func|visible|entry|weak)\b)")
_KIND = re.compile(r"kind_\d+")
_SHARED = re.compile(
    r"\b(?:cp\.async\.(?:c[ag]|bulk)|ld\.shared|st\.shared|ldmatrix|stmatrix|wgmma|atom\.shared)"
)
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
BARRIER = "bar.sync"


def main(*wanted: str) -> None:
    found = {}
    for text in wanted:
        precision, kernel = text.split(":")
        module = modules_of(HIDDEN_SIZE, precision)[kernel]
        compiled = compile_module(module)
        ptx = compiled.asm["ptx"]
        without = "\n".join(line for line in ptx.splitlines() if BARRIER not in line)
        lint = {"guarded": find_kinds(ptx), "guarded_without_barriers": find_kinds(without)}
        found[text] = read_resources(compiled) | lint
    print(json.dumps(found))


def compile_module(module: KernelModule) -> Any:
    """Compile a generated module as for a launch, whose pointers are aligned."""
    use_own_kernel_cache()
    floats = {f"p{k}": "*fp32" for k in range(len(module.floats))}
    signature = {"words": "*i32", "slot": "i32", "phase": "i32", **floats}
    pointers = [k for k, kind in enumerate(signature.values()) if kind.startswith("*")]
    aligned = {(k,): [["tt.divisibility", 16]] for k in pointers}
    source = ASTSource(load_generated(module.text, "run"), signature, {}, aligned)
    return triton.compile(source, target=H200, options=OPTIONS)


def read_resources(compiled: Any) -> dict[str, int]:
    """Return the registers and bytes of spills of a thread, and the shared memory of a program."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        output = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    rows = [tuple(map(int, numbers)) for numbers in _USAGE.findall(output)]
    return {
        "n_registers": max(row[0] for row in rows),
        "spilled_bytes": max(row[1] + row[3] for row in rows),
        # Shared memory is allocated at launch, so the binary does not show it.
        "shared_bytes": int(compiled.metadata.shared),
    }


def find_kinds(ptx: str) -> dict[str, bool]:
    """Return, for each kind's function, whether no shared memory is used before a barrier."""
    found = {}
    for function in _FUNCTION.split(ptx):
        head, _, body = function.partition("{")
        name = _KIND.search(head)
        if name is None or not function.startswith(".func") or not body:
            continue
        accesses = [at.start() for at in _SHARED.finditer(body)]
        first = min(accesses, default=len(body))
        found[name[0]] = not accesses or BARRIER in body[:first]
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
