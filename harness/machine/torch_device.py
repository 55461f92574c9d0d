"""PyTorch on this machine: whether it can use the GPU, and its unused CUDA libraries.

    python -m dynbatch.harness.machine.torch_device

This prints the size of the libraries on a machine without a GPU, after an installation.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from functools import cache

from dynbatch.harness.machine.facts import has_cuda_device
from dynbatch.harness.machine.process import find_last_words

ASKED = "dynbatch.harness.engine.torch_cuda"  # the module that imports PyTorch
LIMIT_S = 120.0
# NVIDIA's libraries and compilers; not nvidia-ml-py, which describes GPUs.
_FOR_CUDA = re.compile(r"nvidia-[cn].*|cuda-.*")
GIB = 2**30


@cache
def explain_unusable_gpu() -> str | None:
    """Return why PyTorch cannot use a GPU here, and a remedy; None if it can.

    The test takes seconds and runs once per process.
    """
    command = (sys.executable, "-m", ASKED)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"PyTorch did not report within {LIMIT_S:g} s whether it can use the GPU"
    if done.returncode == 0:
        return (done.stdout.strip().splitlines() or [""])[-1] or None
    last = find_last_words(done.stderr) or f"exit status {done.returncode}"
    return f"PyTorch failed ({last}); run bench-doctor"


def describe_unused_libraries() -> str | None:
    """Return the size of CUDA's libraries that no GPU here uses, and how to leave them out."""
    if has_cuda_device():
        return None
    packages = [
        package
        for package in importlib.metadata.distributions()
        if _FOR_CUDA.fullmatch(str(package.metadata["Name"]).lower())  # None: remains of one
    ]
    if not packages:
        return None
    n_bytes = sum(file.size or 0 for package in packages for file in package.files or ())
    return (
        f"PyTorch from this index has {len(packages)} packages of CUDA libraries,"
        f" {n_bytes / GIB:.1f} GiB, which this machine without a GPU does not use;"
        " make install TORCH_INDEX=cpu leaves them out"
    )


def main() -> int:
    line = describe_unused_libraries()
    if line is not None:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
