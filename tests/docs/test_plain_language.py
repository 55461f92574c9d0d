"""Names and texts are plain English: verbs for functions, and no turns of a dialect."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dynbatch.harness.values.paths import ROOT
from tests.support.processes import end_python

TOPS = ("dynbatch", "harness", "systems", "datasets", "plots", "scripts")
VERBS = set((Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").split())
PREDICATES = {"is", "has", "can", "should", "probe_file", "to", "from", "as"}  # and conversions
# What contracts, frameworks and commands prescribe.
CONTRACTS = {
    *("main", "forward", "backward", "leaf", "output", "outputs", "mini_batch", "result", "loss"),
    *("gradients", "parameters", "facts"),
}
# Vertex functions of models, operators, and contracts that return a fact are nouns.
MAX_NOUNS = 0.05
# Each module of its kind has one: adapters, backends, networks, and options of tables and figures.
OF_CONTRACTS = {"Adapter", "Backend", "Levels", "Network", "NoOptions", "Options", "Recursive"}
VAGUE = {"of", "one", "found", "told", "said"}
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def read_trees() -> list[tuple[Path, ast.Module]]:
    """Return the syntax tree of every module outside the tests."""
    paths = [path for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))]
    return [(path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))) for path in paths]


def has_verb(name: str) -> bool:
    """Return whether a function's name begins with a verb, or is one that Python prescribes."""
    first = name.strip("_").split("_")[0]
    return name.startswith("__") or first in VERBS | PREDICATES or name in CONTRACTS


def is_property(function: FunctionNode) -> bool:
    """Return whether a function is read like an attribute, whose name is a noun."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def find_vague_variables(tree: ast.AST) -> Iterator[str]:
    """Yield the names of parameters and variables that say nothing; fields of classes may."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in VAGUE:
            yield f"line {node.lineno}: {node.arg}"
        if not isinstance(node, ast.Name) or id(node) in fields:
            continue
        if isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield f"line {node.lineno}: {node.id}"


def test_functions_begin_with_a_verb() -> None:
    functions = [
        (path, node)
        for path, tree in read_trees()
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode) and not is_property(node)
    ]
    nouns = [f"{path}: {node.name}" for path, node in functions if not has_verb(node.name)]
    assert len(nouns) <= MAX_NOUNS * len(functions), nouns


def test_a_class_name_means_one_thing() -> None:
    """A model and its networks in frameworks, each in a directory `models`, have one name."""
    places = defaultdict(list)
    for path, tree in read_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in OF_CONTRACTS:
                places[node.name].append(path)
    twice = {
        name: paths
        for name, paths in places.items()
        if len(paths) > 1 and {path.parent.name for path in paths} != {"models"}
    }
    assert twice == {}


def test_variables_have_descriptive_names() -> None:
    vague = [
        f"{path}, {name}" for path, tree in read_trees() for name in find_vague_variables(tree)
    ]
    assert vague == []


# --- docstrings, comments and pages ---

OPENING = re.compile(r"(What|How|Where|Whether|Whose|Who|Why|When|Which|Of)\b")
# Turns of a dialect that this project once had; names of parameters end in a colon.
TURN = re.compile(
    r"\b(anew|behind|beside|but for|call(?:s|ed)? off|goes on|lack(?:s|ed)?|lies|nobody|told"
    r"|who (?:waits|reads|looks|asks|pulls|needs|adds|has|is)|(?<!there )is no (?!longer|more)"
    r"|all the same|at all events)\b(?!:)",
    re.IGNORECASE,
)


def read_docstrings(text: str) -> Iterator[str]:
    """Yield the docstrings of modules, classes and functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def read_comments(text: str) -> Iterator[str]:
    """Yield the comments of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def read_prose(path: Path) -> list[str]:
    """Return the docstrings and comments of a file, or all of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [*read_docstrings(text), *read_comments(text)]
    if path.suffix == ".yaml":
        return [line.partition("# ")[2] for line in text.splitlines()]
    return [text]


def files_with(*suffixes: str) -> list[Path]:
    """Return the project's own files."""
    tops = (*TOPS, "tests", "conf", "docs")
    found = [path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in suffixes]
    return sorted([*found, ROOT / "README.md"] if ".md" in suffixes else found)


def test_no_docstring_opens_with_a_question() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for path in files_with(".py")
        for docstring in read_docstrings(path.read_text(encoding="utf-8"))
        if OPENING.match(docstring)
    ]
    assert found == []


def test_no_text_has_a_banned_turn() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text[max(0, turn.start() - 30) : turn.end() + 20]}"
        for path in files_with(".py", ".md", ".yaml")
        if path != Path(__file__).resolve()
        for text in read_prose(path)
        for turn in TURN.finditer(text)
    ]
    assert found == []


def test_spelling() -> None:
    """Tests are left out: they have misspelled names, for which others are suggested."""
    parts = (*TOPS, "conf", "docs", "workflow")
    done = end_python("-m", "codespell_lib", *parts, "README.md", "Makefile")
    assert done.returncode == 0, done.stdout + done.stderr
