"""Generations of GPUs that Triton compiles the kernels for."""

from __future__ import annotations

import torch

from harness.engine.torch_cuda import why_no_cuda

# By compute capability: the first that copies to shared memory while it computes, as the products
# are written; and the first that Triton 3.9 does not know.
FIRST, BEYOND = (8, 0), (13, 0)


def why_not_on_this_gpu() -> str | None:
    """Say why kernels do not run on the GPU that CUDA takes first; None where they do."""
    reason = why_no_cuda()
    if reason is not None:
        return reason
    capability = torch.cuda.get_device_capability()
    if FIRST <= capability < BEYOND:
        return None
    found, first, last = (".".join(map(str, one)) for one in (capability, FIRST, BEYOND))
    return (
        f"its kernels are for compute capability {first} to below {last}, and"
        f" {torch.cuda.get_device_name()} has {found}; use backend=stepwise"
    )
