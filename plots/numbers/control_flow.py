"""What a model's program does, read from its own code: loops, recursion, waits and branches.

Looked at are its class's methods and the functions that these lead to, in the model's file and in
what models share. The properties are those of ACRoBat, Table 2 (Fegade et al., MLSys 2024).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.contracts.model import model_class
from harness.errors import ConfigError
from harness.planning.yaml_files import read_mapping
from harness.trials.sources import module_file

SHARED = "harness.models.parts"
WAITS, BRANCHES, LOOPS = {"chance", "value"}, {"concurrent", "map", "fork"}, {"chain"}
Function = ast.FunctionDef
Key = tuple[bool, str]  # whether it is a method, and its name: a variable may be called like one
PROGRAM: Key = (True, "program")


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """Of one program. is_parallel: branches side by side in one instance. varies: instances differ
    in what they call. varies_in_training: in training, too, where the model can be trained.
    """

    iterates: bool
    recurses: bool
    waits: bool
    is_parallel: bool
    varies_in_training: bool

    @property
    def varies(self) -> bool:
        """A program that neither loops, nor recurses, nor waits calls the same for all."""
        return self.iterates or self.recurses or self.waits


def control_flow(conf_dir: Path, model: str) -> ControlFlow:
    """Read a model's program; raises ConfigError for a model that has none."""
    module = read_mapping(conf_dir / "model" / f"{model}.yaml", "model")["model"]
    known = dict(_functions(module))
    if PROGRAM not in known:
        raise ConfigError(f"model {model} has no program; leave it out of the table")
    reached = {PROGRAM} | _led_to(known, PROGRAM)
    nodes = [node for name in reached for node in ast.walk(known[name])]
    called = {name for node in nodes if (name := _of_writer(node))}
    loops = any(isinstance(node, ast.For | ast.While) for node in nodes)
    return ControlFlow(
        iterates=loops or bool(called & LOOPS),
        recurses=any(name in _led_to(known, name) for name in reached),
        waits=bool(called & WAITS),
        is_parallel=bool(called & BRANCHES),
        varies_in_training=model_class(module).is_trainable,
    )


def _of_writer(node: ast.AST) -> str:
    """Which method of `p` a node calls, as programs call their writer; nothing for another node."""
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return ""
    return function.attr if function.value.id == "p" else ""


def _led_to(known: Mapping[Key, Function], name: Key) -> set[Key]:
    """All that a function leads to; itself only where it calls itself in the end."""
    found, waiting = set[Key](), [*_named(known, name)]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _named(known, one)
    return found


def _named(known: Mapping[Key, Function], name: Key) -> set[Key]:
    """Known functions that a function calls, or hands on, by name or as a method of its own."""
    found = set[Key]()
    for node in ast.walk(known[name]):
        if isinstance(node, ast.Name):
            found.add((False, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {(True, node.attr)} if node.value.id == "self" else set()
    return found & known.keys()


def _functions(module: str) -> Iterator[tuple[Key, Function]]:
    """Functions of a module, methods and inner ones, too, and of shared modules it imports from."""
    tree = _tree(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SHARED):
            yield from _functions(str(node.module))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = [one for of in classes for one in of.body if isinstance(one, Function)]
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield (node in methods, node.name), node


@cache
def _tree(module: str) -> ast.Module:
    path = module_file(module)
    if path is None:
        raise ConfigError(f"{module} is no module of this project")
    return ast.parse(path.read_text(encoding="utf-8"))
