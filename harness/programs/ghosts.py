"""Ghost operators, inserted by analysis of a program's branches.

If the two branches of an `if` call different numbers of blocks, the shorter one gets the missing
number of ghost operators, so that both end at the same depth. Python and compiled code then run the
same changed program. The analysis counts the calls of a branch if they are the same whenever it
runs: no waits, stages, loops of calls or unknown functions. A branch that returns or leaves a loop
meets no other. Ghost operators that a program adds itself count as calls.

Source: ACRoBat, MLSys 2024, B.3.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from dynbatch.harness.compiler.registry import find_definition, register_definition
from dynbatch.harness.errors import CompileError

Program = Callable[..., Any]
Spot = tuple[int, int, int, int]  # position of a syntax node in its file
# Missing ghost operators of each `if` of a function: of its body, or below 0, of its `else`.
GhostCounts = dict[FunctionType, dict[Spot, int]]
UNKNOWN, LEAVES = -1, -2  # in place of a number of calls
LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Raise)
LOOPS = (ast.For, ast.While)
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Assert, ast.Pass, *LEAVING)
REPEATED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WAITING = (ast.Yield, ast.YieldFrom, ast.Await)


def insert_ghosts(program: Program, analysis: BranchAnalysis) -> Program:
    """Return the program with its missing ghost operators; the same one if none are missing."""
    function: Any = getattr(program, "__func__", program)
    changed = analysis.list_changed()
    if function not in changed:
        return program
    names = {old: f"_{old.__name__}_with_ghosts_{k}" for k, old in enumerate(changed)}
    scopes: dict[int, dict[str, Any]] = {}
    made = {
        old: _write_function(old, analysis, names, scopes.setdefault(id(old.__globals__), {}))
        for old in changed
    }
    for scope in scopes.values():
        scope.update({names[old]: new for old, new in made.items()})
    owner = getattr(program, "__self__", None)
    return made[function] if owner is None else MethodType(made[function], owner)


def _write_function(
    old: FunctionType,
    analysis: BranchAnalysis,
    names: Mapping[FunctionType, str],
    scope: dict[str, Any],
) -> FunctionType:
    """Return a function with its ghost operators.

    Args:
        names: new names of changed functions.
        scope: its globals, which get those of the function.
    """
    scope |= old.__globals__
    called = {spot: names[other] for spot, other in analysis.calls[old].items() if other in names}
    own = analysis.owns[old]
    tree = _GhostAdder(own, analysis.missing[old], called).visit(copy.deepcopy(own.definition))
    module = compile(
        ast.Module([tree], []),
        old.__code__.co_filename,
        "exec",
        flags=old.__code__.co_flags & __future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    codes = {part.co_name: part for part in module.co_consts if isinstance(part, CodeType)}
    code = codes[tree.name].replace(co_qualname=old.__qualname__)
    new = FunctionType(code, scope, old.__name__, old.__defaults__)
    for name in ("__kwdefaults__", "__annotations__", "__module__", "__qualname__", "__doc__"):
        setattr(new, name, getattr(old, name))
    register_definition(new, tree)
    return new


class Own(NamedTuple):
    """Function of a program, with the names of its parameters for the writer and the model."""

    function: Any
    definition: ast.FunctionDef
    writer: str
    model: str


class BranchAnalysis:
    """Analysis of a program and of its own functions that it gives the writer.

    Attributes:
        missing: missing ghost operators of the program and of its own functions.
        calls: calls of functions of its own, by caller: position and function.
        owns: facts of all these functions.
    """

    def __init__(self, program: Program, counted: Set[str]) -> None:
        self.missing: GhostCounts = {}
        self.calls: dict[FunctionType, dict[Spot, FunctionType]] = {}
        self.owns: dict[FunctionType, Own] = {}
        self._counted, self._model = counted, getattr(program, "__self__", None)
        self._n_found = 0  # calls of blocks, and what may call some
        self._known: dict[FunctionType, int] = {}
        function = getattr(program, "__func__", program)
        if isinstance(function, FunctionType):
            self._count_function(function, -2)

    def list_changed(self) -> list[FunctionType]:
        """List the functions with missing ghost operators, and those that call one of them."""
        changed = [function for function, missing in self.missing.items() if missing]
        for function in changed:  # grows
            callers = (caller for caller, calls in self.calls.items() if function in calls.values())
            changed += [caller for caller in callers if caller not in changed]
        return changed

    def _count_function(self, function: FunctionType, writer: int) -> int:
        """Return the calls of a function.

        Args:
            writer: index of the parameter that gets the writer.
        """
        if function in self._known:
            return self._known[function]
        self._known[function] = UNKNOWN  # also while it is analyzed, for recursive calls
        try:
            definition = _find_plain_definition(function)
        except CompileError:
            return UNKNOWN
        names = [argument.arg for argument in definition.args.args]
        is_method = getattr(type(self._model), function.__name__, None) is function
        if len(names) < max(2, writer + 1) or _assigns(definition, names[writer]):
            return UNKNOWN
        self.missing[function], self.calls[function] = {}, {}
        own = Own(function, definition, names[writer], names[0] if is_method else "")
        self.owns[function] = own
        *others, last = definition.body
        n = self._count_all(own, others)
        if isinstance(last, ast.Return):
            n = _add(n, self._count(own, last.value))
        else:
            others = definition.body
            n = _add(n, self._count_statement(own, last))
        has_exits = any(isinstance(node, LEAVING) for part in others for node in ast.walk(part))
        if not has_exits and not inspect.isgeneratorfunction(function):
            self._known[function] = n
        return self._known[function]

    # --- statements --------------------------------------------------------------------------

    def _count_all(self, own: Own, statements: Iterable[ast.stmt]) -> int:
        counts = [self._count_statement(own, statement) for statement in statements]
        return LEAVES if LEAVES in counts else _add(*counts)

    def _count_statement(self, own: Own, node: ast.stmt) -> int:
        if isinstance(node, ast.If):
            return self._count_if(own, node)
        if not isinstance(node, (*SIMPLE, *LOOPS)):
            return 0 if not _mentions(node, own.writer) else self._find(UNKNOWN)
        before = self._n_found
        parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        n = _add(*(self._count(own, part) for part in parts))
        if isinstance(node, LOOPS):
            self._count_all(own, node.body)
            self._count_all(own, node.orelse)
            return 0 if self._n_found == before else UNKNOWN
        return LEAVES if isinstance(node, LEAVING) else n

    def _count_if(self, own: Own, node: ast.If) -> int:
        test = self._count(own, node.test)
        then, other = self._count_all(own, node.body), self._count_all(own, node.orelse)
        if LEAVES in (then, other):
            return LEAVES if then == other else _add(test, max(then, other))
        if UNKNOWN in (then, other):
            return UNKNOWN
        if then != other:
            self.missing[own.function][_find_spot(node)] = other - then
        return _add(test, max(then, other))

    # --- expressions -------------------------------------------------------------------------

    def _count(self, own: Own, node: ast.AST | None) -> int:
        """Return the calls of an expression."""
        match node:
            case None | ast.Constant():
                return 0
            case ast.Name() | ast.Lambda():  # somebody may call what has the writer
                return self._find(UNKNOWN) if _mentions(node, own.writer) else 0
            case ast.Call():
                return self._count_call(own, node)
            case ast.IfExp():
                test, *both = (
                    self._count(own, part) for part in (node.test, node.body, node.orelse)
                )
                return _add(test, both[0]) if both[0] == both[1] else UNKNOWN
            case ast.BoolOp():
                first, *rest = (self._count(own, part) for part in node.values)
                return first if not any(rest) else UNKNOWN
        before = self._n_found
        counts = [self._count(own, child) for child in ast.iter_child_nodes(node)]
        if isinstance(node, WAITING):
            return self._find(UNKNOWN)
        if isinstance(node, REPEATED):
            return 0 if self._n_found == before else UNKNOWN
        return _add(*counts)

    def _find(self, n: int) -> int:
        """Return a number of calls, and note that there are any."""
        self._n_found += n != 0
        return n

    def _count_call(self, own: Own, node: ast.Call) -> int:
        keywords = [self._count(own, keyword.value) for keyword in node.keywords]
        match node.func:
            case ast.Attribute(value=ast.Name(id=own.writer), attr=name):
                if (n := self._count_request(own, name, node.args)) is None:
                    given = [self._count(own, argument) for argument in node.args]
                    n = _add(*given, self._find(int(name in self._counted)))
                return _add(n, *keywords)
        places = [k for k, argument in enumerate(node.args) if _is_name(argument, own.writer)]
        others = [argument for k, argument in enumerate(node.args) if k not in places[:1]]
        given = [self._count(own, argument) for argument in others]
        called, n_before = self._resolve(own, node.func)
        if places and isinstance(called, FunctionType):
            n = self._count_function(called, places[0] + n_before)
            self.calls[own.function][_find_spot(node)] = called
            return _add(*given, *keywords, self._find(n))
        if places or called is None:
            return self._find(UNKNOWN)
        return _add(*given, *keywords, self._count(own, getattr(node.func, "value", None)))

    def _count_request(self, own: Own, name: str, given: list[ast.expr]) -> int | None:
        """Return the calls of a request that is not a block; None for a block."""
        match name, given:
            case "ghosts", [ast.Constant(value=int(n))]:
                return self._find(n)
            case "chain", [block, first, n]:
                of_rest = _add(self._count(own, first), self._count(own, n))
                return _add(of_rest, self._count_repeated(own, block, n))
            case "concurrent", [*branches]:
                each = [self._count_branch(own, branch) for branch in branches]
                return UNKNOWN if UNKNOWN in each else max(each, default=0)
            case "map", [function, *lists]:
                n_each = self._count_branch(own, function)
                return _add(UNKNOWN if n_each else 0, *(self._count(own, part) for part in lists))
            case (("fork" | "chance" | "value" | "stage" | "ghosts" | "chain" | "map"), _):
                for argument in given:
                    self._count(own, argument)
                return self._find(UNKNOWN)
        return None

    def _count_repeated(self, own: Own, block: ast.expr, n: ast.expr) -> int:
        """Return the calls of a chain, which are known if its length is."""
        each = self._count_branch(own, block)
        if each == 1 and isinstance(n, ast.Constant) and isinstance(n.value, int):
            return max(0, n.value)
        return UNKNOWN if each else 0

    def _count_branch(self, own: Own, branch: ast.expr) -> int:
        """Return the calls of a function that a request runs: a lambda or a block."""
        match branch:
            case ast.Lambda():
                return self._count(own, branch.body)
            case ast.Attribute(value=ast.Name(id=own.writer), attr=name):
                return self._find(int(name in self._counted))
        return self._find(UNKNOWN)

    def _resolve(self, own: Own, node: ast.expr) -> tuple[Any, int]:
        """Return a called object, None if unknown, and the number of operands before others."""
        function = own.function
        match node:
            case ast.Attribute(value=ast.Name(id=own.model), attr=name):
                method = getattr(self._model, name, None)
                if isinstance(method, MethodType) and method.__self__ is self._model:
                    return method.__func__, 1
                return method, 0
            case ast.Attribute():
                return node, 0  # a method of a value, such as list.append
            case ast.Name(id=name):
                if name in (*function.__code__.co_varnames, *function.__code__.co_cellvars):
                    return None, 0
                return function.__globals__.get(name, getattr(builtins, name, None)), 0
        return None, 0


class _GhostAdder(ast.NodeTransformer):
    """Adds ghost operators, and calls changed functions by their new names."""

    def __init__(self, own: Own, missing: Mapping[Spot, int], names: Mapping[Spot, str]) -> None:
        self._own, self._missing, self._names = own, missing, names

    def visit_If(self, node: ast.If) -> ast.AST:
        n = self._missing.get(_find_spot(node), 0)
        self.generic_visit(node)
        if n:
            ghosts = ast.Attribute(_load(self._own.writer), "ghosts", ast.Load())
            statement = ast.Expr(ast.Call(ghosts, [ast.Constant(abs(n))], []))
            part = node.body if n > 0 else node.orelse
            part.append(ast.fix_missing_locations(ast.copy_location(statement, node)))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = self._names.get(_find_spot(node))
        self.generic_visit(node)
        if name is not None:
            if isinstance(node.func, ast.Attribute):
                node.args.insert(0, ast.copy_location(_load(self._own.model), node))
            node.func = ast.copy_location(_load(name), node)
        return node


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_private(node: ast.AST) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name.startswith("__") and not name.endswith("__")


def _mentions(node: ast.AST, name: str) -> bool:
    return any(_is_name(part, name) for part in ast.walk(node))


def _assigns(node: ast.AST, name: str) -> bool:
    parts = (part for part in ast.walk(node) if _is_name(part, name))
    return any(not isinstance(part.ctx, ast.Load) for part in parts if isinstance(part, ast.Name))


def _find_spot(node: Any) -> Spot:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _add(*counts: int) -> int:
    """Return the sum of numbers of calls."""
    return UNKNOWN if UNKNOWN in counts else sum(counts)


def _find_plain_definition(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a function; raise CompileError if it cannot be changed."""
    definition = find_definition(function)
    is_private = any(map(_is_private, ast.walk(definition)))  # Python adds the class's name
    if definition.decorator_list or function.__code__.co_freevars or is_private:
        raise CompileError(f"{function.__name__} is not a plain function or method")
    return definition
