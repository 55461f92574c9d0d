"""Policies: each module of this folder that defines `schedule` or `learn` is one.

`schedule(graph) -> Schedule` is a policy; `learn(graphs, settings, workload)` returns a learned
one, a value that is called with a graph, and `load(file, workload)` reads it back.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from harness.errors import ConfigError
from harness.graph import Graph
from harness.instances import int_array
from harness.policies.learning import LearnedPolicy, LearningSettings
from harness.schedule import Schedule

Policy = Callable[[Graph], Schedule]
_FOLDER = Path(__file__).parent


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
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return {"schedule"}
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def policy_names() -> tuple[str, ...]:
    """Names of all policies, found without importing (and so compiling) any of them."""
    return tuple(_kinds())


def check_policy_name(name: str) -> None:
    """Raise ConfigError, listing the known ones, for a name that is no policy."""
    if name in policy_names():
        return
    why = ""
    if name.isidentifier() and (_FOLDER / f"{name}.py").is_file():
        why = f" (harness/policies/{name}.py defines neither schedule nor learn)"
    raise ConfigError(f"policy={name} is unknown{why}; choose one of {', '.join(policy_names())}")


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
