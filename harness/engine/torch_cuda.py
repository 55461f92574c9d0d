"""Check of PyTorch on a GPU; `python -m dynbatch.harness.engine.torch_cuda` prints a problem."""

from __future__ import annotations

import sys

import torch

from dynbatch.harness.machine.facts import describe_driver, read_gpu

# Indices with PyTorch's builds: a driver for a CUDA runs builds of all CUDAs with its major number.
BUILDS = {11: "cu118", 12: "cu126", 13: "cu130"}
CHECK = "check CUDA_VISIBLE_DEVICES and nvidia-smi, or set device=cpu"


def explain_no_cuda() -> str | None:
    """Return the reason why PyTorch cannot compute on a GPU, with a fix; None if it can.

    The check runs a kernel, because PyTorch may see a GPU for which its build has no code.
    """
    build = f"this PyTorch ({torch.__version__})"
    driver = describe_driver()
    got = "none" if driver is None else f"{driver[0]} for CUDA {_format_cuda(driver[1])}"
    if torch.version.cuda is None:
        return (
            f"{build} is built for CPUs: expected a build for CUDA (driver: {got}); {_fix(driver)}"
        )
    sees, major = torch.cuda.is_available(), int(torch.version.cuda.partition(".")[0])
    if not sees and (driver is None or driver[1][0] < major):
        wanted = f"expected a driver for CUDA {torch.version.cuda}, got {got}"
        return f"{build} finds no usable GPU: {wanted}; {_fix(driver)}"
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except RuntimeError as error:
        if is_in_use(str(error)):
            return None  # it can compute; a trial without memory reports that itself
        first = (str(error).splitlines() or ["no error message"])[0]
        if not sees:
            return f"{build} finds no usable GPU ({first}), but the driver fits: {got}; {CHECK}"
        problem = f"{build} cannot compute on {torch.cuda.get_device_name()} ({first})"
        if "no kernel image" in first:
            wanted = "sm_{}{}".format(*torch.cuda.get_device_capability())
            return (
                f"{problem}: expected a build for {wanted}, got one for"
                f" {', '.join(torch.cuda.get_arch_list())}; choose another of PyTorch's indices in"
                " make install TORCH_INDEX=INDEX, or set device=cpu"
            )
        return f"{problem}; {CHECK}"
    return None


def is_in_use(message: str) -> bool:
    """Return whether CUDA failed only because other processes use the GPU."""
    if "busy or unavailable" in message:  # or it is in a mode that lets no process use it
        reading = read_gpu()
        return reading is not None and bool(reading.processes)
    return "out of memory" in message


def _fix(driver: tuple[str, tuple[int, int]] | None) -> str:
    """Return the fix: a build that the driver runs, if there is a driver."""
    if driver is None:
        return "install NVIDIA's driver, or set device=cpu"
    index = BUILDS[min(max(driver[1][0], min(BUILDS)), max(BUILDS))]
    return f"run make install TORCH_INDEX={index}, or set device=cpu"


def _format_cuda(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def main() -> int:
    """Print the reason if there is one."""
    print(explain_no_cuda() or "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
