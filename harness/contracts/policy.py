"""The contract of a policy, and how one is found by its name.

Each module of harness/policies/ that defines `schedule` or `learn` is a policy.
`schedule(graph) -> Schedule` batches; `learn(graphs, settings, workload)` returns a learned policy,
a value that is called with a graph, and `load(file, workload)` reads it back. `policy=auto` tries
every policy that need not be learned, unless its module says `NOT_BY_AUTO`, a text: why not.

A module may hold several policies: a dict `POLICIES` names the function of each, a dict
`LEARNED_POLICIES` the value that has its `learn` and `load`. NOT_BY_AUTO is then a dict as well.
All are literals, since they are read without importing (and so compiling) the module.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from harness.errors import ConfigError, meant
from harness.values.arrays import IntArray, int_array
from harness.values.checked import Count, OneOf, Place, Seed, check_fields
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

    variant: Annotated[str, OneOf(VARIANTS)] = "released"
    fallback: Annotated[str, OneOf(FALLBACKS)] = "last"
    trials: Count = 1000
    seed: Seed = 0
    file: Place | None = None
    file_sha256: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "learning.")


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """A policy as its file declares it: what of the module it is, None for the module itself.

    why_not_by_auto: None where `policy=auto` tries it.
    """

    module: str
    attribute: str | None
    is_learned: bool = False
    why_not_by_auto: str | None = None


@functools.cache
def _entries() -> dict[str, _Entry]:
    """Return all policies by name, in the order of their names."""
    files = sorted(_FOLDER.glob("[!_]*.py"))
    return dict(
        sorted((name, entry) for file in files for name, entry in _entries_of(file).items())
    )


def _entries_of(file: Path) -> dict[str, _Entry]:
    """Return the policies of a file; one that cannot be read counts as a policy.

    So it is reported when it is asked for, and does not stop the others.
    """
    try:
        return dict(_declared(file.stem, ast.parse(file.read_text(encoding="utf-8")).body))
    except (SyntaxError, ValueError, AttributeError):
        return {file.stem: _Entry(file.stem, "schedule", why_not_by_auto="it cannot be read")}


def _declared(module: str, body: Sequence[ast.stmt]) -> Iterator[tuple[str, _Entry]]:
    said = _read_literals(body, ("POLICIES", "LEARNED_POLICIES", "NOT_BY_AUTO"))
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    reasons, to_learn = said.get("NOT_BY_AUTO", {}), "it has to be learned first"
    for name, attribute in said.get("POLICIES", {}).items():
        yield name, _Entry(module, attribute, why_not_by_auto=reasons.get(name))
    for name, attribute in said.get("LEARNED_POLICIES", {}).items():
        yield name, _Entry(module, attribute, is_learned=True, why_not_by_auto=to_learn)
    if said.keys() & {"POLICIES", "LEARNED_POLICIES"}:
        return
    if "schedule" in functions:
        yield module, _Entry(module, "schedule", why_not_by_auto=reasons or None)
    elif "learn" in functions:
        yield module, _Entry(module, None, is_learned=True, why_not_by_auto=to_learn)


def _read_literals(body: Sequence[ast.stmt], names: Collection[str]) -> dict[str, Any]:
    """Return the values of those names that are assigned; raises ValueError for no literal."""
    return {
        target.id: ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    }


def why_not_by_auto(name: str) -> str | None:
    """Return why `policy=auto` does not try a policy, in the words of its file; else None."""
    return _entries()[name].why_not_by_auto


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies, found without importing (and so compiling) any of them."""
    return tuple(_entries())


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
    entry = _entries().get(name)
    return entry is not None and entry.is_learned


def load_policy(name: str) -> Policy:
    """Return the policy of that name, which must be one that is not learned.

    Raises ConfigError, listing the known ones, for any other name, and for one that cannot be
    imported.
    """
    if is_learned(name):
        raise ConfigError(f"policy={name} must be learned on graphs of its model first")
    policy: Policy = _import(name)
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
    policy = _import(name)
    learned: LearnedPolicy = (
        policy.learn(graphs, settings, workload)
        if settings.file is None
        else policy.load(Path(settings.file), workload)
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


def _import(name: str) -> Any:
    """Return a policy's function, or what has its `learn` and `load`."""
    check_policy_name(name)
    entry = _entries()[name]
    try:
        module = importlib.import_module(f"harness.policies.{entry.module}")
        return module if entry.attribute is None else getattr(module, entry.attribute)
    except (ImportError, SyntaxError, AttributeError) as error:
        raise ConfigError(f"policy={name} cannot be imported: {error}; mend its file") from error
