"""Compute the GPU resources of every kernel kind of every model, by compiling without a GPU.

    BENCH_DATA=... python -m scripts.kernel_resources --minutes 9

Writes docs/gpu_kinds.csv, by kind, and the table of docs/gpu_kernels.md, by kernel. Each kind is
compiled separately, and once for all workloads that share it. A call stops when its time is over;
the next call continues.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.launching import OPTIONS
from dynbatch.harness.engine.backends.cuda.module import KernelModule, ModuleEntry, write_module
from dynbatch.harness.engine.backends.cuda.triton_setup import use_own_kernel_cache
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.values.paths import ROOT
from scripts.count_gpu_work import WORKLOADS
from scripts.write_pages import MarkedPage, to_table

PAGE = MarkedPage(ROOT / "docs" / "gpu_kernels.md", "kernel_resources")
KINDS = ROOT / "docs" / "gpu_kinds.csv"
HEAD = "kind,architecture,n_registers,spilled_bytes,shared_bytes"
PRECISION = "ieee"
SAVED_EVERY = 20  # kinds, so that an interrupted call loses little
WARP_SIZE = 32
ARCHITECTURES = {"sm_80": 80, "sm_90": 90, "sm_100": 100}
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one kernel kind.

    Attributes:
        n_registers: registers per thread.
        spilled_bytes: bytes of spills per thread.
        shared_bytes: bytes of shared memory per program.
    """

    n_registers: int
    spilled_bytes: int
    shared_bytes: int


Found = dict[tuple[str, str], Resources]  # by the hash of a kind's text, and architecture
Compile = Callable[[KernelModule, str], Resources]


@dataclass(frozen=True, slots=True)
class KernelKinds:
    """A kernel of a workload, with the hashes of the source text of its kinds."""

    workload: str
    kernel: str
    kinds: tuple[str, ...]


def main(arguments: Sequence[str]) -> None:
    """Compile the kinds without a result, and write both files."""
    parser = argparse.ArgumentParser(description="Compile kinds for GPUs that are not here.")
    parser.add_argument("--minutes", type=float, default=9.0)
    end_s = time.monotonic() + 60 * parser.parse_args(arguments).minutes
    kernels, texts = collect_kernels(
        (workload.name, kernel, module.entries)
        for workload in WORKLOADS
        for backend, _ in workload.arrange_mini_batches(1)
        for kernel, module in backend.modules.items()
    )
    resources = {key: value for key, value in read(KINDS).items() if key[0] in texts}
    n_left = compile_all(
        texts, resources, measure_resources, lambda: time.monotonic() >= end_s, partial(save, KINDS)
    )
    save(KINDS, resources)
    PAGE.write(format_table(kernels, resources))
    print(f"{n_left} of {len(texts) * len(ARCHITECTURES)} remain; rerun to compile them")


def collect_kernels(
    modules: Iterable[tuple[str, str, Sequence[ModuleEntry]]],
) -> tuple[list[KernelKinds], dict[str, KernelModule]]:
    """Return the kernels that have kinds, and a module for each distinct kind by its hash.

    Args:
        modules: workload, kernel and kinds (entries) of each module.
    """
    kernels, texts = [], {}
    for workload, kernel, entries in modules:
        if entries:
            alone = [write_module([entry], PRECISION, {}) for entry in entries]
            names = [hashlib.sha256(module.text.encode()).hexdigest()[:12] for module in alone]
            texts |= dict(zip(names, alone, strict=True))
            kernels.append(KernelKinds(workload, kernel, tuple(names)))
    return kernels, texts


def compile_all(
    texts: dict[str, KernelModule],
    results: Found,
    compile_: Compile,
    is_over: Callable[[], bool],
    save_: Callable[[Found], None],
) -> int:
    """Compile missing results until the time is over, and return the number of those left.

    The H200 (sm_90) comes first, so that the table's main column is complete early; then kind by
    kind for the other architectures.
    """
    others = [name for name in ARCHITECTURES if name != "sm_90"]
    wanted = [*product(texts, ["sm_90"]), *product(texts, others)]
    for name, architecture in wanted:
        if (name, architecture) not in results and not is_over():
            results[name, architecture] = compile_(texts[name], architecture)
            if len(results) % SAVED_EVERY == 0:
                save_(results)
    return len(texts) * len(ARCHITECTURES) - len(results)


# --- one kernel ---


def measure_resources(module: KernelModule, architecture: str) -> Resources:
    """Compile a generated module, and read its resources from the binary."""
    compiled = compile_module(module, architecture)
    usage = _read_usage(compiled.asm["cubin"])
    # Shared memory is allocated at launch, so the binary does not show it.
    return Resources(usage[0], usage[1], int(compiled.metadata.shared))


def compile_module(module: KernelModule, architecture: str) -> Any:
    """Compile a generated module as for a launch, whose pointers are aligned."""
    use_own_kernel_cache()
    floats = {f"p{k}": "*fp32" for k in range(len(module.floats))}
    signature = {"words": "*i32", "slot": "i32", "phase": "i32", **floats}
    pointers = [k for k, kind in enumerate(signature.values()) if kind.startswith("*")]
    aligned = {(k,): [["tt.divisibility", 16]] for k in pointers}
    source = ASTSource(load_generated(module.text, "run"), signature, {}, aligned)
    target = GPUTarget("cuda", ARCHITECTURES[architecture], WARP_SIZE)
    return triton.compile(source, target=target, options=OPTIONS)


def _read_usage(cubin: bytes) -> tuple[int, int]:
    """Return the number of registers, and the bytes of stack and local memory for spills."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        output = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    rows = [tuple(map(int, numbers)) for numbers in _USAGE.findall(output)]
    if not rows:
        raise UnsupportedTrial(f"cuobjdump reports no registers: {output[:200]}")
    return max(row[0] for row in rows), max(row[1] + row[3] for row in rows)


# --- files ---


def read(path: Path) -> Found:
    """Read the results so far; empty without a file, or if it has other columns."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if lines[:1] != [HEAD]:
        return {}
    rows = (line.split(",") for line in lines[1:])
    return {(row[0], row[1]): Resources(*map(int, row[2:])) for row in rows}


def save(path: Path, results: Found) -> None:
    """Write all results, sorted by name."""
    rows = [(*key, *astuple(resources)) for key, resources in sorted(results.items())]
    lines = [",".join(map(str, row)) for row in rows]
    replace_whole(path, "\n".join([HEAD, *lines]) + "\n")


def format_table(kernels: Sequence[KernelKinds], results: Found) -> str:
    rows = []
    for kernel in kernels:
        cells = (format_cell(kernel.kinds, name, results) for name in ARCHITECTURES)
        rows.append((kernel.workload, kernel.kernel, str(len(kernel.kinds)), *cells))
    return to_table(("workload", "kernel", "kinds", *ARCHITECTURES), rows)


def format_cell(kinds: Sequence[str], architecture: str, results: Found) -> str:
    """Format the maxima over kinds: registers, spilled bytes (number of kinds), KiB shared."""
    known = [results[kind, architecture] for kind in kinds if (kind, architecture) in results]
    if len(known) < len(kinds):
        return f"{len(known)} of {len(kinds)} compiled"
    spilled = [resources.spilled_bytes for resources in known if resources.spilled_bytes]
    by = f" (by {len(spilled)})" if spilled else ""
    registers = max(resources.n_registers for resources in known)
    shared = max(-(-resources.shared_bytes // 1024) for resources in known)
    return f"{registers}, {max(spilled, default=0)}{by}, {shared}"


if __name__ == "__main__":
    main(sys.argv[1:])
