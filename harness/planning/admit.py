"""Whether this machine can run a trial; the only file of planning that looks at it.

A trial that is planned here for nodes of a cluster is admitted by what their profile says.
"""

from __future__ import annotations

import sys

from harness.errors import ConfigError
from harness.machine.facts import has_cuda_device, usable_cpus
from harness.machine.torch_device import why_torch_cannot
from harness.planning.nodes import Nodes
from harness.trials.spec import TrialSpec


def default_device(nodes: Nodes | None = None) -> str:
    """Return "cuda" where PyTorch can use an NVIDIA device, or the nodes have one, else "cpu".

    Where there is a device that PyTorch cannot use, one line on stderr says so.
    """
    if nodes is not None:
        return nodes.device
    if not has_cuda_device():
        return "cpu"
    reason = why_torch_cannot()
    if reason is not None:
        print(f"device=cpu, with its sizes, though there is a GPU: {reason}", file=sys.stderr)
        return "cpu"
    return "cuda"


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
