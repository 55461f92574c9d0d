"""Launches of the CUDA backend through Triton's launcher, with a stub of the driver's library.

    python -m tests.support.stub_launches

It prints a JSON object: the arguments of a launch, as addresses and numbers, and the error of a
refusal. The stub (stub_cuda.c) logs what reaches the driver. The process needs its own
environment, because libraries are found through it.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher, CudaUtils
from triton.runtime import driver

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.launching import Launch
from dynbatch.harness.engine.backends.cuda.module import HEADER
from dynbatch.harness.measuring.processes.child import is_out_of_memory

KERNEL = f"""{HEADER}
@triton.jit(do_not_specialize=["slot", "phase"])
def run(words, slot, phase, x, y):
    tl.store(y + tl.program_id(0), tl.load(x + tl.load(words + slot + phase)))
"""
SLOT, PHASE, GRID = 5, 3, 264


class StubDriver:
    """Triton's driver for an H200 that is not there."""

    def __init__(self) -> None:
        self.utils, self.launcher_cls = CudaUtils(), CudaLauncher

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return 9, 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def main() -> None:
    driver.set_active(StubDriver())
    words, x, y = torch.zeros(64, dtype=torch.int32), torch.zeros(256), torch.zeros(256)
    arguments = [words.data_ptr(), SLOT, PHASE, x.data_ptr(), y.data_ptr()]
    found: dict[str, Any] = {"arguments": arguments}
    try:
        kernel = load_generated(KERNEL, "run")
        Launch(kernel, SLOT, GRID, words, (x, y)).start(PHASE)
    except RuntimeError as error:
        found |= {"error": str(error), "is_out_of_memory": is_out_of_memory(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
