"""Policies: each module of this folder that defines `schedule(graph) -> Schedule` is one."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable
from pathlib import Path

from harness.errors import ConfigError
from harness.graph import Graph
from harness.schedule import Schedule

Policy = Callable[[Graph], Schedule]


@functools.cache
def policy_names() -> tuple[str, ...]:
    """Names of all policies, found without importing (and so compiling) any of them."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return tuple(file.stem for file in files if _defines_schedule(file))


def _defines_schedule(file: Path) -> bool:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == "schedule" for node in tree.body)


def load_policy(name: str) -> Policy:
    """Return the policy of that name.

    Raises ConfigError, listing the known ones, for any other name, and for one that cannot be
    imported.
    """
    if name not in policy_names():
        raise ConfigError(f"policy={name} is unknown; choose one of {', '.join(policy_names())}")
    try:
        policy: Policy = importlib.import_module(f"harness.policies.{name}").schedule
    except ImportError as error:
        raise ConfigError(f"policy={name} cannot be imported: {error}; mend its file") from error
    return policy
