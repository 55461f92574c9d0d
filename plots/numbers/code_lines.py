"""How much code a model takes in each system: counted in its file, and in the bricks that it uses.

A line is a statement, however it is wrapped or indented; imports, docstrings, comments and blank
lines are none. Counted is what the model's class leads to: definitions at the top of its file, and
of the files that it shares with other models, which it names, directly or through one another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.errors import ConfigError
from harness.trials.sources import module_file

NOT_CODE = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True, slots=True)
class CodeOf:
    """Where a system's models are: a package with a file for each.

    entry: the class of the file that is this system's, where it has those of several; "": all.
    shared: packages and modules with bricks of models, followed as the package's own files are;
    not what runs all models alike. also: definitions there that a model is handed, not names.
    without: of those modules, what another system takes in its place.
    """

    package: str
    entry: str = ""
    shared: Sequence[str] = ()
    also: Sequence[str] = ()
    without: Sequence[str] = ()

    def follows(self, module: str) -> bool:
        """Whether a module is one that models are written in."""
        taken = any(f"{module}.".startswith(f"{one}.") for one in (self.package, *self.shared))
        return taken and module not in self.without


@dataclass(frozen=True, slots=True)
class CodeLines:
    """Lines of a model's own file, and with all that it takes from files that models share."""

    own: int
    with_shared: int
    files: tuple[str, ...]


class Place(NamedTuple):
    """A definition at the top of a module."""

    module: str
    name: str


class Source(NamedTuple):
    """A module's definitions by name, and what its imported names stand for ("": a module)."""

    definitions: Mapping[str, tuple[ast.stmt, ...]]
    imports: Mapping[str, Place]


def code_lines(code: CodeOf, model: str) -> CodeLines | None:
    """Count a model's lines; None where it is not written for the system.

    Raises ConfigError where its file has no such class, or a name given is that of no module.
    """
    _require_modules(code)
    own = f"{code.package}.{model}"
    source = _module(own)
    if source is None:
        return None
    if code.entry and code.entry not in source.definitions:
        known = ", ".join(source.definitions)
        raise ConfigError(f"{own} has no class {code.entry}; it has {known}")
    names = (code.entry,) if code.entry else tuple(source.definitions)
    handed = [Place(*place.rsplit(".", 1)) for place in code.also]
    found = _reached([*(Place(own, name) for name in names), *handed], code)
    missing = [".".join(place) for place in handed if place not in found]
    if missing:
        raise ConfigError(f"{missing[0]} is no definition in a shared file; correct show.code")
    by_module: dict[str, int] = {}
    for place, statements in found.items():
        n_lines = sum(_n_lines(statement) for statement in statements)
        by_module[place.module] = by_module.get(place.module, 0) + n_lines
    return CodeLines(by_module[own], sum(by_module.values()), tuple(sorted(by_module)))


def _require_modules(code: CodeOf) -> None:
    """Prove every name before lines are counted: one that is wrong would make them fewer."""
    handed = [place.rpartition(".")[0] for place in code.also]
    for name in (code.package, *code.shared, *code.without, *handed):
        if module_file(name) is None:
            raise ConfigError(f"{name} is no module of this repository; correct show.code")


def _reached(waiting: list[Place], code: CodeOf) -> dict[Place, tuple[ast.stmt, ...]]:
    """All definitions that the given ones lead to, in files that models are written in."""
    found: dict[Place, tuple[ast.stmt, ...]] = {}
    while waiting:
        place = waiting.pop()
        source = _module(place.module) if code.follows(place.module) else None
        if place in found or source is None:
            continue
        if place.name in source.definitions:
            found[place] = source.definitions[place.name]
            waiting += _named_by(found[place], place.module, source)
        elif place.name in source.imports:  # handed on by an __init__.py
            waiting.append(source.imports[place.name])
    return found


def _module(name: str) -> Source | None:
    path = module_file(name)
    return None if path is None else _source(path, path.stat().st_mtime_ns)


def _named_by(statements: tuple[ast.stmt, ...], module: str, source: Source) -> Iterator[Place]:
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            target = source.imports.get(node.value.id)
            if target is not None:  # a module's attribute, where `from a import b` names a module
                yield Place(f"{target.module}.{target.name}".rstrip("."), node.attr)
        if isinstance(node, ast.Name):
            if node.id in source.definitions:
                yield Place(module, node.id)
            elif node.id in source.imports:
                yield source.imports[node.id]


@cache
def _source(path: Path, _changed_ns: int) -> Source:
    definitions: dict[str, tuple[ast.stmt, ...]] = {}
    imports: dict[str, Place] = {}
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                imports[alias.asname or alias.name] = Place(statement.module, alias.name)
        elif isinstance(statement, ast.Import):
            imports |= {a.asname: Place(a.name, "") for a in statement.names if a.asname}
        else:
            for name in _names_of(statement):
                definitions[name] = (*definitions.get(name, ()), statement)
    return Source(definitions, imports)


def _names_of(statement: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines, or adds to: f.defvjp(...)."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for t in targets for node in ast.walk(t) if isinstance(node, ast.Name)][:1]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return [node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)]
    return []


def _n_lines(statement: ast.stmt) -> int:
    nodes = (node for node in ast.walk(statement) if isinstance(node, ast.stmt))
    return sum(not isinstance(node, NOT_CODE) and not _is_text(node) for node in nodes)


def _is_text(node: ast.stmt) -> bool:
    """Whether it is a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
