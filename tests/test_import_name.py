"""All code has one import name, dynbatch, in a checkout and when it is installed."""

from __future__ import annotations

import ast
import os
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
from tests.support.layers import MODULES
from tests.support.processes import end_python

FOLDERS = ("harness", "systems", "datasets", "plots", "conf", "workflow")
CODE = (*FOLDERS[:4], "scripts", "tests")
# Imports everything, Triton first: see tests/conftest.py. Prints our modules that have another
# name, and files that were imported twice.
TWICE = """
import importlib, sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

with suppress(ImportError):
    import triton
for name in sys.argv[2:]:
    with suppress(ImportError):
        importlib.import_module(name)
root = Path(sys.argv[1])
files = {
    name: Path(module.__file__).resolve()
    for name, module in sys.modules.items()
    if getattr(module, "__file__", None) and name != "__main__"
}
inside = {n: f for n, f in files.items() if f.is_relative_to(root) and ".venv" not in f.parts}
ours = {n: f for n, f in inside.items() if f.is_file()}  # torch.ops has a path without a file
counts = Counter(ours.values())
print(len(ours) > 100, sorted(n for n in ours if n.partition(".")[0] != "dynbatch"))
print(sorted(str(file) for file, n in counts.items() if n > 1))
"""


@pytest.mark.slow
def test_no_module_is_imported_under_two_names() -> None:
    above = (f"{PACKAGE}.harness.commands.", f"{PACKAGE}.plots.")
    adapters = {system.adapter for system in read_systems(CONF_DIR)}
    names = sorted({name for name in MODULES if name.startswith(above)} | adapters)
    done = end_python("-c", TWICE, str(ROOT), *names)
    assert done.stdout == "True []\n[]\n", done.stdout + done.stderr[-2000:]


def list_imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    return names | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}


def test_no_file_imports_a_directory_by_its_own_name() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in list_imports(path)
        if name.partition(".")[0] in FOLDERS
    }
    assert len(files) > 500
    assert wrong == set()


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
