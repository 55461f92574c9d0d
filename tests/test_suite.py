"""Structure of the tests: directories mirror the code, and shared code is in tests/support/."""

from __future__ import annotations

import ast
from pathlib import Path

from dynbatch.harness.values.paths import ROOT

TESTS = ROOT / "tests"
HOUSE = ("systems", "datasets", "plots", "scripts")  # and every folder of harness/
# Directories that mirror none: fault injection, documentation, shared code, whole pipelines.
OTHERS = {"campaign", "docs", "support", "whole"}
FILES = {str(path.relative_to(ROOT)): path for path in sorted(TESTS.rglob("*.py"))}
TEST_FILES = {name: path for name, path in FILES.items() if path.name.startswith("test_")}


def imported_by(path: Path) -> list[tuple[int, str]]:
    """Return the level and the dotted name of everything that a file imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = f"{node.module}." if node.module else ""
            found += [(node.level, base + alias.name) for alias in node.names]
    return found


def test_every_folder_of_tests_mirrors_one_of_the_house() -> None:
    folders = {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")}
    assert {"values", "policies"} <= folders
    mine = {path.relative_to(TESTS).parts[0] for path in FILES.values() if path.parent != TESTS}
    assert mine <= folders | set(HOUSE) | OTHERS
    assert mine >= set(HOUSE) | OTHERS


def test_helpers_are_in_support_and_tests_are_not() -> None:
    allowed = ("__init__.py", "conftest.py")
    others = [name for name, path in FILES.items() if path.name not in allowed]
    assert {name for name in others if not name.startswith("tests/support/")} == set(TEST_FILES)


def test_shared_test_code_is_imported_from_support() -> None:
    bare = {path.stem for path in FILES.values()} - {"__init__"}
    wrong = [
        f"{name} imports {'.' * level}{imported}"
        for name, path in FILES.items()
        for level, imported in imported_by(path)
        if level
        or imported.partition(".")[0] in bare
        or (imported.startswith("tests.") and not imported.startswith("tests.support"))
    ]
    assert wrong == []


def test_every_folder_is_a_package() -> None:
    """Otherwise two files of one name in two directories could not both be imported."""
    assert {path.parent for path in FILES.values()} == {
        path.parent for path in FILES.values() if path.name == "__init__.py"
    }
