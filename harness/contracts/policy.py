"""The contract of a policy, and how one is found by its name.

Each module of harness/policies/ that defines `schedule` or `learn` is a policy.
`schedule(graph) -> Schedule` batches; `learn(graphs, settings, workload)` returns a learned policy,
a value that is called with a graph, and `load(file, workload)` reads it back. `policy=auto` tries
every policy that need not be learned, unless its module says `NOT_BY_AUTO`, a text: why not.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from harness.errors import ConfigError, meant
from harness.values.arrays import IntArray, int_array
from harness.values.bounds import LARGEST_SEED, check_count
from harness.values.graph import Graph
from harness.values.places import ROOT
from harness.values.schedule import Schedule

Policy = Callable[[Graph], Schedule]
AUTO = "auto"  # in place of a policy: the system chooses one by measuring
_FOLDER = ROOT / "harness" / "policies"
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
        check_count("learning.trials", self.trials, 1)
        check_count("learning.seed", self.seed, 0, LARGEST_SEED)


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
        """Write it as JSON; raises OutputError where that cannot be done."""

    def describe(self) -> str:
        """Print it in words, one state a line."""


@functools.cache
def _kinds() -> dict[str, str]:
    """Return, for each policy, which of the two functions its module defines."""
    files = sorted(_FOLDER.glob("[!_]*.py"))
    kinds = ((file.stem, _functions_of(file) & {"schedule", "learn"}) for file in files)
    return {name: kind.pop() for name, kind in kinds if kind}


def _functions_of(file: Path) -> set[str]:
    """Return the functions that a file defines; one that is no Python counts as a policy.

    So it is told when it is asked for, and does not stop the others.
    """
    try:
        body = _body_of(file)
    except (SyntaxError, ValueError):
        return {"schedule"}
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def _body_of(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text(encoding="utf-8")).body


@functools.cache
def why_not_by_auto(name: str) -> str | None:
    """Why `policy=auto` does not try a policy, in the words of its file; None where it does.

    Nothing is imported to tell.
    """
    if is_learned(name):
        return "it has to be learned first"
    try:
        body = _body_of(_FOLDER / f"{name}.py")
    except (SyntaxError, ValueError):
        return "its file is no Python"
    said = (
        node.value.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if [t.id for t in node.targets if isinstance(t, ast.Name)] == ["NOT_BY_AUTO"]
    )
    return next(map(str, said), None)


def policy_names() -> tuple[str, ...]:
    """Names of all policies, found without importing (and so compiling) any of them."""
    return tuple(_kinds())


def check_policy_name(name: str, *, may_choose: bool = False) -> None:
    """Raise ConfigError, listing the known ones, for a name that is no policy.

    may_choose: whether it may be AUTO.
    """
    if name in policy_names() or (may_choose and name == AUTO):
        return
    if name == AUTO:
        raise ConfigError(
            f"policy={AUTO} chooses by running a model, which `bench` does; name a policy:"
            f" {', '.join(policy_names())}"
        )
    why = ""
    if name.isidentifier() and (_FOLDER / f"{name}.py").is_file():
        why = f" (harness/policies/{name}.py defines neither schedule nor learn)"
    known = (*((AUTO,) if may_choose else ()), *policy_names())
    why = why or meant(name, known)
    raise ConfigError(f"policy={name} is unknown{why}; choose one of {', '.join(known)}")


def is_learned(name: str) -> bool:
    """Whether a policy has to be learned; False for a name that is none."""
    return _kinds().get(name) == "learn"


def load_policy(name: str) -> Policy:
    """Return the policy of that name, which must be one that is not learned.

    Raises ConfigError, listing the known ones, for any other name, and for one that cannot be
    imported.
    """
    if is_learned(name):
        raise ConfigError(f"policy={name} must be learned on graphs of its model first")
    policy: Policy = _import(name).schedule
    return policy


def learn_policy(
    name: str, graphs: Sequence[Graph], settings: LearningSettings, workload: str = ""
) -> LearnedPolicy:
    """Learn the policy of that name on graphs of one workload, or load it where settings.file is.

    workload: model and granularity in words; a saved policy of another is refused.

    Raises ConfigError for a name that is no learned policy, and for a file that does not fit.
    """
    if name in policy_names() and not is_learned(name):
        raise ConfigError(f"policy={name} is not learned")
    module = _import(name)
    learned: LearnedPolicy = (
        module.learn(graphs, settings, workload)
        if settings.file is None
        else module.load(Path(settings.file), workload)
    )
    return learned


def compile_policy(name: str) -> None:
    """Compile a policy, and its learning if it is learned, so that no later call does so."""
    flat = Graph(
        types=int_array([1]),
        arg_start=int_array([0, 0]),
        args=int_array([]),
        type_names=("unbatchable", "batchable"),
    )
    if is_learned(name):
        learn_policy(name, [flat], LearningSettings(trials=1))(flat)
    else:
        load_policy(name)(flat)


def _import(name: str) -> ModuleType:
    check_policy_name(name)
    try:
        return importlib.import_module(f"harness.policies.{name}")
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"policy={name} cannot be imported: {error}; mend its file") from error
