"""What the names of a function mean where it is translated."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, get_type_hints

from harness.programs.compiling.values import NotTranslated, Value


@dataclass(frozen=True, slots=True)
class Source:
    """A function's text. file, line: where it begins."""

    node: ast.FunctionDef
    file: str
    line: int
    outside: Mapping[str, Any]

    @property
    def waits(self) -> bool:
        """Whether it is a generator."""
        inner = (ast.FunctionDef, ast.Lambda)
        waiting: list[ast.AST] = list(self.node.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Yield | ast.YieldFrom):
                return True
            if not isinstance(node, inner):
                waiting += ast.iter_child_nodes(node)
        return False


def source_of(function: Callable[..., Any]) -> Source:
    """Read a function's text; raises NotTranslated where it has none, or holds names of others."""
    try:
        lines, line = inspect.getsourcelines(function)
        (node,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise NotTranslated(f"the text of {function!r} is not known") from error
    plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
    if not plain or function.__code__.co_freevars:
        name = getattr(function, "__name__", repr(function))
        raise NotTranslated(f"{name} is more than a plain function of a module or a class")
    assert isinstance(node, ast.FunctionDef)
    file = function.__code__.co_filename.rpartition("/")[2]
    return Source(node, file, line, function.__globals__)


def hints_of(annotated: Any) -> dict[str, Any]:
    """What a function or class says of its names; nothing where that cannot be looked up."""
    try:
        return get_type_hints(annotated)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


@dataclass(slots=True)
class Scope:
    """One call of a function. names: of its parameters and variables. ends: the block behind the
    call, None where the function is a fiber's own. result: where it leaves what it returns.
    loops: of each the blocks that `continue` and `break` go to. places: slots of all variables, of
    which `names` has those that are set on every way here.
    """

    source: Source
    names: dict[str, Value]
    ends: int | None
    result: Value | None = None
    loops: list[tuple[int, int]] = field(default_factory=list)
    places: dict[str, Value] = field(default_factory=dict)

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """Raise NotTranslated with the line."""
        line = self.source.line + getattr(node, "lineno", 1) - 1
        raise NotTranslated(f"{self.source.file}:{line} {what}")
