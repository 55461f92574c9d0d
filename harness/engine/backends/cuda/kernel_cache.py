"""Where Triton keeps what it compiles, said before it is imported, which may not be installed."""

from __future__ import annotations

import os

from harness.machine.process_folder import folder_of_files

FOLDER = "triton"
MANAGER = "harness.engine.backends.cuda.kept_kernels:KeptKernels"


def use_own_kernel_cache() -> None:
    """Have Triton use this user's cache, and look at what it finds there."""
    os.environ["TRITON_CACHE_DIR"] = str(folder_of_files(FOLDER))
    os.environ["TRITON_CACHE_MANAGER"] = MANAGER
