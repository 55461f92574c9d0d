"""Machines that measure, this one or nodes of a cluster, and checks that they can run a trial.

The head node plans for nodes as their profile describes them; each node checks itself:

nodes:                   # in a file of profiles/, passed to snakemake as --configfile
  name: h200             # name of this kind of node in messages
  n_cpus: 16             # CPUs that a job may use
  memory_gib: 120        # memory of a job
  gpu: NVIDIA H200       # driver name of the GPU, or a part of it; default: trials run on the CPU
  cpu: EPYC 9575F        # name of the CPU in bench-doctor, or a part of it; default: any
  partition: gpu         # Slurm partition
  gres: gpu:1
  constraint: h200
  account: mine          # only if the cluster requires one
  block: 30m             # approximate duration of a job that measures
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.cgroup import read_cpu_quota
from dynbatch.harness.machine.facts import Machine, count_usable_cpus, has_cuda_device
from dynbatch.harness.machine.torch_device import explain_unusable_gpu
from dynbatch.harness.planning.durations import parse_duration
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.checked import Count, Text, read

GIB = 2**30
LARGEST_GIB = 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
HERE = ("local", "dryrun", "touch")  # Snakemake executors that run jobs on this machine
# Fraction of the installed memory that the operating system may reserve.
KEPT_BY_SYSTEM = 0.1


@dataclass(frozen=True, slots=True)
class Nodes:
    """One kind of node; None allows any value."""

    name: Text
    n_cpus: Count
    memory_gib: Annotated[float, Ge(0.5), Le(LARGEST_GIB)]
    gpu: Text | None = None
    cpu: Text | None = None
    partition: Text | None = None
    gres: Text | None = None
    constraint: Text | None = None
    account: Text | None = None
    block: Text = "30m"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"nodes.name={self.name} is not allowed: expected letters, digits, dots and dashes"
            )
        parse_duration(self.block, "nodes.block")

    @property
    def device(self) -> str:
        return "cpu" if self.gpu is None else "cuda"

    @property
    def block_s(self) -> float:
        return parse_duration(self.block, "nodes.block")

    @property
    def memory_mib(self) -> int:
        return int(self.memory_gib * 1024)

    @property
    def resources(self) -> dict[str, str]:
        """Resources that a job requests from Snakemake's executor, without its size."""
        asked = {
            "slurm_partition": self.partition,
            "slurm_account": self.account,
            "constraint": self.constraint,
            "gres": self.gres,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def explain_mismatch(self, machine: Machine) -> str | None:
        """Return the differences between a machine and this kind of node in one line, or None."""
        n_usable = len(machine.usable_cpus)
        names = [gpu.name for gpu in machine.gpus]
        least_bytes = (1 - KEPT_BY_SYSTEM) * self.memory_gib * GIB
        faults = [
            self.cpu is not None
            and self.cpu not in machine.cpu
            and f"expected CPU {self.cpu}, got {machine.cpu}",
            n_usable != self.n_cpus and f"expected {self.n_cpus} usable CPUs, got {n_usable}",
            machine.memory_bytes < least_bytes
            and f"expected {self.memory_gib:g} GiB memory, got {machine.memory_bytes / GIB:.1f}",
            self.gpu is not None
            and not any(self.gpu in name for name in names)
            and f"expected GPU {self.gpu}, got {', '.join(names) or 'none'}",
        ]
        reasons = [fault for fault in faults if fault]
        if not reasons:
            return None
        return f"{machine.hostname} is not a {self.name}: {'; '.join(reasons)}"


def read_nodes(config: Mapping[str, Any]) -> Nodes | None:
    """Read the key `nodes` of a run's configuration.

    Returns:
        None if this machine measures.
    """
    content = config.get("nodes")
    return None if content is None else read(Nodes, content, "nodes.")


def check_executor(nodes: Nodes | None, executor: str) -> None:
    """Raise ConfigError if Snakemake's executor does not run jobs on the planned machines."""
    if nodes is not None and executor != "slurm":
        raise ConfigError(
            f"the key nodes is set, but the executor is {executor};"
            " set --workflow-profile profiles/slurm, or remove nodes"
        )
    if nodes is None and executor not in HERE:
        raise ConfigError(
            f"the executor is {executor}, but the key nodes is not set; set it as in"
            " profiles/slurm/nodes.yaml"
        )


def choose_device(nodes: Nodes | None) -> str:
    """Return "cuda" if the nodes have a GPU, or there is one here, else "cpu".

    Raises:
        ConfigError: if there is one here that PyTorch cannot use.
    """
    if nodes is not None:
        return nodes.device
    if not has_cuda_device():
        return "cpu"
    _check_gpu()
    return "cuda"


def _check_gpu() -> None:
    """Raise ConfigError if PyTorch cannot use the GPU of this machine."""
    reason = explain_unusable_gpu()
    if reason is not None:
        raise ConfigError(f"the GPU cannot be used: {reason}")


def check_machine(spec: TrialSpec, nodes: Nodes | None = None) -> None:
    """Check that a machine has the CPUs and the device of a trial.

    Args:
        nodes: nodes that measure; None: this machine measures.

    Raises:
        ConfigError: for more threads than CPUs, or a device that does not exist or cannot be used.
    """
    if spec.threads > 1:
        _check_cpus(spec.threads, nodes)
    if spec.device == "cuda" and nodes is not None and nodes.gpu is None:
        raise ConfigError(
            f"device=cuda, but {nodes.name} has no GPU; set nodes.gpu, or set device=cpu"
        )
    if spec.device == "cuda" and nodes is None:
        if not has_cuda_device():
            raise ConfigError("device=cuda, but no NVIDIA device is visible; set device=cpu")
        _check_gpu()


def _check_cpus(n_threads: int, nodes: Nodes | None) -> None:
    n_cpus = count_usable_cpus() if nodes is None else nodes.n_cpus
    if n_threads <= n_cpus:
        return
    quota = read_cpu_quota()
    reason = f"this machine has {n_cpus} usable CPU{'s' if n_cpus > 1 else ''}"
    reason += "" if quota is None else f" (CPU quota of {quota:.2g} cores)"
    if nodes is not None:
        reason = f"jobs on {nodes.name} have {n_cpus} CPUs (nodes.n_cpus)"
    raise ConfigError(
        f"threads={n_threads} is not allowed: {reason}; set"
        f" {'1' if n_cpus == 1 else f'1 to {n_cpus}'}"
    )
