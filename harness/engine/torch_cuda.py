"""Check of PyTorch on a GPU; `python -m dynbatch.harness.engine.torch_cuda` prints a problem."""

from __future__ import annotations

import sys

import torch


def explain_no_cuda() -> str | None:
    """Return the reason why PyTorch cannot compute on a GPU, with a fix; None if it can.

    The check runs a kernel, because PyTorch may see a GPU for which its build has no code.
    """
    build = f"this PyTorch ({torch.__version__})"
    if torch.version.cuda is None:
        return f"{build} is built for CPUs; install a CUDA build, or use device=cpu"
    if not torch.cuda.is_available():
        return (
            f"{build} found no usable GPU; install a driver for CUDA {torch.version.cuda}, or use"
            " device=cpu"
        )
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except torch.OutOfMemoryError:
        return None  # it can compute; a trial without memory reports that itself
    except RuntimeError as error:
        first = (str(error).splitlines() or ["no error message"])[0]
        return (
            f"{build} cannot compute on {torch.cuda.get_device_name()} ({first}); install a build"
            " for this GPU, or use device=cpu"
        )
    return None


def main() -> int:
    """Print the reason if there is one."""
    print(explain_no_cuda() or "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
