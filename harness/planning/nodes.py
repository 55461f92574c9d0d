"""What measures: this machine, or nodes of a cluster as its profile says; which trials it can run.

Nodes are planned for on the head node, and checked on each:

nodes:                   # a file of profiles/, given to snakemake as --configfile
  name: h200             # of this kind of node: a section of the report
  n_cpus: 16             # that a job may use
  memory_gib: 120        # of a job
  gpu: NVIDIA H200       # in its driver's words, or a part of them; left out: trials run on the CPU
  cpu: EPYC 9575F        # as bench-doctor says, or a part of it; left out: any
  partition: gpu         # of Slurm
  gres: gpu:1
  constraint: h200
  account: mine          # where the cluster wants one
  block: 30m             # about so long is a job that measures
  scheduler: slurm       # or kubernetes
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from harness.errors import ConfigError
from harness.machine.facts import Machine, has_cuda_device, usable_cpus
from harness.machine.torch_device import why_torch_cannot
from harness.planning.budget import seconds_of
from harness.trials.spec import TrialSpec
from harness.values.checked import check_count, check_number

GIB = 2**30
LARGEST_GIB = 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
SCHEDULERS = {"slurm": "slurm", "kubernetes": "cluster-generic"}  # and Snakemake's executors
HERE = ("local", "dryrun", "touch")  # executors of Snakemake's that leave jobs on this machine
_TEXTS = ("gpu", "cpu", "partition", "gres", "constraint", "account")
# The system keeps some memory for itself, so that a node never has all that was built into it.
KEPT_BY_SYSTEM = 0.1


@dataclass(frozen=True, slots=True)
class Nodes:
    """One kind of node; what is None may be anything. Raises ConfigError for what cannot be one."""

    name: str
    n_cpus: int
    memory_gib: float
    gpu: str | None = None
    cpu: str | None = None
    partition: str | None = None
    gres: str | None = None
    constraint: str | None = None
    account: str | None = None
    block: str = "30m"
    scheduler: str = "slurm"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"nodes.name={self.name} is not allowed; give letters, digits, dots and dashes"
            )
        check_count("nodes.n_cpus", self.n_cpus, 1)
        check_number("nodes.memory_gib", self.memory_gib, 0.5, LARGEST_GIB)
        for key in _TEXTS:
            value = getattr(self, key)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ConfigError(f"nodes.{key}={value} is no text; quote it, or leave it out")
        seconds_of(str(self.block), "nodes.block")
        if self.scheduler not in SCHEDULERS:
            known = ", ".join(SCHEDULERS)
            raise ConfigError(f"nodes.scheduler={self.scheduler} is unknown; choose one of {known}")

    @property
    def device(self) -> str:
        """What trials run on where nothing else is said."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def block_s(self) -> float:
        return seconds_of(str(self.block), "nodes.block")

    @property
    def memory_mib(self) -> int:
        return int(self.memory_gib * 1024)

    @property
    def resources(self) -> dict[str, str]:
        """What a job asks Snakemake's executor for, beside its size."""
        asked = {
            "slurm_partition": self.partition,
            "slurm_account": self.account,
            "constraint": self.constraint,
            "gres": self.gres,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def why_not(self, machine: Machine) -> str | None:
        """Say what of a machine is not as planned, in one line; None where all is."""
        n_usable = len(machine.usable_cpus)
        names = [gpu.name for gpu in machine.gpus]
        least_bytes = (1 - KEPT_BY_SYSTEM) * self.memory_gib * GIB
        faults = [
            self.cpu is not None
            and self.cpu not in machine.cpu
            and f"its CPU is {machine.cpu}, not {self.cpu}",
            n_usable != self.n_cpus and f"it lets us use {n_usable} CPUs, not {self.n_cpus}",
            machine.memory_bytes < least_bytes
            and f"it has {machine.memory_bytes / GIB:.1f} GiB of memory, not {self.memory_gib:g}",
            self.gpu is not None
            and not any(self.gpu in name for name in names)
            and f"its GPU is {', '.join(names) or 'none'}, not {self.gpu}",
        ]
        found = [fault for fault in faults if fault]
        if not found:
            return None
        return f"{machine.hostname} is no {self.name}: {'; '.join(found)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for what a node is told."""
        return asdict(self)


def nodes_of(config: Mapping[str, Any]) -> Nodes | None:
    """Read the key `nodes` of a run's configuration; None where nothing is measured elsewhere.

    Raises ConfigError where it is wrong.
    """
    said = config.get("nodes")
    if said is None:
        return None
    if not isinstance(said, Mapping):
        raise ConfigError(f"nodes={said} is no mapping; see profiles/slurm/nodes.yaml")
    known = [one.name for one in fields(Nodes)]
    unknown = sorted(set(map(str, said)) - set(known))
    if unknown:
        raise ConfigError(f"nodes.{unknown[0]} is unknown; known are {', '.join(known)}")
    missing = [key for key in ("name", "n_cpus", "memory_gib") if said.get(key) is None]
    if missing:
        raise ConfigError(f"nodes has no {missing[0]}; see profiles/slurm/nodes.yaml")
    return Nodes(**{str(key): value for key, value in said.items()})


def check_executor(nodes: Nodes | None, executor: str) -> None:
    """Raise ConfigError where Snakemake runs jobs elsewhere than was planned for."""
    if nodes is not None and executor != SCHEDULERS[nodes.scheduler]:
        raise ConfigError(
            f"nodes of {nodes.scheduler} are planned for, but jobs run by the executor {executor};"
            f" give --workflow-profile profiles/{nodes.scheduler}, or leave nodes out"
        )
    if nodes is None and executor not in HERE:
        raise ConfigError(
            f"jobs run by the executor {executor}, but nothing says what its nodes are; give the"
            " key nodes, as profiles/slurm/nodes.yaml does"
        )


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
