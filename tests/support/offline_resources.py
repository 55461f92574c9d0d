"""Compiles the kernels of Tree-LSTM training for an H200; prints resources and PTX lint as JSON.

    python -m tests.support.offline_resources PRECISION KERNEL...

It runs in a separate process, because Triton's first import selects compilation or interpretation.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from scripts.kernel_resources import compile_module, measure_resources
from tests.support.ptx_lint import BARRIER, find_kinds
from tests.support.tree_lstm_kernels import modules_of

HIDDEN_SIZE = 256


def main(precision: str, *kernels: str) -> None:
    modules = modules_of(HIDDEN_SIZE, precision)
    found = {}
    for kernel in kernels:
        resources = asdict(measure_resources(modules[kernel], "sm_90"))
        ptx = compile_module(modules[kernel], "sm_90").asm["ptx"]  # from the cache
        without = "\n".join(line for line in ptx.splitlines() if BARRIER not in line)
        lint = {"guarded": find_kinds(ptx), "guarded_without_barriers": find_kinds(without)}
        found[kernel] = resources | lint
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
