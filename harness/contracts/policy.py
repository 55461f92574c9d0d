"""Contract of a policy, and lookup of policies by name.

Each module of harness/policies/ that defines `schedule` or `learn` is a policy.
`schedule(graph) -> Schedule` forms batches; it is a function or an ArrayPolicy.
`learn(graphs, settings, workload)` returns a learned
policy, which is called with a graph, and `load(file, workload)` loads a saved one.

A module may have several policies: a dict `POLICIES` names the function of each, and a dict
`LEARNED_POLICIES` the object with its `learn` and `load`. Both are literals, because they are read
without importing (and compiling) the module.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from dynbatch.harness.errors import ConfigError, suggest_name
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.checked import Count, OneOf, Place, Seed, check_fields
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.paths import ROOT
from dynbatch.harness.values.schedule import Schedule

Policy = Callable[[Graph], Schedule]
OrderAndStarts = tuple[IntArray, IntArray]  # Schedule.order and Schedule.starts
_FOLDER = ROOT / "harness" / "policies"
_NO_COUNTER = as_int_array([])
VARIANTS = ("released", "intended")
FALLBACKS = ("last", "agenda", "sufficient")


@dataclass(frozen=True, slots=True)
class ArrayPolicy:
    """Policy that is a compiled function of a graph's arrays.

    All segments of a graph are then scheduled in one compiled call (policies/parts/segments.py).

    Attributes:
        compute: A compiled function of types, arg_start, args, and of the arrays that `others`
            names. No batch of its result is empty.
        others: Attributes of Graph that have one entry for each type (follows, cheap) or for each
            vertex (phases, depths; empty if the graph has none).
    """

    compute: Callable[..., OrderAndStarts]
    others: tuple[str, ...] = ("follows",)

    def __call__(self, graph: Graph) -> Schedule:
        """Schedule a graph."""
        arrays = self.compute(graph.types, graph.arg_start, graph.args, *self.select_others(graph))
        return Schedule.from_valid_arrays(*arrays)

    def select_others(self, graph: Graph) -> list[NDArray[Any]]:
        """Return the arrays of a graph that `others` names."""
        arrays = (getattr(graph, name) for name in self.others)
        return [_NO_COUNTER if array is None else array for array in arrays]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """Settings for learning a state machine, and its behavior in unseen states.

    The defaults of variant, fallback and trials are those of ED-Batch's released code (RLScheduler
    in dynet/ooc-scheduler.cc).

    Attributes:
        variant: "released" bootstraps with max(0, max Q), which is always 0, so that a value is the
            sum of the next ten rewards; "intended" bootstraps with max Q, so that a value is the
            return to the end.
        fallback: Rule for unseen states: "last" takes the last type of the state's tuple, as the
            released code does; "agenda" and "sufficient" are other rules.
        trials: Largest number of episodes; fewer run if the lower bound is reached.
        seed: Seed of the exploration.
        file: Saved machine to use instead of learning one.
        file_sha256: Hash of that file's bytes, which identify it independently of its name.

    Raises:
        ConfigError: A value is out of range.
    """

    variant: Annotated[str, OneOf(VARIANTS)] = "released"
    fallback: Annotated[str, OneOf(FALLBACKS)] = "last"
    trials: Count = 1000
    seed: Seed = 0
    file: Place | None = None
    file_sha256: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "learning.")


def format_workload_name(model: str, granularity: str, outputs: str) -> str:
    """Return the name of a learned policy's workload: a model and the kind of its graphs."""
    shown = "" if granularity == "operator" else f", outputs as {outputs}"
    return f"{model}, {granularity} granularity{shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRun:
    """Schedule of a learned policy with its decisions.

    Attributes:
        decided: (n_decisions,) number of the state in which each batch was chosen, without forced
            and unbatchable ones; UNSEEN (-1) if the state did not occur during learning, so that
            the fallback chose.
    """

    schedule: Schedule
    decided: IntArray

    @property
    def n_decisions(self) -> int:
        """Number of chosen batches."""
        return len(self.decided)

    @property
    def n_unseen(self) -> int:
        """Number of batches chosen by the fallback."""
        return int((self.decided < 0).sum())

    @property
    def unseen_fraction(self) -> float:
        """Fraction of the chosen batches that the fallback chose; 0 if none was chosen."""
        return self.n_unseen / max(1, self.n_decisions)


@runtime_checkable
class LearnedPolicy(Protocol):
    """Learned policy, an immutable value.

    It schedules a graph with segments one segment after the other, as all policies are used
    (policies/parts/segments.py). Scheduling a graph of another model raises ConfigError.
    """

    @property
    def n_trials(self) -> int:
        """Number of schedules tried during learning."""

    def __call__(self, graph: Graph) -> Schedule:
        """Schedule a graph."""

    def run(self, graph: Graph) -> LearnedRun:
        """Schedule a graph and record the states of its decisions."""

    def save(self, file: Path) -> None:
        """Write the policy as JSON.

        Raises:
            OutputError: The file cannot be written.
        """

    def describe(self) -> str:
        """Return a description with one line per state."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Declaration of a policy in its file.

    Attributes:
        attribute: Name of the policy in its module; None for the module itself.
    """

    module: str
    attribute: str | None
    is_learned: bool = False


@functools.cache
def _list_entries() -> dict[str, _Entry]:
    files = sorted(_FOLDER.glob("[!_]*.py"))
    return dict(
        sorted((name, entry) for file in files for name, entry in _read_entries(file).items())
    )


def _read_entries(file: Path) -> dict[str, _Entry]:
    """Return the policies of a file.

    A file that cannot be read counts as a policy, so that its error is reported when it is used and
    does not affect other policies.
    """
    try:
        return dict(_parse_entries(file.stem, ast.parse(file.read_text(encoding="utf-8")).body))
    except (OSError, SyntaxError, ValueError, TypeError, AttributeError, RecursionError):
        return {file.stem: _Entry(file.stem, "schedule")}


def _parse_entries(module: str, body: Sequence[ast.stmt]) -> Iterator[tuple[str, _Entry]]:
    tables = ("POLICIES", "LEARNED_POLICIES")
    assigned = dict(_list_assigned(body))
    literals = {name: ast.literal_eval(assigned[name]) for name in tables if name in assigned}
    for name, attribute in (entry for table in literals.values() for entry in table.items()):
        if not isinstance(name, str) or not isinstance(attribute, str):
            raise TypeError("expected names")
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    defined |= assigned.keys()
    for name, attribute in literals.get("POLICIES", {}).items():
        yield name, _Entry(module, attribute)
    for name, attribute in literals.get("LEARNED_POLICIES", {}).items():
        yield name, _Entry(module, attribute, is_learned=True)
    if literals:
        return
    if "schedule" in defined:
        yield module, _Entry(module, "schedule")
    elif "learn" in defined:
        yield module, _Entry(module, None, is_learned=True)


def _list_assigned(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that are assigned, with or without a type, and their values."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value: ast.expr = node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))


def list_policy_names() -> tuple[str, ...]:
    """Return the names of all policies, found without importing (and so compiling) any of them."""
    return tuple(_list_entries())


def check_policy_name(name: str) -> None:
    known = list_policy_names()
    if name in known:
        return
    reason = ""
    if name in {path.stem for path in _FOLDER.glob("*.py")}:
        reason = f" (harness/policies/{name}.py defines neither schedule nor learn)"
    reason = reason or suggest_name(name, known)
    raise ConfigError(f"policy={name} is unknown{reason}; choose one of {', '.join(known)}")


def is_learned(name: str) -> bool:
    """Return whether a policy must be learned; False for an unknown name."""
    entry = _list_entries().get(name)
    return entry is not None and entry.is_learned


def load_policy(name: str) -> Policy:
    """Return a policy that is not learned, by name."""
    if is_learned(name):
        raise ConfigError(f"policy={name} must first be learned on graphs of its model")
    policy: Policy = _import(name)
    return policy


def learn_policy(
    name: str, graphs: Sequence[Graph], settings: LearningSettings, workload: str = ""
) -> LearnedPolicy:
    """Learn a policy on graphs of one workload, or load it from settings.file if given.

    Args:
        workload: Name of the workload (see format_workload_name); a saved policy of another one is
            refused.

    Raises:
        ConfigError: The policy is unknown or not learned, or the file does not fit it.
    """
    if name in list_policy_names() and not is_learned(name):
        raise ConfigError(f"policy={name} is not a learned policy; choose a learned one")
    policy = _import(name)
    learned: LearnedPolicy = (
        policy.learn(graphs, settings, workload)
        if settings.file is None
        else policy.load(Path(settings.file), workload)
    )
    return learned


def compile_policy(name: str) -> None:
    """Compile a policy, and its learning if it is learned, before later calls are timed."""
    flat = Graph(
        types=as_int_array([1]),
        arg_start=as_int_array([0, 0]),
        args=as_int_array([]),
        type_names=("unbatchable", "batchable"),
    )
    if is_learned(name):
        learn_policy(name, [flat], LearningSettings(trials=1))(flat)
    else:
        load_policy(name)(flat)


def _import(name: str) -> Any:
    """Return a policy's function, or the object with its `learn` and `load`."""
    check_policy_name(name)
    entry = _list_entries()[name]
    try:
        module = importlib.import_module(f"dynbatch.harness.policies.{entry.module}")
        return module if entry.attribute is None else getattr(module, entry.attribute)
    except MemoryError:
        raise
    except Exception as error:
        raise ConfigError(
            f"policy={name} cannot be imported ({type(error).__name__}: {error}); fix its module"
        ) from error
