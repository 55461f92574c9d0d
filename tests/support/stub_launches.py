"""Launches of the CUDA backend through Triton's launcher, with a stub of the driver's library.

    python -m tests.support.stub_launches

It prints a JSON object: the arguments of two launches, one for a phase and one persistent, as
addresses and numbers, and the error of a refusal. The stub (stub_cuda.c) logs what reaches the
driver. The process needs an environment of its own, because libraries are found through it.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher, CudaUtils
from triton.runtime import driver

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.launching import Launch, Persistent
from dynbatch.harness.engine.backends.cuda.module import BARRIER, HEADER
from dynbatch.harness.measuring.processes.child import is_out_of_memory

BY_PHASE = f"""{HEADER}
@triton.jit(do_not_specialize=["slot", "phase"])
def run(words, slot, phase, x, y):
    tl.store(y + tl.program_id(0), tl.load(x + tl.load(words + slot + phase)))
"""
PERSISTENT = f"""{HEADER}
{BARRIER}

@triton.jit(do_not_specialize=["slot"])
def run(words, slot, barrier, x, y):
    meet(barrier, tl.num_programs(0))
    tl.store(y + tl.program_id(0), tl.load(x + tl.load(words + slot)))
"""
H200 = SimpleNamespace(
    regs_per_multiprocessor=65536,
    shared_memory_per_multiprocessor=233472,
    max_threads_per_multi_processor=2048,
    multi_processor_count=132,
)
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
    words, barrier = torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    x, y = torch.zeros(256), torch.zeros(256)
    launcher = Persistent(torch.device("cpu"))
    launcher._barrier = barrier
    launcher._device = SimpleNamespace(type="cuda")  # type: ignore[assignment]
    properties: Any = lambda _: H200  # noqa: E731
    torch.cuda.get_device_properties = properties
    found: dict[str, Any] = {
        "phase": [words.data_ptr(), SLOT, PHASE, x.data_ptr(), y.data_ptr()],
        "persistent": [words.data_ptr(), SLOT, barrier.data_ptr(), x.data_ptr(), y.data_ptr()],
    }
    try:
        kernel = load_generated(BY_PHASE, "run")
        Launch(kernel, SLOT, GRID, words, (x, y)).start(PHASE)
        kernel = load_generated(PERSISTENT, "run")
        launcher.start("forward", [(Launch(kernel, SLOT, GRID, words, (x, y)), 1)])
    except RuntimeError as error:
        found |= {"error": str(error), "is_out_of_memory": is_out_of_memory(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
