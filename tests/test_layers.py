"""Layers of the code, one import name for all of it, and paths in comments, which must exist."""

from __future__ import annotations

import ast
import os
import re
import site
import subprocess
import sys
from pathlib import Path

import pytest

from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.values.paths import (
    CONF_DIR,
    IMPORT_ROOT,
    PACKAGE,
    ROOT,
    find_adapter_package,
    is_part_of,
)
from tests.support.layers import (
    LAYERS,
    MODULES,
    PACKAGES,
    imported_at_run_time,
    imported_by,
    layer_of,
    reachable,
    tree_of,
)


def names_in(tree: ast.AST) -> set[str]:
    """Return the modules that are imported in a tree, ours or not."""
    nodes = list(ast.walk(tree))
    plain = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    return plain | {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}


def late_imports_of(module: str) -> set[str]:
    """Return the modules that are imported inside functions of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = (node for node in ast.walk(tree_of(module)) if isinstance(node, kinds))
    return set().union(*map(names_in, functions))


def test_every_module_has_a_layer_of_its_own_folder() -> None:
    prefixes = {prefix for layer in LAYERS for prefix in layer}
    for module in MODULES:
        parts = module.split(".")
        folders = {".".join(parts[:depth]) + "." for depth in (2, 3)}
        assert ({module} | folders) & prefixes, module
        assert module in PACKAGES or layer_of(module) > 0 or module == "dynbatch.harness.errors", (
            module
        )


def test_harness_does_not_import_user_extensions() -> None:
    """Only commands import datasets, and systems are loaded by name through their contract."""
    for module in (m for m in MODULES if m.startswith("dynbatch.harness.")):
        more = ("datasets", "plots") if module.startswith("dynbatch.harness.commands.") else ()
        wrong = [name for name in imported_by(module) if not is_part_of(name, ("harness", *more))]
        assert not wrong, f"{module} imports {', '.join(sorted(wrong))}"


def test_a_module_imports_from_its_left_only() -> None:
    wrong = sorted(
        f"{module}: {name}"
        for module in MODULES
        for name in imported_by(module)
        if layer_of(name) > layer_of(module)
    )
    assert not wrong, f"imported from a layer to the right: {', '.join(wrong)}"


def test_nothing_imports_an_entry_point() -> None:
    entry = {name for name in MODULES if name.startswith("dynbatch.harness.commands.")}
    importers = {module: imported_by(module) & entry for module in MODULES}
    assert {module: names for module, names in importers.items() if names} == {}


def test_imports_stand_at_the_top() -> None:
    late = {f"{module}: {name}" for module in MODULES for name in late_imports_of(module)}
    assert not late, f"imported inside a function: {', '.join(sorted(late))}"


def test_there_are_no_import_cycles() -> None:
    graph = {module: imported_at_run_time(module) for module in MODULES}
    circular = sorted(module for module in graph if module in reachable(graph, module))
    assert not circular, f"modules that import themselves in a circle: {', '.join(circular)}"


def test_a_system_imports_one_framework_only() -> None:
    frameworks = {"torch", "dynet", "_dynet", "tensorflow", "jax"}
    for name in (m for m in MODULES if m.startswith("dynbatch.systems.")):
        tops = {imported.split(".")[0] for imported in names_in(tree_of(name))}
        used = {"dynet" if top == "_dynet" else top for top in tops & frameworks}
        assert len(used) <= 1, f"{name} imports {', '.join(sorted(used))}; one framework an adapter"


# --- one import name ---

FOLDERS = ("harness", "systems", "datasets", "plots", "conf", "workflow")
CODE = (*FOLDERS[:4], "scripts", "tests")


def test_no_file_imports_a_directory_by_its_own_name() -> None:
    """Otherwise a module could be imported twice, under two names."""
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in names_in(ast.parse(path.read_text(encoding="utf-8")))
        if name.partition(".")[0] in FOLDERS
    }
    assert len(files) > 500
    assert wrong == set()
    for system in read_systems(CONF_DIR):  # adapters are imported by name
        assert is_part_of(system.adapter, ("systems",)), system.name


def test_the_package_links_each_directory_relatively() -> None:
    links = [path for path in (ROOT / PACKAGE).iterdir() if path.is_symlink()]
    assert {path.name: str(path.readlink()) for path in links} == {
        name: f"../{name}" for name in FOLDERS
    }
    assert IMPORT_ROOT == ROOT
    assert [(path.name, str(path.readlink())) for path in (ROOT / "src").iterdir()] == [
        (PACKAGE, f"../{PACKAGE}")
    ]


@pytest.mark.parametrize("places", ["cwd", "PYTHONPATH"])
def test_a_checkout_needs_no_installation(places: str, tmp_path: Path) -> None:
    """Without the module site, no installation is seen, only these directories."""
    search = [str(ROOT)] if places == "PYTHONPATH" else []
    done = subprocess.run(
        [sys.executable, "-S", "-m", f"{PACKAGE}.harness.commands.bench", "--help"],
        cwd=ROOT if places == "cwd" else tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*search, *site.getsitepackages()])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bench" in done.stdout


@pytest.mark.parametrize(
    ("adapter", "package"),
    [
        ("dynbatch.systems.on_torch.levels", "on_torch"),
        ("systems.on_torch.levels", "on_torch"),  # in older records
        ("dynbatch.systems.null_system", "null_system"),
        ("my_system", "my_system"),
        ("mine.fast", "mine"),
    ],
)
def test_adapters_have_packages(adapter: str, package: str) -> None:
    assert find_adapter_package(adapter) == package


def test_parts_of_the_project_differ_from_modules_of_others() -> None:
    assert is_part_of("dynbatch.harness.errors", ("harness",))
    assert is_part_of("dynbatch.datasets", ("harness", "datasets"))
    assert not is_part_of("dynbatch.systems.products", ("harness", "datasets"))
    assert not is_part_of("datasets.load", ("harness", "datasets"))
    assert not is_part_of("dynbatch", ("harness",))


# --- paths in texts ---

SUFFIXES = (".py", ".yaml", ".smk", ".html")
HOME = (PACKAGE, *FOLDERS, "scripts")
FILES = sorted(
    path for folder in HOME for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
)
# harness/values/paths.py, tests/engine, systems/on_torch/models; no pattern such as conf/<name>.
_FIRST = "|".join((*HOME, "tests", "docs"))
_PATH = re.compile(rf"(?<![\w./-])(?:{_FIRST})(?:/[\w.-]*\w)+(?![\w/]*[<{{*])")
# A file name without a directory: urgency.py.
_FILE = re.compile(r"(?<![\w./{}<>*-])\w+\.(?:py|smk)\b")


def test_places_that_a_text_names_are_there() -> None:
    known = {file.name for file in FILES}
    missing, n_paths = [], 0
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        paths = _PATH.findall(text)
        n_paths += len(paths)
        gone = {place for place in paths if not (ROOT / place).exists()}
        gone |= set(_FILE.findall(text)) - known
        missing += [f"{file.relative_to(ROOT)} names {place}" for place in sorted(gone)]
    assert missing == []
    assert n_paths > 100, "else the pattern finds nothing"
