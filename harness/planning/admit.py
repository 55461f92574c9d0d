"""Whether this machine can run a trial; the only file of planning that looks at it.

A trial that is planned here for nodes of a cluster is admitted by what their profile says.
"""

from __future__ import annotations

from harness.errors import ConfigError
from harness.machine.facts import usable_cpus
from harness.machine.gpus import has_cuda_device
from harness.planning.nodes import Nodes
from harness.trials.spec import TrialSpec


def default_device(nodes: Nodes | None = None) -> str:
    """Return "cuda" where an NVIDIA device is visible, or the nodes have one, else "cpu"."""
    if nodes is not None:
        return nodes.device
    return "cuda" if has_cuda_device() else "cpu"


def admit(spec: TrialSpec, nodes: Nodes | None = None) -> None:
    """Raise ConfigError for more threads than there are CPUs, or a device that is not there.

    nodes: those that measure; None: this machine does.
    """
    if nodes is not None:
        _admit_elsewhere(spec, nodes)
        return
    n_cpus = len(usable_cpus())
    if spec.threads > n_cpus:
        raise ConfigError(
            f"threads={spec.threads} is not allowed: this machine lets us use {n_cpus} CPUs;"
            f" give 1 to {n_cpus}"
        )
    if spec.device == "cuda" and not has_cuda_device():
        raise ConfigError("device=cuda, but no NVIDIA device is visible; use device=cpu")


def _admit_elsewhere(spec: TrialSpec, nodes: Nodes) -> None:
    if spec.threads > nodes.n_cpus:
        raise ConfigError(
            f"threads={spec.threads} is not allowed: jobs on {nodes.name} have {nodes.n_cpus} CPUs"
            f" (nodes.n_cpus); give 1 to {nodes.n_cpus}"
        )
    if spec.device == "cuda" and nodes.gpu is None:
        raise ConfigError(
            f"device=cuda, but {nodes.name} has no GPU (nodes.gpu); name one, or use device=cpu"
        )
