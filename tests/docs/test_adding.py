"""docs/adding.md as a new user follows it: its files are written, its commands run as printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dynbatch.harness.values.paths import ROOT
from tests.support.adding import BLOCK, PAGE, SECTIONS, Section

NEEDED = (
    *("dynbatch", "conf", "datasets", "harness", "plots", "profiles", "src", "systems"),
    *("tests", "workflow"),
)


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file if it exists; other processes may replace compiled code during the copy."""
    if Path(source).exists():
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of all that commands need, including compiled code, without additions."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in NEEDED:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, copy_function=_copy_if_there)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def write(checkout: Path, section: Section) -> None:
    """Write the files of a section, next to those of other sections."""
    for name, text in section.files.items():
        assert not (ROOT / name).exists(), f"{name} is there already"
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(text, encoding="utf-8")


def run(checkout: Path, typed: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout and its environment, without real datasets."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"PATH": path, "PYTHONPATH": str(checkout), "BENCH_DATA": str(checkout / "data")}
    return subprocess.run(
        ["bash", "-c", typed],
        cwd=checkout,
        env=os.environ | ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=[section.title for section in SECTIONS])
def test_a_thing_is_added_as_the_page_says(checkout: Path, section: Section) -> None:
    write(checkout, section)
    for command in section.commands:
        done = run(checkout, command.typed)
        assert done.returncode == 0, f"$ {command.typed}\n{done.stdout}"
        assert command.is_answered_by(done.stdout), f"$ {command.typed}\n{done.stdout}"


@pytest.fixture
def _types_are_known() -> None:
    """Fill mypy's cache for the repository (35 s), so that mypy takes 3 s in a copy.

    tests/whole/test_static.py also does so; the second of the two uses the cache.
    """
    done = run(ROOT, f"{sys.executable} -m mypy")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("_types_are_known")
def test_all_examples_together_keep_style_and_types(checkout: Path) -> None:
    for section in SECTIONS:
        write(checkout, section)
    cache = checkout / ".mypy_cache"
    shutil.copytree(ROOT / ".mypy_cache", cache, copy_function=_copy_if_there)
    files = " ".join(f for s in SECTIONS for f in s.files if f.endswith(".py"))
    for command in (f"ruff check {files}", f"ruff format --check {files}", "mypy"):
        done = run(checkout, f"{sys.executable} -m {command}")
        assert done.returncode == 0, done.stdout


def test_the_page_adds_one_of_each() -> None:
    homes = {name.rpartition("/")[0] for section in SECTIONS for name in section.files}
    python = {"harness/policies", "harness/models", "systems", "datasets", "plots/tables"}
    yaml = {"conf/system", "conf/model", "conf/dataset", "conf/experiment", "conf/claims"}
    assert homes >= python | yaml
    assert all(section.commands for section in SECTIONS)


def test_a_block_without_a_place_is_shown_only_if_it_is_typed() -> None:
    """Each fence of the page is a file with its path, or a console, so that none is skipped."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(page))
    assert page.count("\n```") == 2 * len(blocks)
    assert all(block["path"] or block["kind"] == "console" for block in blocks)
