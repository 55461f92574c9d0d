"""Compiles the kernels of Tree-LSTM training for an H200, and prints their resources as JSON.

    python -m tests.support.offline_resources PRECISION by_phase|persistent KERNEL...

It runs in a separate process, because Triton's first import selects compilation or interpretation.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from scripts.kernel_resources import measure_resources
from tests.support.tree_lstm_kernels import modules_of

HIDDEN_SIZE = 256


def main(precision: str, launch: str, *kernels: str) -> None:
    modules = modules_of(HIDDEN_SIZE, precision, persistent=launch == "persistent")
    found = {kernel: asdict(measure_resources(modules[kernel], "sm_90")) for kernel in kernels}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
