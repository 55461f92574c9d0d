"""Docstrings, comments and pages are standard English of the field."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from dynbatch.harness.values.paths import ROOT
from tests.support.processes import end_python

CODE = ("dynbatch", "harness", "systems", "datasets", "plots", "scripts")
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
    tops = (*CODE, "tests", "conf", "docs")
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
    parts = (*CODE, "conf", "docs", "workflow")
    done = end_python("-m", "codespell_lib", *parts, "README.md", "Makefile")
    assert done.returncode == 0, done.stdout + done.stderr
