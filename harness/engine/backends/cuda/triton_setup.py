"""Triton's cache, and a check that it compiles and runs kernels here; `python -m` runs one.

Triton needs a C compiler, the headers of Python and the library of the driver, and finds that out
only at its first launch. The check has a process of its own, because a fault of a driver can end
the process, and its success is stored.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib import metadata
from typing import Any

import torch

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.engine.backends.cuda.launching import OPTIONS
from dynbatch.harness.engine.backends.cuda.module import BETWEEN_CALLS, HEADER, KIND
from dynbatch.harness.engine.torch_cuda import is_in_use
from dynbatch.harness.machine.caches import read_cached, write_cached
from dynbatch.harness.machine.folders import make_user_folder
from dynbatch.harness.machine.process import find_last_words

FOLDER = "triton"
MANAGER = "dynbatch.harness.engine.backends.cuda.kept_kernels:KeptKernels"
N_ELEMENTS = 256
TIMEOUT_S = 120  # the first compilation on a machine takes seconds
PASSED = b"passed"
# One call of a function, as in all kernels of the backend.
TEXT = f"""{HEADER}
{KIND}
def double(x, at):
{BETWEEN_CALLS}
    tl.store(x + at, 2.0 * tl.load(x + at))


@triton.jit
def run(x):
    double(x, tl.program_id(0))
"""


def use_own_kernel_cache() -> None:
    """Let Triton use this user's cache, and verify the files in it."""
    os.environ["TRITON_CACHE_DIR"] = str(make_user_folder(FOLDER))
    os.environ["TRITON_CACHE_MANAGER"] = MANAGER


def explain_failing_kernel() -> str | None:
    """Return why Triton cannot run a kernel on CUDA's default GPU, with a fix; None if it can.

    A success is stored for these versions and this GPU. A GPU that other processes use counts as
    able, without being stored: each trial reports that itself.
    """
    versions = [metadata.version(name) for name in ("torch", "triton")]
    facts = [sys.executable, *versions, torch.cuda.get_device_name()]
    name = f"checked-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
    stored = make_user_folder(FOLDER) / name
    if read_cached(stored) == PASSED:
        return None
    reason = run_kernel_apart([sys.executable, "-m", __name__])
    if reason is None:
        write_cached(stored, PASSED)
    elif is_in_use(reason):
        return None
    return reason


def run_kernel_apart(command: list[str]) -> str | None:
    """Run the check as a process; return why it failed, with a fix, or None."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        problem = f"no result after {TIMEOUT_S} s"
    else:
        if done.returncode == 0:
            return None
        problem = find_last_words(done.stderr) or f"exit code {done.returncode}"
    return (
        f"Triton cannot compile and run a kernel here ({problem}); install gcc, the headers of"
        " Python and the driver's libcuda, or use backend=stepwise"
    )


def main() -> int:
    """Double some numbers on the GPU, and compare them."""
    use_own_kernel_cache()
    kernel: Any = load_generated(TEXT, "run")
    x = torch.arange(N_ELEMENTS, dtype=torch.float32, device="cuda")
    kernel[(N_ELEMENTS,)](x, **OPTIONS)
    expected = 2 * torch.arange(N_ELEMENTS, dtype=torch.float32)
    if not torch.equal(x.cpu(), expected):
        print("a kernel doubled numbers wrongly", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
