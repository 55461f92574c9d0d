"""What all learned policies share: the settings they are learned by, and what they can do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import ConfigError
from harness.graph import Graph
from harness.instances import IntArray
from harness.schedule import Schedule

VARIANTS = ("released", "intended")
FALLBACKS = ("last", "agenda", "sufficient")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """How a state machine is learned, and what it does where it learned nothing.

    The defaults of variant, fallback and trials are those of ED-Batch's release (RLScheduler in
    dynet/ooc-scheduler.cc).

    variant: "released" bootstraps with max(0, max Q), which is always 0, so that a value is the sum
        of the next ten rewards; "intended" with max Q, so that it is the return to the end.
    fallback: what an unseen state takes: "last", the last type of its tuple, as the release does;
        "agenda"; "sufficient".
    trials: at most so many episodes; fewer where the lower bound is reached.
    seed: of the exploration. file: a saved machine that is used instead of learning one.
    file_sha256: of that file's bytes, which identify it where its name does not.

    Raises ConfigError for a value out of range.
    """

    variant: str = "released"
    fallback: str = "last"
    trials: int = 1000
    seed: int = 0
    file: str | None = None
    file_sha256: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("variant", VARIANTS), ("fallback", FALLBACKS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(
                    f"learning.{name}={value} is not allowed; choose one of {', '.join(allowed)}"
                )
        for name, lowest in (("trials", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < lowest:
                raise ConfigError(
                    f"learning.{name}={value} is not allowed; give a value of at least {lowest}"
                )


def workload_name(model: str, granularity: str, outputs: str) -> str:
    """Name what a policy is learned for: a model and how it is turned into graphs."""
    shown = "" if granularity == "operator" else f", outputs as {outputs}"
    return f"{model}, {granularity} granularity{shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRun:
    """A schedule and how it was found.

    decided (n_decisions,): the state of every batch that was chosen (neither forced nor
        unbatchable), by number; UNSEEN (-1) where learning never met it and the fallback chose.
    """

    schedule: Schedule
    decided: IntArray

    @property
    def n_decisions(self) -> int:
        """Batches that were chosen."""
        return len(self.decided)

    @property
    def n_unseen(self) -> int:
        """Batches that the fallback chose."""
        return int((self.decided < 0).sum())

    @property
    def unseen_share(self) -> float:
        """Share of the chosen batches that the fallback chose; 0 where none was chosen."""
        return self.n_unseen / max(1, self.n_decisions)


class LearnedPolicy(Protocol):
    """A frozen value; calling it or `run` raises ConfigError for a graph of another model."""

    @property
    def n_trials(self) -> int:
        """Schedules that were tried while learning."""

    def __call__(self, graph: Graph) -> Schedule:
        """Schedule a graph."""

    def run(self, graph: Graph) -> LearnedRun:
        """Schedule a graph, and tell which states were met."""

    def save(self, file: Path) -> None:
        """Write it as JSON; raises ConfigError where that cannot be done."""

    def describe(self) -> str:
        """Print it in words, one state a line."""
