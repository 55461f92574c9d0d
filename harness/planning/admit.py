"""Whether this machine can run a trial; the only file of planning that looks at it.

A trial that is planned here and measured elsewhere is admitted there.
"""

from __future__ import annotations

from harness.errors import ConfigError
from harness.machine.facts import usable_cpus
from harness.machine.gpus import has_cuda_device
from harness.trials.spec import TrialSpec


def default_device() -> str:
    """Return "cuda" where an NVIDIA device is visible, else "cpu"."""
    return "cuda" if has_cuda_device() else "cpu"


def admit(spec: TrialSpec) -> None:
    """Raise ConfigError for more threads than there are CPUs, or a device that is not there."""
    n_cpus = len(usable_cpus())
    if spec.threads > n_cpus:
        raise ConfigError(
            f"threads={spec.threads} is not allowed: this machine lets us use {n_cpus} CPUs;"
            f" give 1 to {n_cpus}"
        )
    if spec.device == "cuda" and not has_cuda_device():
        raise ConfigError("device=cuda, but no NVIDIA device is visible; use device=cpu")
