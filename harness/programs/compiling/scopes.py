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
    def own(self) -> list[ast.AST]:
        """All nodes but those of functions and comprehensions inside."""
        found, waiting = list[ast.AST](), list[ast.AST](self.node.body)
        while waiting:
            node = waiting.pop()
            found.append(node)
            if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp)):
                waiting += ast.iter_child_nodes(node)
        return found

    @property
    def assigned(self) -> set[str]:
        """Names that are set, and so are never those of the module."""
        names = (node for node in self.own if isinstance(node, ast.Name))
        return {node.id for node in names if isinstance(node.ctx, ast.Store)}

    @property
    def parameters(self) -> list[str]:
        """Names of its operands."""
        return [one.arg for one in (*self.node.args.posonlyargs, *self.node.args.args)]

    @property
    def nones(self) -> set[str]:
        """Names that are set to None."""
        found = set[str]()
        for node in self.own:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    found |= _nones(target, node.value)
        return found

    @property
    def ends_with_a_value(self) -> bool:
        """Whether what it returns is always there, as far as its last statement tells."""
        last = self.node.body[-1]
        return isinstance(last, ast.Return) and not self.returns_none

    @property
    def returns_none(self) -> bool:
        """Whether any `return` does."""
        returns = (node for node in self.own if isinstance(node, ast.Return))
        return any(node.value is None or is_none(node.value) for node in returns)

    @property
    def waits(self) -> bool:
        """Whether it is a generator."""
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in self.own)

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """Raise NotTranslated with the line."""
        line = self.line + getattr(node, "lineno", 1) - 1
        raise NotTranslated(f"{self.file}:{line} {what}")


def _nones(target: ast.expr, value: ast.expr) -> set[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return set[str]().union(*(_nones(one, item) for one, item in pairs))
    return {target.id} if isinstance(target, ast.Name) and is_none(value) else set()


def is_none(value: ast.expr) -> bool:
    """Whether it is None, or may be."""
    if isinstance(value, ast.IfExp):
        return is_none(value.body) or is_none(value.orelse)
    return isinstance(value, ast.Constant) and value.value is None


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


def first_line(node: ast.AST) -> str:
    """Of a statement."""
    return ast.unparse(node).partition("\n")[0]


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
        self.source.refuse(node, what)
