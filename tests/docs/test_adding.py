"""docs/adding.md as a new user follows it: its files are written, its commands run as printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dynbatch.harness.values.paths import ROOT
from tests.support.adding import BLOCK, PAGE, SECTIONS, Section, run_typed

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


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=[section.title for section in SECTIONS])
def test_a_thing_is_added_as_the_page_says(checkout: Path, section: Section) -> None:
    assert [name for name in section.files if (ROOT / name).exists()] == [], "added already"
    section.write(checkout)
    section.follow(checkout, PYTHONPATH=str(checkout), BENCH_DATA=str(checkout / "data"))


@pytest.fixture
def _types_are_known() -> None:
    """Fill mypy's cache for the repository (35 s), so that mypy takes 3 s in a copy.

    tests/whole/test_static.py also does so; the second of the two uses the cache.
    """
    run_typed("python -m mypy", ROOT)


@pytest.mark.slow
@pytest.mark.usefixtures("_types_are_known")
def test_all_examples_together_keep_style_and_types(checkout: Path) -> None:
    for section in SECTIONS:
        section.write(checkout)
    cache = checkout / ".mypy_cache"
    shutil.copytree(ROOT / ".mypy_cache", cache, copy_function=_copy_if_there)
    files = " ".join(f for s in SECTIONS for f in s.files if f.endswith(".py"))
    for command in (f"ruff check {files}", f"ruff format --check {files}", "mypy"):
        run_typed(f"python -m {command}", checkout)


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
